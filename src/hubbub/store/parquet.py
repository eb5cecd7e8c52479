"""Parquet files of a store: how they are written, so that Spark and others read them fast.

Texts are coded by dictionary, numbers that mostly grow by their differences. A file holds no schema
of Arrow's own, which would tell that its texts came as dictionaries: what is read back has the
columns of the schema, and nothing else.
"""

from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.limits import ROW_GROUP_ROWS

_GROWING: Final = (
    *("offset", "number", "sequence", "time_ns", "time", "published_ns", "received_ns"),
    *("published", "received"),
)
_ZSTD_LEVEL: Final = 1


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
        self._writer = pq.ParquetWriter(path, schema, **_options(schema))
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Write a table as one row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, ROW_GROUP_ROWS))
        self.rows += table.num_rows

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
