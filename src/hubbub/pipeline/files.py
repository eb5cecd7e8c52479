"""Files of tables, read and written by Arrow: whole, or one for each hour."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.pipeline.merging.groups import Numbers, nanoseconds, numbers
from hubbub.pipeline.registry import REGISTRY
from hubbub.store.layout import HOUR_NS
from hubbub.store.layout import hour_of as name_hour


def read(table: str, files: list[Path]) -> Any:
    """Read files of a table."""
    columns = REGISTRY[table].columns
    parts = (pq.read_table(file, schema=columns, partitioning=None) for file in files)
    return pa.concat_tables([columns.empty_table(), *parts])


def write(rows: Any, folder: Path) -> list[Path]:
    """Write a file, unless there is nothing to write."""
    if not rows.num_rows:
        return []
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "rows.parquet", compression="zstd")
    return [folder / "rows.parquet"]


def write_hours(rows: Any, folder: Path, touched: set[str]) -> list[Path]:
    """Write a file for each hour of rows."""
    if "window_start" not in rows.column_names:  # Else they are sorted by it.
        rows = rows.sort_by("window_ns")
    starts_ns = _starts_ns(rows)
    assert touched >= hours_of(starts_ns), "what is there of other hours stays"
    return write_by(rows, starts_ns, folder)


def write_by(rows: Any, times_ns: Numbers, folder: Path) -> list[Path]:
    """Write a file for each hour of rows that are sorted by these times."""
    hours = times_ns // HOUR_NS
    bounds = [*np.unique(hours, return_index=True)[1].tolist(), len(hours)]
    files = []
    for begin, end in pairwise(bounds):
        hour = name_hour(int(hours[begin]) * HOUR_NS)
        files += write(rows.slice(begin, end - begin), folder / f"hour={hour}")
    return files


def _starts_ns(rows: Any) -> Numbers:
    """Return when the window of each row begins."""
    if "window_start" in rows.column_names:
        return nanoseconds(rows["window_start"])
    return numbers(rows["window_ns"])


def hours_of(windows_ns: Numbers) -> set[str]:
    """Name the hours in which windows begin."""
    return {name_hour(int(hour) * HOUR_NS) for hour in np.unique(windows_ns // HOUR_NS)}


def count_rows(file: Path) -> int:
    """Return how many rows a file says it has."""
    return int(pq.read_metadata(file).num_rows)
