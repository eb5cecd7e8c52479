"""A stream of Spark's own over the files of a store, while they are compacted and swept."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from hubbub.limits import SWEEP_AFTER
from hubbub.store.checkpoints import advance, register
from hubbub.store.compact import compact, sweep, tidying
from hubbub.store.convert import convert_segment
from hubbub.store.layout import HOUR_NS, data_files
from hubbub.store.manifest import readable_files
from tests.unit.store.recording import run, write_segment

HOUR = 500_000 * HOUR_NS
LATER = HOUR + 3 * HOUR_NS
COLUMNS = "offset BIGINT"


def record(store: Path, numbers: range) -> None:
    """Record a segment of three messages for each number."""
    for number in numbers:
        values = [run(3 * number)._replace(received_ns=HOUR)]
        (path,) = convert_segment(store, write_segment(store, values, number)).files
        os.utime(path, (number, number))  # Spark takes the oldest first.


class Stream:
    """A query that goes over what there is and ends, as an incremental run does."""

    def __init__(self, spark: SparkSession, store: Path, checkpoint: Path) -> None:
        self._spark, self._store, self._checkpoint = spark, store, checkpoint
        self.batches: dict[int, list[int]] = {}

    def go_on(self, dies_at: int | None = None, meanwhile: Callable[[], object] = tuple) -> None:
        """Process what is new; a batch that dies is processed again by the next run."""

        def keep(frame: DataFrame, number: int) -> None:
            self.batches[number] = sorted(row.offset for row in frame.collect())
            if number == dies_at:
                raise RuntimeError("killed in the midst of a batch")
            meanwhile()

        query = (
            self._spark.readStream.schema(COLUMNS)
            .option("maxFilesPerTrigger", 2)
            .parquet(str(self._store / "messages"))
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    @property
    def offsets(self) -> list[int]:
        return [offset for number in sorted(self.batches) for offset in self.batches[number]]


def tidy(store: Path) -> None:
    with tidying(store) as is_ours:
        assert is_ours
        list(compact(store, LATER))
        sweep(store, LATER + SWEEP_AFTER)


def batch_offsets(spark: SparkSession, store: Path) -> list[int]:
    frame = spark.read.schema(COLUMNS).parquet(*map(str, readable_files(store, "messages")))
    return sorted(row.offset for row in frame.collect())


def test_stream_and_batch_see_every_row_once_while_files_are_compacted(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, stream = tmp_path / "store", Stream(spark, tmp_path / "store", tmp_path / "checkpoint")
    record(store, range(4))
    register(store, "stream", {"messages": 0})
    tidy(store)
    assert len(data_files(store, "messages")) == 4  # A reader needs them.
    with pytest.raises(Exception, match="killed in the midst of a batch"):
        stream.go_on(dies_at=1)
    advance(store, "stream", {"messages": 6})  # The first batch is done, the second is not.
    tidy(store)
    assert [file.first for file in data_files(store, "messages")] == [6, 9]
    assert batch_offsets(spark, store) == list(range(12))

    def tidy_behind() -> None:
        advance(store, "stream", {"messages": len(stream.offsets)})
        tidy(store)

    stream.go_on(meanwhile=tidy_behind)  # What a replay needs is there.
    record(store, range(4, 9))
    stream.go_on(meanwhile=tidy_behind)
    assert batch_offsets(spark, store) == list(range(27))
    assert [file.first for file in data_files(store, "messages")] == [24]
    assert stream.offsets == list(range(27))
