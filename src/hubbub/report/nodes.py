"""From `node_timeline`, `traffic_matrix` and `service_managers` to who was there and who talked."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import REPORT_MARKS_MAX, REPORT_ROWS_MAX
from hubbub.report.figures import Clock, Elsewhere, Flow, Lane, Manager, Mark, Slow, Stay
from hubbub.report.losses import to_us
from hubbub.report.words import who

JOINED, LEFT, SLOW = "PeerJoined", "PeerLeft", "SlowConsumer"
DROPPED, LOST = "ConsumerDropped", "MessagesLost"  # As another node told it of itself.
# Everyday life: who publishes and wants what is shown by the traffic itself.
_QUIET = (
    *("PublishBegun", "PublishEnded", "SubscriptionBegun", "SubscriptionEnded"),
    *("PublisherMatched", "PublisherUnmatched", "SubscriberMatched", "SubscriberUnmatched"),
)
RECORDER = "in the recorder's own node"
_LISTENS_TO = "/hubbub/events/*"  # Every recorder does, as long as it records.
_SUBJECTS_SHOWN = 8


def list_lanes(timeline: pa.Table, clock: Clock) -> tuple[tuple[Lane, ...], int]:
    """Return the lives of the nodes in the order in which they came, and how many there are."""
    table = _by_time(timeline)
    # A node of which only everyday life is known has nothing to show.
    told = table.filter(pc.invert(pc.is_in(table["kind"], value_set=pa.array(_QUIET))))
    nodes = told.group_by("node_id", use_threads=False).aggregate([("node_name", "max")])
    is_stay = pc.is_in(table["kind"], value_set=pa.array([JOINED, LEFT]))
    is_known = pc.is_in(table["kind"], value_set=pa.array([JOINED, LEFT, *_QUIET]))
    stays = _by_node(table.filter(is_stay).to_pylist())
    marks = _by_node(_merge(table.filter(pc.invert(is_known)), clock))
    lanes = [
        Lane(
            node=who(row["node_name_max"], row["node_id"]),
            node_id=row["node_id"],
            stays=tuple(_stays(stays.get(row["node_id"], []))),
            marks=tuple(_mark(one) for one in marks.get(row["node_id"], []))[:REPORT_MARKS_MAX],
        )
        for row in nodes.slice(0, REPORT_ROWS_MAX).to_pylist()
    ]
    return tuple(lanes), len(nodes)


def _by_time(timeline: pa.Table) -> pa.Table:
    is_whole = [pc.is_valid(timeline[name]) for name in ("node_id", "time_ns", "kind")]
    table = timeline.filter(pc.and_(pc.and_(is_whole[0], is_whole[1]), is_whole[2]))
    table = table.sort_by([("time_ns", "ascending"), ("number", "ascending")])
    return table.append_column("time_us", pc.divide(table["time_ns"], 1000))


def _by_node(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["node_id"], []).append(row)
    return found


def _stays(rows: Iterable[Mapping[str, Any]]) -> Iterable[Stay]:
    here: Stay | None = None
    is_first = True
    for row in rows:
        told = read_detail(row["detail"])
        if row["kind"] == LEFT:
            stay = here or Stay(None, None, None)
            yield replace(stay, last_us=row["time_us"], ended=told.get("reason") or "left")
            here = None
        elif here is None:
            # One that was given up and comes back was away in between.
            was_there = is_first and told.get("was_there") is True
            here = Stay(row["time_us"], None, None, was_there)
        is_first = False
    if here is not None:
        yield here


def _merge(table: pa.Table, clock: Clock) -> list[dict[str, Any]]:
    """Make one of the events of one kind that a picture would show in the same place."""
    column = pc.divide(pc.subtract(table["time_us"], clock.grid_us), clock.column_us)
    table = table.append_column("column", column)
    merged = table.group_by(["node_id", "kind", "column"]).aggregate(
        [("time_us", "min"), ("detail", "min"), ([], "count_all")]
    )
    rows: list[dict[str, Any]] = merged.sort_by("time_us_min").to_pylist()
    return rows


def _mark(row: Mapping[str, Any]) -> Mark:
    return Mark(row["time_us_min"], row["kind"], row["detail_min"] or "", row["count_all"])


def read_detail(detail: str | None) -> Mapping[str, Any]:
    """Read an event that was kept as JSON; anything else tells nothing."""
    try:
        read = json.loads(detail or "{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _count(told: Mapping[str, Any], name: str) -> int:
    """Read a number of an event; anything else counts for nothing."""
    value = told.get(name)
    return value if isinstance(value, int) else 0


def has_ended(timeline: pa.Table) -> bool:
    """Tell whether the last recorder has stopped listening; one that was killed never did.

    Its own node is the only one that no link leads to.
    """
    kinds = pa.array(["SubscriptionBegun", "SubscriptionEnded"])
    table = _by_time(timeline.filter(pc.is_in(timeline["kind"], value_set=kinds)))
    heard = pc.match_substring(pc.fill_null(table["detail"], ""), _LISTENS_TO)
    for row in reversed(table.filter(heard).to_pylist()):
        told = read_detail(row["detail"])
        if told.get("subject") == _LISTENS_TO and not told.get("link"):
            return bool(row["kind"] == "SubscriptionEnded")
    return False


def list_slow(timeline: pa.Table) -> tuple[Slow, ...]:
    """Add up what the bus told of each consumer that could not keep up.

    Another node tells of its own subscriptions. Where neither it nor a peer is named, it was one of
    the recorder's own node that dropped: one row for each range of messages, all of one event and
    about their publisher.
    """
    table = _by_time(timeline.filter(pc.is_in(timeline["kind"], pa.array([SLOW, DROPPED]))))
    table = table.group_by(["time_us", "kind", "detail"], use_threads=False).aggregate(
        [("node_id", "min"), ("node_name", "min")]
    )
    found: dict[tuple[str, str, str], Slow] = {}
    for row in table.to_pylist():
        told = read_detail(row["detail"])
        is_named = row["kind"] == DROPPED or told.get("peer")
        node = who(row["node_name_min"], row["node_id_min"]) if is_named else RECORDER
        key = (node, str(told.get("policy") or ""), str(told.get("subscription") or ""))
        before = found.get(key, Slow(*key, 0, 0, row["time_us"], 0))
        found[key] = replace(
            before,
            dropped=before.dropped + _count(told, "dropped"),
            reports=before.reports + 1,
            last_us=row["time_us"],
        )
    return tuple(sorted(found.values(), key=lambda one: (-one.dropped, one.first_us)))


def list_elsewhere(timeline: pa.Table) -> tuple[Elsewhere, ...]:
    """Add up what other nodes told that they lost; the most first."""
    table = _by_time(timeline.filter(pc.equal(timeline["kind"], LOST)))
    found = []
    for rows in _by_node(table.to_pylist()).values():
        messages = sum(_count(read_detail(row["detail"]), "lost") for row in rows)
        node = who(rows[0]["node_name"], rows[0]["node_id"])
        found.append(Elsewhere(node, messages, rows[0]["time_us"], rows[-1]["time_us"]))
    return tuple(sorted(found, key=lambda one: (-one.messages, one.node)))


def list_flows(matrix: pa.Table) -> tuple[Flow, ...]:
    """Add up what each node sent to each other; the most first."""
    keys = ["source_id", "receiver_id"]
    sums = matrix.group_by(keys).aggregate(
        [
            *(("messages", "sum"), ("bytes", "sum"), ("subject", "distinct")),
            *(("source_name", "max"), ("receiver_name", "max")),
        ]
    )
    rows = sums.sort_by([("messages_sum", "descending")]).slice(0, REPORT_ROWS_MAX).to_pylist()
    return tuple(
        Flow(
            source=who(row["source_name_max"], row["source_id"]),
            receiver=who(row["receiver_name_max"], row["receiver_id"]),
            messages=row["messages_sum"] or 0,
            bytes=row["bytes_sum"] or 0,
            subjects=tuple(sorted(filter(None, row["subject_distinct"]))[:_SUBJECTS_SHOWN]),
            subjects_in_all=len(row["subject_distinct"]),
        )
        for row in rows
    )


def list_managers(services: pa.Table) -> tuple[Manager, ...]:
    """Return who managed which service, service by service in the order of their epochs."""
    rows = to_us(services, "since", "until").sort_by(
        [("service", "ascending"), ("epoch", "ascending")]
    )
    return tuple(
        Manager(
            service=row["service"] or "",
            epoch=row["epoch"] or 0,
            manager=who(row["manager_name"], row["manager_id"]),
            since_us=row["since"],
            until_us=row["until"],
            messages=row["messages"] or 0,
        )
        for row in rows.slice(0, REPORT_ROWS_MAX).to_pylist()
    )


def add_up_counters(counters: pa.Table) -> dict[str, int]:
    """Add up what the recorder's own node counted; what it counted of its peers is in windows."""
    own = counters.filter(pc.equal(counters["node_id"], ""))
    sums = own.group_by("name").aggregate([("added", "sum")]).to_pydict()
    return dict(sorted(zip(sums["name"], sums["added_sum"], strict=True)))


def count_nodes(*columns: pa.ChunkedArray) -> int:
    """Count the nodes that are named anywhere."""
    return len({one for column in columns for one in pc.unique(column).to_pylist() if one})
