"""Rows are found by their offsets, each once, while the store changes under the reader."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from hubbub.errors import DataLoss, StoreError
from hubbub.pipeline.source import files, whereabouts
from hubbub.pipeline.source import rows as rows_module
from hubbub.pipeline.source.files import find_time
from hubbub.pipeline.source.options import EARLIEST, LATEST, Options
from hubbub.pipeline.source.recordings import Recordings
from hubbub.pipeline.source.rows import Rows, Subjects
from hubbub.pipeline.source.whereabouts import Whereabouts
from hubbub.store.checkpoints import floor
from hubbub.store.schema import TABLES
from tests.integration.bus import IS_SOAK
from tests.unit.pipeline.recording import RECORDER, START_NS, Recording

SEEDS = range(400 if IS_SOAK else 6)
pytestmark = pytest.mark.soak


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing: no other host writes, and no power is lost."""
    monkeypatch.setattr(rows_module, "SOURCE_PATIENCE_S", 0.0)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def read(where: Whereabouts, first: int, end: int, **options: bool) -> list[tuple[int, str, bytes]]:
    tables = list(Rows(where, **options).read(first, end, where.hint(first)))
    assert all(table.schema.equals(TABLES["messages"]) for table in tables)
    return [row for table in tables for row in triples(table)]


def triples(table: pa.Table) -> list[tuple[int, str, bytes]]:
    return list(
        zip(
            *(table.column(name).to_pylist() for name in ("offset", "subject", "payload")),
            strict=True,
        )
    )


@pytest.fixture
def unsteady(monkeypatch: pytest.MonkeyPatch) -> Callable[[Recording], None]:
    """Let a store change between any two looks at it."""

    def make(recording: Recording) -> None:
        def change_before(honest: Any) -> Any:
            def look(*arguments: Any) -> Any:
                if recording.random.random() < 0.3:
                    recording.convert(9)
                    recording.compact()
                return honest(*arguments)

            return look

        for name in ("segments", "readable"):
            monkeypatch.setattr(whereabouts, name, change_before(getattr(whereabouts, name)))
        for name in ("open_segment", "read_parquet"):
            monkeypatch.setattr(files, name, change_before(getattr(files, name)))

    return make


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_is_read_once_whatever_becomes_of_its_file(
    tmp_path: Path, seed: int, unsteady: Callable[[Recording], None]
) -> None:
    """Plan batches as a stream does, change the store before and during each read, and compare."""
    recording = Recording(tmp_path / "store", seed)
    unsteady(recording)
    random = Random(seed)
    where = Whereabouts(recording.path, "messages")
    at = 0
    got = []
    for _ in range(30):
        for _ in range(random.randint(0, 6)):
            recording.act()
        end = where.end()
        assert end == len(recording.messages)
        stop = random.randint(at, end)
        hint = where.hint(at)
        for _ in range(random.randint(0, 3)):
            recording.act()
        for table in Rows(Whereabouts(recording.path, "messages")).read(at, stop, hint):
            got += triples(table)
            recording.act()
        at = stop
    assert got == recording.messages[:at]
    everything = Whereabouts(recording.path, "messages")
    assert read(everything, 0, everything.end()) == recording.messages


@pytest.mark.parametrize("seed", SEEDS)
def test_pruned_rows_are_named_and_the_others_are_read(tmp_path: Path, seed: int) -> None:
    recording = Recording(tmp_path / "store", seed)
    for _ in range(60):
        recording.act()
    for _ in range(recording.random.randint(1, 4)):
        recording.prune()
    where = Whereabouts(recording.path, "messages")
    end = where.end()
    assert where.extent().first == recording.pruned
    rest = recording.messages[recording.pruned :]
    assert read(where, recording.pruned, end) == rest
    if recording.pruned:
        with pytest.raises(DataLoss, match=rf"offset 0\.\.{recording.pruned - 1} of recorder"):
            read(where, 0, end)
        lossy = Rows(where, is_loss_failure=False)
        assert [row for table in lossy.read(0, end) for row in triples(table)] == rest
        assert lossy.lost == recording.pruned


