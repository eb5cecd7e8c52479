"""What the bus counted, by windows, on literal rows."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from hubbub.limits import SECOND
from hubbub.pipeline.transforms.counters import bus_counters, counts, merged_counts
from tests.spark.rows import SOURCE, START_NS, counter, frame

WINDOW_NS = 10 * SECOND
OWN = {"node_id": None, "node_name": None, "incarnation": None, "link": None}
ROWS = [
    counter(0, "repaired", 3, link="local", time_ns=START_NS + SECOND),
    counter(1, "repaired", 5, link="local", time_ns=START_NS + 9 * SECOND),
    counter(2, "repaired", 5, link="local", time_ns=START_NS + 11 * SECOND),
    counter(3, "repaired", 9, link="local", time_ns=START_NS + 21 * SECOND),
    # The recorder was started again.
    counter(4, "repaired", 2, link="local", time_ns=START_NS + 31 * SECOND),
    counter(5, "gaps", 7, time_ns=START_NS, **OWN),
]
ADDED = [
    ("", 0, "gaps", 7),
    (SOURCE, 0, "repaired", 5),
    (SOURCE, 20, "repaired", 4),
    (SOURCE, 30, "repaired", 2),
]


def added(marks: DataFrame) -> list[tuple[Any, ...]]:
    rows = bus_counters(marks, WINDOW_NS).collect()
    start_s = START_NS // SECOND
    return sorted(
        (row.node_id, int(row.window_start.timestamp()) - start_s, row.name, row.added)
        for row in rows
    )


def test_counters_tell_by_how_much_they_grew_in_each_window(spark: SparkSession) -> None:
    assert added(counts(frame(spark, ROWS, "counters"), WINDOW_NS)) == ADDED


def test_counters_do_not_depend_on_how_the_recording_was_cut(spark: SparkSession) -> None:
    parts = [counts(frame(spark, rows, "counters"), WINDOW_NS) for rows in (ROWS[:2], ROWS[2:])]
    assert added(merged_counts(parts[1].unionByName(parts[0]))) == ADDED
