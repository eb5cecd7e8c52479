"""A recording on disk, for tests: Parquet files as a recorder's converter leaves them."""

from itertools import groupby
from pathlib import Path
from typing import Any

from hubbub.store.layout import file_name, hour_folder, hour_of
from hubbub.store.parquet import Writer
from hubbub.store.schema import TABLES
from tests.spark.rows import arrow

_TIMES = {"messages": "received_ns"}
_NUMBERS = {"messages": "offset"}


class Recording:
    """A store that grows by segments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments = 0
        for table in ("messages", "events", "announcements", "counters"):
            (path / table).mkdir(parents=True, exist_ok=True)

    def add(self, rows: list[dict[str, Any]], table: str = "messages") -> None:
        """Add a segment: a file for each hour."""
        time, number = _TIMES.get(table, "time_ns"), _NUMBERS.get(table, "number")
        for hour, some in groupby(rows, key=lambda row: hour_of(row[time] or 0)):
            part = list(some)
            numbers = [row[number] or 0 for row in part]
            folder = hour_folder(self.path, table, hour)
            folder.mkdir(parents=True, exist_ok=True)
            name = file_name(self.segments, min(numbers), max(numbers))
            with Writer(folder / f".{name}", TABLES[table]) as writer:
                writer.write(arrow(part, table))
            (folder / f".{name}").rename(folder / name)
        self.segments += 1
