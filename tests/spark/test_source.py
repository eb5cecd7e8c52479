"""The format `hubbub` in Spark: batches and streams of a recording, the open segment included."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

import hubbub
from hubbub.store.schema import TABLES
from tests.integration.bus import fresh_place, wait_until
from tests.unit.pipeline.recording import RECORDER, Recording


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Make a store with one converted, one closed and one open segment: 24 messages."""
    recording = Recording(tmp_path / "store")
    for _ in range(3):
        recording.add("/a/x", *(b"x%d" % n for n in range(5)))
        recording.add("/b", b"1", b"2", b"3")
        recording.add_row("events", kind="PeerJoined", node_name="n")
        recording.add_row("counters", name="messages", value=1)
        if recording._segment < 2:
            recording.roll()
    recording.convert()
    return recording


def load(spark: SparkSession, recording: Recording, **options: Any) -> DataFrame:
    return spark.read.format("hubbub").options(**options).load(str(recording.path))


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_batch_has_the_schema_and_every_row_of_all_three_kinds_of_file(
    spark: SparkSession, recording: Recording
) -> None:
    frame = load(spark, recording)
    assert frame.schema == from_arrow_schema(TABLES["messages"])
    rows = frame.orderBy("offset").collect()
    assert [(row.offset, row.subject, bytes(row.payload)) for row in rows] == recording.messages
    assert {row.recorder for row in rows} == {RECORDER}


def test_a_table_without_rows_is_empty_and_no_error(spark: SparkSession, tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    recording.add("/a", b"1")
    recording.roll()
    recording.close()
    recording.convert(9)
    assert load(spark, recording, table="events").collect() == []


def test_batch_by_subjects_offsets_and_parts(spark: SparkSession, recording: Recording) -> None:
    picked = load(spark, recording, subjects="/a/*")
    assert offsets(picked) == [n for n, subject, _ in recording.messages if subject == "/a/x"]
    ranged = load(
        spark, recording, startingOffsets=json.dumps({RECORDER: 6}),
        endingOffsets=json.dumps({RECORDER: 19}), maxRowsPerPartition="4",
    )  # fmt: skip
    assert ranged.rdd.getNumPartitions() > 3
    assert offsets(ranged) == list(range(6, 19))


def test_other_tables(spark: SparkSession, recording: Recording) -> None:
    for table in ("events", "counters"):
        frame = load(spark, recording, table=table)
        assert frame.schema == from_arrow_schema(TABLES[table])
        numbers = sorted(row.number for row in frame.collect())
        assert numbers == [number for number, of in recording.rows if of == table]


def test_wrong_option_ends_the_query_with_its_name(
    spark: SparkSession, recording: Recording
) -> None:
    with pytest.raises(PySparkException, match="no option subject; there are path"):
        load(spark, recording, subject="/a").collect()


def run_available(
    spark: SparkSession, recording: Recording, folder: Path, **options: Any
) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """Read all there is; return the offsets of each batch, and Spark's own account of it."""
    batches: list[list[int]] = []
    query = (
        spark.readStream.format("hubbub")
        .options(startingOffsets="earliest", **options)
        .load(str(recording.path))
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(folder))
        .foreachBatch(lambda frame, _: batches.append(offsets(frame)))
        .start()
    )
    query.awaitTermination(60)
    sources = [json.loads(progress.json)["sources"][0] for progress in query.recentProgress]
    return batches, sources


def test_stream_takes_at_most_so_many_rows_a_batch_and_ends_with_what_was_there(
    spark: SparkSession, recording: Recording, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    batches, sources = run_available(spark, recording, folder, maxRowsPerTrigger="10")
    assert [len(batch) for batch in batches] == [10, 10, 4]
    assert Counter(n for batch in batches for n in batch) == Counter(range(24))
    assert sources[0]["endOffset"] == {RECORDER: 10}
    assert sources[0]["latestOffset"] == {RECORDER: 24}
    recording.add("/b", b"later")
    recording.roll()
    recording.convert(9)
    batches, _ = run_available(spark, recording, folder, maxRowsPerTrigger="10")
    assert batches == [[24]]


class Fault(Exception):
    """What ends a batch in the middle."""


def test_batch_that_failed_is_read_again_with_the_same_offsets(
    spark: SparkSession, recording: Recording, tmp_path: Path
) -> None:
    """Between the two, segments are converted and the recording goes on."""
    seen: list[tuple[int, list[int]]] = []

    def take(frame: DataFrame, number: int) -> None:
        seen.append((number, offsets(frame)))
        if len(seen) == 2:
            raise Fault

    def run() -> Any:
        query = (
            spark.readStream.format("hubbub")
            .options(startingOffsets="earliest", maxRowsPerTrigger="9")
            .load(str(recording.path))
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(take)
            .start()
        )
        query.awaitTermination(60)

    with pytest.raises(PySparkException, match="Fault"):
        run()
    recording.add("/b", b"more", b"and more")
    recording.roll()
    recording.convert(9)
    run()
    numbers = [number for number, _ in seen]
    assert numbers == [0, 1, 1, 2]
    assert seen[1][1] == seen[2][1] == list(range(9, 18))
    assert [n for number, batch in (seen[0], *seen[2:]) for n in batch] == list(range(26))


def test_stream_follows_the_open_segment(
    spark: SparkSession, recording: Recording, tmp_path: Path
) -> None:
    query = (
        spark.readStream.format("hubbub")
        .load(str(recording.path))
        .groupBy()
        .agg(F.count("*").alias("n"), F.min("offset").alias("first"))
        .writeStream.format("memory")
        .queryName("followed")
        .outputMode("complete")
        .trigger(processingTime="100 milliseconds")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        for n in range(3):
            recording.add("/b", b"new", b"newer")
            if n == 1:
                recording.roll()
                recording.convert(9)
            query.processAllAvailable()
            # A stream begins with what is new, unless it is told otherwise.
            assert tuple(spark.table("followed").first()) == (2 * (n + 1), 24)
    finally:
        query.stop()


def test_pruned_range_fails_the_stream_by_name_unless_that_is_accepted(
    spark: SparkSession, recording: Recording, tmp_path: Path
) -> None:
    start = json.dumps({RECORDER: 3})
    recording.prune()
    with pytest.raises(PySparkException, match=rf"offset 3\.\.7 of recorder {RECORDER} is not in"):
        load(spark, recording, startingOffsets=start).collect()
    kept = load(spark, recording, startingOffsets=start, failOnDataLoss="false")
    assert offsets(kept) == list(range(8, 24))


def test_recorder_at_work_is_read_and_judged(spark: SparkSession, tmp_path: Path) -> None:
    """Read what a real recorder has acknowledged, while it records."""
    place = fresh_place()
    with (
        place.open("plant") as publisher,
        place.open("recorder") as node,
        hubbub.Recorder(node, ["/..."], tmp_path / "store") as recorder,
    ):
        temp = publisher.publisher("/plant/temp")
        assert temp.wait_for_subscribers(1, 10)
        for n in range(300):
            temp.publish(b"%d" % n)
        wait_until(lambda: recorder.acknowledged == 300)
        frame = spark.read.format("hubbub").load(str(tmp_path / "store"))
        rows = frame.select("offset", "sequence", "payload").collect()
        assert [bytes(row.payload) for row in rows] == [b"%d" % n for n in range(300)]
        assert [row.sequence for row in rows] == list(range(1, 301))
        events = spark.read.format("hubbub").option("table", "events")
        kinds = {row.kind for row in events.load(str(tmp_path / "store")).collect()}
        assert {"RecorderStarted", "PeerJoined"} <= kinds
