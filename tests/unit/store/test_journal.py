"""A segment gives back what was recorded, and of a damaged one all that was not touched."""

import os
from pathlib import Path
from random import Random

import pytest

from hubbub.errors import StoreError
from hubbub.store import records
from hubbub.store.journal import Row, Run, Segment, open_segment, segments
from hubbub.store.records import Chain
from tests.unit.store.recording import RECORDER, pieces_of, run, write_segment

RUNS = [run(0), run(3, 1), run(4, 10), run(14, 2)]
MIXED: list[Run | Row] = [RUNS[0], Row(0, "events", {"kind": "PeerJoined"}), *RUNS[1:]]


def test_segment_gives_back_what_was_recorded(tmp_path: Path) -> None:
    path = write_segment(tmp_path, MIXED, number=42)
    with open_segment(path) as segment:
        assert list(segment) == MIXED
        assert segment.number == 42
        assert segment.recorder == RECORDER.hex()
        assert (segment.end_offset, segment.end_number) == (16, 1)
        assert (segment.torn_bytes, segment.damaged, segment.missing) == (0, [], [])
        assert segment.is_closed
        assert list(segment) == MIXED


def test_segments_come_by_number(tmp_path: Path) -> None:
    paths = [write_segment(tmp_path, RUNS, number) for number in (10, 9, 100)]
    (tmp_path / "journal" / ".new.journal").write_bytes(b"")
    assert segments(tmp_path) == [paths[1], paths[0], paths[2]]
    assert segments(tmp_path / "nowhere") == []


def test_zeros_are_the_end_of_an_open_segment(tmp_path: Path) -> None:
    path = write_segment(tmp_path, RUNS, is_closed=False, zeros=5000)
    with open_segment(path) as segment:
        assert list(segment) == RUNS
        assert not segment.is_closed
        assert segment.torn_bytes == 0


def test_empty_segment_holds_nothing_yet(tmp_path: Path) -> None:
    path = write_segment(tmp_path, RUNS)
    for content in (b"", bytes(5000)):
        path.write_bytes(content)
        with open_segment(path) as segment:
            assert list(segment) == []


def test_open_segment_is_followed_as_it_grows(tmp_path: Path) -> None:
    pieces = pieces_of(RUNS)
    path = write_segment(tmp_path, RUNS)
    with path.open("wb", buffering=0) as file:
        file.truncate(1 << 20)
        with open_segment(path) as segment:
            seen: list[Run | Row] = []
            for piece in pieces:
                half = len(piece) // 2
                file.write(piece[:half])
                assert list(segment.follow()) == []
                assert segment.torn_bytes == len(piece[:half].rstrip(b"\0"))
                file.write(piece[half:])
                seen += segment.follow()
            assert seen == RUNS
            assert segment.is_closed
            assert segment.damaged == []
            assert list(segment.follow()) == []


def test_record_written_while_the_reader_looks_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_segment(tmp_path, RUNS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-500].ljust(len(whole), b"\0"))
    with open_segment(path) as segment:
        segment.is_closed = False
        real = Segment._find_head

        def find_late(self: Segment, start: int) -> int | None:
            path.write_bytes(whole)
            return real(self, start)

        monkeypatch.setattr(Segment, "_find_head", find_late)
        assert list(segment) == RUNS
        assert segment.damaged == []


def test_torn_tail_is_told(tmp_path: Path) -> None:
    path = write_segment(tmp_path, RUNS, is_closed=False)
    whole = path.read_bytes()
    last = len(pieces_of(RUNS, is_closed=False)[-1])
    for kept in range(1, last):
        path.write_bytes(whole[: len(whole) - last + kept])
        with open_segment(path) as segment:
            assert list(segment) == RUNS[:-1]
            assert 0 < segment.torn_bytes <= kept
            assert segment.damaged == []
            assert segment.end_offset == 14


