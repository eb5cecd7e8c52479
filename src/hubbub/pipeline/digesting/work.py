"""What a worker of Spark does: read row groups, and make digests of them.

Everything here is pickled by name, so a worker imports this file and those beside it, no more.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.pipeline.digesting import quality
from hubbub.store.parquet import open_parquet

_TEXTS: Final = ("source_id", "subject", "source_name", "service")


class RowGroup(NamedTuple):
    """Rows of a file that are read at once: their number is bounded, and so is memory."""

    path: str
    number: int
    checks: tuple[str, ...] = ()
    """What is not known of all of them: rows that do not pass are left out."""


class Wanted(NamedTuple):
    """A digest that is to be made."""

    function: Callable[..., Any]
    arguments: tuple[int, ...]
    columns: Any


class Work(NamedTuple):
    """Digests by name, the columns they read, and from when on messages are theirs."""

    digests: dict[str, Wanted]
    reads: tuple[str, ...]
    since_ns: int = 0


def digested_files(
    work: Work, groups: list[RowGroup]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what turns places in a list of row groups into digests of these."""

    def digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            mine = [groups[place] for place in batch.column(0).to_pylist()]
            yield from _digests(work, read(mine, work.reads))

    return digest


def digested_rows(
    work: Work,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what turns rows that Spark has into digests."""

    def digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _digests(work, (pa.Table.from_batches([batch]) for batch in batches))

    return digest


def read(groups: Iterable[RowGroup], columns: Iterable[str]) -> Iterator[Any]:
    """Read row groups one by one; an older file has fewer columns."""
    for path, of_file in groupby(groups, key=lambda group: group.path):
        file = open_parquet(Path(path), texts=_TEXTS)
        for group in of_file:
            names = {*columns, *quality.columns_of(group.checks)}
            there = names.intersection(file.schema_arrow.names)
            rows = file.read_row_group(group.number, sorted(there), use_threads=False)
            if rows.num_rows != file.metadata.row_group(group.number).num_rows:
                raise pa.ArrowInvalid(f"{path}: rows are missing in row group {group.number}")
            for name in names - there:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.int64()))
            yield quality.good(rows, group.checks)


def nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find nothing: to see whether workers work."""
    for _ in batches:
        pass
    return iter(())


def checked_files(
    paths: list[str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what turns places in a list of files into those that cannot be read, and why."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        places = (place for batch in batches for place in batch.column(0).to_pylist())
        for path, why in unreadable(paths[place] for place in places):
            yield pa.RecordBatch.from_pydict({"path": [path], "why": [why]})

    return check


def unreadable(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Read files to their ends; name those where that fails, and why."""
    for path in paths:
        try:
            file = open_parquet(Path(path))
            groups = [RowGroup(path, number) for number in range(file.num_row_groups)]
            for _ in read(groups, file.schema_arrow.names):
                pass
        except (OSError, pa.ArrowException) as error:
            yield path, (str(error).splitlines() or [type(error).__name__])[0]


def _digests(work: Work, tables: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Make digests, as Spark takes them: a column for each, null where a row is another's."""
    types = {name: pa.struct(list(wanted.columns)) for name, wanted in work.digests.items()}
    for rows in tables:
        some = rows.filter(pc.field("received_ns") >= work.since_ns) if work.since_ns else rows
        for name, wanted in work.digests.items():
            made = wanted.function(some, *wanted.arguments).select(wanted.columns.names)
            for batch in made.cast(wanted.columns).combine_chunks().to_batches():
                nothing = {other: pa.nulls(len(batch), kind) for other, kind in types.items()}
                yield pa.RecordBatch.from_pydict(nothing | {name: batch.to_struct_array()})
