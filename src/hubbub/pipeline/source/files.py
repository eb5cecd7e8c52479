"""Reads the rows of one file, a Parquet file or a journal segment, as tables of the schema."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import SOURCE_BATCH_BYTES, SOURCE_BATCH_ROWS
from hubbub.pipeline.source.whereabouts import (
    MESSAGES,
    Hint,
    Piece,
    Whereabouts,
    key_of,
    time_of,
)
from hubbub.store.columns import MessageColumns, row_table
from hubbub.store.journal import Segment, open_segment
from hubbub.store.parquet import fit, open_parquet
from hubbub.store.records import PackedRun, Row
from hubbub.store.schema import TABLES


def read_piece(
    where: Whereabouts, piece: Piece, first: int, end: int, hint: Hint | None = None
) -> Iterator[pa.Table]:
    """Yield the rows `first` up to, but without, `end` that a file has, in order.

    Raises FileNotFoundError, before the first row, if the file is gone.
    """
    if piece.is_journal:
        yield from _read_segment(where, piece, first, end, hint)
    else:
        yield from read_parquet(where.table, piece.path, first, end)


def read_parquet(
    table: str, path: Any, first: int = 0, end: int | None = None
) -> Iterator[pa.Table]:
    """Yield rows of a Parquet file; parts of it that have none are not read."""
    key, schema = key_of(table), TABLES[table]
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group)
            bounds = _bounds(rows, file.schema_arrow.get_field_index(key))
            if bounds and (bounds[1] < first or (end is not None and bounds[0] >= end)):
                continue
            mean_bytes = max(1, rows.total_byte_size // max(1, rows.num_rows))
            batch_rows = max(1, min(SOURCE_BATCH_ROWS, SOURCE_BATCH_BYTES // mean_bytes))
            for batch in file.iter_batches(batch_rows, row_groups=[group]):
                part = _between(fit(pa.table(batch), schema), key, first, end)
                if part.num_rows:
                    yield part


def _bounds(rows: Any, column: int) -> tuple[int, int] | None:
    statistics = rows.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min, statistics.max


def _between(table: pa.Table, key: str, first: int, end: int | None) -> pa.Table:
    rows = table.column(key)
    bounds = pc.min_max(rows).as_py()
    if bounds["min"] is None or (bounds["min"] >= first and (end is None or bounds["max"] < end)):
        return table
    mask = pc.greater_equal(rows, first)
    return table.filter(mask if end is None else pc.and_(mask, pc.less(rows, end)))


def _read_segment(
    where: Whereabouts, piece: Piece, first: int, end: int, hint: Hint | None
) -> Iterator[pa.Table]:
    with open_segment(piece.path) as segment:
        entries = _entries(segment, where, first, hint)
        tables = _messages if where.table == MESSAGES else _others
        for table in tables(where, entries, first, end):
            yield fit(table, TABLES[where.table])


def _entries(
    segment: Segment, where: Whereabouts, first: int, hint: Hint | None
) -> Iterator[PackedRun | Row]:
    """Read a segment from a row on, or from a little before."""
    entries = segment.packed()
    if hint is not None and hint.segment == segment.number and hint.row <= first:
        segment.position = hint.position
        if where.table == MESSAGES:
            segment.end_offset = hint.row
        else:
            segment.end_number = hint.row
    return entries


def _messages(
    where: Whereabouts, entries: Iterator[PackedRun | Row], first: int, end: int
) -> Iterator[pa.Table]:
    columns = MessageColumns(where.recorder)
    for entry in entries:
        if not isinstance(entry, PackedRun):
            continue
        if entry.offset >= end:
            break
        run = _cut(entry, first, end)
        if run is None:
            continue
        columns.add(run)
        if columns.rows >= SOURCE_BATCH_ROWS or columns.size_bytes >= SOURCE_BATCH_BYTES:
            yield columns.take()
    if columns.rows:
        yield columns.take()


def _cut(run: PackedRun, first: int, end: int) -> PackedRun | None:
    """Leave out what lies before `first` and from `end` on."""
    begin, stop = max(first - run.offset, 0), min(end - run.offset, run.size)
    if begin >= stop:
        return None
    if not begin and stop == run.size:
        return run
    edges = np.concatenate([[0], np.cumsum(np.frombuffer(run.lengths, "<u4"), dtype=np.int64)])
    return run.part(begin, stop, run.payloads[edges[begin] : edges[stop]])


def _others(
    where: Whereabouts, entries: Iterator[PackedRun | Row], first: int, end: int
) -> Iterator[pa.Table]:
    rows: list[Row] = []
    for entry in entries:
        if not isinstance(entry, Row) or entry.table != where.table or entry.number < first:
            continue
        if entry.number >= end:
            break
        rows.append(entry)
        if len(rows) >= SOURCE_BATCH_ROWS:
            yield row_table(where.table, where.recorder, rows)
            rows = []
    if rows:
        yield row_table(where.table, where.recorder, rows)


def find_time(where: Whereabouts, time_ns: int) -> int:
    """Return the first row at or behind a time; the end of the recording if there is none."""
    key, column, end = key_of(where.table), time_of(where.table), where.end()
    for piece in sorted(where.pieces()):
        for table in _columns_of(where, piece, column, time_ns):
            behind = table.filter(pc.greater_equal(table.column(column), time_ns))
            if behind.num_rows:
                return min(int(behind.column(key)[0].as_py()), end)
    return end


def _columns_of(where: Whereabouts, piece: Piece, column: str, time_ns: int) -> Iterator[pa.Table]:
    """Yield the rows of a file that may be behind a time; payloads are left where they are."""
    try:
        if piece.is_journal:
            yield from read_piece(where, piece, piece.first, piece.end)
            return
        with open_parquet(piece.path) as file:
            place = file.schema_arrow.get_field_index(column)
            for group in range(file.num_row_groups):
                bounds = _bounds(file.metadata.row_group(group), place)
                if bounds is None or bounds[1] >= time_ns:
                    yield file.read_row_group(group, columns=[key_of(where.table), column])
    except FileNotFoundError:
        for moved in where.pieces():
            if moved.first <= piece.first < moved.end and moved.path != piece.path:
                yield from _columns_of(where, moved, column, time_ns)
