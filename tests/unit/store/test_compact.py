"""Small files become large ones; whoever reads meanwhile sees every row once."""

import os
import sys
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow.parquet as pq
import pytest

from hubbub.errors import StoreError
from hubbub.limits import COMPACT_AFTER, DAMAGE_NUMBER, SWEEP_AFTER
from hubbub.store import compact as compacting
from hubbub.store.checkpoints import advance, checkpoints, floor, register, remove
from hubbub.store.compact import compact, compact_now, plan, sweep, tidying
from hubbub.store.convert import convert_segment
from hubbub.store.journal import Row
from hubbub.store.layout import HOUR_NS, data_files
from hubbub.store.manifest import (
    compact_folder,
    read_manifest,
    readable,
    readable_files,
)
from hubbub.store.reading import read_table
from hubbub.store.schema import EVENTS, MESSAGES
from tests.unit.store.disk import STRIDE, DyingDisk
from tests.unit.store.recording import run, write_segment

HOUR = 500_000 * HOUR_NS
LATER = HOUR + 3 * HOUR_NS
MUCH_LATER = LATER + SWEEP_AFTER
NEVER = sys.maxsize


def record(store: Path, segments: int, first: int = 0, start_ns: int = HOUR) -> None:
    """Record segments of three messages and an event each, all in one hour."""
    for number in range(first, first + segments):
        event = Row(number, "events", {"time_ns": start_ns, "kind": "PeerJoined"})
        values = [run(3 * number)._replace(received_ns=start_ns), event]
        convert_segment(store, write_segment(store, values, number))


def offsets(store: Path) -> list[int]:
    return [
        offset
        for path in readable_files(store, "messages")
        for offset in pq.read_table(path, partitioning=None)["offset"].to_pylist()
    ]


def run_compaction(store: Path, now_ns: int = LATER) -> int:
    with tidying(store) as is_ours:
        assert is_ours
        return len(list(compact(store, now_ns)))


def test_file_from_before_a_column_was_there_is_compacted_with_the_others(tmp_path: Path) -> None:
    record(tmp_path, 3)
    old = data_files(tmp_path, "events")[0].path
    table = pq.read_table(old, partitioning=None)
    pq.write_table(table.drop_columns(["count"]), old)
    assert [rows.column_names for rows in read_table(tmp_path, "events")] == [EVENTS.names] * 3
    assert run_compaction(tmp_path) == 2
    [large] = [file for file in readable(tmp_path, "events") if file.first == 0]
    assert pq.read_schema(large.path).names == EVENTS.names


def test_large_file_is_read_instead_of_the_small_ones(tmp_path: Path) -> None:
    record(tmp_path, 5)
    before = offsets(tmp_path)
    assert run_compaction(tmp_path) == 2  # Messages and events.
    assert len(data_files(tmp_path, "messages")) == 5
    large, newest = readable(tmp_path, "messages")
    assert large.path.is_relative_to(compact_folder(tmp_path)) and large.rows == 12
    assert (large.segment, large.first, large.last, newest.first) == (3, 0, 11, 12)
    assert offsets(tmp_path) == before
    assert pq.read_schema(large.path).equals(MESSAGES)
    assert run_compaction(tmp_path) == 0


def test_newest_file_stays_as_it_is(tmp_path: Path) -> None:
    record(tmp_path, 2)
    assert plan(tmp_path, LATER) == []
    record(tmp_path, 1, first=2)
    assert [[file.first for file in group.files] for group in plan(tmp_path, LATER)] == [
        [0, 3],
        [0, 1],
    ]


def test_hour_that_is_not_over_for_long_is_left_alone(tmp_path: Path) -> None:
    record(tmp_path, 5)
    end_ns = HOUR + HOUR_NS + COMPACT_AFTER
    assert plan(tmp_path, end_ns - 1) == [] and plan(tmp_path, end_ns) != []


def test_what_comes_late_is_compacted_apart(tmp_path: Path) -> None:
    record(tmp_path, 5)
    run_compaction(tmp_path)
    record(tmp_path, 4, first=5)
    run_compaction(tmp_path)
    assert len(readable(tmp_path, "messages")) == 3
    assert offsets(tmp_path) == list(range(27))


def test_large_files_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "COMPACT_ROWS", 7)
    record(tmp_path, 8)
    groups = [group for group in plan(tmp_path, LATER) if group.table == "messages"]
    assert [len(group.files) for group in groups] == [2, 2, 2]
    run_compaction(tmp_path)
    assert offsets(tmp_path) == list(range(24))


def test_nothing_that_a_reader_needs_is_compacted_or_swept(tmp_path: Path) -> None:
    record(tmp_path, 6)
    register(tmp_path, "pipeline", {"messages": 7})
    assert [file.first for file in plan(tmp_path, LATER)[0].files] == [0, 3]
    run_compaction(tmp_path)
    register(tmp_path, "other", {"messages": 5})
    with tidying(tmp_path):
        sweep(tmp_path, MUCH_LATER)
    assert [file.first for file in data_files(tmp_path, "messages")] == [3, 6, 9, 12, 15]
    assert read_manifest(tmp_path).swept["messages"] == 3
    remove(tmp_path, "other")
    advance(tmp_path, "pipeline", {"messages": 100})
    with tidying(tmp_path):
        sweep(tmp_path, MUCH_LATER)
    assert [file.first for file in data_files(tmp_path, "messages")] == [6, 9, 12, 15]
    assert offsets(tmp_path) == list(range(18))


