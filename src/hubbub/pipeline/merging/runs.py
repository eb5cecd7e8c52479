"""Which sequences of each topic were received, as runs without a hole: first to last.

A run also says when its first and its last message were received. Runs are what is kept of
sequences between one part of a recording and the next: merged, they are the runs of both, so gaps
do not depend on how a recording was cut into parts.

Spark makes words of 64 sequences, with a bit for each (transforms/words.py); here they become runs.
Of few rows it makes words of a single sequence: then all times are known, and none is looked up.
"""

from typing import Any, Final, NamedTuple

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
_WORD_BITS: Final = 64
_NEVER: Final = np.iinfo(np.int64).max
_WORDS_AT_ONCE: Final = 1 << 18  # Taken apart, a word is 64 bytes.


class _Pieces(NamedTuple):
    """Runs in columns: the row that each came from, and what it is."""

    rows: Numbers
    first: Numbers
    last: Numbers
    first_ns: Numbers
    last_ns: Numbers


def from_words(words: Any, shift: int) -> Any:
    """Turn words into runs. Times are null where a run ends within a word: see `with_times`."""
    masks = numbers(words["mask"]).view(np.uint64)
    found = [
        _pieces(masks[begin : begin + _WORDS_AT_ONCE], begin)
        for begin in range(0, max(len(masks), 1), _WORDS_AT_ONCE)
    ]
    rows, start, end = (np.concatenate(parts) for parts in zip(*found, strict=True))
    base = numbers(words["word"])[rows] << shift
    # The first and the last sequence of a word are those whose times it knows.
    is_first = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
    is_last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
    first_ns = np.where(is_first, numbers(words["first_ns"])[rows], UNKNOWN)
    last_ns = np.where(is_last, numbers(words["last_ns"])[rows], UNKNOWN)
    return _joined(words, _Pieces(rows, base + start, base + end, first_ns, last_ns))


def merged(known: Any, new: Any) -> Any:
    """Join runs that touch or overlap."""
    both = united(new, known)
    rows = np.arange(both.num_rows)
    ends = (numbers(both[name], UNKNOWN) for name in ("first", "last", "first_ns", "last_ns"))
    return _joined(both, _Pieces(rows, *ends))


def doubled(words: Any, shift: int) -> Any:
    """Name the ranges in which a sequence occurs more than once."""
    some = words.filter(words["is_doubled"])
    first = numbers(some["word"]) << shift
    topics = {name: some[name] for name in TOPIC}
    return pa.table(topics | {"first": first, "last": first + (1 << shift) - 1})


def overlaps(known: Any, new: Any) -> Any:
    """Name the ranges that are in both; neither overlaps with itself."""
    both = united(known, new)
    first, last = numbers(both["first"]), numbers(both["last"])
    topics = numbered(both, TOPIC).ids
    order = np.lexsort((last, first, topics))
    reach, has_before = _reach(topics[order], last[order])
    is_in = has_before & (first[order] <= reach)
    rows = order[is_in]
    ranges = {name: both[name].take(pa.array(rows)) for name in TOPIC}
    ranges |= {"first": pa.array(first[rows]), "last": np.minimum(last[rows], reach[is_in])}
    return pa.table(ranges)


def timeless(runs: Any) -> Any:
    """Name the sequences whose times are not known: topics and `sequence`."""
    parts = []
    for end in ("first", "last"):
        some = runs.filter(runs[f"{end}_ns"].is_null())
        parts.append(some.select([*TOPIC, end]).rename_columns([*TOPIC, "sequence"]))
    both = pa.concat_tables(parts)
    firsts = numbered(both, (*TOPIC, "sequence")).firsts
    return both.take(pa.array(firsts))


def with_times(runs: Any, times: Any) -> Any:
    """Fill in the times that were not known, from rows of topics, `sequence` and `time_ns`."""
    found = {}
    for end in ("first", "last"):
        wanted = runs.select([*TOPIC, end]).rename_columns([*TOPIC, "sequence"])
        ids = numbered(united(wanted, times), (*TOPIC, "sequence")).ids
        known = np.full(int(ids.max(initial=0)) + 1, _NEVER, dtype=np.int64)
        np.minimum.at(known, ids[runs.num_rows :], numbers(times["time_ns"]))
        known[known == _NEVER] = UNKNOWN
        before = numbers(runs[f"{end}_ns"], UNKNOWN)
        found[f"{end}_ns"] = nullable(
            np.where(before == UNKNOWN, known[ids[: runs.num_rows]], before)
        )
    return pa.table({name: found.get(name, runs[name]) for name in RUN})


def _pieces(masks: Any, begin: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return for each piece of a word the word's row, and its first and last bit."""
    one = np.uint64(1)
    rows, start = np.nonzero(_bits(masks & ~(masks << one)))
    _, end = np.nonzero(_bits(masks & ~(masks >> one)))
    return rows + begin, start, end


def _bits(masks: Any) -> Flags:
    positions = np.arange(_WORD_BITS, dtype=np.uint64)
    bits: Flags = ((masks[:, None] >> positions) & np.uint64(1)).astype(bool)
    return bits


def _joined(table: Any, pieces: _Pieces) -> Any:
    """Join pieces that touch or overlap; what else is known of them is in the table's rows."""
    topics, names = numbered(table, TOPIC).ids[pieces.rows], ranked(table["source_name"])
    order = np.lexsort((pieces.last, pieces.first, topics))
    rows, first, last, first_ns, last_ns = (column[order] for column in pieces)
    reach, has_before = _reach(topics[order], last)
    begins = np.flatnonzero(~has_before | (first > reach + 1))
    if not len(begins):
        return pa.table({name: table[name].slice(0, 0) for name in RUN[:4]} | _no_ends())
    far = np.maximum.reduceat(last, begins)
    # The run ends with its piece that reaches farthest: the first of them, if there are several.
    islands = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(first))))
    ends = np.flatnonzero(last == far[islands])
    ends = ends[np.unique(islands[ends], return_index=True)[1]]
    columns = {name: table[name].take(pa.array(rows[begins])) for name in TOPIC}
    columns["source_name"] = names[1].take(nullable(np.maximum.reduceat(names[0][rows], begins)))
    columns |= {"first": pa.array(first[begins]), "last": pa.array(far)}
    return pa.table(
        columns | {"first_ns": nullable(first_ns[begins]), "last_ns": nullable(last_ns[ends])}
    )


def _no_ends() -> dict[str, Any]:
    return {name: pa.array([], pa.int64()) for name in RUN[4:]}


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
