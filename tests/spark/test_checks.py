"""The checks of recordings see what is wrong, and pass what is right."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from hubbub.pipeline.checks import DISORDERED, FAULT, MISSING, TWICE, check
from hubbub.pipeline.sweep import Sweep, read
from hubbub.pipeline.traces import OWED, read_results
from hubbub.simulation import run
from hubbub.store.schema import TABLES
from tests.spark.soak import only_in_soak
from tests.unit.pipeline.recording import RECORDER, Recording

TOP = (1 << 63) - 1  # The next sequence is kept as a negative number.


def frame(spark: SparkSession, schema: Any, rows: list[dict[str, Any]]) -> DataFrame:
    blank = dict.fromkeys(schema.names)
    return spark.createDataFrame([{**blank, **row} for row in rows], from_arrow_schema(schema))


def messages_of(recorder: str, *sequences: int, source: str = "aa") -> list[dict[str, Any]]:
    return [
        {
            "recorder": recorder, "offset": offset, "subject": "/s", "source_id": source,
            "incarnation": 1, "sequence": sequence,
        }
        for offset, sequence in enumerate(sequences)
    ]  # fmt: skip


def event(recorder: str, kind: str, **values: Any) -> dict[str, Any]:
    return {"recorder": recorder, "kind": kind, "number": 0, **values}


def gap(recorder: str, first: int | None, last: int | None) -> dict[str, Any]:
    return event(
        recorder, "GapAbandoned", node_id="aa", incarnation=1, subject="/s",
        first_sequence=first, last_sequence=last,
    )  # fmt: skip


def owed_to(recorder: str, first: int, last: int) -> dict[str, Any]:
    return {
        "recorder": recorder, "source_id": "aa", "incarnation": 1, "subject": "/s",
        "first_sequence": first, "last_sequence": last,
    }  # fmt: skip


@only_in_soak
def test_each_fault_is_found_and_what_is_right_passes(spark: SparkSession) -> None:
    messages = [
        *messages_of("fine", 5, 6, 7),
        *messages_of("hole", 1, 2, 5),
        *messages_of("twice", 1, 2, 2, 3),
        *messages_of("order", 1, 3, 2, 4),
        *messages_of("reported", 1, 6),
        *messages_of("half reported", 1, 6),
        *messages_of("dead publisher", 1, 6),
        *messages_of("two runs", 1, 2, 8, 9),
        *messages_of("best effort", 1, 6),
        *messages_of("tail", 3, 4),
        *messages_of("sign", TOP, -TOP - 1, -TOP + 1),
    ]
    events = [
        gap("reported", 2, 3),
        gap("reported", 4, 5),
        gap("reported", 3, 4),
        gap("half reported", 2, 4),
        event("dead publisher", "GapAbandoned", node_id="aa", incarnation=1),
        event("hole", "GapAbandoned", node_id="bb", incarnation=1),
        event("two runs", "RecorderStarted", detail='{"offset":0}'),
        event("two runs", "RecorderStarted", detail='{"offset":2}'),
        event(
            "best effort", "PublisherMatched", node_id="aa", incarnation=1, subject="/s",
            detail='{"is_reliable":false}',
        ),
    ]  # fmt: skip
    owed = [owed_to("fine", 5, 7), owed_to("tail", 2, 6), owed_to("deaf", 1, 3)]
    found = check(
        frame(spark, TABLES["messages"], messages),
        frame(spark, TABLES["events"], events),
        frame(spark, OWED, owed),
    )
    assert tuple(found.columns) == FAULT
    assert {(row.recorder, *row[4:]) for row in found.collect()} == {
        ("hole", MISSING, 3, 4),
        ("twice", TWICE, 2, 2),
        ("order", DISORDERED, 2, 2),
        ("half reported", MISSING, 2, 5),
        ("tail", MISSING, 2, 2),
        ("tail", MISSING, 5, 6),
        ("deaf", MISSING, 1, 3),
        ("sign", MISSING, -TOP, -TOP),
    }


# Each is a bug that the simulator finds, too; the last two end no run before its time.
BUGS = [
    ("order_ignored", "random_loss", DISORDERED),
    ("holes_not_reported", "partition_long", MISSING),
    ("history_handed_out_twice", "history", TWICE),
]


@only_in_soak
def test_planted_bugs_are_seen_and_sound_runs_pass(spark: SparkSession, tmp_path: Path) -> None:
    """Judge runs with and without a bug in one go: faults are those of the runs with one."""
    store = tmp_path / "traces"
    failed: set[str] = set()
    for part, (bug, scenario, _) in enumerate(BUGS):
        sweep = Sweep([scenario], range(8), tmp_path / bug, bug)
        sweep.run_task(0)
        failed |= {f"{r.scenario}-{r.seed}" for r in read_results(sweep.store, set()) if not r.ok}
        for path in sweep.store.rglob("*.parquet"):
            target = store / path.relative_to(sweep.store).with_name(f"{part}-{path.name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    faults = check(*read(spark, store)).collect()
    seen = {(row.recorder.rsplit("-", 1)[0], row.fault) for row in faults}
    for _, scenario, fault in BUGS:
        assert any(name.startswith(scenario) and kind == fault for name, kind in seen), scenario
    assert {name for name, _ in seen} <= failed


@only_in_soak
def test_sweep_gives_what_runs_at_home_give(spark: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep(["tail_loss", "goodbye"], range(5), tmp_path / "traces")
    sweep.prepare()
    results = {(one.scenario, one.seed): one for one in sweep.run(spark)}
    assert results == {
        (name, seed): run(name, seed) for name in ("tail_loss", "goodbye") for seed in range(5)
    }
    messages, events, owed = read(spark, sweep.store)
    assert messages.schema == from_arrow_schema(TABLES["messages"])
    assert owed is not None and owed.count() > 0 and events.count() > 0
    assert check(messages, events, owed).collect() == []


def test_real_store_is_judged_by_the_same_checks(spark: SparkSession, tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    recording.add_row("events", kind="RecorderStarted", detail=json.dumps({"offset": 0}))
    recording.add("/a", b"1", b"2")
    recording._sequences["/a"] = 5
    recording.add("/a", b"5")
    messages, events, owed = read(spark, recording.path)
    assert owed is None
    [fault] = check(messages, events, owed).collect()
    assert (fault.recorder, fault.fault, fault.first_sequence, fault.last_sequence) == (
        RECORDER, MISSING, 3, 4,
    )  # fmt: skip


def test_folder_with_other_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(ValueError, match="is not empty: remove it, or name another"):
        Sweep(["goodbye"], range(1), tmp_path).prepare()
