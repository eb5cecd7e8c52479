"""The tables of a pipeline, read as they are; what is missing is empty, and said to be missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.errors import ConfigurationError
from hubbub.limits import TABLE_READ_ATTEMPTS
from hubbub.pipeline.tables import SHAPES, read
from hubbub.pipeline.versions import Versions

NAMES: Final = (
    *("topic_health", "gaps", "quarantine", "period_compliance"),
    "consumer_compliance",
    *("node_timeline", "traffic_matrix", "service_managers", "bus_counters"),
)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that a report is made of, with `missing` those that are not there."""

    path: str
    tables: Mapping[str, pa.Table]
    missing: tuple[str, ...] = ()
    late: int = 0
    """Messages that a live run put aside; the next incremental run counts them in."""
    span_us: tuple[int, int] | None = None
    """When the first and the last message were received; None: only their windows are known."""

    def __getitem__(self, name: str) -> pa.Table:
        found = self.tables.get(name)
        return SHAPES[name].columns.empty_table() if found is None else found


def read_tables(path: Path) -> Tables:
    """Read what a pipeline has written, all of it as it was at one time."""
    if not path.is_dir():
        raise ConfigurationError(f"{path} is no folder of tables: `hubbub pipeline run` makes one")
    for _ in range(TABLE_READ_ATTEMPTS):
        version = Versions(path).current
        tables = {name: read(path, name) for name in NAMES}
        late = read(path, "late").num_rows
        span_us = _span_us(Versions(path).files("messages"))
        if Versions(path).current == version:
            break
    missing = tuple(name for name in NAMES if not (path / name).is_dir())
    return Tables(str(path), tables, missing, late, span_us)


def _span_us(files: list[Path]) -> tuple[int, int] | None:
    """Look up the first and the last time in what each file says of itself."""
    times = [time_us for file in files for time_us in _times_us(pq.read_metadata(file))]
    return (min(times), max(times)) if times else None


def _times_us(metadata: Any) -> Iterator[int]:
    column = metadata.schema.to_arrow_schema().names.index("received_ns")
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            yield from (statistics.min // 1000, statistics.max // 1000)
