"""Digests of literal rows, made by plain Python: what workers make is compared with them."""

from typing import Any

import numpy as np
import pyarrow as pa

from hubbub.limits import SECOND
from hubbub.pipeline.histogram import bucket_of
from hubbub.pipeline.merging import periods
from hubbub.pipeline.registry import DIGESTS, REGISTRY

WINDOW_NS = 10 * SECOND
TOPIC = ("source_id", "incarnation", "subject")

Row = dict[str, Any]


def digest(name: str, rows: list[Row]) -> Any:
    """Make a digest of rows; columns that are not said are null."""
    return _table(DIGESTS[name].columns, rows)


def kept(name: str, rows: list[Row]) -> Any:
    """Make a table of rows; columns that are not said are null."""
    return _table(REGISTRY[name].columns, rows)


def _table(columns: Any, rows: list[Row]) -> Any:
    known = [{name: row.get(name) for name in columns.names} for row in rows]
    return pa.Table.from_pylist(known, schema=columns)


def pieces(rows: list[Row]) -> Any:
    """Find what was received without a hole, one message after the other."""
    names = (*TOPIC, "source_name")
    found: list[Row] = []
    for row in sorted(
        rows, key=lambda row: (*(repr(row[name]) for name in names), row["sequence"])
    ):
        key = {name: row[name] for name in names}
        sequence, received_ns = row["sequence"], row["received_ns"]
        is_next = found and found[-1] | key == found[-1] and found[-1]["last"] == sequence - 1
        if not is_next:
            found.append(key | {"first": sequence, "first_ns": received_ns})
        found[-1] |= {"last": sequence, "last_ns": received_ns}
    return digest("pieces", found)


def parts(rows: list[Row]) -> Any:
    """Count messages by topic, window and bucket of latency."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        latency_ns = row["received_ns"] - row["published_ns"]
        window_ns = row["received_ns"] // WINDOW_NS * WINDOW_NS
        key = (window_ns, *(row[name] for name in (*TOPIC, "source_name")), bucket_of(latency_ns))
        names = ("window_ns", *TOPIC, "source_name", "bucket")
        part = found.setdefault(
            key,
            dict(zip(names, key, strict=True))
            | {"messages": 0, "bytes": 0, "duplicates": 0, "latency_max_us": latency_ns / 1000}
            | {"newest_ns": 0},
        )
        part["messages"] += 1
        part["bytes"] += row["size"]
        part["latency_max_us"] = max(part["latency_max_us"], latency_ns / 1000)
        part["newest_ns"] = max(part["newest_ns"], row["received_ns"])
    return digest("parts", list(found.values()))


def rows_of(table: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns as tuples, sorted."""
    return sorted(tuple(row.values()) for row in table.select(columns).to_pylist())


def compliance_of(slots: Any, window_ns: int) -> Any:
    """Make the table of periods of all slots at once."""
    none = kept(".spells", [])
    hours = np.array(sorted(periods.hours_changed(none, slots, window_ns)), dtype=np.int64)
    return periods.compliance(slots, periods.spells(none, slots), hours, window_ns)
