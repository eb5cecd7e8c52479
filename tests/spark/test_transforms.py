"""Each transformation on literal rows."""

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import SECOND
from hubbub.pipeline import schemas
from hubbub.pipeline.digesting import quality as arrow_quality
from hubbub.pipeline.transforms import (
    consumers,
    counters,
    doubles,
    messages,
    nodes,
    quality,
    reports,
    services,
)
from hubbub.store import schema
from tests.spark.rows import (
    OTHER,
    SOURCE,
    START_NS,
    announcement,
    arrow,
    counter,
    event,
    frame,
    message,
)

WINDOW_NS = 10 * SECOND


def plain(table: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.select(*columns).collect())


def test_columns_of_spark_are_those_of_the_store() -> None:
    for name, columns in schema.TABLES.items():
        struct = schemas.RECORDED[name]
        assert struct.names == columns.names
        kinds = {"string": "string", "int64": "bigint", "int32": "int", "bool": "boolean"}
        kinds |= {"binary": "binary", "timestamp[us, tz=UTC]": "timestamp"}
        assert [field.dataType.simpleString() for field in struct] == [
            kinds[str(column.type)] for column in columns
        ]
        assert all(field.nullable for field in struct)


BAD = [
    ({"sequence": None}, "missing_key"),
    ({"subject": None}, "missing_key"),
    ({"source_id": None}, "missing_key"),
    ({"sequence": 0}, "sequence_out_of_range"),
    ({"received_ns": None}, "published_out_of_range"),
    ({"received_ns": 1 << 62, "published_ns": 5}, "received_out_of_range"),
    ({"published_ns": -1}, "published_out_of_range"),
    ({"size": -1}, "size_out_of_range"),
    ({"size": None}, "size_out_of_range"),
    ({"size": 7}, "size_is_not_the_payloads"),
]


def test_every_row_is_good_or_in_quarantine_under_one_reason(spark: SparkSession) -> None:
    rows = [message(n, **{"sequence": n + 1} | bad) for n, (bad, _) in enumerate(BAD)]
    rows += [message(100, 100), message(101, 101, payload=b"")]
    table = frame(spark, rows)
    bad = quality.quarantined(table, with_payload=True)
    assert plain(bad, "offset", "reason") == [(n, reason) for n, (_, reason) in enumerate(BAD)]
    assert plain(quality.good(table, with_payload=True), "offset") == [(100,), (101,)]
    checks = arrow_quality.asked(frozenset(), with_payload=True)
    left = arrow_quality.good(arrow(rows), checks)
    assert left["offset"].to_pylist() == [100, 101], "Spark and Arrow agree"
    assert bad.schema.names == schemas.RESULTS["quarantine"].names


def test_typed_payloads_become_json_and_garbage_null(spark: SparkSession) -> None:
    rows = [
        message(0, 1, payload=b"\x81\xa1x\x05", schema="Point"),
        message(1, 2, payload=b"\xc1", schema="Point"),
        message(2, 3, payload=b"\x05"),
    ]
    table = messages.messages(messages.with_value(frame(spark, rows), has_typed=True))
    assert plain(table, "offset", "value") == [(0, '{"x":5}'), (1, None), (2, None)]
    assert table.schema.names == schemas.RESULTS["messages"].names


def test_first_received_copy_is_the_message(spark: SparkSession) -> None:
    late = START_NS + SECOND
    rows = [message(5, 1, received_ns=late), message(9, 1, recorder="two"), message(6, 2)]
    copies = frame(spark, rows).withColumn("is_new", F.lit(True))
    got = plain(doubles.ranked(copies), "recorder", "offset", "rank")
    assert got == [("rec", 5, 2), ("rec", 6, 1), ("two", 9, 1)]


def test_node_timeline_has_events_and_announcements_in_one_order(spark: SparkSession) -> None:
    events = frame(spark, [event(0, "PeerJoined"), event(1, "Nagging", node_id=None)], "events")
    announced = frame(
        spark,
        [announcement(2, "/a"), announcement(3, "/a", role="publisher", is_present=False)],
        "announcements",
    )
    got = nodes.timeline(events, announced)
    assert plain(got, "number", "kind") == [
        (0, "PeerJoined"), (2, "SubscriptionBegun"), (3, "PublishEnded"),
    ]  # fmt: skip
    assert got.schema.names == schemas.RESULTS["node_timeline"].names


