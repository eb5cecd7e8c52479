"""Bodies of control frames: round trips, and what a lying peer gets."""

from struct import pack

import msgspec
import pytest

from hubbub.limits import MISSING_FRAMES_MAX, NAK_BITMAP_BITS_MAX, NAK_RANGES_MAX, SEQUENCE_MAX
from hubbub.wire import control
from hubbub.wire.control import Goodbye, Grant, Hello, Lost, Topic, Want

KEY = b"k" * 20


def nak_body(form: int, base: int, count: int, rest: bytes) -> bytes:
    return pack("!20sBQH", KEY, form, base, count) + rest


def named(body: bytes) -> list[int]:
    nak = control.decode_nak(body)
    assert nak is not None and nak.target == KEY
    return [first + i for first, count in nak.ranges for i in range(count)]


def test_nak_takes_the_shorter_of_ranges_and_bitmap() -> None:
    few = control.encode_nak(KEY, [5, 6, 7, 90_000], 1000)
    scattered = control.encode_nak(KEY, list(range(0, 200, 2)), 1000)
    assert (few[20], scattered[20]) == (0, 1)
    assert named(few) == [5, 6, 7, 90_000]
    assert named(scattered) == list(range(0, 200, 2))


@pytest.mark.parametrize("bytes_max", [60, 100, 1314, 65_421])
def test_nak_never_outgrows_its_frame_and_names_the_oldest(bytes_max: int) -> None:
    missing = list(range(10, 400_000, 7))
    body = control.encode_nak(KEY, missing, bytes_max)
    assert len(body) <= bytes_max
    asked = named(body)
    assert asked and asked == missing[: len(asked)]


def test_nak_of_one_long_range_is_short() -> None:
    body = control.encode_nak(KEY, list(range(1000, 1000 + MISSING_FRAMES_MAX)), 1314)
    assert len(body) < 50
    assert len(named(body)) == MISSING_FRAMES_MAX


def test_nak_with_more_gaps_than_ranges_asks_for_the_first_ones() -> None:
    missing = [n * 10_000 for n in range(2 * NAK_RANGES_MAX)]
    asked = named(control.encode_nak(KEY, missing, 1314))
    assert asked == missing[: len(asked)]


def test_bitmap_that_would_take_long_to_read_is_refused() -> None:
    size = NAK_BITMAP_BITS_MAX // 8
    assert len(named(nak_body(1, 5, size, b"\x55" * size))) == NAK_BITMAP_BITS_MAX // 2
    assert control.decode_nak(nak_body(1, 5, size + 1, b"\x55" * (size + 1))) is None


@pytest.mark.parametrize(
    "body",
    [
        nak_body(0, 0, 1, b""),
        nak_body(0, 0, 0xFFFF, bytes(12)),
        nak_body(0, 0, 1, pack("!QI", 5, 0)),
        nak_body(0, 0, 1, pack("!QI", 5, MISSING_FRAMES_MAX + 1)),
        nak_body(0, 0, 2, pack("!QIQI", 5, MISSING_FRAMES_MAX, 5, 1)),
        nak_body(0, 0, 1, pack("!QI", SEQUENCE_MAX, 1)),
        nak_body(1, 0, 9, b"short"),
        nak_body(1, SEQUENCE_MAX - 3, 1, b"\xff"),
        nak_body(2, 0, 0, b""),
        b"",
    ],
)
def test_lying_nak_is_refused(body: bytes) -> None:
    assert control.decode_nak(body) is None


def test_status_that_has_more_than_it_has_seen_is_refused() -> None:
    status = control.Status(KEY, 1, 2, 10, 9, 4096, 0, 0)
    assert control.decode_status(control.encode_status(status)) is None
    fair = status._replace(highest=10)
    assert control.decode_status(control.encode_status(fair)) == fair


def test_heartbeat_with_fewer_tails_than_it_says_is_refused() -> None:
    heartbeat = control.Heartbeat(1, 2, [control.Tail(1, 5, 1, True)])
    body = bytearray(control.encode_heartbeat(heartbeat))
    assert control.decode_heartbeat(bytes(body)) == heartbeat
    body[14] = 2
    assert control.decode_heartbeat(bytes(body)) is None


def test_lost_run_of_no_messages_is_refused() -> None:
    sound = Lost(KEY, "not_available", [(1, 1)], [(16, 5, 1)])
    assert control.decode_lost(control.encode_lost(sound)) == sound
    for run in [(16, 5, 0), (16, SEQUENCE_MAX, 1)]:
        assert control.decode_lost(control.encode_lost(sound._replace(runs=[run]))) is None


def test_lost_with_an_unknown_reason_or_a_torn_head_is_refused() -> None:
    body = control.encode_lost(Lost(KEY, "too_slow", [(1, 1)], []))
    assert control.decode_lost(b"\x09" + body[1:]) is None
    assert control.decode_lost(body[:1] + pack("!H", 5) + body[3:]) is None


@pytest.mark.parametrize("kind", [Hello, Grant, Want, Goodbye])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",  # an array of four billion
        b"\x91\xdd\xff\xff\xff\xff",
        b"\x91" * 5000,  # nested deeper than any stack
        b"\x9b" + b"\xa1\xff" * 11,  # not UTF-8
        b"\x91\xc4\x13" + b"k" * 19,  # a key one byte short
        b"\x91\x91\x92\xcd\xff\xff\xd3" + b"\xff" * 8,  # a negative sequence
    ],
)
def test_typed_body_that_is_none_is_refused(
    kind: type[Hello | Grant | Want | Goodbye], data: bytes
) -> None:
    assert control.decode(kind, data) is None  # type: ignore[type-var]


def test_declaration_of_a_release_without_gateways_is_read() -> None:
    sent = msgspec.msgpack.encode([[16, 1, "/plant/temp", 7, "", 0, 0]])
    assert control.decode_declarations(sent) == [Topic(16, 1, "/plant/temp", 7)]


def test_declaration_of_an_origin_that_is_too_long_is_refused() -> None:
    declared = [16, 1, "/plant/temp", 7, "", 0, 0, bytes(21), "lidar-7", 1]
    assert control.decode_declarations(msgspec.msgpack.encode([declared])) is None


def test_declarations_that_are_none_are_refused() -> None:
    assert control.decode_declarations(b"") is None
    assert control.decode_declarations(b"\x91\x91\x91") is None
    assert control.decode_declarations(b"\xdd\xff\xff\xff\xff") is None


def test_ranges_join_neighbours() -> None:
    assert list(control.to_ranges([1, 2, 3, 7, 9, 10])) == [(1, 3), (7, 1), (9, 2)]
    assert list(control.to_ranges([])) == []