@pytest.mark.parametrize("victim", range(6))
def test_damage_takes_the_touched_record_alone(tmp_path: Path, victim: int) -> None:
    pieces = pieces_of(RUNS)
    begins = [sum(map(len, pieces[:at])) for at in range(len(pieces) + 1)]
    path = write_segment(tmp_path, RUNS)
    for at in range(begins[victim], begins[victim + 1]):
        flipped = bytearray(b"".join(pieces))
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        with open_segment(path) as segment:
            spared = [run for place, run in enumerate(RUNS, 1) if place != victim]
            assert list(segment) == spared
            if victim == len(pieces) - 1:
                assert 0 < segment.torn_bytes <= records.END_BYTES
            else:
                assert segment.damaged == [(begins[victim], begins[victim + 1])]


def test_missing_offsets_are_told(tmp_path: Path) -> None:
    pieces = pieces_of(RUNS)
    path = write_segment(tmp_path, RUNS)
    for victims, missing in (((3,), [(4, 14)]), ((2, 3), [(3, 14)]), ((1, 4), [(0, 3), (14, 16)])):
        path.write_bytes(
            b"".join(
                bytes(len(piece)) if place in victims else piece
                for place, piece in enumerate(pieces)
            )
        )
        with open_segment(path) as segment:
            assert len(list(segment)) == len(RUNS) - len(victims)
            assert segment.missing == missing


def test_payload_that_looks_like_a_record_is_not_taken_for_one(tmp_path: Path) -> None:
    pieces = pieces_of(RUNS)
    liar = Chain(segment_id=77)  # It may know everything but the id of the segment.
    payload_at = sum(map(len, pieces[:2])) + 200
    liar.position = payload_at
    fake = b"".join(liar.add(records.ROW, records.encode_row(0, "events", {})))
    hostile = run(3, 1)._replace(payloads=[fake * 3])
    pieces = pieces_of([RUNS[0], hostile, *RUNS[2:]])
    damaged = bytearray(b"".join(pieces))
    damaged[sum(map(len, pieces[:2]))] ^= 1
    path = write_segment(tmp_path, RUNS)
    path.write_bytes(damaged)
    with open_segment(path) as segment:
        assert list(segment) == [RUNS[0], *RUNS[2:]]
        assert len(segment.damaged) == 1


def test_what_a_bad_segment_holds_beyond_the_next_is_void(tmp_path: Path) -> None:
    bad = write_segment(tmp_path, [*RUNS[:2], Row(0, "events", {}), RUNS[2]], 0, is_closed=False)
    write_segment(tmp_path, [RUNS[1], Row(0, "events", {}), *RUNS[2:]], 1)
    with open_segment(bad) as segment:
        assert list(segment) == RUNS[:1]
        assert segment.end_offset == 3


def test_another_format_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_segment(tmp_path, RUNS)
    monkeypatch.setattr(records, "FORMAT", 2)
    with pytest.raises(StoreError, match=r"of a format .* reads 2"):
        open_segment(path)


def test_garbage_is_a_torn_tail_and_never_raises(tmp_path: Path) -> None:
    random = Random(5)
    path = write_segment(tmp_path, RUNS)
    for size in (1, 31, 32, 33, 5000):
        path.write_bytes(random.randbytes(size))
        with open_segment(path) as segment:
            assert list(segment) == []


def test_large_record_is_read_whole(tmp_path: Path) -> None:
    large = [run(0, 2, size=3 << 20), run(2)]
    path = write_segment(tmp_path, large)
    with open_segment(path) as segment:
        assert list(segment) == large
    os.truncate(path, 4 << 20)
    with open_segment(path) as segment:
        assert list(segment) == []
        assert segment.torn_bytes > 3 << 20


def test_packed_reading_tells_the_same_as_careful_reading(tmp_path: Path) -> None:
    """The quick way stops at every record that is not plainly sound, and is taken up behind it."""
    random = Random(5)
    pieces = pieces_of([*MIXED, *(run(16 + 2 * at, 2) for at in range(50))])
    sound = b"".join(pieces)
    for _ in range(300):
        data = bytearray(sound)
        for _ in range(random.randrange(3)):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path = write_segment(tmp_path, [])
        path.write_bytes(data)
        with open_segment(path) as segment:
            careful = [value[:3] for value in segment]
            found = segment.damaged, segment.missing, segment.torn_bytes, segment.end_offset
            packed = [value[:3] for value in segment.packed()]
            assert packed == careful
            assert found == (
                segment.damaged, segment.missing, segment.torn_bytes, segment.end_offset,
            )  # fmt: skip
