"""Looks for everything that can be wrong with a recording, and says where.

Journals: every checksum. Parquet files: every page's checksum, the columns, and that the rows are
those that the name tells. Between them: offsets without a hole and without a double.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hubbub.errors import StoreError
from hubbub.limits import DAMAGE_NUMBER
from hubbub.store.checkpoints import checkpoints
from hubbub.store.convert import damaged_folder
from hubbub.store.identity import read_identity
from hubbub.store.info import recorder_pid
from hubbub.store.journal import SUFFIX, open_segment, segments
from hubbub.store.layout import TABLE_NAMES, DataFile, data_files
from hubbub.store.manifest import readable
from hubbub.store.parquet import open_parquet
from hubbub.store.schema import TABLES


class Fault(NamedTuple):
    """Something that is wrong: with which file (or the whole store), what, and which rows."""

    path: Path
    what: str
    first: int | None = None
    last: int | None = None

    def __str__(self) -> str:
        rows = "" if self.first is None else f" ({self.first}..{self.last})"
        return f"{self.path}: {self.what}{rows}"


class Looked(NamedTuple):
    """One step of the work: a file that was looked at, its size, and what is wrong with it."""

    path: Path
    size_bytes: int
    faults: list[Fault]


class _Span(NamedTuple):
    """Offsets that a file or segment holds."""

    first: int
    end: int
    path: Path


def files_of(store: Path) -> list[Path]:
    """Return everything that `verify` looks at, for a measure of how far it is."""
    found = [file.path for table in TABLE_NAMES for file in readable(store, table)]
    return [*found, *segments(store), *sorted(damaged_folder(store).glob("*.journal"))]


def verify(store: Path) -> Iterator[Looked]:
    """Look at a store, a file a step; the last step is about the store as a whole."""
    faults: list[Fault] = []
    try:
        read_identity(store)
    except StoreError as error:
        faults.append(Fault(store, str(error)))
    faults += [
        Fault(store / "checkpoints" / f"{one.name}.json", "cannot be read: it holds up everything")
        for one in checkpoints(store)
        if not one.is_readable
    ]
    waiting = segments(store)  # First: what is converted meanwhile is then in the files.
    spans: list[_Span] = []
    for table in TABLE_NAMES:
        last = -1
        for file in readable(store, table):
            looked = _look_at_file(file)
            if table != "messages":
                looked.faults.extend(_overlap(file, last))
                last = max(last, file.last)
            else:
                spans.append(_Span(file.first, file.last + 1, file.path))
            yield looked
    for path in waiting:
        yield from _look_at_segment(path, spans, is_last=path == waiting[-1])
    for path in sorted(damaged_folder(store).glob("*.journal")):
        what = "a segment that could not be read whole is kept here; events tell what is missing"
        yield Looked(path, path.stat().st_size, [Fault(path, what)])
    yield Looked(store, 0, faults + list(_compare(spans)))


def _overlap(file: DataFile, last: int) -> Iterator[Fault]:
    if file.first <= last and file.first < DAMAGE_NUMBER:
        yield Fault(file.path, "numbers that another file has, too", file.first, last)


def _look_at_file(file: DataFile) -> Looked:
    try:
        size = file.path.stat().st_size
        with open_parquet(file.path) as parquet:
            return Looked(file.path, size, list(_read_file(file, parquet)))
    except FileNotFoundError:
        return Looked(file.path, 0, [])  # Compacted or pruned while we looked.
    except (OSError, pa.ArrowException) as error:
        what = f"cannot be read: {' '.join(str(error).split())}"
        return Looked(file.path, size, [Fault(file.path, what, file.first, file.last)])


def _read_file(file: DataFile, parquet: pq.ParquetFile) -> Iterator[Fault]:
    if not parquet.schema_arrow.equals(TABLES[file.table]):
        yield Fault(file.path, "its columns are not those of the schema")
        return
    is_messages = file.table == "messages"
    keys: list[Any] = []
    for place in range(parquet.num_row_groups):
        table = parquet.read_row_group(place, use_threads=False)
        keys.append(table["offset" if is_messages else "number"].combine_chunks())
    key = pa.chunked_array(keys, pa.int64()).combine_chunks()
    if not len(key):
        yield Fault(file.path, "holds no row")
        return
    span = (key[0].as_py(), key[-1].as_py())
    if span != (file.first, file.last) and file.first < DAMAGE_NUMBER:
        yield Fault(file.path, "its name tells other rows than it holds", *span)
    if is_messages:
        yield from _steps(file.path, key)
    elif len(key) > 1 and pc.min(_differences(key)).as_py() < 1:
        yield Fault(file.path, "its numbers do not grow", *span)


def _differences(key: Any) -> Any:
    return pc.subtract(key.slice(1), key.slice(0, len(key) - 1))


def _steps(path: Path, key: Any) -> Iterator[Fault]:
    """Find the holes and doubles within a file."""
    if len(key) < 2:
        return
    odd = pc.indices_nonzero(pc.not_equal(_differences(key), 1)).to_pylist()
    for place in odd:
        before, after = key[place].as_py(), key[place + 1].as_py()
        if after <= before:
            yield Fault(path, "offsets that come twice", after, before)
        else:
            yield Fault(path, "offsets are missing", before + 1, after - 1)


def _look_at_segment(path: Path, spans: list[_Span], *, is_last: bool) -> Iterator[Looked]:
    try:
        with open_segment(path) as segment:
            for _ in segment.packed():
                pass
            size = path.stat().st_size
    except FileNotFoundError:  # Converted while we looked.
        for file in data_files(path.parents[1], "messages"):
            if file.segment == int(path.stem):
                spans.append(_Span(file.first, file.last + 1, file.path))
                yield _look_at_file(file)
        return
    except StoreError as error:
        yield Looked(path, path.stat().st_size, [Fault(path, str(error))])
        return
    faults = [
        Fault(path, "damaged bytes", first, end - 1) for first, end in segment.damaged
    ] + [
        Fault(path, "offsets are missing", first, end - 1) for first, end in segment.missing
    ]  # fmt: skip
    is_written = is_last and recorder_pid(path.parents[1]) is not None
    if segment.torn_bytes and not is_written:
        faults.append(Fault(path, f"{segment.torn_bytes} bytes at its end are torn"))
    if segment.end_offset > segment.first_offset:
        spans.append(_Span(segment.first_offset, segment.end_offset, path))
    yield Looked(path, size, faults)


def _compare(spans: list[_Span]) -> Iterator[Fault]:
    """Find the holes and doubles between files.

    A segment whose files are all there may still be there, too: it was not removed yet.
    """
    end: int | None = None
    for span in sorted(spans):
        if end is not None and span.first > end:
            yield Fault(span.path, "offsets are missing before it", end, span.first - 1)
        end = max(end or 0, span.end)
    end = 0
    for span in sorted(span for span in spans if span.path.suffix != SUFFIX):
        if span.first < end:
            yield Fault(span.path, "offsets that another file has, too", span.first, end - 1)
        end = max(end, span.end)
