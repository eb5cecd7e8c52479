"""Parquet files of a store: how they are written, so that Spark and others read them fast.

Texts are coded by dictionary, numbers that mostly grow by their differences. A file holds no schema
of Arrow's own, which would tell that its texts came as dictionaries: what is read back has the
columns of the schema, and nothing else.

Pages have checksums, the end of a file, which says what is where, has none in Parquet. A bit that
flips there gives other values, or ends the process that reads it. So a mark and a checksum of the
end lie just before it, where no reader looks that does not know of them.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, Self
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.limits import ROW_GROUP_ROWS

_GROWING: Final = (
    *("offset", "number", "sequence", "time_ns", "time", "published_ns", "received_ns"),
    *("published", "received"),
)
_ZSTD_LEVEL: Final = 1
_MARK: Final = b"hubbub-end:"
_CHECK_BYTES: Final = len(_MARK) + 4
_TAIL_BYTES: Final = 8  # The length of the end, and PAR1.


def _options(schema: pa.Schema) -> dict[str, Any]:
    names = [field.name for field in schema if field.name != "payload"]
    growing = [name for name in names if name in _GROWING]
    return {
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "store_schema": False,
        "write_page_checksum": True,
        "use_dictionary": [name for name in names if name not in growing],
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
        "write_statistics": names,
    }


class Writer:
    """Writes a Parquet file, one row group a table."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._writer = pq.ParquetWriter(path, schema, **_options(schema))
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Write a table as one row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, ROW_GROUP_ROWS))
        self.rows += table.num_rows

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()
        with self._path.open("r+b") as file:
            end = _end_of(file)
            file.seek(-len(end), os.SEEK_END)
            file.write(_MARK + crc32(end).to_bytes(4, "big") + end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def read_end(path: Path) -> Any:
    """Return what the end of a file says (`pyarrow.parquet.FileMetaData`), unless it rotted."""
    with path.open("rb") as file:
        end = _end_of(file)
        file.seek(-min(len(end) + _CHECK_BYTES, file.tell()), os.SEEK_END)
        check = file.read(_CHECK_BYTES)
        if check.startswith(_MARK) and crc32(end) != int.from_bytes(check[len(_MARK) :], "big"):
            raise pa.ArrowInvalid("the end of the file is not what was written")
        return pq.read_metadata(file)


def open_parquet(path: Path, texts: Sequence[str] = ()) -> Any:
    """Open a file to be read (`pyarrow.parquet.ParquetFile`), with all its checksums.

    These columns of texts are read as the dictionaries that they are coded by.
    """
    end = read_end(path)
    coded = [name for name in texts if name in end.schema.names]
    return pq.ParquetFile(
        path, metadata=end, page_checksum_verification=True, read_dictionary=coded
    )


def fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring a table to the columns of a schema exactly; an older file has fewer of them."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _end_of(file: IO[bytes]) -> bytes:
    """Return the end of a file, whole, and leave off behind it; too short: what there is."""
    size = file.seek(0, os.SEEK_END)
    file.seek(-min(_TAIL_BYTES, size), os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(-min(length + _TAIL_BYTES, size), os.SEEK_END)
    return file.read()
