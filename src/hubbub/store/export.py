"""Writes a recording in the formats of others: MCAP, CSV, lines of JSON, or one Parquet file.

A file has its name only when it is whole: until then it lies beside it under a hidden one.
"""

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.errors import MissingExtra, StoreError
from hubbub.limits import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from hubbub.store.layout import whole_file
from hubbub.store.parquet import Writer
from hubbub.store.payloads import JSON, write_payload
from hubbub.store.reading import Fault, refuse
from hubbub.store.schema import TABLES
from hubbub.store.store import Store, Time

FORMATS: Final = ("mcap", "csv", "jsonl", "parquet")
TEXT_FORMATS: Final = ("csv", "jsonl")
# The timestamps for people repeat the nanoseconds, the other columns are empty until they exist.
_TEXT_COLUMNS: Final = (
    *("recorder", "offset", "subject", "source_name", "source_id", "incarnation", "sequence"),
    *("published_ns", "received_ns", "link", "schema", "size", "replayed_ns", "payload"),
)


class Exported(NamedTuple):
    """What was written."""

    rows: int
    size_bytes: int  # Of payloads.


class Output(Protocol):
    """A format: takes batches, and ends."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        ...

    def close(self) -> None:
        """Write the end."""
        ...


def export(
    store: Store,
    path: Path | IO[bytes],
    to: str,
    *,
    table: str = "messages",
    subjects: tuple[str, ...] = (),
    start: Time = None,
    end: Time = None,
    on_progress: Callable[[Exported], object] | None = None,
    on_fault: Fault = refuse,
) -> Exported:
    """Write a recording, or what was chosen of it, to a file that appears when it is whole.

    `csv` and `jsonl` may go to an open stream instead.
    """
    _check(to, table, path)
    columns = columns_of(to, table)
    rows = size = 0
    with _open_output(path, to, table, store) as output:
        for batch in store.rows(table, subjects, start, end, columns, on_fault):
            output.write(batch)
            rows += batch.num_rows
            if table == "messages":
                size += pc.sum(batch["size"]).as_py() or 0
            if on_progress is not None:
                on_progress(Exported(rows, size))
    return Exported(rows, size)


def _check(to: str, table: str, path: Path | IO[bytes]) -> None:
    if to not in FORMATS:
        raise StoreError(f"{to!r} is no format: there are {', '.join(FORMATS)}")
    if to == "mcap" and table != "messages":
        raise StoreError(f"mcap holds messages, not {table}: use {', '.join(FORMATS[1:])}")
    if not isinstance(path, Path) and to not in TEXT_FORMATS:
        raise StoreError(f"{to} needs a file: only {' and '.join(TEXT_FORMATS)} are streams")


def columns_of(to: str, table: str) -> list[str]:
    """Return which columns a format has."""
    names: list[str] = TABLES[table].names if table in TABLES else []
    if to == "parquet":
        return names
    if table == "messages":
        hashes = ("schema_hash",) if to == "mcap" else ()
        return [*_TEXT_COLUMNS, *hashes]
    return [name for name in names if name != "time"]


@contextmanager
def _open_output(path: Path | IO[bytes], to: str, table: str, store: Store) -> Iterator[Output]:
    if not isinstance(path, Path):
        output = _make_text(path, to, table)
        yield output
        output.close()
        return
    try:
        with whole_file(path) as temporary:
            if to == "parquet":
                parquet = ParquetOutput(temporary, table)
                yield parquet
                parquet.close()
            else:
                with temporary.open("wb") as stream:
                    output = _make_mcap(stream, store) if to == "mcap" else _make_text(
                        stream, to, table
                    )  # fmt: skip
                    yield output
                    output.close()
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def _make_text(stream: IO[bytes], to: str, table: str) -> Output:
    return CsvOutput(stream, table) if to == "csv" else JsonOutput(stream)


def _make_mcap(stream: IO[bytes], store: Store) -> Output:
    try:
        from hubbub.store.mcap import McapOutput
    except ModuleNotFoundError as error:
        raise MissingExtra(f"mcap needs {error.name}: pip install 'hubbub[recorder]'") from None
    return McapOutput(stream, store.identity.recorder)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield rows with their payload as text, and how that was written."""
    for row in batch.to_pylist():
        if "payload" in row:
            written = write_payload(row.pop("payload"), row["schema"])
            row["encoding"] = written.encoding
            row["payload"] = written
        yield row


class JsonOutput:
    """One object a line; a payload that is JSON stands there as it is."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        lines = []
        for row in _rows(batch):
            payload = row.pop("payload", None)
            line = json.dumps(row)
            if payload is not None:
                text = payload.text if payload.encoding == JSON else json.dumps(payload.text)
                line = f'{line[:-1]}, "payload": {text}}}'
            lines.append(line + "\n")
        self._stream.write("".join(lines).encode())

    def close(self) -> None:
        """Write what is still held back."""
        self._stream.flush()


class CsvOutput:
    """A line of titles, then one a row."""

    def __init__(self, stream: IO[bytes], table: str) -> None:
        self._text = TextIOWrapper(stream, encoding="utf-8", newline="", write_through=False)
        titles = columns_of("csv", table)
        if table == "messages":
            titles = [*titles[:-1], "encoding", "payload"]
        self._writer = csv.DictWriter(self._text, titles)
        self._writer.writeheader()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        for row in _rows(batch):
            if "payload" in row:
                row["payload"] = row["payload"].text
            self._writer.writerow(row)

    def close(self) -> None:
        """Write what is still held back."""
        self._text.flush()
        self._text.detach()


class ParquetOutput:
    """One file with all columns, in row groups of a good size."""

    def __init__(self, path: Path, table: str) -> None:
        self._schema = TABLES[table]
        self._writer = Writer(path, self._schema)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        """Write the end."""
        self._flush()
        self._writer.close()
