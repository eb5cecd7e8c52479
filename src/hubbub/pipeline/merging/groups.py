"""Rows of Arrow tables by groups: numbered, and put together."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# A topic: one subject of one incarnation of a source, where sequences count.
TOPIC: Final = ("source_id", "incarnation", "subject")
UNKNOWN: Final = -1  # Stands for null where numbers are never below zero.

_TIME: Final = pa.timestamp("us", "UTC")
_DENSE: Final = 4  # So many places for each number are worth it.

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Groups(NamedTuple):
    """The group of each row, and the first row of each group."""

    ids: Numbers
    firsts: Numbers

    @property
    def total(self) -> int:
        """Return how many groups there are."""
        return len(self.firsts)


def numbered(table: Any, keys: Sequence[str]) -> Groups:
    """Number the groups of rows that are the same in these columns; nulls are the same."""
    count = table.num_rows
    ids, total = np.zeros(count, dtype=np.int64), min(count, 1)
    for key in keys:
        codes, values = coded(table[key])
        # Numbered anew each time: the product of many columns would not fit a number.
        kinds = len(values) + 1
        ids, total = _renumbered(ids * kinds + codes + 1, total * kinds)
    firsts = np.empty(total, dtype=np.int64)
    firsts[ids[::-1]] = np.arange(count - 1, -1, -1)  # What is written last stays.
    return Groups(ids, firsts)


def _renumbered(ids: Numbers, beyond: int) -> tuple[Numbers, int]:
    """Number numbers below a bound anew, in their order and without holes; say how many."""
    if beyond > _DENSE * len(ids):
        found, ids = np.unique(ids, return_inverse=True)
        return ids.astype(np.int64, copy=False), len(found)
    places = np.zeros(beyond, dtype=np.int64)  # To look them up is faster than to sort them.
    places[ids] = 1
    places = np.cumsum(places)
    return places[ids] - 1, int(places[-1]) if beyond else 0


def coded(column: Any) -> tuple[Numbers, Any]:
    """Turn values into places in a list of them, null into -1."""
    encoded = _whole(column)
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    return numbers(encoded.indices, UNKNOWN), encoded.dictionary


def ranked(column: Any) -> tuple[Numbers, Any]:
    """Turn values into places in a sorted list of them, null into -1: the order stays."""
    codes, values = coded(column)
    order = numbers(pc.sort_indices(values))
    rank = np.full(len(values) + 1, UNKNOWN, dtype=np.int64)  # The last one stands for null.
    rank[order] = np.arange(len(values))
    return rank[codes], values.take(pa.array(order))


def grouped(
    table: Any,
    keys: Sequence[str],
    *,
    sums: Sequence[str] = (),
    least: Sequence[str] = (),
    greatest: Sequence[str] = (),
) -> Any:
    """Put the rows of each group together: its keys, sums, least and greatest values."""
    groups = numbered(table, keys)
    found = {key: table[key].take(pa.array(groups.firsts)) for key in keys}
    for name in sums:
        found[name] = pa.array(_added(groups, numbers(table[name], 0)))
    for name in (*least, *greatest):
        found[name] = _extreme_of(groups, table[name], is_least=name in least)
    return pa.table(found)


def _extreme_of(groups: Groups, column: Any, *, is_least: bool) -> Any:
    if pa.types.is_integer(column.type) and not column.null_count and groups.total:
        bounds = np.iinfo(np.int64)
        found = np.full(groups.total, bounds.max if is_least else bounds.min, dtype=np.int64)
        (np.minimum if is_least else np.maximum).at(found, groups.ids, numbers(column))
        return pa.array(found).cast(column.type)
    codes, values = ranked(column)
    return values.take(nullable(_extreme(groups, codes, is_least=is_least)))


def _added(groups: Groups, values: Numbers) -> Numbers:
    total = np.zeros(groups.total, dtype=np.int64)
    np.add.at(total, groups.ids, values)
    return total


def _extreme(groups: Groups, codes: Numbers, *, is_least: bool) -> Numbers:
    if not is_least:
        found = np.full(groups.total, UNKNOWN, dtype=np.int64)
        np.maximum.at(found, groups.ids, codes)
        return found
    highest = np.iinfo(np.int64).max
    found = np.full(groups.total, highest, dtype=np.int64)
    np.minimum.at(found, groups.ids, np.where(codes == UNKNOWN, highest, codes))
    return np.where(found == highest, UNKNOWN, found)


def numbers(column: Any, nothing: int = 0) -> Numbers:
    """Return a column of integers, with this number for null."""
    whole = _whole(column)
    if whole.null_count:
        whole = pc.fill_null(whole, nothing)
    return np.asarray(whole.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def nullable(values: Numbers) -> Any:
    """Return numbers as a column, with null for -1."""
    return pa.array(values, mask=values == UNKNOWN)


def timestamps(times_ns: Numbers) -> Any:
    """Turn nanoseconds since 1970 into timestamps, and -1 into null."""
    return pa.array(times_ns // 1000, pa.int64(), mask=times_ns == UNKNOWN).cast(_TIME)


def nanoseconds(times: Any) -> Numbers:
    """Turn timestamps into nanoseconds since 1970, and null into -1."""
    micros = numbers(_whole(times).cast(pa.int64()), UNKNOWN)
    return np.where(micros == UNKNOWN, UNKNOWN, micros * 1000)


def united(*tables: Any) -> Any:
    """Put tables below each other: the columns of the first, in its order."""
    names = tables[0].column_names
    return pa.concat_tables([table.select(names) for table in tables])


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
