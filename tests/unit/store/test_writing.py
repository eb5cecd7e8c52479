"""What was acknowledged is there, whatever happens to the disk, the machine or the bits."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hubbub.store.disk import Disk
from hubbub.store.journal import Run, open_segment, segments
from hubbub.store.layout import file_name
from hubbub.store.records import encode_label
from hubbub.store.recovery import Recovered, recover
from hubbub.store.writing import Journal, Start
from tests.unit.store.recording import TOPIC
from tests.unit.store.simulated_disk import HastyDisk, PowerLost, SimulatedDisk

IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"
POWER_LOSSES = 10_000 if IS_SOAK else 100
ROTTEN_FILES = 10_000 if IS_SOAK else 60
LABEL = encode_label(TOPIC, "local")


def payload(offset: int, size: int = 0) -> bytes:
    return f"message {offset};".encode() + bytes(size)


def make_journal(store: Path, start: Start, disk: Disk, **options: Any) -> Journal:
    settings = {"split_bytes": 4096, "split_ns": 1 << 60, "clock": lambda: 7}
    return Journal(store, start, disk=disk, **{**settings, **options})


class Writer:
    """Feeds a journal, and remembers what it was given."""

    def __init__(self, journal: Journal, start: Start, random: Random) -> None:
        self.journal = journal
        self.random = random
        self.sizes: dict[int, int] = {}
        self.offset, self.number = start.offset, start.number

    def add(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            if self.random.random() < 0.3:
                self.journal.add_row("events", {"kind": f"event {self.number}"})
                self.number += 1
            count = self.random.randrange(1, 6)
            sizes = [self.random.choice((0, 40, 900)) for _ in range(count)]
            payloads = [payload(self.offset + at, size) for at, size in enumerate(sizes)]
            self.journal.add_run(LABEL, self.offset + 1, payloads, [5] * count, 6)
            self.sizes.update((self.offset + at, size) for at, size in enumerate(sizes))
            self.offset += count

    def check(self, store: Path, acknowledged: int) -> int:
        """Read everything; return up to where the messages go."""
        offset = number = 0
        for path in segments(store):
            with open_segment(path) as segment:
                for value in segment:
                    if not isinstance(value, Run):
                        assert (value.number, value.values) == (number, {"kind": f"event {number}"})
                        number += 1
                        continue
                    assert value.offset == offset
                    assert value.first == offset + 1
                    for one in value.payloads:
                        assert one == payload(offset, self.sizes[offset])
                        offset += 1
                assert segment.damaged == []
                assert segment.torn_bytes == 0
        assert offset >= acknowledged
        return offset


def restore(store: Path, image: dict[Path, bytes]) -> None:
    """Put onto the real disk what the simulated one has kept."""
    for path in segments(store):
        path.unlink()
    for path, content in image.items():
        path.write_bytes(content)


def begin(store: Path) -> Recovered:
    return recover(store, 1, HastyDisk())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_everything_committed_is_acknowledged_and_there(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk())
    writer = Writer(journal, start, Random(1))
    for _ in range(50):
        writer.add()
        assert journal.acknowledged < writer.offset
        assert journal.commit()
        assert journal.acknowledged == writer.offset
    assert journal.close()
    assert writer.check(store, writer.offset) == writer.offset
    statistics = journal.statistics()
    assert statistics.segments == len(segments(store)) > 5
    assert statistics.messages == writer.offset
    assert statistics.rows == writer.number
    assert statistics.commits == 50
    assert all(path.stat().st_size <= 4096 + 20_000 for path in segments(store))


def test_segment_holds_no_more_messages_than_a_file_shall_have_rows(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk(), split_bytes=1 << 20, split_rows=10)
    for _ in range(6):
        journal.add_run(LABEL, 1, [b"x"] * 4, [5] * 4, 6)
        assert journal.commit()
    journal.add_run(LABEL, 1, [b"x"] * 25, [5] * 25, 6)  # What is committed at once stays together.
    assert journal.close()
    counts = []
    for path in segments(store):
        with open_segment(path) as segment:
            counts.append(sum(len(one.payloads) for one in segment if isinstance(one, Run)))
    assert counts == [8, 8, 8, 25]


def test_segment_has_its_space_while_it_is_open_and_is_cut_when_closed(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk(), split_bytes=1 << 20)
    journal.add_run(LABEL, 1, [b"x"], [5], 6)
    journal.commit()
    [path] = segments(store)
    assert path.stat().st_size >= 1 << 20
    assert path.stat().st_blocks * 512 >= 1 << 20
    journal.close()
    assert path.stat().st_size < 1000
    with open_segment(path) as segment:
        assert segment.is_closed


def test_segment_is_closed_after_its_time_and_a_quiet_one_later(store: Path) -> None:
    now = [0]
    start = begin(store).start
    journal = make_journal(store, start, Disk(), split_ns=10, clock=lambda: now[0])
    journal.add_row("events", {})
    journal.commit()
    now[0] = 10
    assert not journal.is_due
    journal.add_run(LABEL, 1, [b"x"], [5], 6)
    journal.commit()
    assert journal.is_due
    assert journal.commit()
    assert not journal.is_due
    with open_segment(segments(store)[0]) as segment:
        assert segment.is_closed
    journal.add_row("events", {})
    journal.commit()
    assert len(segments(store)) == 2
    now[0] = 129
    assert not journal.is_due
    now[0] = 130
    assert journal.is_due


def test_record_larger_than_a_segment_has_one_of_its_own(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk())
    for at in range(3):
        journal.add_run(LABEL, at + 1, [bytes(50_000)], [5], 6)
        assert journal.commit()
    journal.close()
    assert len(segments(store)) == 3


def test_views_are_written_and_can_be_copied(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk())
    memory = bytearray(b"x" * 50_000)
    journal.add_run(LABEL, 1, [memoryview(memory)], [5], 6)  # type: ignore[list-item]
    journal.keep()
    memory[:] = bytes(50_000)
    journal.close()
    with open_segment(segments(store)[0]) as segment:
        [run] = segment
        assert isinstance(run, Run)
        assert run.payloads == [b"x" * 50_000]


def test_many_pieces_and_short_writes_are_written_whole(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, at: real(fd, _cut(pieces, 33_333), at))
    start = begin(store).start
    journal = make_journal(store, start, Disk())
    payloads = [bytes([at % 256]) * 16_384 for at in range(40)]
    for _ in range(30):
        journal.add_run(LABEL, 1, payloads, range(40), 6)
    journal.close()
    with open_segment(segments(store)[0]) as segment:
        assert [run.payloads for run in segment if isinstance(run, Run)] == [payloads] * 30


def _cut(pieces: list[bytes], size: int) -> list[bytes]:
    """Return the first bytes of the pieces."""
    return [b"".join(pieces)[:size]]


@pytest.mark.soak
def test_power_loss_takes_nothing_that_was_acknowledged(store: Path) -> None:
    for seed in range(POWER_LOSSES):
        lose_power(store / str(seed % 8), seed)
        for path in segments(store / str(seed % 8)):
            path.unlink()


def lose_power(store: Path, seed: int) -> None:
    random = Random(seed)
    start = begin(store).start
    disk = SimulatedDisk(random)
    disk.power_lost_at = random.randrange(1, 60)
    journal = make_journal(store, start, disk)
    writer = Writer(journal, start, random)
    try:
        while True:
            writer.add()
            journal.commit()
    except PowerLost:
        pass
    restore(store, disk.crash())
    recovered = begin(store)
    end = writer.check(store, journal.acknowledged)
    assert recovered.start.offset == end, f"seed {seed}"
    assert recovered.damaged == 0
    go_on(store, writer, recovered.start)


def go_on(store: Path, writer: Writer, start: Start) -> None:
    """Record more: offsets and numbers continue."""
    journal = make_journal(store, start, HastyDisk())
    writer.journal, writer.offset, writer.number = journal, start.offset, start.number
    writer.add()
    assert journal.close()
    assert writer.check(store, writer.offset) == writer.offset


def count_calls(store: Path, seed: int) -> int:
    """Return how often the disk is called by what `fail_at` does."""
    random = Random(seed)
    disk = SimulatedDisk(random)
    fail_at(store, seed, disk, lambda: None)
    return disk.calls


def fail_at(store: Path, seed: int, disk: SimulatedDisk, on_commit: Callable[[], None]) -> Writer:
    """Write a few groups, trying again whatever is refused."""
    random = Random(seed)
    start = begin(store).start
    journal = make_journal(store, start, disk)
    writer = Writer(journal, start, random)
    for _ in range(8):
        writer.add()
        while not journal.commit():
            on_commit()
        on_commit()
    writer.acknowledged = journal.acknowledged  # type: ignore[attr-defined]
    journal.close()
    return writer


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_error_at_any_call_loses_nothing_and_claims_nothing(
    store: Path, code: int, length: int
) -> None:
    calls = count_calls(store, 3)
    assert calls > 30
    for at in range(1, calls + 1):
        disk = SimulatedDisk(Random(at))
        disk.failures = dict.fromkeys(range(at, at + length), code)
        restore(store, {})
        writer = fail_at(store, 3, disk, lambda: None)
        restore(store, disk.image())
        assert begin(store).start.offset == writer.offset, f"call {at}"
        assert writer.check(store, writer.offset) == writer.offset, f"call {at}"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_error_at_any_call_and_power_loss_later_keeps_what_was_acknowledged(
    store: Path, code: int
) -> None:
    calls = count_calls(store, 4)
    for at in range(1, calls + 1):
        random = Random(at)
        disk = SimulatedDisk(random)
        disk.failures = {at: code, at + random.randrange(1, 9): code}
        disk.power_lost_at = at + random.randrange(1, 20)
        restore(store, {})
        start = begin(store).start
        journal = make_journal(store, start, disk)
        writer = Writer(journal, start, Random(4))
        try:
            for _ in range(8):
                writer.add()
                while not journal.commit():
                    pass
        except PowerLost:
            pass
        restore(store, disk.crash())
        recovered = begin(store)
        assert writer.check(store, journal.acknowledged) == recovered.start.offset, f"call {at}"
        go_on(store, writer, recovered.start)


def test_failed_sync_seals_the_segment_and_what_it_held_is_written_again(store: Path) -> None:
    bad: list[tuple[int, int | None]] = []
    disk = SimulatedDisk(Random(1))
    start = begin(store).start
    journal = make_journal(
        store, start, disk, on_bad=lambda segment, error: bad.append((segment, error.errno))
    )
    writer = Writer(journal, start, Random(1))
    writer.add()
    assert journal.commit()
    acknowledged = journal.acknowledged
    writer.add()
    disk.failures = {disk.calls + 2: errno.EIO}  # The write, then the sync.
    assert not journal.commit()
    assert journal.acknowledged == acknowledged
    assert bad == [(0, errno.EIO)]
    assert journal.commit()
    assert journal.acknowledged == writer.offset
    restore(store, disk.crash())
    assert len(segments(store)) == 2
    begin(store)
    assert writer.check(store, writer.offset) == writer.offset
    assert journal.statistics().bad_segments == 1


def test_full_disk_stops_acknowledging_and_resumes_when_there_is_space(store: Path) -> None:
    disk = SimulatedDisk(Random(1), capacity_bytes=200_000)
    start = begin(store).start
    journal = make_journal(store, start, disk)
    writer = Writer(journal, start, Random(1))
    while journal.commit():
        writer.add()
    assert journal.acknowledged < writer.offset
    acknowledged = journal.acknowledged
    for _ in range(5):
        writer.add()
        assert not journal.commit()
    assert journal.acknowledged == acknowledged
    assert journal.statistics().bad_segments == 0
    disk.capacity_bytes = 400_000
    assert journal.commit()
    assert journal.acknowledged == writer.offset
    journal.close()
    restore(store, disk.image())
    assert writer.check(store, writer.offset) == writer.offset


def test_little_space_is_used_before_acknowledging_stops(store: Path) -> None:
    disk = SimulatedDisk(Random(1), capacity_bytes=300_000)
    start = begin(store).start
    journal = make_journal(store, start, disk, split_bytes=1 << 20)
    journal.add_run(LABEL, 1, [b"x"], [5], 6)
    assert journal.commit()


@pytest.mark.soak
def test_bit_rot_is_found_and_confined(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk(), split_bytes=1 << 20)
    writer = Writer(journal, start, Random(1))
    for _ in range(30):
        writer.add()
        journal.commit()
    journal.close()
    [path] = segments(store)
    sound = path.read_bytes()
    with open_segment(path) as segment:
        entries = [(entry.position, entry.value) for entry in segment.entries()]
    ends = [position for position, _ in entries[1:]] + [len(sound)]
    for seed in range(ROTTEN_FILES):
        rotten, touched = rot(sound, [at for at, _ in entries], ends, Random(seed))
        path.write_bytes(rotten)
        with open_segment(path) as segment:
            found = list(segment)
            expected = [value for at, (_, value) in enumerate(entries) if at not in touched]
            assert found == [v for v in expected if hasattr(v, "topic") or hasattr(v, "table")]
            told = set()
            for begin_at, end_at in segment.damaged:
                told |= {n for n, end in enumerate(ends) if begin_at < end <= end_at}
            if segment.torn_bytes:
                told |= {n for n, end in enumerate(ends) if end > segment.position}
            assert told == touched, f"seed {seed}"


def rot(sound: bytes, begins: list[int], ends: list[int], random: Random) -> tuple[bytes, set[int]]:
    """Flip bits; return which records they are in."""
    rotten = bytearray(sound)
    bits = random.sample(range(8 * len(sound)), random.randrange(1, 65))
    for bit in bits:
        rotten[bit // 8] ^= 1 << bit % 8
    spans = list(zip(begins, ends, strict=True))
    touched = {n for n, (a, b) in enumerate(spans) if any(a <= bit // 8 < b for bit in bits)}
    return bytes(rotten), touched


def test_torn_tail_is_cut_and_told(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk(), split_bytes=1 << 20)
    writer = Writer(journal, start, Random(1))
    writer.add()
    journal.commit()
    end = writer.offset
    with open_segment(segments(store)[0]) as segment:
        list(segment)
        torn_at = segment.position
    writer.add()
    journal.commit()
    journal.abandon()
    path = segments(store)[0]
    path.write_bytes(path.read_bytes()[: torn_at + 100].ljust(1 << 20, b"\0"))
    recovered = begin(store)
    assert recovered.start.offset == end
    [torn] = recovered.torn
    assert torn.segment == 0
    assert 50 < torn.size_bytes <= 100
    assert begin(store).torn == ()
    writer.check(store, end)


def test_rot_in_what_was_synced_is_no_torn_tail(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk(), split_bytes=1 << 20)
    writer = Writer(journal, start, Random(1))
    for _ in range(5):
        writer.add()
        journal.commit()
    journal.abandon()
    [path] = segments(store)
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    recovered = begin(store)
    assert recovered.start.offset == writer.offset
    assert recovered.torn == ()
    assert recovered.damaged > 0
    with open_segment(path) as segment:
        assert sum(len(run.payloads) for run in segment if isinstance(run, Run)) < writer.offset
        assert segment.end_offset == writer.offset
        assert segment.is_closed


def test_rot_before_a_torn_tail_does_not_move_the_cut(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk(), split_bytes=1 << 20)
    ends = []
    for at in range(4):
        journal.add_run(LABEL, at + 1, [payload(at, 400)], [5], 6)
        if at != 2:  # The last two are one group.
            journal.commit()
        with open_segment(segments(store)[0]) as segment:
            list(segment)
            ends.append(segment.position)
    journal.abandon()
    [path] = segments(store)
    content = bytearray(path.read_bytes())
    content[ends[1] - 1] ^= 1  # Rot in what was synced...
    content[ends[1] + 100] ^= 1  # ...and beside it the first record of the group.
    path.write_bytes(content)
    recovered = begin(store)
    with open_segment(path) as segment:
        assert [run.offset for run in segment if isinstance(run, Run)] == [0]
        assert segment.damaged == [(ends[0], ends[1])]
    assert [torn.segment for torn in recovered.torn] == [0]


def test_segment_that_was_only_being_made_is_removed(store: Path) -> None:
    start = begin(store).start
    journal = make_journal(store, start, Disk())
    journal.add_run(LABEL, 1, [b"x"], [5], 6)
    journal.close()
    [path] = segments(store)
    path.with_name("000000000001.journal").write_bytes(bytes(4096))
    recovered = begin(store)
    assert segments(store) == [path]
    assert recovered.start.offset == 1
    assert recovered.start.segment == 2


def test_journal_that_was_all_converted_goes_on_behind_the_files(store: Path) -> None:
    start = begin(store).start
    for table, rows in (
        ("messages", (7, 100, 199)),
        ("messages", (6, 0, 99)),
        ("events", (8, 3, 9)),
    ):
        folder = store / table / "hour=2026-11-16-08"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file_name(*rows)).write_bytes(b"")
    assert begin(store).start == Start(start.recorder, 9, 200, 10)
