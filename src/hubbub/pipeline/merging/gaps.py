"""Holes in what was received, exactly, and who reported them.

A sequence is missing if messages before and behind it were received, or if somebody reported it
lost. A recorder that comes late is owed nothing earlier, so nothing is missing before the first
message, unless it was reported; the same holds behind the last one. Nor is it owed what came while
it did not run: a hole in which a recorder was started is nobody's loss, and is listed as its pause.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.pipeline.merging.groups import (
    TOPIC,
    UNKNOWN,
    Flags,
    Numbers,
    grouped,
    nanoseconds,
    numbered,
    numbers,
    ranked,
    timestamps,
    united,
)
from hubbub.pipeline.tables import SHAPES

QUARANTINED: Final = "Quarantined"
# Who lost what these report; the first that holds is told.
LOST_BY: Final = {
    "RecorderLost": "recorder",
    "SlowConsumer": "recorder",
    QUARANTINED: "recorder",
    "GapAbandoned": "bus",
    "PayloadRejected": "bus",
}
PAUSED: Final = "RecorderStarted"
_NOBODY: Final = len(LOST_BY)
_KINDS: Final = (*LOST_BY, None, PAUSED)
_COLUMNS: Final = SHAPES["gaps"].columns


class _Points(NamedTuple):
    """Sequences at which something begins or ends, in order: all arrays are of one length."""

    rows: Numbers  # One row of the table that has this topic.
    topics: Numbers
    sequence: Numbers
    depths: list[Numbers]  # What there is from here on: received, then by each kind of report.
    begun_ns: Numbers
    ended_ns: Numbers


def gaps(runs: Any, reports: Any, starts: Any) -> Any:
    """List the holes; one that several reported in parts is several."""
    known = _both(runs, reports)
    if not known.num_rows:
        return _COLUMNS.empty_table()
    points = _points(known)
    is_last = np.append(points.topics[1:] != points.topics[:-1], True)
    last = np.append(points.sequence[1:], 0) - 1
    after_ns = _filled(points.ended_ns, points.topics)
    before_ns = _filled(points.begun_ns[::-1], points.topics[::-1])[::-1]
    kinds = _kinds(points.depths[1:])
    is_between = (after_ns != UNKNOWN) & (before_ns != UNKNOWN)
    is_told = kinds < _NOBODY
    is_paused = ~is_told & is_between & _has_start(numbers(starts["time_ns"]), after_ns, before_ns)
    kinds[is_paused] = _KINDS.index(PAUSED)
    is_hole = (points.depths[0] == 0) & ~is_last & (is_between | is_told)
    return _listed(known, points, kinds, last, after_ns, before_ns, np.flatnonzero(is_hole))


def lost_by_window(found: Any, window_ns: int) -> Any:
    """Count what is missing in the window of the message behind it, else of the one before."""
    is_owed = pc.fill_null(pc.not_equal(found["reported_as"], PAUSED), True)
    found = found.filter(is_owed)
    seen_ns = nanoseconds(pc.coalesce(found["before"], found["after"]))
    is_seen = seen_ns != UNKNOWN
    some = found.filter(pa.array(is_seen)).select([*TOPIC, "count"])
    windows = seen_ns[is_seen] - seen_ns[is_seen] % window_ns
    return grouped(
        some.append_column("window_ns", pa.array(windows)), ("window_ns", *TOPIC), sums=("count",)
    ).rename_columns(["window_ns", *TOPIC, "lost"])


def changed(before: Any, after: Any) -> Any:
    """Return the holes that are in one of the two only."""
    both = united(before, after)
    groups = numbered(both, both.column_names)
    change = np.zeros(groups.total, dtype=np.int64)
    side = np.where(np.arange(both.num_rows) < before.num_rows, -1, 1)
    np.add.at(change, groups.ids, side)
    return both.filter(pa.array(change[groups.ids] != 0))


def _both(runs: Any, reports: Any) -> Any:
    """Put runs and reports below each other; `place` is 0 for what was received."""
    names = [*TOPIC, "source_name", "first", "last"]
    none = pa.nulls(reports.num_rows, pa.int64())
    told = reports.select(names).append_column("first_ns", none).append_column("last_ns", none)
    kinds = pc.index_in(reports["kind"], pa.array(list(LOST_BY)))
    place = np.append(np.zeros(runs.num_rows, dtype=np.int64), numbers(kinds) + 1)
    both = united(runs.select([*names, "first_ns", "last_ns"]), told)
    return both.append_column("place", pa.array(place))


def _points(known: Any) -> _Points:
    topics, place = numbered(known, TOPIC).ids, numbers(known["place"])
    rows = np.tile(np.arange(known.num_rows), 2)
    sequence = np.append(numbers(known["first"]), numbers(known["last"]) + 1)
    change = np.repeat([1, -1], known.num_rows)
    none = np.full(known.num_rows, UNKNOWN, dtype=np.int64)
    begun_ns = np.append(numbers(known["first_ns"], UNKNOWN), none)
    ended_ns = np.append(none, numbers(known["last_ns"], UNKNOWN))
    order = np.lexsort((sequence, topics[rows]))
    sequence, topic = sequence[order], topics[rows][order]
    is_new = np.append(True, (sequence[1:] != sequence[:-1]) | (topic[1:] != topic[:-1]))
    begins = np.flatnonzero(is_new)
    # What begins in a topic ends in it, so one sum over all topics is the sum of each.
    depths = [
        np.cumsum(np.add.reduceat(np.where(place[rows] == kind, change, 0)[order], begins))
        for kind in range(len(LOST_BY) + 1)
    ]
    times = (np.maximum.reduceat(column[order], begins) for column in (begun_ns, ended_ns))
    return _Points(rows[order][begins], topic[begins], sequence[begins], depths, *times)


def _kinds(depths: list[Numbers]) -> Numbers:
    """Return the place of the first kind of report that holds; behind the last: none does."""
    found = np.full(len(depths[0]), _NOBODY, dtype=np.int64)
    for kind in reversed(range(len(LOST_BY))):
        found[depths[kind] > 0] = kind
    return found


def _has_start(starts_ns: Numbers, after_ns: Numbers, before_ns: Numbers) -> Flags:
    """Tell where a recorder was started between two times."""
    starts_ns = np.append(np.sort(starts_ns), np.iinfo(np.int64).max)
    is_in: Flags = starts_ns[np.searchsorted(starts_ns, after_ns)] <= before_ns
    return is_in


def _filled(times_ns: Numbers, topics: Numbers) -> Numbers:
    """Carry each time on to the points behind it that know none, within a topic."""
    places = np.arange(len(times_ns))
    known = np.maximum.accumulate(np.where(times_ns != UNKNOWN, places, -1))
    is_there = (known >= 0) & (topics[known] == topics)
    return np.where(is_there, times_ns[known], UNKNOWN)


def _listed(
    known: Any, points: _Points, kinds: Numbers, last: Numbers, after_ns: Numbers,
    before_ns: Numbers, holes: Numbers,
) -> Any:  # fmt: skip
    """Make rows of the holes; neighbours that the same kind of event reported are one."""
    if not len(holes):
        return _COLUMNS.empty_table()
    topics, first, kind = points.topics[holes], points.sequence[holes], kinds[holes]
    is_same: Flags = (
        (topics[1:] == topics[:-1]) & (last[holes][:-1] == first[1:] - 1) & (kind[1:] == kind[:-1])
    )
    begins = np.flatnonzero(np.append(True, ~is_same))
    ends = np.append(begins[1:], len(holes)) - 1
    rows = points.rows[holes][begins]
    columns = {name: known[name].take(pa.array(rows)) for name in TOPIC}
    last_sequence, first_sequence = last[holes][ends], first[begins]
    told = pa.array([_KINDS[place] for place in kind[begins]], pa.string())
    columns |= {
        "first_sequence": pa.array(first_sequence),
        "last_sequence": pa.array(last_sequence),
        "count": pa.array(last_sequence - first_sequence + 1),
        "source_name": _names(known).take(pa.array(rows)),
        "after": timestamps(np.maximum.reduceat(after_ns[holes], begins)),
        "before": timestamps(np.maximum.reduceat(before_ns[holes], begins)),
        "reported": told.is_valid(),
        "reported_as": told,
        "lost_by": pa.array([_lost_by(kind) for kind in told.to_pylist()]),
    }
    return pa.table({name: columns[name] for name in _COLUMNS.names})


def _lost_by(kind: str | None) -> str:
    return "recorder" if kind == PAUSED else LOST_BY.get(kind or "", "unknown")


def _names(known: Any) -> Any:
    """Return the name of the source of each row: one that any row of the source knows."""
    sources = numbered(known, ("source_id", "incarnation"))
    codes, names = ranked(known["source_name"])
    found = np.full(sources.total, UNKNOWN, dtype=np.int64)
    np.maximum.at(found, sources.ids, codes)
    named = found[sources.ids]
    return names.take(pa.array(named, mask=named == UNKNOWN))
