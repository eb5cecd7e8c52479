"""Literal rows of a recording, for tests: only what matters is said."""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from hubbub.limits import SECOND
from hubbub.store import schema

START_NS = 1_800_000_000 * SECOND  # A full hour, in 2027.
SOURCE = "a1" * 12
OTHER = "b2" * 12


def message(offset: int, sequence: int, **fields: Any) -> dict[str, Any]:
    """Make a row of messages: received a millisecond after each other, published 100 us before."""
    received_ns = fields.pop("received_ns", START_NS + offset * 1_000_000)
    published_ns = fields.pop("published_ns", received_ns and received_ns - 100_000)
    payload = fields.pop("payload", b"x" * 8)
    return {
        "recorder": "rec",
        "offset": offset,
        "subject": "/a",
        "source_name": "alice",
        "source_id": SOURCE,
        "incarnation": 7,
        "sequence": sequence,
        "published_ns": published_ns,
        "received_ns": received_ns,
        "published": _microseconds(published_ns),
        "received": _microseconds(received_ns),
        "link": "multicast",
        "size": len(payload),
        "payload": payload,
    } | fields


def event(number: int, kind: str, **fields: Any) -> dict[str, Any]:
    """Make a row of events."""
    return _other(number, kind=kind, **{"detail": "{}"} | fields)


def announcement(number: int, subject: str, **fields: Any) -> dict[str, Any]:
    """Make a row of announcements: a subscriber, unless told otherwise."""
    usual = {"role": "subscriber", "link": "local", "is_present": True}
    return _other(number, subject=subject, **usual | fields)


def counter(number: int, name: str, value: int, **fields: Any) -> dict[str, Any]:
    """Make a row of counters."""
    return _other(number, name=name, value=value, **fields)


def _other(number: int, **fields: Any) -> dict[str, Any]:
    time_ns = fields.pop("time_ns", START_NS + number * 1_000_000)
    row = {
        "recorder": "rec",
        "number": number,
        "time_ns": time_ns,
        "time": _microseconds(time_ns),
        "node_name": "alice",
        "node_id": SOURCE,
        "incarnation": 7,
    }
    return row | fields


def arrow(rows: list[dict[str, Any]], table: str = "messages") -> Any:
    """Turn rows into an Arrow table of a recording."""
    columns = schema.TABLES[table]
    return pa.Table.from_pylist(
        [{name: row.get(name) for name in columns.names} for row in rows], schema=columns
    )


def frame(spark: SparkSession, rows: list[dict[str, Any]], table: str = "messages") -> DataFrame:
    """Turn rows into a data frame of a recording."""
    return spark.createDataFrame(arrow(rows, table))


def _microseconds(time_ns: int | None) -> int | None:
    """Return a timestamp as Arrow takes it."""
    return None if time_ns is None else time_ns // 1000
