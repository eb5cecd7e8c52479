"""Few files instead of many small ones: a live run adds one to a table every second."""

from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq

from hubbub.limits import TABLE_SMALL_BYTES, TABLE_SMALL_FILES_MAX
from hubbub.pipeline.versions import Versions, hour_of


def thinned(versions: Versions, files: list[Path]) -> list[Path]:
    """Put small files of a table that lie side by side together; the order of all rows stays."""
    small = {file for file in files if not hour_of(file) and _is_small(file)}
    if len(small) <= TABLE_SMALL_FILES_MAX:
        return files
    kept: list[Path] = []
    for is_small, side_by_side in groupby(files, key=small.__contains__):
        some = list(side_by_side)
        kept += [_joined(versions, some)] if is_small and len(some) > 1 else some
    return kept


def _joined(versions: Versions, files: list[Path]) -> Path:
    folder = versions.staging("thinned")
    folder.mkdir()
    path = folder / files[0].name  # It takes the place of the first of them.
    with pq.ParquetWriter(path, pq.read_schema(files[0]), compression="zstd") as writer:
        for file in files:
            writer.write_table(pq.read_table(file))
    return path


def _is_small(file: Path) -> bool:
    return file.stat().st_size < TABLE_SMALL_BYTES
