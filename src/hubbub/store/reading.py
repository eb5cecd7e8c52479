"""Reads a store in the order of its rows: Parquet files, then what is still in the journal.

A segment may be converted, and files be compacted, while somebody reads. So the journal is listed
before the files: what is converted in between is in both, and taken once, because rows come in
order and everything before the last one is passed over. What vanished before it was opened is
somewhere else now: the store is listed again from there.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.errors import StoreError
from hubbub.limits import DAMAGE_NUMBER, ROW_GROUP_BYTES, ROW_GROUP_ROWS
from hubbub.store.columns import MessageColumns, cut_run, row_table
from hubbub.store.journal import Segment, open_segment, segments
from hubbub.store.layout import HOUR_NS, DataFile, hour_start_ns
from hubbub.store.manifest import readable
from hubbub.store.parquet import fit, open_parquet
from hubbub.store.records import PackedRun, Row
from hubbub.store.schema import TABLES
from hubbub.subjects import check_pattern, matches

_LISTINGS_MAX: Final = 1000
Fault = Callable[[str], object]


def refuse(fault: str) -> None:
    """Raise what is wrong with a file; the default of all who read."""
    raise StoreError(f"{fault}; `hubbub store verify` tells all that is wrong")


class Selection(NamedTuple):
    """Which rows are wanted: of these subjects, received from `start_ns` to before `end_ns`."""

    subjects: tuple[str, ...] = ()
    start_ns: int | None = None
    end_ns: int | None = None

    def check(self) -> "Selection":
        """Refuse patterns that are none."""
        for pattern in self.subjects:
            check_pattern(pattern)
        return self

    def has_hour(self, hour: str) -> bool:
        """Tell whether rows of an hour may be wanted."""
        start_ns = hour_start_ns(hour)
        return self.has_span(start_ns, start_ns + HOUR_NS - 1)

    def has_span(self, first_ns: int, last_ns: int) -> bool:
        """Tell whether rows of a span of time may be wanted."""
        if self.end_ns is not None and first_ns >= self.end_ns:
            return False
        return self.start_ns is None or last_ns >= self.start_ns

    def filter(self, table: pa.Table, time_column: str) -> pa.Table:
        """Leave out what is not wanted."""
        mask = None
        times = table[time_column]
        if self.start_ns is not None:
            mask = pc.greater_equal(times, self.start_ns)
        if self.end_ns is not None:
            mask = _both(mask, pc.less(times, self.end_ns))
        if self.subjects:
            mask = _both(mask, _matching(table["subject"], self.subjects))
        return table if mask is None else table.filter(mask)


def _both(one: Any, other: Any) -> Any:
    return other if one is None else pc.and_(one, other)


def _matching(subjects: pa.ChunkedArray, patterns: Sequence[str]) -> Any:
    """Look at each subject once, however many rows have it."""
    wanted = [
        subject
        for subject in pc.unique(_decoded(subjects)).to_pylist()
        if subject is not None and any(matches(pattern, subject) for pattern in patterns)
    ]
    return pc.is_in(_decoded(subjects), value_set=pa.array(wanted, pa.string()))


def _decoded(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return texts.cast(pa.string()) if pa.types.is_dictionary(texts.type) else texts


def read_table(
    store: Path,
    table: str,
    selection: Selection | None = None,
    columns: Sequence[str] | None = None,
    on_fault: Fault = refuse,
    first: int = 0,
) -> Iterator[pa.Table]:
    """Yield the rows of a table in order, as tables that have the columns of the schema.

    A file that cannot be read is a fault, and passed over if `on_fault` returns.
    """
    selection = (selection or Selection()).check()
    names = _columns(table, columns)
    time_column = "received_ns" if table == "messages" else "time_ns"
    needed = list(dict.fromkeys([*names, _key(table), time_column, "subject"]))
    needed = [name for name in needed if name in TABLES[table].names]
    reader = _Reader(store, table, selection, needed, time_column, on_fault, first)
    for piece in reader.read():
        found = selection.filter(piece, time_column)
        if found.num_rows:
            yield found.select(names)


def _columns(table: str, columns: Sequence[str] | None) -> list[str]:
    if table not in TABLES:
        raise StoreError(f"{table!r} is no table of a store: there are {', '.join(TABLES)}")
    known = TABLES[table].names
    for name in columns or ():
        if name not in known:
            raise StoreError(f"{name!r} is no column of {table}: there are {', '.join(known)}")
    return list(columns) if columns is not None else known


def _key(table: str) -> str:
    return "offset" if table == "messages" else "number"


class _Reader:
    """Reads one table once."""

    def __init__(
        self, store: Path, table: str, selection: Selection, columns: list[str],
        time_column: str, on_fault: Fault, first: int,
    ) -> None:  # fmt: skip
        self._store, self._table = store, table
        self._selection, self._columns = selection, columns
        self._time_column = time_column
        self._schema = pa.schema([TABLES[table].field(name) for name in columns])
        self._key = _key(table)
        self._on_fault = on_fault
        self._next = first  # The row that comes next.

    def read(self) -> Iterator[pa.Table]:
        for _ in range(_LISTINGS_MAX):
            waiting = segments(self._store)
            files = readable(self._store, self._table)
            reports = [file for file in files if file.first >= DAMAGE_NUMBER]
            try:
                for file in files:
                    if file not in reports:
                        yield from self._read_file(file)
                for path in waiting:
                    yield from self._read_segment(path)
            except FileNotFoundError:
                continue  # It has just become something else.
            for file in reports:
                yield from self._read_file(file, is_report=True)
            return
        raise StoreError(f"{self._store} changed {_LISTINGS_MAX} times while it was read")

    def _read_file(self, file: DataFile, is_report: bool = False) -> Iterator[pa.Table]:
        if file.last < self._next:
            return
        if self._selection.has_hour(file.hour):
            try:
                for piece in self._row_groups(file):
                    yield piece if is_report else self._pass_over(piece)
            except FileNotFoundError:
                raise
            except (OSError, pa.ArrowException) as error:
                self._on_fault(f"{file.path} cannot be read: {_one_line(error)}")
        if not is_report:
            self._next = file.last + 1

    def _row_groups(self, file: DataFile) -> Iterator[pa.Table]:
        with open_parquet(file.path) as parquet:
            time_at = parquet.schema_arrow.get_field_index(self._time_column)
            for place in range(parquet.num_row_groups):
                times = parquet.metadata.row_group(place).column(time_at).statistics
                is_known = times is not None and times.has_min_max
                if is_known and not self._selection.has_span(times.min, times.max):
                    continue
                table = parquet.read_row_group(place, columns=self._columns, use_threads=False)
                yield fit(table, self._schema)

    def _pass_over(self, piece: pa.Table) -> pa.Table:
        """Leave out rows that were read before."""
        if not piece.num_rows or piece[self._key][0].as_py() >= self._next:
            return piece
        return piece.filter(pc.greater_equal(piece[self._key], self._next))

    def _read_segment(self, path: Path) -> Iterator[pa.Table]:
        try:
            segment = open_segment(path)
        except StoreError as error:
            self._on_fault(str(error))
            return
        with segment:
            for piece in self._segment_tables(segment):
                rows = self._pass_over(piece)
                if rows.num_rows:
                    yield rows
                    self._next = rows[self._key][-1].as_py() + 1

    def _segment_tables(self, segment: Segment) -> Iterator[pa.Table]:
        if self._table == "messages":
            tables = _message_tables(segment)
        else:
            tables = _row_tables(segment, self._table)
        for table in tables:
            yield table.select(self._columns).cast(self._schema)


def _message_tables(segment: Segment) -> Iterator[pa.Table]:
    columns = MessageColumns(segment.recorder)
    for entry in segment.packed():
        if isinstance(entry, PackedRun):
            for run in cut_run(entry):
                columns.add(run)
                if columns.rows >= ROW_GROUP_ROWS or columns.size_bytes >= ROW_GROUP_BYTES:
                    yield columns.take()
    if columns.rows:
        yield columns.take()


def _row_tables(segment: Segment, table: str) -> Iterator[pa.Table]:
    rows = [entry for entry in segment.packed() if isinstance(entry, Row) and entry.table == table]
    if rows:
        yield row_table(table, segment.recorder, rows)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
