"""Few files instead of many small ones: a live run adds one to a table every second."""

from pathlib import Path

import pyarrow.parquet as pq

from hubbub.limits import TABLE_SMALL_BYTES, TABLE_SMALL_FILES_MAX
from hubbub.pipeline.versions import Versions, hour_of


def thinned(versions: Versions, files: list[Path]) -> list[Path]:
    """Put small files of a table together, if there are many; the order of rows stays."""
    small = [file for file in files if not hour_of(file) and _is_small(file)]
    if len(small) <= TABLE_SMALL_FILES_MAX:
        return files
    folder = versions.staging("thinned")
    folder.mkdir()
    path = folder / "all.parquet"
    with pq.ParquetWriter(path, pq.read_schema(small[0]), compression="zstd") as writer:
        for file in small:
            writer.write_table(pq.read_table(file))
    kept = [file for file in files if file not in set(small)]
    return [*kept, path]


def _is_small(file: Path) -> bool:
    return file.stat().st_size < TABLE_SMALL_BYTES
