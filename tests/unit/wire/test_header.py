"""The header: what travels in front of everything."""

import pytest

from hubbub.wire import header
from hubbub.wire.header import HEADER_BYTES, KIND_NAMES

KEY = header.make_key(b"abcdefghijkl", 77)


def make_frame(body: bytes = b"body", sequence: int = 5) -> bytes:
    shared = header.prefix(
        header.DATA, header.ASK, header.RELIABLE, 9, KEY, 8, receiver=3, bitmap=8
    )
    return header.finish(shared, sequence, 6, 7, body) + body


def test_header_carries_every_field() -> None:
    decoded = header.decode(make_frame())
    assert decoded.magic == int.from_bytes(b"hb", "big")
    assert decoded.version == header.MAJOR << 4 | header.MINOR
    assert (decoded.kind, decoded.flags, decoded.stream) == (header.DATA, header.ASK, 1)
    assert (decoded.hop_limit, decoded.key_epoch, decoded.domain) == (8, 0, 9)
    assert (decoded.key, decoded.receiver, decoded.bitmap) == (KEY, 3, 8)
    assert (decoded.sequence, decoded.packet, decoded.sent_us) == (5, 6, 7)


def test_key_is_split_into_what_it_was_made_of() -> None:
    assert header.split_key(KEY) == (b"abcdefghijkl", 77)


def test_negative_receivers_survive() -> None:
    for receiver in (header.NOBODY, header.MANY):
        shared = header.prefix(header.DATA, 0, 1, 0, KEY, 8, receiver=receiver)
        assert header.decode(header.finish(shared, 0, 0, 0, b"")).receiver == receiver


@pytest.mark.parametrize("at", range(HEADER_BYTES + 4))
def test_checksum_sees_a_change_of_any_byte(at: int) -> None:
    frame = bytearray(make_frame())
    frame[at] ^= 1
    assert not header.is_intact(bytes(frame), 0, len(frame), header.decode(bytes(frame)).checksum)


def test_checksum_is_of_this_frame_alone_in_a_joined_buffer() -> None:
    first, second = make_frame(b"one"), make_frame(b"two", 6)
    joined = first + second
    decoded = header.decode(joined, len(first))
    assert decoded.sequence == 6
    assert header.is_intact(joined, len(first), len(joined), decoded.checksum)
    assert not header.is_intact(joined, 0, len(joined), header.decode(joined).checksum)


def test_body_in_two_parts_has_the_checksum_of_the_whole() -> None:
    shared = header.prefix(header.SEGMENT, 0, 1, 9, KEY, 8)
    whole = header.finish(shared, 5, 6, 7, b"headdata")
    assert header.finish_parts(shared, 5, 6, 7, b"head", memoryview(b"data")) == whole


def test_kinds_leave_the_reserved_numbers_free() -> None:
    assert not set(KIND_NAMES) & {*range(21, 24), *range(28, 32)}
    assert max(KIND_NAMES) < 33
    assert len(set(KIND_NAMES.values())) == len(KIND_NAMES)