def test_marks_tell_how_far_counters_had_come(spark: SparkSession) -> None:
    own = {"node_id": None, "node_name": None, "incarnation": None, "link": None}
    rows = [
        counter(0, "repaired", 3, link="local", time_ns=START_NS + SECOND),
        counter(1, "repaired", 5, link="local", time_ns=START_NS + 9 * SECOND),
        counter(2, "repaired", 6, link="local", time_ns=START_NS + 11 * SECOND),
        counter(3, "repaired", 8, link="local", time_ns=START_NS + 12 * SECOND, since_ns=9),
        counter(5, "gaps", 7, time_ns=START_NS, **own),
    ]
    got = counters.marks(frame(spark, rows, "counters"), WINDOW_NS)
    assert plain(got, "node_id", "incarnation", "name", "window_ns", "since_ns", "mark") == [
        ("", 0, "gaps", START_NS, 0, 7),
        (SOURCE, 7, "repaired", START_NS, 0, 5),
        (SOURCE, 7, "repaired", START_NS + WINDOW_NS, 0, 6),
        (SOURCE, 7, "repaired", START_NS + WINDOW_NS, 9, 8),
    ]


def test_slots_that_consumers_told_are_added_up_by_window(spark: SparkSession) -> None:
    slots = {"subject": "/a", "port": 9, "period_ns": 5, "served": 3, "missed": 2, "late": 1}
    detail = json.dumps([slots, slots | {"port": 8, "vacant": 4}])
    rows = [
        event(0, "SlotsCounted", detail=detail),
        event(1, "SlotsCounted", detail=detail),
        event(2, "SlotsCounted", detail="what is this"),
        event(3, "PeerJoined", detail=detail),
    ]
    got = consumers.consumed(frame(spark, rows, "events"), WINDOW_NS)
    assert plain(got, "window_ns", "port", "served", "missed", "late", "vacant") == [
        (START_NS, 8, 6, 4, 2, 8),
        (START_NS, 9, 6, 4, 2, 0),
    ]
    [left] = nodes.timeline(
        frame(spark, rows, "events"), frame(spark, [], "announcements")
    ).collect()
    assert left.kind == "PeerJoined"


def test_reports_tell_what_is_lost_and_what_quarantine_took(spark: SparkSession) -> None:
    events = [
        event(0, "GapAbandoned", subject="/a", first_sequence=2, last_sequence=4),
        event(1, "RecorderLost", subject="/a", first_sequence=7),
        event(2, "SlowConsumer"),
        event(3, "PeerJoined", subject="/a", first_sequence=9),
    ]
    got = reports.reports(frame(spark, events, "events"))
    assert plain(got, "kind", "first", "last") == [("GapAbandoned", 2, 4), ("RecorderLost", 7, 7)]
    rows = frame(spark, [message(0, 5, size=99), message(1, 0)])
    bad = reports.reports_of_quarantine(quality.quarantined(rows, with_payload=True))
    assert plain(bad, "kind", "first", "last") == [("Quarantined", 5, 5)]


def test_presence_is_of_subscribers_and_ends_with_their_node(spark: SparkSession) -> None:
    announced = [announcement(0, "/a"), announcement(1, "/a", role="publisher")]
    left = [event(5, "PeerLeft", node_id=OTHER), event(6, "PeerJoined")]
    present = nodes.presence(frame(spark, announced, "announcements")).unionByName(
        nodes.departures(frame(spark, left, "events"))
    )
    got = {tuple(row) for row in present.select("node_id", "subject", "is_present").collect()}
    assert got == {(SOURCE, "/a", True), (OTHER, None, False)}


def test_terms_tell_who_became_the_manager_of_a_service(spark: SparkSession) -> None:
    told = [
        event(0, "ManagerChanged", detail='{"service": "news", "epoch": 2}'),
        event(1, "ManagerChanged", detail="{}"),
        event(2, "PeerJoined", detail='{"service": "news", "epoch": 3}'),
    ]
    got = services.terms(frame(spark, told, "events"))
    assert plain(got, "service", "epoch", "manager_id") == [("news", 2, SOURCE)]
