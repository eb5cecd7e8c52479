"""Batch, incremental and live runs give the same tables, whatever happens in between."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from hubbub.errors import ConfigurationError, StoreError
from hubbub.limits import SECOND, SWEEP_AFTER
from hubbub.pipeline import failures, tables
from hubbub.pipeline.failures import find_unreadable
from hubbub.pipeline.run import Pipeline, Progress, Summary, make_setup
from hubbub.pipeline.transforms import quality
from hubbub.store.checkpoints import checkpoints
from hubbub.store.compact import compact, sweep, tidying
from hubbub.store.layout import HOUR_NS
from hubbub.store.manifest import read_manifest
from tests.spark.recording import Recording
from tests.spark.rows import OTHER, SOURCE, START_NS, announcement, counter, event, message

WATERMARK_S = 1.0  # So short that a live run cuts something.
pytestmark = pytest.mark.timeout(600)  # A busy machine makes of ten seconds of Spark a hundred.


def segments(seed: int = 0) -> list[tuple[str, list[dict[str, Any]]]]:
    """Make a recording with losses, duplicates, bad rows, typed ones, in two hours."""
    draw = random.Random(seed)
    parts: list[tuple[str, list[dict[str, Any]]]] = []
    offset, clock_ns = 0, START_NS + 3590 * SECOND
    sequences = {("/a", SOURCE): 1, ("/b", SOURCE): 1, ("/b", OTHER): 40}
    for number in range(6):
        rows = []
        for _ in range(30):
            subject, source = draw.choice(list(sequences))
            sequence = sequences[subject, source]
            sequences[subject, source] += 1
            clock_ns += draw.randrange(1, 200) * 1_000_000
            if draw.random() < 0.1:
                continue
            row = message(
                offset, sequence, subject=subject, source_id=source,
                source_name="alice" if source == SOURCE else "bob",
                received_ns=clock_ns, published_ns=clock_ns - draw.randrange(10**6),
            )  # fmt: skip
            rows.append(row)
            offset += 1
        if not number:  # A live run in a test cuts this one.
            rows[0] |= {"tick_ns": rows[0]["received_ns"] - 5, "period_ns": SECOND}
            rows[0] |= {"service": "news", "epoch": 2}
        parts.append(("messages", rows))
        told = clock_ns - SECOND
        parts.append(("events", [
            event(2 * number, "GapAbandoned", subject="/a", first_sequence=4 * number + 2,
                  last_sequence=4 * number + 3, time_ns=told),
            event(2 * number + 1, "RecorderStarted" if number == 3 else "PeerJoined",
                  node_id=OTHER, time_ns=told),
        ]))  # fmt: skip
        parts.append(("announcements", [
            announcement(number, "/*", node_id=OTHER, node_name="bob", time_ns=told,
                         is_present=number % 2 == 0),
        ]))  # fmt: skip
        parts.append(("counters", [counter(number, "repaired", number**2, time_ns=told)]))
    twice = [dict(row) for row in parts[0][1][:5]]
    for row in twice:
        row["offset"], row["recorder"] = offset, "two"
        offset += 1
    bad = [message(offset, 0, received_ns=clock_ns), message(offset + 1, 1, size=99)]
    typed = message(
        offset + 2, 500, received_ns=clock_ns, schema="Point", payload=b"\x81\xa1x\x05",
        tick_ns=clock_ns - 5, period_ns=SECOND, service="news", epoch=3,
    )  # fmt: skip
    parts.append(("messages", [*twice, *bad, typed]))
    return parts


def count_messages(parts: list[tuple[str, list[dict[str, Any]]]]) -> int:
    return sum(len(rows) for table, rows in parts if table == "messages")


def all_tables(path: Path) -> dict[str, list[Any]]:
    return {name: sorted(tables.read(path, name).to_pylist(), key=repr) for name in tables.SHAPES}


def run(
    spark: SparkSession, store: Path, out: Path, kind: str = "incremental", *,
    files_max: int = 3, **options: Any,
) -> Summary:  # fmt: skip
    setup = make_setup(**{"watermark_s": WATERMARK_S} | options)
    pipeline = Pipeline(spark, store, out, setup, files_max=files_max)
    with pipeline.versions.locked():
        return pipeline.run_batch() if kind == "batch" else pipeline.run_incremental()


def record(path: Path, parts: Any) -> Recording:
    recording = Recording(path)
    for table, rows in parts:
        recording.add(rows, table)
    return recording


def assert_same(made: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    for name, rows in expected.items():
        assert made[name] == rows, name


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return the tables of one clean batch run over all segments."""
    path = tmp_path_factory.mktemp("clean")
    run(spark, record(path / "store", segments()).path, path / "tables", "batch")
    return all_tables(path / "tables")