def test_small_files_go_only_after_a_while(tmp_path: Path) -> None:
    record(tmp_path, 5)
    run_compaction(tmp_path)
    with tidying(tmp_path):
        assert sweep(tmp_path, MUCH_LATER - 1) == []
        assert len(sweep(tmp_path, MUCH_LATER, is_dry=True)) == 8
        assert len(data_files(tmp_path, "messages")) == 5
        assert len(sweep(tmp_path, MUCH_LATER)) == 8
    assert len(data_files(tmp_path, "messages")) == 1 and offsets(tmp_path) == list(range(15))


def test_who_reads_in_the_midst_sees_every_row_once(tmp_path: Path) -> None:
    record(tmp_path, 5)
    seen = []
    with DyingDisk(NEVER, before=lambda: seen.append(offsets(tmp_path))) as disk:
        run_compaction(tmp_path)
        with tidying(tmp_path):
            sweep(tmp_path, MUCH_LATER)
    assert disk.is_alive and len(seen) > 20
    assert all(one == list(range(15)) for one in seen)


@pytest.mark.soak
def test_crash_at_any_step_shows_every_row_once_and_the_work_can_be_done_again(
    tmp_path: Path,
) -> None:
    recorded, step = tmp_path / "recorded", 0
    record(recorded, 3)
    for step in count(step=STRIDE):
        store = tmp_path / str(step)
        copytree(recorded, store)
        with DyingDisk(step) as disk:
            run_compaction(store)
            with tidying(store):
                sweep(store, MUCH_LATER)
        assert offsets(store) == list(range(9)), f"after a crash at step {step}"
        run_compaction(store)
        with tidying(store):
            sweep(store, MUCH_LATER)
        assert offsets(store) == list(range(9))
        assert len(list(compact_folder(store).rglob("*.parquet"))) == 2
        assert not list(store.rglob(".*.tmp"))
        if disk.is_alive:
            break
    assert step > 20


def test_files_that_vanish_while_they_are_listed_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, 5)
    from hubbub.store import manifest

    def compact_first(store: Path, table: str) -> object:
        monkeypatch.undo()
        run_compaction(store)
        with tidying(store):
            sweep(store, MUCH_LATER)
        return data_files(store, table)

    monkeypatch.setattr(manifest, "data_files", compact_first)
    assert offsets(tmp_path) == list(range(15))


def test_broken_small_file_is_left_for_verify(tmp_path: Path) -> None:
    record(tmp_path, 5)
    broken = data_files(tmp_path, "messages")[1].path
    broken.write_bytes(b"rubbish")
    run_compaction(tmp_path)
    assert broken in readable_files(tmp_path, "messages")
    (entry,) = [one for one in read_manifest(tmp_path).entries if one.table == "messages"]
    assert entry.rows == 9 and broken.name not in entry.sources


def test_report_of_damage_stays_where_it_is(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [], 0)
    path.write_bytes(b"rubbish" * 100)
    convert_segment(tmp_path, path)
    record(tmp_path, 4, first=1)
    run_compaction(tmp_path)
    assert [file.first >= DAMAGE_NUMBER for file in readable(tmp_path, "events")] == [
        False,
        False,
        True,
    ]


def test_manifest_that_cannot_be_read_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    record(tmp_path, 5)
    run_compaction(tmp_path)
    (compact_folder(tmp_path) / "manifest.json").write_bytes(b"{")
    with pytest.raises(StoreError, match="cannot be read"):
        readable_files(tmp_path, "messages")


def test_one_process_at_a_time_tidies(tmp_path: Path) -> None:
    with tidying(tmp_path) as is_ours:
        assert is_ours
        with pytest.raises(StoreError, match="try again"):
            compact_now(tmp_path, LATER)
        with tidying(tmp_path) as is_ours_too:
            assert not is_ours_too
    with tidying(tmp_path) as is_ours:
        assert is_ours


def test_copy_of_a_lock_in_a_forked_child_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def open_and_note(*arguments: Any) -> int:
        opened.append(os_open(*arguments))
        return opened[-1]

    os_open = os.open
    monkeypatch.setattr(os, "open", open_and_note)
    with tidying(tmp_path):
        copy = os.dup(opened[-1])  # As a child would have it that lives on.
    with tidying(tmp_path) as is_ours:
        assert is_ours
    os.close(copy)


def test_checkpoints_only_go_forward_unless_registered_anew(tmp_path: Path) -> None:
    register(tmp_path, "a", {"messages": 10})
    advance(tmp_path, "a", {"messages": 5, "events": 3})
    (one,) = checkpoints(tmp_path)
    assert one.needs == {"messages": 10, "events": 3}
    register(tmp_path, "a", {"messages": 5})
    assert floor(tmp_path, "messages") == 5 and floor(tmp_path, "events") is None
    assert remove(tmp_path, "a") and not remove(tmp_path, "a")
    assert floor(tmp_path, "messages") is None


def test_checkpoint_that_cannot_be_read_needs_everything(tmp_path: Path) -> None:
    register(tmp_path, "a", {"messages": 10})
    (tmp_path / "checkpoints" / "a.json").write_bytes(b"rubbish")
    assert floor(tmp_path, "messages") == 0 and not checkpoints(tmp_path)[0].is_readable
    advance(tmp_path, "a", {"messages": 12})
    assert floor(tmp_path, "messages") == 12


@pytest.mark.parametrize("name", ["", "../a", ".a", "a/b", "a" * 65, "a\n"])
def test_name_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="cannot name a checkpoint"):
        register(tmp_path, name, {})


@pytest.mark.parametrize("needs", [{"colours": 1}, {"messages": -1}])
def test_checkpoint_of_no_table_is_refused(tmp_path: Path, needs: dict[str, int]) -> None:
    with pytest.raises(StoreError, match="a checkpoint needs"):
        register(tmp_path, "a", needs)
