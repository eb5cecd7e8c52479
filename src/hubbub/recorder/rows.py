"""Rows of the tables beside messages: from events, peers and counters to plain values."""

from collections.abc import Iterator
from os import getpid
from socket import gethostname
from typing import Any

import msgspec

from hubbub.awareness import RemotePeer
from hubbub.events import Event, GapAbandoned, PayloadRejected, SlowConsumer
from hubbub.message import Source
from hubbub.node import Node
from hubbub.runtime.tally import Loss

Values = dict[str, Any]
EVENTS = "events"
ANNOUNCEMENTS = "announcements"
COUNTERS = "counters"
LOST = "RecorderLost"


def event_rows(event: Event, time_ns: int, *, was_there: bool = False) -> Iterator[Values]:
    """Describe an event: one row, or one for each range of messages that it tells of.

    `was_there`: of a node that joined, that it did so before there was a recorder.
    """
    told = msgspec.structs.asdict(event) | ({"was_there": True} if was_there else {})
    detail = to_json(told)
    kind = type(event).__name__
    about = next((value for value in told.values() if isinstance(value, Source)), None)
    if isinstance(event, SlowConsumer | PayloadRejected) and event.ranges:
        for subject, source, first, last in event.ranges:
            yield event_row(time_ns, kind, detail, source, subject, first, last)
        return
    row = event_row(
        time_ns, kind, detail, about, told.get("subject"), told.get("first"), told.get("last")
    )
    if isinstance(event, SlowConsumer):
        row["count"] = event.dropped
    if isinstance(event, GapAbandoned) and event.subject is None:
        # Frames whose content nobody knows any more; their numbers are none of messages.
        row["first_sequence"] = row["last_sequence"] = row["count"] = None
    yield row


def event_row(
    time_ns: int,
    kind: str,
    detail: str,
    about: Source | None = None,
    subject: str | None = None,
    first: int | None = None,
    last: int | None = None,
) -> Values:
    """Make one row of the events."""
    count = None if first is None or last is None else last - first + 1
    return {
        "time_ns": time_ns,
        "kind": kind,
        **_node_values(about),
        "subject": subject,
        "first_sequence": first,
        "last_sequence": last,
        "count": count,
        "detail": detail,
    }


def own_event_row(time_ns: int, kind: str, /, **told: Any) -> Values:
    """Make a row of what happened to the recorder itself."""
    return event_row(time_ns, kind, to_json(told)) | {"count": told.get("count")}


def loss_rows(loss: Loss, time_ns: int) -> Iterator[Values]:
    """Say what there was no room for: each range, and how many more that are in no range."""
    listed = 0
    for subject, source, first, last in loss.ranges:
        listed += last - first + 1
        told = {"subject": subject, "source": source, "first": first, "last": last}
        yield event_row(time_ns, LOST, to_json(told), source, subject, first, last)
    if listed < loss.messages:
        yield own_event_row(time_ns, LOST, count=loss.messages - listed)


Announced = tuple[str, int, str, str]  # Node, incarnation, role, subject or pattern.


def announcements_of(peers: tuple[RemotePeer, ...]) -> dict[Announced, Values]:
    """List who publishes and wants what, without saying when."""
    found: dict[Announced, Values] = {}
    for peer in peers:
        place = {
            **_node_values(peer.node), "host": peer.host, "pid": peer.pid, "link": peer.link
        }  # fmt: skip
        node = (peer.node.id.hex(), peer.node.incarnation)
        for pattern in peer.patterns:
            found[*node, "subscriber", pattern] = _announce(place, "subscriber", pattern, None)
        for one in peer.publications:
            found[*node, "publisher", one.subject] = _announce(
                place, "publisher", one.subject, one.schema or None
            )
    return found


def announcements_of_node(node: Node) -> dict[Announced, Values]:
    """List what our own node wants and publishes."""
    statistics = node.statistics()
    place = {
        **_node_values(node.identity.source), "host": gethostname(), "pid": getpid(), "link": None
    }  # fmt: skip
    key = (node.id.hex(), statistics.incarnation)
    patterns = {pattern for one in statistics.subscriptions for pattern in one.patterns}
    found = {
        (*key, "subscriber", pattern): _announce(place, "subscriber", pattern, None)
        for pattern in sorted(patterns)
    }
    for channel in statistics.channels:
        for topic in channel.topics:
            if topic.is_own:
                found[*key, "publisher", topic.subject] = _announce(
                    place, "publisher", topic.subject, topic.schema or None
                )
    return found


def _announce(place: Values, role: str, subject: str, schema: str | None) -> Values:
    return {**place, "role": role, "subject": subject, "schema": schema}


def announcement_rows(
    before: dict[Announced, Values], now: dict[Announced, Values], time_ns: int
) -> Iterator[Values]:
    """Tell what has changed between two looks."""
    for key, values in now.items():
        if before.get(key) != values:
            yield {"time_ns": time_ns, **values, "is_present": True}
    for key, values in before.items():
        if key not in now:
            yield {"time_ns": time_ns, **values, "is_present": False}


def counter_row(
    time_ns: int, since_ns: int, about: Source | None, link: str | None, name: str, value: int
) -> Values:
    """Make one row of the counters: what was counted since a recorder began."""
    counted = {"link": link, "name": name, "value": value, "since_ns": since_ns}
    return {"time_ns": time_ns, **_node_values(about), **counted}


def _node_values(source: Source | None) -> Values:
    if source is None:
        return {"node_name": None, "node_id": None, "incarnation": None}
    return {
        "node_name": source.name,
        "node_id": source.id.hex(),
        "incarnation": source.incarnation,
    }


def to_json(told: Values) -> str:
    """Write what an event tells."""
    return msgspec.json.encode({name: _plain(value) for name, value in told.items()}).decode()


def _plain(value: Any) -> Any:
    """Make of a value what JSON can say."""
    if isinstance(value, Source):
        return {"name": value.name, "id": value.id.hex(), "incarnation": value.incarnation}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return repr(value)