def test_batch_run_counts_every_row_once(expected: dict[str, list[Any]]) -> None:
    total = count_messages(segments())
    made = expected
    assert len(made["messages"]) == total - 7
    assert sorted(row["reason"] for row in made["quarantine"]) == [
        "sequence_out_of_range",
        "size_is_not_the_payloads",
    ]
    assert sum(row["messages"] for row in made["topic_health"]) == total - 7
    assert sum(row["duplicates"] for row in made["topic_health"]) == 5
    owed = [row for row in made["gaps"] if row["reported_as"] != "RecorderStarted"]
    assert len(owed) < len(made["gaps"])
    assert sum(row["lost"] for row in made["topic_health"]) == sum(
        row["count"] for row in owed if row["after"] or row["before"]
    )
    assert [row["value"] for row in made["messages"] if row["value"]] == ['{"x":5}']
    assert len(made["node_timeline"]) == 18
    assert {row["receiver_name"] for row in made["traffic_matrix"]} == {"bob"}
    assert len(made["period_compliance"]) == len(made["service_managers"]) == 2
    assert made["late"] == []


def test_a_step_of_many_rows_gives_the_tables_of_a_small_one(
    spark: SparkSession,
    tmp_path: Path,
    expected: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hubbub.pipeline.recording.SMALL_STEP_ROWS", 0)
    run(spark, record(tmp_path / "store", segments()).path, tmp_path / "tables", "batch")
    assert_same(all_tables(tmp_path / "tables"), expected)


@pytest.mark.parametrize("table", ["quarantine", "messages"])
def test_rows_that_are_written_and_not_counted_are_an_error_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Arrow counts what is in quarantine, Spark writes it: by two pieces of code."""
    rows = [message(0, 1), message(1, 0)]
    recording = record(tmp_path / "store", [("messages", rows[:1])])
    run(spark, recording.path, tmp_path / "tables", only=["messages", "quarantine"])
    before = all_tables(tmp_path / "tables")
    recording.add([message(2, 2), rows[1]])
    with monkeypatch.context() as planted:
        name = {"quarantine": "quarantined", "messages": "good"}[table]
        right = getattr(quality, name)
        planted.setattr(quality, name, lambda *some, **how: right(*some, **how).limit(0))
        with pytest.raises(StoreError, match=f"0 rows of {table} were written, but 1 were counted"):
            run(spark, recording.path, tmp_path / "tables", only=["messages", "quarantine"])
    assert_same(all_tables(tmp_path / "tables"), before)
    run(spark, recording.path, tmp_path / "tables", only=["messages", "quarantine"])
    made = all_tables(tmp_path / "tables")
    assert (len(made["messages"]), len(made["quarantine"])) == (2, 1)


def test_incremental_runs_give_the_tables_of_one_batch_run(
    spark: SparkSession, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    parts = segments()
    recording = record(tmp_path / "store", parts[:6])
    counts = run(spark, recording.path, tmp_path / "tables", files_max=6).counts
    for table, rows in parts[6:]:
        recording.add(rows, table)
    more = run(spark, recording.path, tmp_path / "tables", files_max=10).counts
    assert_same(all_tables(tmp_path / "tables"), expected)
    total = count_messages(parts)
    assert counts.read + more.read == total
    assert more.read == more.messages + more.duplicates + more.quarantined
    nothing = run(spark, recording.path, tmp_path / "tables")
    assert (nothing.steps, nothing.counts.read) == (0, 0)


def test_a_step_takes_what_came_while_the_one_before_it_ran(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [message(n, n + 1) for n in range(6)]
    recording = record(tmp_path / "store", [("messages", rows[:1])])
    run(spark, recording.path, tmp_path / "tables", only=["messages"])
    for row in rows[1:5]:
        recording.add([row])
    setup = make_setup(["messages"], watermark_s=WATERMARK_S)
    pipeline = Pipeline(spark, recording.path, tmp_path / "tables", setup, files_max=3)
    late = [rows[5]]
    pipeline.after_step = lambda: recording.add([late.pop()]) if late else None
    with pipeline.versions.locked():
        summary = pipeline.run_incremental()
    assert (summary.steps, summary.counts.read) == (2, 5)


def test_late_rows_are_cut_by_a_live_run_and_merged_by_the_next(
    spark: SparkSession, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    parts = segments()
    # The first segment of messages is converted last, when all others were read.
    first, others = parts[0], parts[1:]
    recording = record(tmp_path / "store", others[:3])
    setup = make_setup(watermark_s=WATERMARK_S)
    pipeline = Pipeline(spark, recording.path, tmp_path / "tables", setup)
    waiting = [others[3:-1], [first, others[-1]]]
    added = count_messages(others[:3])

    def is_over() -> bool:
        nonlocal added
        if pipeline.versions.state().get("counts", {}).get("read", 0) < added:
            return False
        if not waiting:
            return True
        more = waiting.pop(0)
        for table, rows in more:
            recording.add(rows, table)
        added += count_messages(more)
        return False

    with pipeline.versions.locked():
        pipeline.run_live(is_over)
    assert tables.read(tmp_path / "tables", "late").num_rows > 0
    run(spark, recording.path, tmp_path / "tables")
    assert_same(all_tables(tmp_path / "tables"), expected)


def test_compaction_beside_a_live_run_takes_nothing_away_and_shows_nothing_twice(
    spark: SparkSession,
    tmp_path: Path,
    expected: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hubbub.pipeline.run.CHECKPOINT_INTERVAL_S", 0.0)
    parts, store, out = segments(), tmp_path / "store", tmp_path / "tables"
    recording = record(store, parts[:5])
    later_ns = START_NS + 100 * HOUR_NS
    pipeline = Pipeline(spark, store, out, make_setup(watermark_s=WATERMARK_S), files_max=4)
    waiting, added = parts[5:], count_messages(parts[:5])

    def is_over() -> bool:
        nonlocal added
        with tidying(store) as is_ours:
            assert is_ours
            list(compact(store, later_ns))
            sweep(store, later_ns + SWEEP_AFTER)
        if pipeline.versions.state().get("counts", {}).get("read", 0) < added:
            return False
        more = [waiting.pop(0) for _ in range(min(4, len(waiting)))]
        for table, rows in more:
            recording.add(rows, table)
        added += count_messages(more)
        return not more

    with pipeline.versions.locked():
        pipeline.run_live(is_over)
    manifest = read_manifest(store)
    assert manifest.swept["messages"] > 0 and len(manifest.entries) > 1
    run(spark, store, out)
    assert_same(all_tables(out), expected)
    run(spark, store, tmp_path / "again", "batch")
    assert_same(all_tables(tmp_path / "again"), expected)


def test_a_copy_that_was_received_earlier_takes_the_place_of_one_counted_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [message(n, n + 1) for n in range(20)]
    early = [
        row | {"offset": 100 + n, "recorder": "two", "received_ns": row["received_ns"] - 1000}
        for n, row in enumerate(rows[5:9])
    ]
    only = {"only": ["messages", "topic_health"]}
    recording = record(tmp_path / "store", [("messages", rows)])
    run(spark, recording.path, tmp_path / "tables", **only)
    recording.add(early)
    run(spark, recording.path, tmp_path / "tables", **only)
    made = tables.read(tmp_path / "tables", "messages").to_pylist()
    assert len(made) == 20
    assert {row["offset"] for row in made if row["recorder"] == "two"} == {100, 101, 102, 103}
    again = record(tmp_path / "again", [("messages", rows), ("messages", early)])
    run(spark, again.path, tmp_path / "clean", "batch", **only)
    assert_same(all_tables(tmp_path / "tables"), all_tables(tmp_path / "clean"))


def test_reader_is_registered_before_anything_is_read(spark: SparkSession, tmp_path: Path) -> None:
    recording = record(tmp_path / "store", [("messages", [message(0, 1)])])
    setup = make_setup(["messages"], watermark_s=WATERMARK_S)
    needs: list[list[int]] = []

    def note(progress: Progress) -> None:
        if progress.doing == "reading":
            needs.append([one.needs["messages"] for one in checkpoints(recording.path)])

    for is_anew in (False, True):
        pipeline = Pipeline(
            spark, recording.path, tmp_path / "tables", setup, note, is_anew=is_anew
        )
        with pipeline.versions.locked():
            pipeline.run_batch()
    assert needs == [[0], [0]]
    assert [one.needs["messages"] for one in checkpoints(recording.path)] == [1]


def test_tables_made_for_something_else_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    recording = record(tmp_path / "store", [("messages", [message(0, 1)])])
    run(spark, recording.path, tmp_path / "tables", only=["messages"])
    with pytest.raises(ConfigurationError, match="was made with other window_ns"):
        run(spark, recording.path, tmp_path / "tables", only=["messages"], window_s=5)
    with pytest.raises(ConfigurationError, match="no table nonsense; there are messages"):
        make_setup(["nonsense"])


def test_a_file_that_cannot_be_read_is_passed_over_and_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    recording = record(tmp_path / "store", [("messages", [message(0, 1)])])
    broken = next((recording.path / "messages").rglob("*.parquet"))
    broken.with_name("000000000007-0000000000000005-0000000000000009.parquet").write_bytes(b"x")
    summary = run(spark, recording.path, tmp_path / "tables", only=["messages"])
    assert summary.counts.messages == 1
    assert "000000000007" in summary.unreadable[0]


def test_messages_lie_on_disk_in_the_order_of_the_recording(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Spark takes the largest file first, and of a large step several at once.
    rows = [message(n, n + 1, payload=os.urandom(n * 9)) for n in range(60)]
    parts = [("messages", rows[first : first + 15]) for first in range(0, 60, 15)]
    recording = record(tmp_path / "store", parts[:3])
    for part in ([], parts[3:]):
        for table, more in part:
            recording.add(more, table)
        run(spark, recording.path, tmp_path / "tables", only=["messages"])
    files = sorted((tmp_path / "tables" / "messages").iterdir())
    found = [offset for file in files for offset in pq.read_table(file)["offset"].to_pylist()]
    assert found == list(range(60))


def test_nothing_is_passed_over_because_of_workers_that_cannot_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers without a package, or without the folder, made every file one that is rotten."""
    recording = record(tmp_path / "rec[1]", [("messages", [message(1, 2)])])
    (file,) = (recording.path / "messages").rglob("*.parquet")

    def raises(_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'hubbub'")

    def find_no_file(paths: list[str]) -> Any:
        def check(batches: Any) -> Any:
            for batch in batches:
                names = [pa.array(paths), pa.array(["No such file"] * len(paths))]
                yield pa.RecordBatch.from_arrays(names, ["path", "why"])
                del batch

        return check

    assert find_unreadable(spark, "messages", [file]) == {}
    monkeypatch.setattr(failures, "checked_files", find_no_file)
    with pytest.raises(StoreError, match=r"which is sound here: No such file"):
        find_unreadable(spark, "messages", [file])
    monkeypatch.setattr(failures, "checked_files", lambda _: raises)
    monkeypatch.setattr(failures, "nothing", raises)
    with pytest.raises(StoreError, match="No module named 'hubbub'"), failures.told_in_one_line():
        find_unreadable(spark, "messages", [file])


def test_a_rotten_page_is_found_confined_and_named(spark: SparkSession, tmp_path: Path) -> None:
    rows = [message(n, n + 1, payload=bytes([n]) * 200) for n in range(60)]
    parts = [("messages", rows[first : first + 20]) for first in range(0, 60, 20)]
    recording = record(tmp_path / "store", parts)
    rotten = sorted((recording.path / "messages").rglob("*.parquet"))[1]
    draw, confined = random.Random(3), 0
    content = rotten.read_bytes()
    for flip in range(4):
        place = draw.randrange(4, len(content)) if flip else len(content) // 3
        flipped = content[place] ^ 1 << draw.randrange(8)
        rotten.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        summary = run(spark, recording.path, tmp_path / f"tables-{flip}", only=["messages"])
        made = tables.read(tmp_path / f"tables-{flip}", "messages")
        lost = [*range(21, 41)] if summary.unreadable else []
        assert all(rotten.name in told for told in summary.unreadable), place
        assert made["sequence"].to_pylist() == [n for n in range(1, 61) if n not in lost], place
        confined += len(summary.unreadable)
    assert confined >= 3


def test_a_file_that_only_workers_cannot_read_is_found_and_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    parts = [("messages", [message(n, n + 1)]) for n in range(3)]
    recording = record(tmp_path / "store", parts)
    files = sorted((recording.path / "messages").rglob("*.parquet"))
    content = files[1].read_bytes()
    mark = content.index(b"hubbub-end:") + len(b"hubbub-end:")
    files[1].write_bytes(content[:mark] + bytes(4) + content[mark + 4 :])
    found = find_unreadable(spark, "messages", files)
    assert found == {files[1]: "the end of the file is not what was written"}
