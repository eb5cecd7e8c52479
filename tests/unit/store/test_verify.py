"""Verifying finds what is wrong, where, and nothing else; pruning takes what nobody needs."""

from itertools import count
from pathlib import Path
from shutil import copy, copytree

import pyarrow.parquet as pq
import pytest

from hubbub.errors import StoreError
from hubbub.limits import SECOND
from hubbub.store import Store
from hubbub.store.checkpoints import register, remove
from hubbub.store.compact import tidying
from hubbub.store.convert import convert_segment, damaged_folder
from hubbub.store.journal import segments
from hubbub.store.layout import HOUR_NS, data_files, file_name
from hubbub.store.manifest import read_manifest, readable_files
from hubbub.store.prune import prune
from hubbub.store.verify import Fault, files_of, verify
from tests.unit.store.disk import STRIDE, DyingDisk
from tests.unit.store.recording import pieces_of, run, write_segment
from tests.unit.store.test_compact import run_compaction
from tests.unit.store.test_reading import START, column, make_store, values
from tests.unit.store.test_reading import store as store

HOURS = 5


def faults(store: Path) -> list[Fault]:
    return [fault for looked in verify(store) for fault in looked.faults]


def spans(store: Path) -> list[tuple[str, int | None, int | None]]:
    return [(fault.what, fault.first, fault.last) for fault in faults(store)]


def test_sound_store_has_no_fault(store: Path) -> None:
    looked = list(verify(store))
    assert [one.faults for one in looked] == [[]] * len(looked)
    assert {one.path for one in looked} == {store, *files_of(store)}


def test_hole_between_files_is_found(store: Path) -> None:
    data_files(store, "messages")[-1].path.unlink()
    assert spans(store) == [("offsets are missing before it", 18, 23)]


def test_double_between_files_is_found(store: Path) -> None:
    last = data_files(store, "messages")[-1]
    copy(last.path, last.path.with_name(file_name(77, last.first, last.last)))
    assert spans(store) == [("offsets that another file has, too", 18, 23)]


def test_hole_and_double_within_a_file_are_found(store: Path) -> None:
    last = data_files(store, "messages")[-1]
    table = pq.read_table(last.path, partitioning=None)
    wrong = table.take([0, 1, 1, 4, 5])
    pq.write_table(wrong, last.path, store_schema=False)
    assert spans(store) == [("offsets that come twice", 19, 19), ("offsets are missing", 20, 21)]


def test_name_that_tells_other_rows_is_found(store: Path) -> None:
    last = data_files(store, "messages")[-1]
    last.path.rename(last.path.with_name(file_name(3, 18, 22)))
    assert ("its name tells other rows than it holds", 18, 23) in spans(store)


def test_flipped_bit_is_found_wherever_it_is(store: Path) -> None:
    path = data_files(store, "messages")[-1].path
    sound = path.read_bytes()
    for place in range(0, len(sound), 97):
        data = bytearray(sound)
        data[place] ^= 0x10
        path.write_bytes(data)
        found = faults(store)
        # What no checksum covers (some bytes of the end, statistics) changes no row.
        if not found:
            path.write_bytes(data)
            assert column(Store(store).messages()) == list(range(36))
    path.write_bytes(sound)
    assert faults(store) == []


def test_damage_of_a_journal_is_found(store: Path) -> None:
    pieces = pieces_of(values(4), 4)
    pieces[1] = pieces[1][:-1] + b"!"
    segments(store)[0].write_bytes(b"".join(pieces))
    start = len(pieces[0])
    assert spans(store) == [
        ("damaged bytes", start, start + len(pieces[1]) - 1),
        ("offsets are missing", 24, 26),
    ]


def test_segment_that_is_kept_aside_is_a_fault(store: Path) -> None:
    path = segments(store)[0]
    data = path.read_bytes()
    path.write_bytes(data.replace(b"00000025", b"00000026"))
    convert_segment(store, path)
    kept, hole = faults(store)
    assert kept.path.parent == damaged_folder(store) and "kept here" in str(kept)
    assert (hole.what, hole.first, hole.last) == ("offsets are missing before it", 24, 26)


def test_segment_that_is_not_removed_yet_is_no_fault(store: Path) -> None:
    path = segments(store)[0]
    data = path.read_bytes()
    convert_segment(store, path)
    path.write_bytes(data)
    assert faults(store) == []


def test_broken_checkpoint_and_identity_are_found(store: Path) -> None:
    register(store, "a", {"messages": 1})
    (store / "checkpoints" / "a.json").write_bytes(b"{")
    (store / "store.json").write_bytes(b"{")
    assert len(faults(store)) == 2