@pytest.mark.parametrize("seed", SEEDS[:4])
@pytest.mark.parametrize("table", ["events", "counters", "announcements"])
def test_other_tables_are_read_by_number(tmp_path: Path, seed: int, table: str) -> None:
    recording = Recording(tmp_path / "store", seed)
    where = Whereabouts(recording.path, table)
    at = 0
    got: list[int] = []
    for _ in range(40):
        for _ in range(4):
            recording.act()
        end = max(where.end(), at)
        hint = where.hint(at)
        recording.act()
        for batch in Rows(where).read(at, end, hint):
            assert batch.schema.equals(TABLES[table])
            got += batch.column("number").to_pylist()
            recording.act()
        at = end
    assert got == [number for number, of in recording.rows if of == table and number < at]


def test_open_segment_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    recording.add("/a", b"1", b"2")
    recording.tear()
    where = Whereabouts(recording.path, "messages")
    assert where.end() == 2
    assert [row[2] for row in read(where, 0, 2)] == [b"1", b"2"]
    recording.add("/a", b"3")  # The record is finished.
    assert where.end() == 3
    assert [row[2] for row in read(where, 1, 3)] == [b"2", b"3"]


@pytest.mark.parametrize("table", ["messages", "events"])
def test_store_whose_journal_is_all_converted_is_read(tmp_path: Path, table: str) -> None:
    recording = Recording(tmp_path / "store")
    recording.add("/a", b"1", b"2")
    recording.add_row("events", kind="RecorderStopped")
    recording.close()
    recording.convert()
    assert not list((recording.path / "journal").glob("*.journal"))
    recordings = Recordings(Options(recording.path, table))
    start, end = recordings.resolve(EARLIEST), recordings.resolve(LATEST)
    [(_, span, hint)] = recordings.plan(start, end)
    where = Whereabouts(recording.path, table)
    rows = list(Rows(where).read(span.first, span.end, hint))
    assert sum(one.num_rows for one in rows) == (2 if table == "messages" else 1)


