"""Which sequences of each topic were received, as runs without a hole: first to last.

A run also says when its first and its last message were received. Runs are what is kept of
sequences between one part of a recording and the next: merged, they are the runs of both, so gaps
do not depend on how a recording was cut into parts. The pieces that a worker finds in a row group
(digesting/pieces.py) are runs, too, but may touch and overlap.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from hubbub.pipeline.merging.groups import (
    TOPIC,
    UNKNOWN,
    Flags,
    Numbers,
    nullable,
    numbered,
    numbers,
    ranked,
    united,
)

RUN: Final = (*TOPIC, "source_name", "first", "last", "first_ns", "last_ns")


def merged(*runs: Any) -> Any:
    """Join runs that touch or overlap."""
    table = united(*runs)
    topics, names = numbered(table, TOPIC).ids, ranked(table["source_name"])
    first, last = numbers(table["first"]), numbers(table["last"])
    order = np.lexsort((last, first, topics))
    first, last = first[order], last[order]
    reach, has_before = _reach(topics[order], last)
    begins = np.flatnonzero(~has_before | (first > reach + 1))
    if not len(begins):
        return pa.table({name: table[name].slice(0, 0) for name in RUN})
    far = np.maximum.reduceat(last, begins)
    # A run ends with what reaches farthest: the first of them, if there are several.
    islands = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(first))))
    ends = np.flatnonzero(last == far[islands])
    ends = ends[np.unique(islands[ends], return_index=True)[1]]
    columns = {name: table[name].take(pa.array(order[begins])) for name in TOPIC}
    columns["source_name"] = names[1].take(nullable(np.maximum.reduceat(names[0][order], begins)))
    columns |= {"first": pa.array(first[begins]), "last": pa.array(far)}
    columns["first_ns"] = nullable(numbers(table["first_ns"], UNKNOWN)[order[begins]])
    columns["last_ns"] = nullable(numbers(table["last_ns"], UNKNOWN)[order[ends]])
    return pa.table(columns)


def overlaps(*runs: Any) -> Any:
    """Name the ranges of sequences that occur more than once."""
    both = united(*runs)
    first, last = numbers(both["first"]), numbers(both["last"])
    topics = numbered(both, TOPIC).ids
    order = np.lexsort((last, first, topics))
    reach, has_before = _reach(topics[order], last[order])
    is_in = has_before & (first[order] <= reach)
    rows = order[is_in]
    ranges = {name: both[name].take(pa.array(rows)) for name in TOPIC}
    ranges |= {"first": pa.array(first[rows]), "last": np.minimum(last[rows], reach[is_in])}
    return pa.table(ranges)


def _reach(topics: Numbers, last: Numbers) -> tuple[Numbers, Flags]:
    """Return how far the runs before each go, and whether there is one; they are in order."""
    count = len(last)
    order = np.argsort(last, kind="stable")
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    # Topics come one behind the other: the greatest place of a later topic is greater than all.
    topic = np.cumsum(np.append(False, topics[1:] != topics[:-1])[:count])
    farthest = np.maximum.accumulate(topic * count + place) if count else place
    has_before = np.append(False, topics[1:] == topics[:-1])[:count]
    before = np.where(has_before, np.roll(farthest, 1) - topic * count, 0)
    return last[order][before] if count else last, has_before
