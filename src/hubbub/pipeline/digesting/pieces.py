"""Which sequences were received: pieces without a hole, and when at both of their ends.

A sequence that occurs twice begins a piece of its own, so that pieces overlap where something is
doubled, within a row group as between two. What pieces mean is found out in merging/runs.py.

Why not words of 64 sequences with a bit for each: these do not know when the messages beside a hole
were received, and to look that up is to read everything again.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from hubbub.pipeline.merging.groups import TOPIC, Groups, Numbers, numbered, numbers

READS: Final = (*TOPIC, "source_name", "sequence", "received_ns")
_FEW: Final = 1 << 16  # Numbers below this are sorted by counting.


def pieces(rows: Any) -> Any:
    """Turn rows into pieces."""
    topics = numbered(rows, (*TOPIC, "source_name"))
    sequence, received_ns = numbers(rows["sequence"]), numbers(rows["received_ns"])
    order = _order(topics, sequence, received_ns)
    is_next = (np.diff(topics.ids[order]) == 0) & (np.diff(sequence[order]) == 1)
    begins = np.flatnonzero(np.append(True, ~is_next)[: len(order)])
    ends = np.append(begins[1:], len(order))[: len(begins)] - 1
    first, last = order[begins], order[ends]
    columns = {name: rows[name].take(pa.array(first)) for name in (*TOPIC, "source_name")}
    columns |= {"first": pa.array(sequence[first]), "last": pa.array(sequence[last])}
    columns |= {"first_ns": pa.array(received_ns[first]), "last_ns": pa.array(received_ns[last])}
    return pa.table(columns)


def _order(topics: Groups, sequence: Numbers, received_ns: Numbers) -> Numbers:
    """Sort by topic and sequence; what a publisher sent mostly comes in its order."""
    ids = topics.ids.astype(np.uint16) if topics.total <= _FEW else topics.ids
    order = np.argsort(ids, kind="stable")
    if np.any((np.diff(sequence[order]) <= 0) & (np.diff(topics.ids[order]) == 0)):
        order = np.lexsort((received_ns, sequence, topics.ids))
    return order
