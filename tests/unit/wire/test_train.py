"""Trains: what is made is what single frames are, and nothing but the very next pieces is taken."""

from itertools import count
from zlib import crc32

import pytest

from hubbub.wire import batch, header, train
from hubbub.wire.header import HEADER_BYTES, RELIABLE, SEGMENT
from hubbub.wire.train import Train

STRIDE = 500
STEP = HEADER_BYTES + batch.SEGMENT_HEAD_BYTES + STRIDE
MESSAGE = bytes(range(256)) * 16
ABOUT = (16, 7, 12345, len(MESSAGE))
SHARED = header.prefix(SEGMENT, 0, RELIABLE, 0, bytes(20), 8)


def cut(first: int, end: int, about: tuple[int, int, int, int] = ABOUT) -> Train:
    return Train(about, MESSAGE, STRIDE, first * STRIDE, end - first)


def make(
    first: int = 0,
    end: int = 6,
    frame: int = 50,
    *,
    about: tuple[int, int, int, int] = ABOUT,
    shared: header.Prefix = SHARED,
) -> bytes:
    return bytes(train.make(shared, frame, count(900), 77, cut(first, end, about)))


def take(buffer: bytes, count_max: int = 99, start: int = 0) -> bytes:
    frames = min(count_max, (len(buffer) - start) // STEP)
    first = train.read_piece(buffer, start)
    return b"".join(train.take(SHARED.data, buffer, start, first, frames))


def test_frames_of_a_train_are_what_single_frames_are() -> None:
    joined = make()
    assert len(joined) == 6 * STEP
    for number in range(6):
        start, offset = number * STEP, number * STRIDE
        decoded = header.decode(joined, start)
        assert (decoded.kind, decoded.sequence, decoded.packet) == (
            SEGMENT,
            50 + number,
            900 + number,
        )
        assert header.is_intact(joined, start, start + STEP, decoded.checksum)
        segment = batch.decode_segment(joined, start + HEADER_BYTES, start + STEP)
        data = MESSAGE[offset : offset + STRIDE]
        assert segment == (16, 7, 12345, len(MESSAGE), offset, STRIDE, data)
        assert train.read_time(joined, start) == 77


@pytest.mark.parametrize("begin", [0, 3 * STRIDE, 65_536 - 2 * STRIDE, (1 << 24) - STRIDE])
@pytest.mark.parametrize("first", [250, 251, 255, 0xFFFD, (1 << 32) - 3, (1 << 64) - 7])
def test_numbers_carry_from_one_frame_of_a_train_to_the_next(first: int, begin: int) -> None:
    payload = MESSAGE.ljust(begin + 6 * STRIDE, b"x")
    about = (16, 7, 12345, len(payload))
    packets = first - 1
    long_train = Train(about, payload, STRIDE, begin, 6)
    expected = b""
    for number in range(6):
        head, data = long_train.body(number)
        packet = packets + number
        expected += header.finish_parts(SHARED, first + number, packet, 77, head, data)
        expected += head + data
    assert train.make(SHARED, first, count(packets), 77, long_train) == expected


def test_body_of_one_frame_is_made_again_as_it_was() -> None:
    joined = make(2, 5)
    for number in range(3):
        body = joined[number * STEP + HEADER_BYTES : (number + 1) * STEP]
        head, data = cut(2, 5).body(number)
        assert head + data == body
        assert cut(2, 5).body_bytes == len(body)


def test_packet_numbers_are_taken_for_these_frames_alone() -> None:
    packets = count(900)
    train.make(SHARED, 50, packets, 77, cut(0, 6))
    assert next(packets) == 906


def test_pieces_are_taken_from_the_first_on() -> None:
    assert take(make()) == MESSAGE[: 6 * STRIDE]


def test_train_may_begin_anywhere_in_a_buffer_and_in_a_message() -> None:
    assert take(bytes(STEP) + make(2, 5), start=STEP) == MESSAGE[2 * STRIDE : 5 * STRIDE]


def test_no_more_is_taken_than_there_is_room_for() -> None:
    assert take(make(), count_max=2) == MESSAGE[: 2 * STRIDE]


@pytest.mark.parametrize(
    "broken",
    [
        make(0, 3) + make(4, 6, frame=53),  # A piece is missing.
        make(0, 3) + make(3, 6, frame=54),  # A frame is missing.
        make(0, 3) + make(2, 5, frame=53),  # A piece comes again.
        make(0, 3) + make(3, 6, frame=53)[: STEP - 1],  # A frame is cut short.
        make(0, 3) + bytes(STEP),
    ],
)
def test_train_ends_where_it_does_not_go_on(broken: bytes) -> None:
    assert take(broken) == MESSAGE[: 3 * STRIDE]


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("at", [*range(0, STEP, 13), STEP - 1])
def test_damaged_frame_ends_a_train_wherever_the_damage_is(place: int, at: int) -> None:
    joined = bytearray(make())
    joined[place * STEP + at] ^= 0x10
    assert take(bytes(joined)) == MESSAGE[: place * STRIDE]


def test_piece_of_another_message_ends_a_train() -> None:
    other = make(3, 6, frame=53, about=(16, 8, 12345, len(MESSAGE)))
    assert take(make(0, 3) + other) == MESSAGE[: 3 * STRIDE]


def test_sound_frame_with_another_beginning_ends_a_train() -> None:
    asking = header.prefix(SEGMENT, header.ASK, RELIABLE, 0, bytes(20), 8)
    assert take(make(0, 3) + make(3, 6, frame=53, shared=asking)) == MESSAGE[: 3 * STRIDE]
    assert take(make(shared=asking)) == b""


@pytest.mark.parametrize("field", ["frame", "same", "offset", "stride"])
def test_sound_frame_that_counts_otherwise_ends_a_train(field: str) -> None:
    """A sender may lie and compute its checksums well."""
    wrong = bytearray(make())
    at = 3 * STEP + {"frame": 53, "same": HEADER_BYTES + 11, "offset": 105, "stride": 109}[field]
    wrong[at] += 1
    frame = wrong[3 * STEP : 4 * STEP]
    checked = frame[: HEADER_BYTES - 4] + frame[HEADER_BYTES:]
    wrong[3 * STEP + HEADER_BYTES - 4 : 3 * STEP + HEADER_BYTES] = crc32(checked).to_bytes(4, "big")
    assert take(bytes(wrong)) == MESSAGE[: 3 * STRIDE]