def test_segment_that_has_not_begun_changes_nothing(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    recording.add("/a", b"1")
    (recording.path / "journal" / "000000000001.journal").write_bytes(bytes(4096))
    where = Whereabouts(recording.path, "messages")
    assert where.end() == 1
    assert where.extent() == (0, 1, (0,))


def test_rows_that_rot_took_are_named(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    recording.add("/a", b"one", b"two")
    recording.add("/a", b"precious")
    recording.add("/a", b"four")
    recording.roll()
    [path, _] = sorted((recording.path / "journal").glob("*.journal"))
    path.write_bytes(path.read_bytes().replace(b"precious", b"procious"))
    where = Whereabouts(recording.path, "messages")
    for is_converted in (False, True):
        with pytest.raises(DataLoss, match=r"offset 2\.\.2 of recorder abab"):
            read(where, 0, 4)
        kept = read(where, 0, 4, is_loss_failure=False)
        assert [row[2] for row in kept] == [b"one", b"two", b"four"]
        if not is_converted:
            recording.convert()
    damage = Whereabouts(recording.path, "events").damage_files()
    assert len(damage) == 1


@pytest.mark.parametrize("table", ["messages", "events"])
def test_file_that_cannot_be_read_is_named(
    tmp_path: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recording(tmp_path / "store")
    for _ in range(2):
        recording.add("/a", b"one", b"two")
        recording.add_row("events", kind="PeerLeft")
        recording.roll()
    recording.convert(9)
    [path, _] = sorted((recording.path / table).rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    where = Whereabouts(recording.path, table)
    with pytest.raises(DataLoss, match=r" 0\.\.\d of recorder"):
        list(Rows(where).read(0, where.end()))
    assert f"{path} cannot be read" in caplog.text
    kept = list(Rows(where, is_loss_failure=False).read(0, where.end()))
    assert sum(one.num_rows for one in kept) == (2 if table == "messages" else 1)


def test_reader_with_a_name_keeps_what_it_needs(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    recordings = Recordings(Options(recording.path, checkpoint="mine"))
    recordings.keep_from({RECORDER: 7})
    recordings.keep_from({RECORDER: 5})
    assert floor(recording.path, "messages") == 7
    Recordings(Options(recording.path)).keep_from({RECORDER: 9})
    assert floor(recording.path, "messages") == 7


def test_empty_store_has_nothing(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    where = Whereabouts(recording.path, "messages")
    assert where.extent() == (0, 0, ())
    assert read(where, 0, 0) == []


def test_subjects_are_picked_by_our_wildcards() -> None:
    table = pa.table({"subject": ["/a/x", "/b", None, "/a/x/y", "not one", "/a/z"], "n": range(6)})
    picked = Subjects(["/a/*", "/b/..."]).pick(table)
    assert picked.column("n").to_pylist() == [0, 5]
    assert Subjects(["/..."]).pick(table).column("n").to_pylist() == [0, 1, 3, 5]


def test_time_is_a_place_in_a_recording(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    for _ in range(6):
        recording.add("/a", b"x", b"y")
        recording.now_ns += 10**9
        if recording.random.random() < 0.6:
            recording.roll()
    for is_converted in (False, True):
        where = Whereabouts(recording.path, "messages")
        found = [find_time(where, START_NS + n * 10**9 - 10) for n in range(-1, 8)]
        assert found == [0, 0, 2, 4, 6, 8, 10, 12, 12]
        if not is_converted:
            recording.convert(9)


def test_folder_of_stores_is_read_as_one(tmp_path: Path) -> None:
    one = Recording(tmp_path / "one", recorder="11" * 16)
    two = Recording(tmp_path / "two", recorder="22" * 16)
    one.add("/a", b"1", b"2", b"3")
    two.add("/a", b"4")
    recordings = Recordings(Options(tmp_path))
    assert recordings.resolve(EARLIEST) == {"11" * 16: 0, "22" * 16: 0}
    assert recordings.resolve(LATEST) == {"11" * 16: 3, "22" * 16: 1}
    assert recordings.resolve({"11" * 16: 2}) == {"11" * 16: 2, "22" * 16: 0}
    planned = recordings.plan({"11" * 16: 1}, {"11" * 16: 3, "22" * 16: 1})
    assert [(store, span[1:]) for store, span, _ in planned] == [
        (one.path, (1, 3)),
        (two.path, (0, 1)),
    ]
    recordings.close()


def test_copy_of_a_store_beside_it_is_refused(tmp_path: Path) -> None:
    Recording(tmp_path / "one")
    Recording(tmp_path / "two")
    with pytest.raises(StoreError, match=f"are copies of one recording .{RECORDER}.: read one"):
        Recordings(Options(tmp_path)).ends()


def test_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no store, and has none in it"):
        Recordings(Options(tmp_path)).ends()


def test_plan_of_what_was_pruned_names_it(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    recording.add("/a", *(b"%d" % n for n in range(10)))
    recording.roll()
    recording.add("/a", *(b"%d" % n for n in range(5)))
    recording.convert()
    recording.prune()
    start, end = {RECORDER: 4}, {RECORDER: 15}
    with pytest.raises(DataLoss, match=r"offset 4\.\.9 of recorder .* was pruned"):
        Recordings(Options(recording.path)).plan(start, end)
    lossy = Recordings(Options(recording.path, is_loss_failure=False))
    assert [span[1:] for _, span, _ in lossy.plan(start, end)] == [(10, 15)]


def test_reader_that_is_told_where_to_begin_skips_what_lies_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whereabouts, "SOURCE_HINT_BYTES", 1000)
    recording = Recording(tmp_path / "store")
    for n in range(50):
        recording.add("/a", b"%d" % n * 50)
    where = Whereabouts(recording.path, "messages")
    where.end()
    hint = where.hint(40)
    assert hint is not None and 30 < hint.row <= 40 and hint.position > 2000
    assert [row[0] for row in read(where, 40, 50)] == list(range(40, 50))
