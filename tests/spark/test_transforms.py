"""Each transformation on literal rows."""

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import SECOND
from hubbub.pipeline import histogram, schemas
from hubbub.pipeline.merging import runs
from hubbub.pipeline.merging.periods import merged
from hubbub.pipeline.transforms import (
    consumers,
    counters,
    doubles,
    messages,
    nodes,
    parts,
    periods,
    quality,
    reports,
    services,
    words,
)
from hubbub.pipeline.transforms.expressions import BUCKET
from hubbub.store import schema
from tests.spark.rows import OTHER, SOURCE, START_NS, announcement, counter, event, frame, message
from tests.unit.pipeline import digests

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


def test_buckets_are_those_of_the_histogram(spark: SparkSession) -> None:
    values = [
        0,
        1,
        2,
        3,
        4,
        7,
        8,
        63,
        64,
        65,
        127,
        128,
        999,
        1000,
        10**6,
        2**40 - 1,
        2**40,
        2**53 - 1,
        2**53,
        2**62 - 1,
    ]
    values += [-value for value in values]
    latencies = spark.createDataFrame([(one,) for one in values], "latency_ns long")
    table = latencies.selectExpr("*", *BUCKET).select("latency_ns", "bucket")
    for value, bucket in table.collect():
        least, most = histogram.bounds_ns(bucket)
        assert bucket == histogram.bucket_of(value)
        assert least <= value <= most


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


def same(made: DataFrame, expected: Any) -> None:
    """Compare what Spark made with what plain Python did."""
    got = [tuple(row) for row in made.select(*expected.column_names).collect()]
    wanted = [tuple(row.values()) for row in expected.to_pylist()]
    assert sorted(got, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("shift", [0, 6])
def test_words_have_a_bit_for_each_sequence(spark: SparkSession, shift: int) -> None:
    rows = [message(n, sequence) for n, sequence in enumerate([1, 2, 3, 5, *range(60, 140)])]
    rows += [rows[1] | {"offset": 100}, rows[8] | {"offset": 101}]
    rows += [message(200, 1, source_id=OTHER, source_name=None), message(201, 1, subject="/b")]
    same(words.words(frame(spark, rows), shift), digests.words(rows, shift))


def test_times_of_sequences_are_looked_up(spark: SparkSession) -> None:
    rows = [message(n, sequence) for n, sequence in enumerate([5, 7, 9])]
    rows.append(message(9, 7, subject="/b"))
    wanted = runs.timeless(runs.from_words(digests.words(rows, 6), 6))
    assert wanted.num_rows == 3
    made = words.times(frame(spark, rows), spark.createDataFrame(wanted))
    same(made, digests.times(rows, wanted))


def test_parts_count_messages_by_window_and_bucket(spark: SparkSession) -> None:
    rows = [message(n, n + 1, published_ns=START_NS + n * 990_000) for n in range(50)]
    rows.append(message(60, 60, received_ns=START_NS + 10 * SECOND, source_name=None))
    same(parts.parts(frame(spark, rows), WINDOW_NS), digests.parts(rows))
    timeless = parts.parts(frame(spark, [message(0, 1, published_ns=0)]), WINDOW_NS)
    assert plain(timeless, "bucket", "messages", "latency_max_us") == [(None, 1, None)]


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


def test_late_is_what_comes_when_consumers_have_given_its_slot_up(spark: SparkSession) -> None:
    ms = 1_000_000
    delays_ms = {20: (39, 41), 100: (149, 151)}  # Half a period behind the end, at least 20 ms.
    for period_ms, delays in delays_ms.items():
        rows = [
            message(
                n, n + 1, tick_ns=START_NS + n * period_ms * ms, period_ns=period_ms * ms,
                received_ns=START_NS + (n * period_ms + delay_ms) * ms,
            )
            for n, delay_ms in enumerate(delays)
        ]  # fmt: skip
        counted = periods.slots(frame(spark, [*rows, message(9, 9)]), WINDOW_NS)
        assert plain(counted, "met", "late") == [(1, 1)]


def test_slots_are_owed_within_an_epoch_and_have_one_message_each(spark: SparkSession) -> None:
    ms = 1_000_000
    first, second = START_NS, START_NS + 5 * SECOND
    # Ticks beside the boundaries, one more sample in a slot, and 4.8 s that nobody wanted any in.
    told = [
        (first, first + 3 * ms, 20), (first, first + 26 * ms, 20), (first, first + 33 * ms, None),
        (first, first + 85 * ms, 20), (second, second, 20), (second, second + 59 * ms, 20),
    ]  # fmt: skip
    rows = [
        message(
            n, n + 1, epoch=epoch, tick_ns=tick_ns, received_ns=tick_ns + ms,
            period_ns=None if period_ms is None else period_ms * ms,
        )
        for n, (epoch, tick_ns, period_ms) in enumerate(told)
    ]  # fmt: skip
    some = (periods.slots(frame(spark, part), WINDOW_NS).toArrow() for part in (rows[:2], rows[2:]))
    got = digests.compliance_of(merged(*some), WINDOW_NS)
    columns = ("slots", "met", "missed", "late")
    assert [tuple(row.values()) for row in got.select(columns).to_pylist()] == [(5 + 3, 5, 3, 0)]


def test_tenures_of_managers(spark: SparkSession) -> None:
    rows = [
        message(0, 1, service="news", epoch=1),
        message(1, 2, service="news", epoch=1),
        message(2, 1, service="news", epoch=2, source_id=OTHER),
        message(4, 4),
    ]
    got = services.tenures(frame(spark, rows))
    assert plain(got, "epoch", "messages", "manager_id") == [(1, 2, None), (2, 1, None)]
    told = [
        event(0, "ManagerChanged", detail='{"service": "news", "epoch": 2}'),
        event(1, "ManagerChanged", detail="{}"),
        event(2, "PeerJoined", detail='{"service": "news", "epoch": 3}'),
    ]
    got = services.terms(frame(spark, told, "events"))
    assert plain(got, "service", "epoch", "manager_id") == [("news", 2, SOURCE)]
