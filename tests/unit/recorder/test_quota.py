"""A store that is full: converted files go first, and segments only when nothing else is left."""

import os
from pathlib import Path

import pytest

from hubbub.limits import READER_STALE
from hubbub.recorder.quota import enforce, folder_bytes
from hubbub.store.checkpoints import checkpoints, register
from hubbub.store.compact import tidying
from hubbub.store.convert import convert_segment
from hubbub.store.journal import segments
from hubbub.store.records import encode_label
from hubbub.store.recovery import recover
from hubbub.store.writing import Journal
from tests.unit.store.recording import TOPIC
from tests.unit.store.simulated_disk import HastyDisk

NOW_NS = 1_800_000_000 * 10**9
MESSAGES = 10  # Of each segment.


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store of ten segments, each 100 kB that cannot be compressed; five are converted."""
    start = recover(tmp_path, NOW_NS, HastyDisk()).start
    journal = Journal(
        tmp_path, start, split_bytes=1 << 16, split_ns=1 << 60, clock=lambda: NOW_NS,
        disk=HastyDisk(),
    )  # fmt: skip
    for number in range(10):
        first = 1 + number * MESSAGES
        payloads = [os.urandom(10_000) for _ in range(MESSAGES)]
        journal.add_run(encode_label(TOPIC, "local"), first, payloads, [NOW_NS] * MESSAGES, NOW_NS)
        journal.commit()
    journal.close()
    for path in segments(tmp_path)[:5]:
        convert_segment(tmp_path, path)
    return tmp_path


def numbers(store: Path) -> tuple[list[int], list[int]]:
    """Return the segments that are left as files, and those in the journal."""
    files = sorted(int(path.name[:12]) for path in (store / "messages").rglob("0*.parquet"))
    return files, [int(path.stem) for path in segments(store)]


def test_store_that_fits_is_left_alone(store: Path) -> None:
    assert enforce(store, folder_bytes(store), NOW_NS) is None
    assert numbers(store) == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])


def test_oldest_files_go_first(store: Path) -> None:
    before = folder_bytes(store)
    removed = enforce(store, before - 150_000, NOW_NS)
    assert removed is not None
    assert (removed.files, removed.segments, removed.messages) == (2, 0, 0)
    assert removed.size_bytes == before - folder_bytes(store) > 150_000
    assert numbers(store) == ([2, 3, 4], [5, 6, 7, 8, 9])


def test_oldest_segments_go_when_nothing_else_may(store: Path) -> None:
    removed = enforce(store, 350_000, NOW_NS)
    assert removed is not None
    # The newest file of a table stays: a recorder learns from it where to go on.
    assert numbers(store) == ([4], [8, 9])
    assert (removed.files, removed.segments, removed.messages) == (4, 3, 3 * MESSAGES)
    assert folder_bytes(store) <= 350_000


def test_what_a_registered_reader_needs_stays_and_nothing_goes_from_behind_it(
    store: Path,
) -> None:
    now_ns = register(store, "stream", {"messages": 0}).updated_ns
    removed = enforce(store, folder_bytes(store) - 150_000, now_ns)
    assert removed is not None
    assert numbers(store) == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])
    assert (removed.files, removed.segments, removed.held_bytes) == (0, 0, 150_000)


def test_reader_that_has_not_moved_for_long_is_dropped_and_the_bound_holds(store: Path) -> None:
    updated_ns = register(store, "gone", {"messages": 0}).updated_ns
    quota_bytes = folder_bytes(store) - 150_000
    removed = enforce(store, quota_bytes, updated_ns + READER_STALE)
    assert removed is not None
    assert (removed.dropped, removed.held_bytes) == (("gone",), 0)
    assert numbers(store) == ([2, 3, 4], [5, 6, 7, 8, 9])
    assert folder_bytes(store) <= quota_bytes
    assert checkpoints(store) == []


def test_what_was_in_removed_segments_is_named(store: Path) -> None:
    removed = enforce(store, 350_000, NOW_NS)
    assert removed is not None
    assert removed.loss is not None
    assert {(subject, source.name) for subject, source, _, _ in removed.loss.ranges} == {
        ("/plant/temp", "lidar")
    }
    assert [(first, last) for _, _, first, last in removed.loss.ranges] == [(51, 80)]


def test_segment_that_is_written_never_goes(store: Path) -> None:
    enforce(store, 0, NOW_NS)
    assert numbers(store) == ([4], [9])


def test_store_that_is_being_compacted_waits_for_the_next_look(store: Path) -> None:
    with tidying(store) as is_ours:
        assert is_ours
        assert enforce(store, 0, NOW_NS) is None
    assert len(segments(store)) == 5
