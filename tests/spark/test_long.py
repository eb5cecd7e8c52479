"""A step over a long history reads and writes no more than over a short one."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hubbub.limits import SECOND
from hubbub.pipeline import files
from tests.spark.recording import Recording
from tests.spark.rows import OTHER, SOURCE, START_NS, announcement, counter, event, message
from tests.spark.test_run import all_tables, assert_same, run

HOUR_NS = 3600 * SECOND
MESSAGES = 6  # In an hour.
pytestmark = pytest.mark.timeout(600)


def add_hour(recording: Recording, hour: int, minute: int = 0) -> None:
    """Record what happens in every hour: losses, slots, consumers that tell, counters."""
    begin_ns = START_NS + hour * HOUR_NS + minute * 60 * SECOND
    offset = (60 * hour + minute) * MESSAGES
    rows = []
    for n in range(MESSAGES):
        at_ns = begin_ns + n * SECOND
        rows.append(
            message(
                offset + n, offset + 2 * (n // 2) + 1 + n, received_ns=at_ns + 1000, epoch=1,
                subject="/timed", tick_ns=at_ns, period_ns=SECOND, service="news",
            )
        )  # fmt: skip
    recording.add(rows)
    lost = offset + 3
    slots = {"subject": "/timed", "port": 9, "period_ns": SECOND, "served": 6, "missed": 1}
    recording.add([
        event(offset, "GapAbandoned", subject="/timed", first_sequence=lost, last_sequence=lost,
              time_ns=begin_ns + 3 * SECOND),
        event(offset + 1, "SlotsCounted", node_id=OTHER, node_name="bob", time_ns=begin_ns,
              detail=json.dumps([slots | {"late": 0, "vacant": 0}])),
    ], "events")  # fmt: skip
    if not hour and not minute:
        told = announcement(2, "/*", node_id=OTHER, node_name="bob", time_ns=begin_ns)
        recording.add([told], "announcements")
    recording.add([
        counter(offset + 3, name, offset + place + 1, time_ns=begin_ns, link="local")
        for place, name in enumerate(("repaired", "lost"))
    ], "counters")  # fmt: skip


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the rows of tables that Arrow reads and writes from now on.

    Names of files are left out: they are forgotten by segments, of which a store made by hand has
    none (tests/unit/pipeline/test_noticing.py).
    """
    found: Counter[str] = Counter()
    read_table, write_table = files.pq.read_table, files.pq.write_table

    def read(path: Path, *about: Any, **options: Any) -> Any:
        table = read_table(path, *about, **options)
        folder = path.parent.name.partition("=")[0]  # A table, or what was just written of an hour.
        if folder != ".files":
            found[f"read of {folder}"] += table.num_rows
        return table

    def write(table: Any, *about: Any, **options: Any) -> None:
        found["written"] += table.num_rows
        write_table(table, *about, **options)

    monkeypatch.setattr(files.pq, "read_table", read)
    monkeypatch.setattr(files.pq, "write_table", write)
    return found


def test_step_over_a_long_history_reads_and_writes_no_more_than_over_a_short_one(
    spark: SparkSession, tmp_path: Path, moved: Counter[str]
) -> None:
    cost = {}
    for hours in (5, 12):
        store, out = tmp_path / f"store-{hours}", tmp_path / f"tables-{hours}"
        recording = Recording(store)
        for hour in range(hours):
            add_hour(recording, hour)
        run(spark, store, out, "batch")
        add_hour(recording, hours - 1, 20)
        moved.clear()
        run(spark, store, out)
        cost[hours] = dict(moved)
        made = all_tables(out)
        assert len(made["gaps"]) >= 2 * hours and len(made["consumer_compliance"]) == hours + 1
    assert cost[12]["read of .counts"] > 0
    assert cost[12] == cost[5]


def test_hours_that_come_one_by_one_and_late_give_the_tables_of_one_batch_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, out = tmp_path / "store", tmp_path / "tables"
    recording = Recording(store)
    for hour in range(4):
        add_hour(recording, hour)
    run(spark, store, out)
    settled = sorted(path.name for path in (out / ".current" / "gaps").iterdir())
    assert settled[-1].startswith("2027-01-15-")
    add_hour(recording, 5)
    # Behind what is settled: a lost message that comes after all, an old report, old marks.
    lost = message(9999, 3, subject="/timed", received_ns=START_NS + 5 * HOUR_NS)
    run(spark, store, out)
    recording.add([lost])
    recording.add([
        event(9000, "GapAbandoned", subject="/timed", first_sequence=7, last_sequence=8,
              time_ns=START_NS + 5 * HOUR_NS),
        event(9001, "RecorderStarted", time_ns=START_NS + HOUR_NS // 2),
    ], "events")  # fmt: skip
    recording.add(
        [counter(9002, "repaired", 70, link="local", time_ns=START_NS + HOUR_NS + 60 * SECOND)],
        "counters",
    )
    run(spark, store, out)
    add_hour(recording, 4)
    run(spark, store, out)
    made = all_tables(out)
    run(spark, store, tmp_path / "clean", "batch")
    assert_same(made, all_tables(tmp_path / "clean"))
    kinds = {row["reported_as"] for row in made["gaps"] if row["source_id"] == SOURCE}
    assert kinds == {None, "GapAbandoned", "RecorderStarted"}
