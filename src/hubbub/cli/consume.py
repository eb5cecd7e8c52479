"""`hubbub consume`: print one sample a period, and say which slots stayed empty."""

import re
import shutil
import sys
from typing import Annotated

import typer

import hubbub
from hubbub.cli.formats import Write, message_json, message_line
from hubbub.cli.options import Domain, Interface, Log, Peers
from hubbub.cli.screen import refuse_if_nobody_reads, write_until_the_end
from hubbub.cli.session import EXIT_INTERRUPTED, EXIT_LOST, open_node
from hubbub.cli.terminal import note, plural

_LOOK_S = 0.5
_PIPED_COLUMNS = 4096
_UNITS_US = {"us": 1, "ms": 1000, "s": 1_000_000}


def consume(
    subject: Annotated[str, typer.Argument(help="What is wanted, such as /vehicle/speed.")],
    period: Annotated[
        str, typer.Option("--period", help="How often: 100ms, 2s, 500us.", metavar="TIME")
    ],
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after so many samples.")
    ] = None,
    one: Annotated[
        bool, typer.Option("--one", help="Of one producer only, if there are several.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a sample.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The bytes of the samples alone.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="End when no sample came for so long."),
    ] = None,
    domain: Domain = None,
    interface: Interface = None,
    peers: Peers = None,
    log: Log = None,
) -> None:
    """Print one sample a period of each producer of a subject.

    Exits with 3 when slots stayed empty (stderr says which), with 1 when --timeout ended it before
    anything came, or before -n samples came.
    """
    if as_json and raw:
        raise typer.BadParameter("give one of --json and --raw")
    period_us = read_time(period)
    with open_node(domain, interface, log, peers) as node:
        node.on_event(_tell)
        mode = "one" if one else "all"
        consumer = node.consume(subject, period_us=period_us, mode=mode, queue=100_000)
        code = write_until_the_end(lambda: _follow(consumer, _writer(as_json, raw), count, timeout))
        statistics = consumer.statistics()
    if statistics.missed:
        note(f"{plural(statistics.missed, 'slot')} of {statistics.subject} stayed empty")
        code = code or EXIT_LOST
    raise typer.Exit(code)


def read_time(text: str) -> int:
    """Return the microseconds of a time such as 100ms."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(us|ms|s)", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no time: write 100ms, 2s or 500us")
    return round(float(match[1]) * _UNITS_US[match[2]])


def _writer(as_json: bool, raw: bool) -> Write:
    out = sys.stdout
    if raw:
        return lambda message: out.buffer.write(message.payload)
    if as_json:
        return lambda message: out.write(message_json(message))
    columns = shutil.get_terminal_size().columns if out.isatty() else _PIPED_COLUMNS
    return lambda message: out.write(message_line(message, columns))


def _follow(
    consumer: hubbub.Consumer, write: Write, count: int | None, timeout_s: float | None
) -> int:
    seen, waited_s = 0, 0.0
    try:
        while count is None or seen < count:
            message = consumer.receive(_LOOK_S if timeout_s is None else min(_LOOK_S, timeout_s))
            if message is not None:
                write(message)
                sys.stdout.flush()
                seen, waited_s = seen + 1, 0.0
                continue
            waited_s += _LOOK_S
            if timeout_s is not None and waited_s >= timeout_s:
                break
            refuse_if_nobody_reads()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 1 if seen < (count or 1) else 0


def _tell(event: hubbub.Event) -> None:
    if isinstance(event, hubbub.DeadlineMissed | hubbub.PeriodGranted):
        note(str(event))
