"""Who talks to whom: each receiver is given what was published while it wanted it."""

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


def traffic(health: Any, presence: Any) -> Any:
    """Give each receiver what was published while it wanted it, by windows."""
    stays = _stays(presence)
    rows, stay = _pairs(health, presence, stays)
    start_ns, end_ns = nanoseconds(health["window_start"]), nanoseconds(health["window_end"])
    is_there = (stays.from_ns[stay] < end_ns[rows]) & (stays.until_ns[stay] > start_ns[rows])
    rows, stay = rows[is_there], stay[is_there]
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


def _stays(presence: Any) -> _Stays:
    """Turn beginnings and ends into stays of a node with a pattern."""
    is_wanted = np.asarray(presence["subject"].is_valid())
    time_ns = numbers(presence["time_ns"])
    is_present = numbers(presence["is_present"].cast(pa.int8())) > 0
    nodes = numbered(presence, _NODE)
    left_ns = np.full(nodes.total, UNKNOWN, dtype=np.int64)
    np.maximum.at(left_ns, nodes.ids[~is_wanted], time_ns[~is_wanted])
    left_ns[left_ns == UNKNOWN] = _NEVER
    patterns = numbered(presence, (*_NODE, "subject")).ids
    order = np.lexsort((is_present, time_ns, patterns))
    order = order[is_wanted[order]]
    next_ns = np.append(time_ns[order][1:], _NEVER)[: len(order)]
    is_last = np.append(patterns[order][1:] != patterns[order][:-1], True)[: len(order)]
    until_ns = np.minimum(np.where(is_last, _NEVER, next_ns), left_ns[nodes.ids[order]])
    begun = is_present[order]
    return _Stays(order[begun], time_ns[order][begun], until_ns[begun])
