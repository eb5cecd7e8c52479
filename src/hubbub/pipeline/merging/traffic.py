"""Who talks to whom: each receiver is given what was published while it wanted it.

What a recorder knew of others ends when the next one of its store starts, which tells anew who is
there. A recorder that was killed told nothing of its own end, so that ends its stay, too. Of one
that was killed and its successor one had each message, not both: a window in which both were there
is given to the first of them, which no later row can change.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.pipeline.merging.groups import (
    UNKNOWN,
    Numbers,
    coded,
    grouped,
    nanoseconds,
    numbered,
    numbers,
)
from hubbub.pipeline.tables import SHAPES
from hubbub.subjects import matches

_COLUMNS: Final = SHAPES["traffic_matrix"].columns
_NODE: Final = ("node_id", "incarnation")
_NEVER: Final = np.iinfo(np.int64).max


class _Stays(NamedTuple):
    """Stays of nodes with a pattern: which row of the announcements, and until when."""

    rows: Numbers
    from_ns: Numbers
    until_ns: Numbers
    recorders: Numbers
    """Which recorder's own node it is; UNKNOWN: another node."""


def traffic(health: Any, presence: Any, starts: Any) -> Any:
    """Give each receiver what was published while it wanted it, by windows."""
    stays = _stays(presence, starts)
    rows, stay = _pairs(health, presence, stays)
    start_ns, end_ns = nanoseconds(health["window_start"]), nanoseconds(health["window_end"])
    is_there = (stays.from_ns[stay] < end_ns[rows]) & (stays.until_ns[stay] > start_ns[rows])
    rows, stay = _one_recorder_a_window(rows[is_there], stay[is_there], stays)
    names = ("window_start", "source_id", "incarnation", "subject", "source_name")
    columns = {name: health[name].take(pa.array(rows)) for name in (*names, "messages", "bytes")}
    receivers = pa.array(stays.rows[stay])
    columns["receiver_id"] = presence["node_id"].take(receivers)
    columns["receiver_name"] = presence["node_name"].take(receivers)
    keys = ("window_start", "source_id", "incarnation", "subject", "receiver_id")
    # A receiver with two patterns for a subject gets its messages once.
    once = grouped(
        pa.table(columns), keys,
        greatest=("source_name", "receiver_name", "messages", "bytes"),
    )  # fmt: skip
    found = grouped(
        once, ("window_start", "source_id", "subject", "receiver_id"),
        sums=("messages", "bytes"), greatest=("source_name", "receiver_name"),
    )  # fmt: skip
    return found.filter(pc.greater(found["messages"], 0)).select(_COLUMNS.names)


def _pairs(health: Any, presence: Any, stays: _Stays) -> tuple[Numbers, Numbers]:
    """Pair each row of topic_health with the stays whose pattern its subject matches."""
    subject_of, subjects = coded(health["subject"])
    pattern_of, patterns = coded(presence["subject"].take(pa.array(stays.rows)))
    by_subject = np.argsort(subject_of, kind="stable")
    bounds = np.searchsorted(subject_of[by_subject], np.arange(len(subjects) + 1))
    rows, stay = [by_subject[:0]], [by_subject[:0]]
    for place, subject in enumerate(subjects.to_pylist()):
        wanted = [matches(pattern, subject) for pattern in patterns.to_pylist()]
        found = np.flatnonzero(np.array(wanted, dtype=bool)[pattern_of])
        mine = by_subject[bounds[place] : bounds[place + 1]]
        rows.append(np.repeat(mine, len(found)))
        stay.append(np.tile(found, len(mine)))
    return np.concatenate(rows), np.concatenate(stay)


def _one_recorder_a_window(rows: Numbers, stay: Numbers, stays: _Stays) -> tuple[Numbers, Numbers]:
    """Leave out the recorders that came while an earlier one of their store had the window."""
    order = np.lexsort((stays.from_ns[stay], stays.recorders[stay], rows))
    rows, stay = rows[order], stay[order]
    recorders = stays.recorders[stay]
    is_first = np.append(True, (np.diff(rows) != 0) | (np.diff(recorders) != 0))[: len(rows)]
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    is_earliest = stays.from_ns[stay] == stays.from_ns[stay][first]
    is_taken = (recorders == UNKNOWN) | is_earliest
    return rows[is_taken], stay[is_taken]


def _stays(presence: Any, starts: Any) -> _Stays:
    """Turn beginnings and ends into stays of a node with a pattern."""
    is_wanted = np.asarray(presence["subject"].is_valid())
    time_ns = numbers(presence["time_ns"])
    is_present = numbers(presence["is_present"].cast(pa.int8())) > 0
    nodes = numbered(presence, _NODE)
    left_ns = np.full(nodes.total, UNKNOWN, dtype=np.int64)
    np.maximum.at(left_ns, nodes.ids[~is_wanted], time_ns[~is_wanted])
    left_ns[left_ns == UNKNOWN] = _NEVER
    patterns = numbered(presence, ("recorder", *_NODE, "subject")).ids
    order = np.lexsort((is_present, time_ns, patterns))
    order = order[is_wanted[order]]
    next_ns = np.append(time_ns[order][1:], _NEVER)[: len(order)]
    is_last = np.append(patterns[order][1:] != patterns[order][:-1], True)[: len(order)]
    until_ns = np.minimum(np.where(is_last, _NEVER, next_ns), left_ns[nodes.ids[order]])
    recorders, restart_ns = _restarts(presence, starts)
    until_ns = np.minimum(until_ns, restart_ns[order])
    recorders[np.asarray(presence["link"].is_valid())] = UNKNOWN
    begun = is_present[order]
    return _Stays(order[begun], time_ns[order][begun], until_ns[begun], recorders[order][begun])


def _restarts(presence: Any, starts: Any) -> tuple[Numbers, Numbers]:
    """Return who recorded each row, and when the next recorder of that store started."""
    recorders, names = coded(presence["recorder"])
    started_by = numbers(pc.index_in(starts["recorder"], value_set=names), UNKNOWN)
    time_ns, started_ns = numbers(presence["time_ns"]), numbers(starts["time_ns"])
    restart_ns = np.full(len(time_ns), _NEVER, dtype=np.int64)
    for recorder in range(len(names)):
        mine = recorders == recorder
        theirs = np.append(np.sort(started_ns[started_by == recorder]), _NEVER)
        restart_ns[mine] = theirs[np.searchsorted(theirs, time_ns[mine], side="right")]
    return recorders.copy(), restart_ns
