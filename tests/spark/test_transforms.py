"""Each transformation on literal rows."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from hubbub import subjects
from hubbub.limits import SECOND
from hubbub.pipeline import histogram, schemas
from hubbub.pipeline.transforms import (
    counters,
    doubles,
    gaps,
    health,
    messages,
    nodes,
    periods,
    quality,
    runs,
    services,
)
from hubbub.pipeline.transforms.expressions import bucket_bounds_ns, with_bucket
from hubbub.store import schema
from tests.spark.rows import OTHER, SOURCE, START_NS, announcement, counter, event, frame, message

WINDOW_NS = 10 * SECOND
NO_REPORTS: list[dict[str, Any]] = []


def plain(table: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.select(*columns).collect())


def found_gaps(
    spark: SparkSession, rows: list[dict[str, Any]], events: list[dict[str, Any]] = NO_REPORTS
) -> DataFrame:
    received = frame(spark, rows)
    found = runs.with_times(runs.runs(runs.words(received)), received)
    return gaps.gaps(found, gaps.reports(frame(spark, events, "events")))


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
    table = with_bucket(spark.createDataFrame([(one,) for one in values], "v long"), F.col("v"))
    low, high = bucket_bounds_ns(F.col("bucket"))
    for value, bucket, least, most in table.select("v", "bucket", low, high).collect():
        assert bucket == histogram.bucket_of(value)
        assert (least, most) == histogram.bounds_ns(bucket)
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


def test_no_gap_in_what_is_complete_also_across_words_and_out_of_order(spark: SparkSession) -> None:
    rows = [message(n, sequence) for n, sequence in enumerate([*range(60, 200), 59, 58])]
    assert plain(found_gaps(spark, rows), "first_sequence") == []


def test_gaps_are_exact_and_name_their_neighbours(spark: SparkSession) -> None:
    sequences = [5, 6, 9, 63, 64, 128, 300]
    rows = [message(n, sequence) for n, sequence in enumerate(sequences)]
    got = found_gaps(spark, rows)
    us = [F.unix_micros(name).alias(name) for name in ("after", "before")]
    columns = ("first_sequence", "last_sequence", "count", "reported", "lost_by")
    start_us = START_NS // 1000
    assert sorted(tuple(row) for row in got.select(*columns, *us).collect()) == [
        (7, 8, 2, False, "unknown", start_us + 1000, start_us + 2000),
        (10, 62, 53, False, "unknown", start_us + 2000, start_us + 3000),
        (65, 127, 63, False, "unknown", start_us + 4000, start_us + 5000),
        (129, 299, 171, False, "unknown", start_us + 5000, start_us + 6000),
    ]
    assert got.schema.names == schemas.RESULTS["gaps"].names


def test_topics_sources_and_incarnations_have_gaps_of_their_own(spark: SparkSession) -> None:
    rows = [message(0, 1), message(1, 3, incarnation=8), message(2, 5, subject="/b")]
    rows += [message(3, 7, source_id=OTHER, source_name="bob"), message(4, 2)]
    rows += [message(5, 10, source_id=OTHER, source_name="bob")]
    got = plain(found_gaps(spark, rows), "source_name", "subject", "first_sequence", "count")
    assert got == [("bob", "/a", 8, 2)]


def test_a_hole_that_several_reported_is_told_apart_by_who_lost_it(spark: SparkSession) -> None:
    rows = [message(0, 1), message(1, 20)]
    events = [
        event(0, "GapAbandoned", subject="/a", first_sequence=2, last_sequence=4),
        event(1, "GapAbandoned", subject="/a", first_sequence=5, last_sequence=6),
        event(2, "RecorderLost", subject="/a", first_sequence=10, last_sequence=12),
        event(3, "PeerJoined"),
    ]
    columns = ("first_sequence", "last_sequence", "reported", "reported_as", "lost_by")
    assert _rows(found_gaps(spark, rows, events), columns) == [
        (2, 6, True, "GapAbandoned", "bus"),
        (7, 9, False, None, "unknown"),
        (10, 12, True, "RecorderLost", "recorder"),
        (13, 19, False, None, "unknown"),
    ]


def _rows(table: DataFrame, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in table.orderBy(columns[0]).select(*columns).collect()]


def test_what_was_reported_lost_but_received_is_no_gap(spark: SparkSession) -> None:
    rows = [message(n, n + 1) for n in range(9)]
    events = [event(0, "GapAbandoned", subject="/a", first_sequence=3, last_sequence=5)]
    assert plain(found_gaps(spark, rows, events), "first_sequence") == []


def test_a_loss_behind_the_last_message_is_a_gap_if_reported(spark: SparkSession) -> None:
    events = [event(0, "GapAbandoned", subject="/a", first_sequence=2, last_sequence=9)]
    got = found_gaps(spark, [message(0, 1)], events).collect()
    assert [(row.first_sequence, row.last_sequence, row.before) for row in got] == [(2, 9, None)]
    assert got[0].after is not None


def test_merged_runs_are_the_runs_of_both_however_they_were_cut(spark: SparkSession) -> None:
    sequences = [1, 2, 3, 5, 6, 64, 65, 66, 130, 131, 133]
    rows = [message(n, sequence) for n, sequence in enumerate(sequences)]

    def found(part: list[dict[str, Any]]) -> DataFrame:
        received = frame(spark, part)
        return runs.with_times(runs.runs(runs.words(received)), received)

    whole = plain(found(rows), *runs.RUN)
    assert [(row[4], row[5]) for row in whole] == [(1, 3), (5, 6), (64, 66), (130, 131), (133, 133)]
    for cut in (4, 7):
        parts = found(rows[cut:]).unionByName(found(rows[:cut]))
        assert plain(runs.merged(parts), *runs.RUN) == whole


def test_doubled_and_overlapping_sequences_are_found(spark: SparkSession) -> None:
    rows = [message(n, sequence) for n, sequence in enumerate([1, 2, 3, 2, 70, 71])]
    assert plain(runs.doubled(runs.words(frame(spark, rows))), "first", "last") == [(0, 63)]
    known = runs.runs(runs.words(frame(spark, [message(n, n) for n in range(1, 10)])))
    new = runs.runs(runs.words(frame(spark, [message(n, n) for n in [*range(8, 14), 30]])))
    assert plain(runs.overlaps(known, new), "first", "last") == [(8, 9)]
    assert runs.overlaps(known, frame_runs(spark, [10, 11])).isEmpty()


def frame_runs(spark: SparkSession, sequences: list[int]) -> DataFrame:
    return runs.runs(runs.words(frame(spark, [message(n, n) for n in sequences])))


def made_health(spark: SparkSession, parts: DataFrame, final_ns: int = 0) -> DataFrame:
    empty = gaps.lost_by_window(found_gaps(spark, [message(0, 1), message(2, 4)]), WINDOW_NS)
    counted = frame(spark, [counter(0, "repaired", 5)], "counters")
    repaired = counters.repairs(counters.counts(counted, WINDOW_NS))
    return health.health(parts, empty, repaired, WINDOW_NS, final_ns)


def test_topic_health_of_a_window(spark: SparkSession) -> None:
    latencies_us = [*range(1, 100), 5000]
    rows = [
        message(n, n + 1, published_ns=START_NS + n * 1_000_000 - latency * 1000)
        for n, latency in enumerate(latencies_us)
    ]
    rows.append(message(100, 101, received_ns=START_NS + 10 * SECOND))
    parts = health.parts(frame(spark, rows), WINDOW_NS).select(*health.PART)
    table = made_health(spark, parts, START_NS + 15 * SECOND).orderBy("window_start")
    first, second = table.collect()
    assert table.schema.names == schemas.RESULTS["topic_health"].names
    assert (first.messages, first.bytes, first.rate) == (100, 800, 10.0)
    assert (first.lost, first.repairs, first.duplicates) == (2, 5, 0)
    assert first.latency_max_us == 5000
    assert first.latency_p50_us == pytest.approx(50, rel=0.04)
    assert first.latency_p95_us == pytest.approx(95, rel=0.04)
    assert first.latency_p99_us == pytest.approx(99, rel=0.04)
    assert first.jitter_us == pytest.approx(493, rel=0.05)
    assert sum(first.histogram.values()) == 100
    assert (first.final, second.final) == (True, False)
    assert (second.messages, second.lost) == (1, 0)


def test_topic_health_taken_apart_and_merged_is_the_same(spark: SparkSession) -> None:
    rows = [message(n, n + 1, published_ns=START_NS + n * 990_000) for n in range(50)]

    def parts(some: list[dict[str, Any]]) -> DataFrame:
        return health.parts(frame(spark, some), WINDOW_NS).select(*health.PART)

    whole = made_health(spark, parts(rows))
    half = made_health(spark, parts(rows[20:]))
    again = made_health(spark, health.taken_apart(half).unionByName(parts(rows[:20])))
    assert again.collect() == whole.collect()


def test_clocks_that_disagree_show_as_negative_latency(spark: SparkSession) -> None:
    rows = [message(n, n + 1, published_ns=START_NS + n * 1_000_000 + 64_000) for n in range(3)]
    row = made_health(spark, health.parts(frame(spark, rows), WINDOW_NS)).first()
    assert row is not None
    assert (row.latency_p50_us, row.latency_max_us) == (-64, -64)
    assert row.jitter_us == pytest.approx(0)


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


PATTERNS = [
    "/a",
    "/a/*",
    "/*",
    "/a/...",
    "/...",
    "/*/b",
    "/a/*/c",
    "/a.c",
    "/fo*",
    "/\\E/x",
    "/a/*/...",
]
SUBJECTS = ["/a", "/a/b", "/a/b/c", "/b", "/abc", "/fo*", "/foo", "/\\E/x", "/a/…x", "/a.c"]


def test_patterns_match_in_spark_as_on_the_bus(spark: SparkSession) -> None:
    names = [one for one in SUBJECTS if subjects.is_subject(one)]
    pairs = [(pattern, subject) for pattern in PATTERNS for subject in names]
    table = spark.createDataFrame(pairs, "p string, s string").withColumn(
        "is_match", F.rlike(F.col("s"), nodes.pattern_as_regex(F.col("p")))
    )
    for pattern, subject, is_match in table.collect():
        assert is_match == subjects.matches(pattern, subject), (pattern, subject)


def test_traffic_goes_to_those_who_were_there(spark: SparkSession) -> None:
    rows = [message(0, 1), message(1, 2, received_ns=START_NS + 10 * SECOND)]
    rows.append(message(2, 1, subject="/b"))
    table = made_health(spark, health.parts(frame(spark, rows), WINDOW_NS))
    announced = [
        announcement(0, "/a", node_id="r1", node_name="bob"),
        announcement(1, "/*", node_id="r1", node_name="bob"),
        announcement(2, "/b", node_id="r2", node_name="eve", time_ns=START_NS + 11 * SECOND),
        announcement(3, "/a", node_id="r3", node_name="dan"),
        announcement(4, "/a", node_id="r4", node_name="joe"),
        announcement(9, "/a", node_id="r4", node_name="joe", is_present=False),
    ]
    left = [event(5, "PeerLeft", node_id="r3", time_ns=START_NS + 5 * SECOND)]
    present = nodes.presence(frame(spark, announced, "announcements")).unionByName(
        nodes.departures(frame(spark, left, "events"))
    )
    got = nodes.traffic(table, present)
    seconds = ((F.unix_micros("window_start") - START_NS // 1000) / 1_000_000).cast("int")
    columns = ("subject", "receiver_name", "messages", "bytes")
    assert sorted(tuple(row) for row in got.select(seconds, *columns).collect()) == [
        (0, "/a", "bob", 1, 8),
        (0, "/a", "dan", 1, 8),
        (0, "/a", "joe", 1, 8),
        (0, "/b", "bob", 1, 8),
        (10, "/a", "bob", 1, 8),
    ]
    assert got.schema.names == schemas.RESULTS["traffic_matrix"].names


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


def test_periods_met_missed_and_late(spark: SparkSession) -> None:
    second = SECOND
    rows = [
        message(
            n, n + 1, tick_ns=START_NS + tick * second, period_ns=second,
            received_ns=START_NS + tick * second + delay_ms * 1_000_000,
        )
        for n, (tick, delay_ms) in enumerate(
            [(0, 1), (1, 1), (2, 1500), (4, 1), (35, 1)]
        )
    ]  # fmt: skip
    counted = periods.slots(frame(spark, [*rows, message(9, 9)]), WINDOW_NS)
    got = periods.compliance(periods.merged_slots(counted), WINDOW_NS)
    at = ((F.unix_micros("window_start") - START_NS // 1000) / 1_000_000).cast("int").alias("at")
    columns = ("at", "slots", "met", "missed", "late")
    assert plain(got.withColumn("at", at), *columns) == [
        (0, 10, 3, 6, 1),
        (10, 10, 0, 10, 0),
        (20, 10, 0, 10, 0),
        (30, 6, 1, 5, 0),
    ]
    assert got.schema.names == schemas.RESULTS["period_compliance"].names


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
    parts = [periods.slots(frame(spark, some), WINDOW_NS) for some in (rows[:2], rows[2:])]
    got = periods.compliance(periods.merged_slots(parts[1].unionByName(parts[0])), WINDOW_NS)
    assert plain(got, "slots", "met", "missed", "late") == [(5 + 3, 5, 3, 0)]


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
        counted = periods.slots(frame(spark, rows), WINDOW_NS)
        assert plain(counted, "met", "late") == [(1, 1)]


def test_service_managers_by_epoch(spark: SparkSession) -> None:
    rows = [
        message(0, 1, service="news", epoch=1),
        message(1, 2, service="news", epoch=1),
        message(2, 1, service="news", epoch=2, source_id=OTHER, source_name="bob"),
        message(3, 3, service="news", epoch=2),
        message(4, 4),
    ]
    table = frame(spark, rows)
    parts = services.tenures(table).unionByName(services.tenures(table.where("offset < 0")))
    got = services.managers(services.merged_tenures(parts))
    assert plain(got, "service", "epoch", "manager_id", "messages") == [
        ("news", 1, SOURCE, 2), ("news", 2, OTHER, 1),
    ]  # fmt: skip
    assert got.schema.names == schemas.RESULTS["service_managers"].names
