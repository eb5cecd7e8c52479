"""Small tables, written by hand: a short morning on a bus with three nodes."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hubbub.pipeline.histogram import bucket_of
from hubbub.pipeline.tables import SHAPES
from hubbub.report.reading import NAMES, Tables

SECOND_US = 1_000_000
WINDOW_US = 10 * SECOND_US
BEGIN_US = 1_794_816_000 * SECOND_US  # 2026-11-16 08:00:00
LIDAR, DASH, GPS = "aa0000" * 4, "bb0000" * 4, "cc0000" * 4
NAMES_OF = {LIDAR: "lidar", DASH: "dash", GPS: "gps"}

Row = dict[str, Any]


def tables(
    missing: tuple[str, ...] = (),
    late: int = 0,
    span_us: tuple[int, int] | None = None,
    **rows: list[Row],
) -> Tables:
    """Make tables of rows; columns that a row does not name are null."""
    assert rows.keys() <= set(NAMES)
    made = {name: table(name, found) for name, found in rows.items()}
    return Tables("tables", made, missing, late, span_us)


def table(name: str, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SHAPES[name].columns)


def health(window: int, subject: str, source: str = LIDAR, **more: Any) -> Row:
    """Make a window of a topic: ten messages of 100 bytes unless told otherwise."""
    latencies_us: list[int] = more.pop("latencies_us", [200] * 10)
    counts: dict[int, int] = {}
    for latency_us in latencies_us:
        bucket = bucket_of(latency_us * 1000)
        counts[bucket] = counts.get(bucket, 0) + 1
    return {
        "window_start": BEGIN_US + window * WINDOW_US,
        "window_end": BEGIN_US + (window + 1) * WINDOW_US,
        "subject": subject,
        "source_id": source,
        "source_name": NAMES_OF.get(source),
        "incarnation": 1,
        "messages": len(latencies_us),
        "bytes": 100 * len(latencies_us),
        "latency_max_us": float(max(latencies_us, default=0)),
        "lost": 0,
        "repairs": 0,
        "duplicates": 0,
        "histogram": sorted(counts.items()),
        "final": True,
        **more,
    }


def gap(subject: str, first: int, last: int, source: str = LIDAR, **more: Any) -> Row:
    return {
        "subject": subject,
        "source_id": source,
        "source_name": NAMES_OF.get(source),
        "incarnation": 1,
        "first_sequence": first,
        "last_sequence": last,
        "count": last - first + 1,
        "after": BEGIN_US + 12 * SECOND_US,
        "before": BEGIN_US + 13 * SECOND_US,
        "reported": True,
        "reported_as": "GapAbandoned",
        "lost_by": "bus",
        **more,
    }


def event(at_s: float, kind: str, node: str, **detail: Any) -> Row:
    return {
        "node_id": node,
        "node_name": NAMES_OF.get(node),
        "incarnation": 1,
        "time_ns": (BEGIN_US + int(at_s * SECOND_US)) * 1000,
        "number": 0,
        "kind": kind,
        "detail": json.dumps(detail),
    }


def sent(source: str, receiver: str, subject: str, messages: int) -> Row:
    return {
        "window_start": BEGIN_US,
        "source_id": source,
        "source_name": NAMES_OF.get(source),
        "receiver_id": receiver,
        "receiver_name": NAMES_OF.get(receiver),
        "subject": subject,
        "messages": messages,
        "bytes": 100 * messages,
    }


def counted(name: str, added: int, node: str = "") -> Row:
    return {
        "window_start": BEGIN_US,
        "window_end": BEGIN_US + WINDOW_US,
        "recorder": "r",
        "node_id": node,
        "incarnation": 0,
        "link": "",
        "name": name,
        "added": added,
    }


def slots(subject: str, **more: Any) -> Row:
    return {
        "window_start": BEGIN_US,
        "window_end": BEGIN_US + WINDOW_US,
        "subject": subject,
        "source_id": LIDAR,
        "source_name": "lidar",
        "incarnation": 1,
        "period_ns": 10_000_000,
        **more,
    }


def morning(**replaced: list[Row]) -> Tables:
    """Make a recording in which everything happened that a report has a word for."""
    rows: Mapping[str, list[Row]] = {
        "topic_health": [
            health(0, "/points", latencies_us=[100, 200, 300, 400]),
            health(1, "/points", lost=14, repairs=3),
            health(1, "/status", latencies_us=[150], repairs=3),
            health(2, "/fix", GPS, duplicates=2, final=False),
        ],
        "gaps": [gap("/points", 7, 20)],
        "quarantine": [
            {
                "recorder": "r",
                "offset": 9,
                "reason": "size_out_of_range",
                "subject": "/fix",
                "source_id": GPS,
                "received": BEGIN_US,
                "detail": '{"size": -1}',
            }
        ],
        "period_compliance": [slots("/speed", slots=1000, met=990, missed=4, late=6)],
        "consumer_compliance": [
            slots("/speed", slots=500, met=497, missed=3, late=1)
            | {"node_id": DASH, "node_name": "dash", "port": 9, "period_ns": 20_000_000}
        ],
        "node_timeline": [
            event(0, "PeerJoined", LIDAR),
            event(0, "PublishBegun", LIDAR),
            event(1, "PeerJoined", DASH),
            event(2, "PeerJoined", GPS),
            event(12.5, "GapAbandoned", LIDAR, first=7, last=20, reason="given_up"),
            event(15, "SlowConsumer", DASH, policy="left_behind", dropped=0, peer={"name": "dash"}),
            event(21, "PeerLeft", LIDAR, reason="died"),
            event(29, "PeerLeft", GPS, reason="closed"),
        ],
        "traffic_matrix": [sent(LIDAR, DASH, "/points", 14), sent(GPS, DASH, "/fix", 10)],
        "bus_counters": [
            counted("messages_lost", 10),
            counted("messages_lost", 4),
            counted("dropped_duplicate", 116),
            counted("lost", 14, LIDAR),
        ],
        "service_managers": [
            {"service": "news", "epoch": 1, "manager_id": LIDAR, "manager_name": "lidar"},
            {"service": "news", "epoch": 2, "manager_id": GPS, "manager_name": "gps"},
        ],
    }
    return tables(**{**rows, **replaced})
