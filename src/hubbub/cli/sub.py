"""`hubbub sub`: print what is published, for people, for programs, or as it is."""

import sys
from typing import Annotated, Any

import typer
from msgspec import structs

import hubbub
from hubbub.cli.following import Count, JsonLines, Raw, Timeout, follow, make_writer
from hubbub.cli.options import Bus, on_the_bus
from hubbub.cli.session import EXIT_LOST, QUEUE_MESSAGES, open_node
from hubbub.cli.terminal import note, plural, print_json

_LOSSES = (hubbub.GapAbandoned, hubbub.SlowConsumer)


@on_the_bus
def sub(
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="PATTERN", help='What to receive: "*" is one level, a last "..." the rest.'
        ),
    ],
    count: Count = None,
    as_json: JsonLines = False,
    raw: Raw = False,
    timeout: Timeout = None,
    events: Annotated[
        bool, typer.Option("--events", help="Tell on stderr who comes and goes, and more.")
    ] = False,
    queue: Annotated[
        int, typer.Option(min=1, help="So many messages may wait to be printed.")
    ] = QUEUE_MESSAGES,
    history: Annotated[
        bool, typer.Option("--history", help="First what publishers have kept (their history=).")
    ] = False,
    *,
    bus: Bus,
) -> None:
    """Print the messages of one or more patterns.

    Exits with 3 when a message was lost (stderr says which), with 1 when --timeout ended it before
    anything came, or before -n messages came.
    """
    write = make_writer(as_json=as_json, raw=raw)
    with open_node(bus) as node:
        node.on_event(lambda event: _tell(event, events, as_json))
        subscription = node.subscribe(patterns, queue=queue, copy=True, history=history)
        code = follow(subscription.receive, write, count, timeout)
        lost = subscription.dropped + sum(one.messages_lost for one in node.statistics().channels)
        gaps = sum(one.gaps for one in node.statistics().channels)
    if lost or gaps:
        note(f"{plural(lost, 'message')} lost")
        code = EXIT_LOST
    raise typer.Exit(code)


def _tell(event: hubbub.Event, is_everything_wanted: bool, as_json: bool) -> None:
    if not isinstance(event, _LOSSES) and not is_everything_wanted:
        return
    if as_json:
        print_json({"event": type(event).__name__, **_event_fields(event)}, sys.stderr)
    else:
        note(str(event))


def _event_fields(event: hubbub.Event) -> dict[str, Any]:
    return {name: _plain(value) for name, value in structs.asdict(event).items()}


def _plain(value: Any) -> Any:
    """Write a value of an event with what JSON has."""
    if isinstance(value, hubbub.Source | BaseException):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
