"""HOT. A train: pieces of one large message, in frames that follow each other and fill a burst.

Their headers and heads differ in what counts up and in the checksum, and in nothing else. So a
train is made and read by a loop of a few calls a frame: an Ethernet cuts a message of 1 MiB into
hundreds of them.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from hubbub.wire.batch import SEGMENT_HEAD_BYTES
from hubbub.wire.header import HEADER_BYTES, PREFIX_BYTES, Prefix

_TAIL_AND_HEAD: Final = Struct("!QQIIQQQQI")
_TAIL_BYTES: Final = 20
_CHECKSUM: Final = Struct("!I")
# Frame, packet, time, checksum; topic, message, publish time, total, offset, stride.
_PIECE: Final = Struct("!QQIIIQQQQI")
# Of these, what counts up: frame, time, checksum, offset.
_COUNTED: Final = Struct("!Q8xII28xQ")
_SAME_BYTES: Final = 28  # Topic, message, publish time, total.
_SAME_OFFSET: Final = HEADER_BYTES

assert _PIECE.size == HEADER_BYTES - PREFIX_BYTES + SEGMENT_HEAD_BYTES


class Piece(NamedTuple):
    """One piece of a large message: where its frame is in the stream, and it in the message."""

    frame: int
    sent_us: int
    topic: int
    message: int
    total: int
    offset: int
    stride: int


def make(
    shared: Prefix, first_frame: int, packets: Iterator[int], sent_us: int,
    message: tuple[int, int, int, int], stride: int, pieces: list[tuple[int, memoryview]],
) -> tuple[list[bytes | memoryview], list[bytes]]:  # fmt: skip
    """Make the frames of (offset, data) pieces, as buffers to send; and their heads.

    `message` is its topic, sequence, publish time and size.
    """
    topic, sequence, published_ns, total = message
    before, crc_before = shared
    pack, pack_checksum = _TAIL_AND_HEAD.pack, _CHECKSUM.pack
    buffers: list[bytes | memoryview] = []
    heads: list[bytes] = []
    for frame, (offset, data) in enumerate(pieces, first_frame):
        both = pack(
            frame, next(packets), sent_us, topic, sequence, published_ns, total, offset, stride
        )
        head = both[_TAIL_BYTES:]
        checksum = pack_checksum(crc32(data, crc32(both, crc_before)))
        buffers += before + both[:_TAIL_BYTES] + checksum + head, data
        heads.append(head)
    return buffers, heads


def read_first(buffer: bytes, start: int) -> Piece:
    """Read the first frame of a train, which the caller knows to be a sound piece."""
    frame, _, sent_us, _, topic, message, _, total, offset, stride = _PIECE.unpack_from(
        buffer, start + PREFIX_BYTES
    )
    return Piece(frame, sent_us, topic, message, total, offset, stride)


def take(
    buffer: bytes, start: int, step: int, first: Piece, count_max: int, whole: bytearray
) -> tuple[int, int]:
    """Put the pieces that follow the one at `start` into their places in the message.

    Frames are `step` bytes long. The first that is not the very next piece ends the train, and so
    does one that is damaged. Return how many there were, and when the last one was sent.
    """
    prefix = buffer[start : start + PREFIX_BYTES]
    same = buffer[start + _SAME_OFFSET : start + _SAME_OFFSET + _SAME_BYTES]
    crc_before = crc32(prefix)
    view, target = memoryview(buffer), memoryview(whole)
    unpack, is_at = _COUNTED.unpack_from, buffer.startswith
    frame, sent_us, stride, offset = first.frame, first.sent_us, first.stride, first.offset
    start, count = start + step, 0
    while count < count_max and is_at(prefix, start) and is_at(same, start + _SAME_OFFSET):
        tail = start + PREFIX_BYTES
        body = start + HEADER_BYTES
        end = start + step
        next_frame, time_us, checksum, next_offset = unpack(buffer, tail)
        frame += 1
        offset += stride
        if (
            next_frame != frame
            or next_offset != offset
            or crc32(view[body:end], crc32(view[tail : body - 4], crc_before)) != checksum
        ):
            break
        target[offset : offset + stride] = view[body + SEGMENT_HEAD_BYTES : end]
        start, sent_us, count = end, time_us, count + 1
    return count, sent_us