@pytest.fixture
def hours(tmp_path: Path) -> Path:
    """Return a store with two files of messages in each of five hours."""
    make_store(tmp_path)
    for number in range(2 * HOURS):
        time_ns = START + number // 2 * HOUR_NS
        path = write_segment(tmp_path, [run(3 * number)._replace(received_ns=time_ns)], number)
        convert_segment(tmp_path, path)
    return tmp_path


def offsets(store: Path) -> list[int]:
    return column(Store(store).messages())


NOW = START + 100 * HOUR_NS


def test_pruning_shows_first_and_does_it_then(hours: Path) -> None:
    before_ns = START + 2 * HOUR_NS + SECOND
    shown = prune(hours, NOW, before_ns=before_ns)
    assert len(shown.removed) == 4 and offsets(hours) == list(range(30))
    done = prune(hours, NOW, before_ns=before_ns, is_dry=False)
    assert done == shown and offsets(hours) == list(range(12, 30))
    assert faults(hours) == [] and read_manifest(hours).swept["messages"] == 12


def test_newest_file_is_never_pruned(hours: Path) -> None:
    pruning = prune(hours, NOW, before_ns=NOW, is_dry=False)
    assert offsets(hours) == [27, 28, 29]
    assert [one.held_by for one in pruning.held] == ["each table keeps its newest"]


def test_what_a_reader_needs_is_not_pruned(hours: Path) -> None:
    register(hours, "pipeline", {"messages": 7})
    pruning = prune(hours, NOW, before_ns=NOW, is_dry=False)
    assert offsets(hours) == list(range(6, 30))
    assert {one.held_by for one in pruning.held} == {"a reader needs it"}
    remove(hours, "pipeline")
    prune(hours, NOW, before_ns=NOW, is_dry=False)
    assert offsets(hours) == [27, 28, 29]


def test_pruning_by_size_takes_the_oldest(hours: Path) -> None:
    sizes = [file.path.stat().st_size for file in data_files(hours, "messages")]
    pruning = prune(hours, NOW, bytes_max=sum(sizes[3:]), is_dry=False)
    assert pruning.left_bytes == sum(sizes[3:]) and pruning.size_bytes == sum(sizes[:3])
    assert offsets(hours) == list(range(9, 30))


def test_large_files_are_pruned_with_what_is_left_of_the_small_ones(hours: Path) -> None:
    run_compaction(hours, NOW)
    before_ns = START + 2 * HOUR_NS
    prune(hours, NOW, before_ns=before_ns, is_dry=False)
    assert offsets(hours) == list(range(12, 30))
    assert len(read_manifest(hours).entries) == HOURS - 3
    assert next(file.first for file in data_files(hours, "messages")) == 12


def test_pruning_without_a_limit_removes_what_was_replaced(hours: Path) -> None:
    run_compaction(hours, NOW)
    assert prune(hours, NOW).replaced == []
    pruning = prune(hours, NOW + HOUR_NS, is_dry=False)
    assert len(pruning.replaced) == 2 * (HOURS - 1) and pruning.removed == []
    assert offsets(hours) == list(range(30)) and len(readable_files(hours, "messages")) == 6


@pytest.mark.soak
def test_crash_at_any_step_of_pruning_leaves_no_hole(hours: Path, tmp_path: Path) -> None:
    run_compaction(hours, START + 3 * HOUR_NS)  # The later hours stay as they were.
    step = 0
    for step in count(step=STRIDE):
        store = tmp_path.with_name(f"{tmp_path.name}-{step}")
        copytree(hours, store)
        with DyingDisk(step) as disk:
            prune(store, NOW, before_ns=START + 4 * HOUR_NS, is_dry=False)
        left = offsets(store)
        assert left == list(range(left[0], 30)) and faults(store) == [], f"step {step}"
        prune(store, NOW, before_ns=START + 4 * HOUR_NS, is_dry=False)
        assert offsets(store) == list(range(24, 30))
        if disk.is_alive:
            break
    assert step > 10


def test_pruning_beside_another_is_refused(hours: Path) -> None:
    with tidying(hours), pytest.raises(StoreError, match="try again"):
        prune(hours, NOW)


def test_segment_that_is_converted_meanwhile_is_no_hole(store: Path) -> None:
    steps = verify(store)
    looked = [next(steps)]
    convert_segment(store, segments(store)[0])
    looked += steps
    assert [fault for one in looked for fault in one.faults] == []
