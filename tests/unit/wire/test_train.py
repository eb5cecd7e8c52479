"""Trains: what is made is what single frames are, and nothing but the very next pieces is taken."""

from itertools import count

import pytest

from hubbub.wire import batch, header, train
from hubbub.wire.header import HEADER_BYTES, RELIABLE, SEGMENT

STRIDE = 500
STEP = HEADER_BYTES + batch.SEGMENT_HEAD_BYTES + STRIDE
MESSAGE = bytes(range(256)) * 16
ABOUT = (16, 7, 12345, len(MESSAGE))
SHARED = header.prefix(SEGMENT, 0, RELIABLE, 0, bytes(20), 8)


def pieces(first: int, end: int) -> list[tuple[int, memoryview]]:
    view = memoryview(MESSAGE)
    return [(at * STRIDE, view[at * STRIDE : (at + 1) * STRIDE]) for at in range(first, end)]


def make(first: int = 0, end: int = 6, frame: int = 50) -> bytes:
    buffers, _ = train.make(SHARED, frame, count(900), 77, ABOUT, STRIDE, pieces(first, end))
    return b"".join(buffers)


def take(buffer: bytes, count_max: int = 99, start: int = 0) -> tuple[int, bytes]:
    whole = bytearray(len(MESSAGE))
    first = train.read_first(buffer, start)
    taken, sent_us = train.take(buffer, start, STEP, first, count_max, whole)
    assert sent_us == 77
    return taken, bytes(whole)


def test_frames_of_a_train_are_what_single_frames_are() -> None:
    joined = make()
    for number, (offset, data) in enumerate(pieces(0, 6)):
        start = number * STEP
        decoded = header.decode(joined, start)
        assert (decoded.kind, decoded.sequence, decoded.packet) == (
            SEGMENT,
            50 + number,
            900 + number,
        )
        assert header.is_intact(joined, start, start + STEP, decoded.checksum)
        segment = batch.decode_segment(joined, start + HEADER_BYTES, start + STEP)
        assert segment == (16, 7, 12345, len(MESSAGE), offset, STRIDE, bytes(data))
    _, heads = train.make(SHARED, 50, count(900), 77, ABOUT, STRIDE, pieces(0, 1))
    assert heads == [batch.encode_segment_head(16, 7, 12345, len(MESSAGE), 0, STRIDE)]


def test_pieces_behind_the_first_are_put_into_their_places() -> None:
    taken, whole = take(make())
    assert taken == 5
    assert whole == bytes(STRIDE) + MESSAGE[STRIDE : 6 * STRIDE] + bytes(len(MESSAGE) - 6 * STRIDE)


def test_train_may_begin_anywhere_in_a_buffer_and_in_a_message() -> None:
    taken, whole = take(bytes(STEP) + make(2, 5), start=STEP)
    assert taken == 2
    assert whole[3 * STRIDE : 5 * STRIDE] == MESSAGE[3 * STRIDE : 5 * STRIDE]


def test_no_more_is_taken_than_there_is_room_for() -> None:
    assert take(make(), count_max=2)[0] == 2
    assert take(make(), count_max=0) == (0, bytes(len(MESSAGE)))


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
    taken, whole = take(broken)
    assert taken == 2
    assert whole[3 * STRIDE :] == bytes(len(MESSAGE) - 3 * STRIDE)


@pytest.mark.parametrize("at", [*range(0, STEP, 13), STEP - 1])
def test_damaged_frame_ends_a_train_wherever_the_damage_is(at: int) -> None:
    joined = bytearray(make())
    joined[3 * STEP + at] ^= 0x10
    taken, whole = take(bytes(joined))
    assert taken == 2
    assert whole[3 * STRIDE :] == bytes(len(MESSAGE) - 3 * STRIDE)


def test_piece_of_another_message_ends_a_train() -> None:
    other, _ = train.make(SHARED, 53, count(1), 77, (16, 8, 12345, 4096), STRIDE, pieces(3, 6))
    assert take(make(0, 3) + b"".join(other))[0] == 2
