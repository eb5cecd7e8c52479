"""`hubbub consume`: print one sample a period, and say which slots stayed empty."""

from typing import Annotated

import typer

import hubbub
from hubbub.cli.following import Count, JsonLines, Raw, Timeout, follow, make_writer
from hubbub.cli.options import Bus, on_the_bus
from hubbub.cli.quantities import parse_duration
from hubbub.cli.session import EXIT_LOST, QUEUE_MESSAGES, open_node, tell_of
from hubbub.cli.terminal import note, plural

_TOLD = (
    hubbub.DeadlineMissed, hubbub.PeriodGranted, hubbub.DataTypeMismatch, hubbub.NothingProduced,
)  # fmt: skip


@on_the_bus
def consume(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="What is wanted, such as /vehicle/speed.")
    ],
    period: Annotated[
        str,
        typer.Option("--period", help="How often: 100ms, 2s, 500us; 0s: once.", metavar="DURATION"),
    ],
    count: Count = None,
    one: Annotated[
        bool, typer.Option("--one", help="Of one producer only, if there are several.")
    ] = False,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Of the nearest one only: in this host, or beyond.")
    ] = False,
    of: Annotated[
        str | None,
        typer.Option("--of", metavar="ID[:PORT]", help="Of this producer, or node, alone."),
    ] = None,
    as_json: JsonLines = False,
    raw: Raw = False,
    timeout: Timeout = None,
    *,
    bus: Bus,
) -> None:
    """Print one sample a period of each producer of a subject.

    Exits with 3 when slots stayed empty (stderr says which), with 1 when --timeout ended it before
    anything came, or before -n samples came.
    """
    if one and nearest:
        raise typer.BadParameter("give one of --one and --nearest")
    write = make_writer(as_json=as_json, raw=raw)
    period_us = read_time(period)
    with open_node(bus) as node:
        node.on_event(tell_of(*_TOLD))
        mode = "one" if one else "nearest" if nearest else "all"
        consumer = node.consume(
            subject, period_us=period_us, mode=mode, of=of, queue=QUEUE_MESSAGES
        )
        code = follow(consumer.receive, write, count, timeout)
        statistics = consumer.statistics()
    if statistics.missed:
        note(f"{plural(statistics.missed, 'slot')} of {statistics.subject} stayed empty")
        code = code or EXIT_LOST
    raise typer.Exit(code)


def read_time(text: str) -> int:
    """Return the microseconds of a time such as 100ms."""
    if not text.strip().endswith("s"):  # Some would mean milliseconds by a bare number.
        raise typer.BadParameter(f"{text!r} is no time: write 100ms, 2s or 500us")
    time_us = parse_duration(text.replace(" ", "")) * 1_000_000
    if 0 < time_us < 1:
        raise typer.BadParameter(f"{text!r} is too short: at least 1us, or 0s for one sample")
    return round(time_us)
