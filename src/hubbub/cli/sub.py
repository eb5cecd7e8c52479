"""`hubbub sub`: print what is published, for people, for programs, or as it is."""

import sys
from functools import partial
from typing import Annotated, Any

import typer
from msgspec import structs

import hubbub
from hubbub.cli.following import Count, JsonLines, Raw, Timeout, follow, make_writer
from hubbub.cli.looking import describe_silence
from hubbub.cli.options import Bus, on_the_bus
from hubbub.cli.session import EXIT_LOST, QUEUE_MESSAGES, open_node
from hubbub.cli.terminal import note, plural, print_json

_SCHEMAS_MAX = 10_000
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
    with open_node(bus) as node:
        write = make_writer(as_json=as_json, raw=raw, schema_of=_Schemas(node).of)
        node.on_event(lambda event: _tell(event, events, as_json))
        subscription = node.subscribe(patterns, queue=queue, copy=True, history=history)
        silence = partial(_tell_silence, node, patterns)
        code = follow(subscription.receive, write, count, timeout, silence)
        lost = subscription.dropped + sum(one.messages_lost for one in node.statistics().channels)
        gaps = sum(one.gaps for one in node.statistics().channels)
    if lost or gaps:
        note(f"{plural(lost, 'message')} lost")
        code = EXIT_LOST
    raise typer.Exit(code)


def _tell_silence(node: hubbub.Node, patterns: list[str]) -> None:
    note(describe_silence(node, patterns))


class _Schemas:
    """The types that publishers declare, looked up once for each of them and each subject."""

    def __init__(self, node: hubbub.Node) -> None:
        self._node = node
        self._known: dict[tuple[bytes, str], str] = {}

    def of(self, message: hubbub.Message) -> str:
        """Name the type of a message; empty: none, or its publisher is beyond a gateway."""
        key = message.source.id, message.subject
        schema = self._known.get(key)
        if schema is None:
            if len(self._known) >= _SCHEMAS_MAX:
                self._known.clear()
            declared = {
                (peer.node.id, one.subject): one.schema
                for peer in self._node.peers()
                for one in peer.publications
            }
            schema = self._known[key] = declared.get(key, "")
        return schema


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
