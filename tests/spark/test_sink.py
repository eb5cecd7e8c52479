"""Frames that are published: every row arrives, and a batch that is run again arrives once."""

import re
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import hubbub
from hubbub.errors import ConfigurationError
from hubbub.pipeline.source.sink import Options, check_columns, take_options
from hubbub.pipeline.source.spool import Spool
from tests.integration.bus import Place, fresh_place, take
from tests.unit.pipeline.recording import Recording


def options_of(place: Place) -> dict[str, str]:
    return {
        "domain": place.domain,
        "interface": "127.0.0.1",
        "channel": f"{place.group}:{place.port}",
        "links": "local,multicast",
        "waitForSubscribers": "1",
    }


def write(frame: DataFrame, place: Place, **options: str) -> None:
    given = {**options_of(place), **options}
    frame.write.format("hubbub").options(**given).mode("append").save()


def test_rows_of_a_frame_arrive_in_order_with_type_and_time(spark: SparkSession) -> None:
    place = fresh_place()
    with place.open("listener", links=["local", "multicast"]) as node:
        subscription = node.subscribe("/...", queue=10_000)
        frame = spark.range(500).selectExpr(
            "concat('/rows/', id % 2) AS subject",
            "cast(id AS string) AS payload",
            "'Row' AS schema",
            "-7L AS schema_hash",
            "id + 1000 AS published_ns",
        )
        write(frame, place)
        messages = take(subscription, 500)
        for parity in (0, 1):
            of_one = [m for m in messages if m.subject == f"/rows/{parity}"]
            assert [int(m.payload) for m in of_one] == list(range(parity, 500, 2))
            assert [m.published_ns for m in of_one] == list(range(1000 + parity, 1500, 2))
        assert messages[0].source.name.startswith("spark-")
        write(frame.limit(3), place)  # Another frame is not a repeat.
        assert len(take(subscription, 3)) == 3
        assert subscription.statistics().repeats == 0


def test_batch_of_a_stream_that_is_run_again_is_taken_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Forget that a batch was done, as a crash before the commit does, and run the query again."""
    recording = Recording(tmp_path / "store")
    recording.add("/a", *(b"%d" % n for n in range(40)))
    place = fresh_place()
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        query = (
            spark.readStream.format("hubbub")
            .options(startingOffsets="earliest")
            .load(str(recording.path))
            .select("subject", "payload")
            .writeStream.format("hubbub")
            .options(**options_of(place), checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    with place.open("listener", links=["local", "multicast"]) as node:
        subscription: hubbub.Subscription = node.subscribe("/a", queue=10_000)
        run()
        assert [int(m.payload) for m in take(subscription, 40)] == list(range(40))
        (checkpoint / "commits" / "0").unlink()
        recording.roll()
        recording.convert()
        recording.add("/a", *(b"%d" % n for n in range(40, 45)))
        run()
        assert [int(m.payload) for m in take(subscription, 5)] == list(range(40, 45))
        assert subscription.statistics().repeats == 40
        assert subscription.receive(0) is None


def test_what_cannot_be_published_is_said_before_anything_is(spark: SparkSession) -> None:
    place = fresh_place()
    with pytest.raises(PySparkException, match="column key: a frame that is published has subject"):
        write(spark.sql("SELECT '/a' AS subject, 'x' AS payload, 1 AS key"), place)
    with pytest.raises(PySparkException, match="row 0 of the task: subject and payload may not be"):
        write(spark.sql("SELECT '/a' AS subject, cast(NULL AS binary) AS payload"), place)
    with pytest.raises(PySparkException, match="not the 1 of waitForSubscribers"):
        write(spark.sql("SELECT '/a' AS subject, 'x' AS payload"), place, timeout="0.3")


def test_columns_are_checked() -> None:
    good = StructType().add("subject", "string").add("payload", "binary")
    check_columns(good)
    check_columns(good.add("published_ns", "long"))
    with pytest.raises(ConfigurationError, match="only subject: a frame that is published"):
        check_columns(StructType().add("subject", "string"))
    with pytest.raises(ConfigurationError, match="column payload is int: make it binary or string"):
        check_columns(StructType().add("subject", "string").add("payload", "integer"))


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("rate", "-1", "rate='-1' must be a number"),
        ("rate", "fast", "rate='fast' must be a number"),
        ("channel", "239.1.2.3", "write GROUP:PORT"),
        ("brokers", "x", "no option brokers; there are domain"),
    ],
)
def test_wrong_option_is_named(option: str, value: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        take_options({option: value})


def test_options_of_spark_itself_are_passed_over() -> None:
    assert take_options({"checkpointLocation": "/tmp/x", "path": "y"}) == Options({})


def test_fingerprint_is_of_the_rows_and_not_of_their_batches() -> None:
    table = pa.table({"subject": ["/a", "/b", "/a"], "payload": [b"1", b"2", b"3"]})
    with (
        closing(Spool(table.to_batches())) as whole,
        closing(Spool(table.to_batches(max_chunksize=1))) as parts,
        closing(Spool(table.take([1, 0, 2]).to_batches())) as other,
        closing(Spool([])) as empty,
    ):
        assert whole.fingerprint == parts.fingerprint != other.fingerprint
        assert pa.Table.from_batches(parts.batches()).equals(table)
        assert list(empty.batches()) == []
