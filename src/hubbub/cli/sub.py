"""`hubbub sub`: print what is published, for people, for programs, or as it is."""

import shutil
import sys
import time
from dataclasses import fields
from typing import Annotated, Any

import typer

import hubbub
from hubbub.cli.formats import Write, message_json, message_line
from hubbub.cli.options import Domain, Interface, Log, Peers
from hubbub.cli.screen import refuse_if_nobody_reads, write_until_the_end
from hubbub.cli.session import EXIT_INTERRUPTED, EXIT_LOST, open_node
from hubbub.cli.terminal import note, plural, print_json

QUEUE_MESSAGES = 100_000
# How often a command that waits looks whether anybody still reads what it prints.
_LOOK_S = 0.5
_PIPED_COLUMNS = 4096
_LOSSES = (hubbub.GapAbandoned, hubbub.SlowConsumer)


def sub(
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="PATTERN...", help='What to receive: "*" is one level, a last "..." the rest.'
        ),
    ],
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after so many messages.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a message.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The bytes of the payloads alone.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="End when no message came for so long."),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Tell on stderr who comes and goes, and more.")
    ] = False,
    queue: Annotated[
        int, typer.Option(min=1, help="So many messages may wait to be printed.")
    ] = QUEUE_MESSAGES,
    history: Annotated[
        bool, typer.Option("--history", help="First what publishers have kept (their history=).")
    ] = False,
    domain: Domain = None,
    interface: Interface = None,
    peers: Peers = None,
    log: Log = None,
) -> None:
    """Print the messages of one or more patterns.

    Exits with 3 when a message was lost (stderr says which), with 1 when --timeout ended it before
    anything came, or before -n messages came.
    """
    if as_json and raw:
        raise typer.BadParameter("give one of --json and --raw")
    with open_node(domain, interface, log, peers) as node:
        node.on_event(lambda event: _tell(event, events, as_json))
        subscription = node.subscribe(patterns, queue=queue, copy=True, history=history)
        code = _follow(subscription, _writer(as_json, raw), count, timeout)
        lost = subscription.dropped + sum(one.messages_lost for one in node.statistics().channels)
        gaps = sum(one.gaps for one in node.statistics().channels)
    if lost or gaps:
        note(f"{plural(lost, 'message')} lost")
        code = EXIT_LOST
    raise typer.Exit(code)


def _writer(as_json: bool, raw: bool) -> Write:
    """Choose how a message is written."""
    out = sys.stdout
    if raw:
        return lambda message: out.buffer.write(message.payload)
    if as_json:
        return lambda message: out.write(message_json(message))
    if not out.isatty():
        return lambda message: out.write(message_line(message, _PIPED_COLUMNS))
    return lambda message: out.write(message_line(message, shutil.get_terminal_size().columns))


def _follow(
    subscription: hubbub.Subscription, write: Write, count: int | None, timeout_s: float | None
) -> int:
    """Write messages until the end, and return the exit code."""

    def work() -> int:
        try:
            seen = _write_all(subscription, write, count, timeout_s)
            sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stdout.flush()
            return EXIT_INTERRUPTED
        return 1 if seen < (count or 1) else 0

    return write_until_the_end(work)


def _write_all(
    subscription: hubbub.Subscription, write: Write, count: int | None, timeout_s: float | None
) -> int:
    seen = 0
    while count is None or seen < count:
        message = subscription.receive(0)
        if message is None:
            sys.stdout.flush()  # Only now: while there is more, whole buffers are written.
            message = _wait(subscription, timeout_s)
            if message is None:
                break
        write(message)
        seen += 1
    return seen


def _wait(subscription: hubbub.Subscription, timeout_s: float | None) -> hubbub.Message | None:
    """Wait for a message, and look now and then whether somebody still reads our output."""
    end_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = end_s - time.monotonic()
        message = subscription.receive(max(0.0, min(left_s, _LOOK_S)))
        if message is not None or left_s <= _LOOK_S:
            return message
        refuse_if_nobody_reads()


def _tell(event: hubbub.Event, is_everything_wanted: bool, as_json: bool) -> None:
    if not isinstance(event, _LOSSES) and not is_everything_wanted:
        return
    if as_json:
        print_json({"event": type(event).__name__, **_event_fields(event)}, sys.stderr)
    else:
        note(str(event))


def _event_fields(event: hubbub.Event) -> dict[str, Any]:
    return {field.name: _plain(getattr(event, field.name)) for field in fields(event)}


def _plain(value: Any) -> Any:
    """Write a value of an event with what JSON has."""
    if isinstance(value, hubbub.Source | BaseException):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
