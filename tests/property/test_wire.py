"""Every decoder: what was encoded comes back, and nothing else is ever taken for it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.limits import (
    INDEX_MAX,
    LEASE_MS_MAX,
    MESSAGE_BYTES_MAX,
    MISSING_FRAMES_MAX,
    NODE_NAME_BYTES_MAX,
    PERIOD_US_MAX,
    SEGMENT_STRIDE_MIN,
    SEQUENCE_MAX,
)
from hubbub.wire import batch, control, header, timed
from hubbub.wire.control import (
    Change,
    Goodbye,
    Grant,
    GrantedStream,
    Heartbeat,
    Hello,
    Lost,
    Nak,
    Publication,
    Status,
    Step,
    Tail,
    Topic,
    Want,
)
from hubbub.wire.timed import ClockExchange, Direct, Interest, Offer, Response, Wanted
from tests.vectors.frames import VECTORS, decode_data, decode_response, decode_segment

u8 = st.integers(0, 2**8 - 1)
u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
sequences = st.integers(0, SEQUENCE_MAX - 2**20)
keys = st.binary(min_size=20, max_size=20)
printable = st.characters(blacklist_categories=("Cc", "Cs"))
names = st.text(printable, max_size=NODE_NAME_BYTES_MAX)
texts = st.text(printable, max_size=60)
ranges = st.lists(st.tuples(sequences, st.integers(1, MISSING_FRAMES_MAX // 8)), max_size=8)
runs = st.lists(st.tuples(u32, sequences, st.integers(1, 2**20)), max_size=5)


@st.composite
def batches(draw: st.DrawFn) -> batch.Batch:
    """Draw a sound DATA body."""
    table = draw(st.lists(st.tuples(u32, sequences, st.integers(1, 4)), max_size=5))
    count = sum(length for _, _, length in table)
    payloads = draw(st.lists(st.binary(max_size=20), min_size=count, max_size=count))
    published_ns = draw(st.lists(u64, min_size=count, max_size=count))
    declarations = draw(st.binary(max_size=30))
    return batch.Batch(table, payloads, tuple(published_ns), declarations)


@st.composite
def segments(draw: st.DrawFn) -> batch.Segment:
    """Draw a sound SEGMENT body."""
    stride = draw(st.integers(SEGMENT_STRIDE_MIN, 2000))
    total = draw(st.one_of(st.integers(1, 10_000), st.integers(1, MESSAGE_BYTES_MAX)))
    offset = draw(st.integers(0, (total - 1) // stride)) * stride
    data = b"d" * min(stride, total - offset)
    return batch.Segment(draw(u32), draw(sequences), draw(u64), total, offset, stride, data)


topics = st.builds(Topic, u32, u16, texts, u64, texts, u64)
statuses = st.builds(
    lambda key, debt, nonce, pair, window, echo, delay: Status(
        key, debt, nonce, min(pair), max(pair), window, echo, delay
    ),
    keys, u32, u64, st.tuples(u64, u64), u32, u32, u32,
)  # fmt: skip
indices = st.integers(-1, INDEX_MAX)
heartbeats = st.builds(
    Heartbeat, u64, u32, st.lists(st.builds(Tail, u16, u64, u16, st.booleans()), max_size=5),
    indices,
)  # fmt: skip
hellos = st.builds(
    Hello, names, names, u32, texts, u64, u16, u16, st.lists(texts, max_size=4), u32,
    st.lists(u32, max_size=4), st.booleans(), version=u64,
    publications=st.lists(st.builds(Publication, texts, u16, texts, u64, u64), max_size=3),
    index=indices,
)  # fmt: skip
grants = st.builds(
    Grant, keys, u32, st.booleans(), u64, u16, u16, u32,
    st.lists(st.builds(GrantedStream, u16, u64, u32, st.booleans()), max_size=3),
    st.lists(topics, max_size=4),
)  # fmt: skip
changes = st.builds(
    Change, u64, st.lists(st.builds(Step, u16, texts, u16, texts, u64, u64), max_size=4)
)
losts = st.builds(Lost, keys, st.sampled_from(control.LOST_REASONS), ranges, runs)
goodbyes = st.builds(Goodbye, st.lists(st.tuples(u16, u64), max_size=4))
node_ids = st.binary(min_size=12, max_size=12)
periods = st.integers(0, PERIOD_US_MAX)
interests = st.builds(
    Interest, node_ids, u16, u16, u32, u8, u64, st.integers(0, LEASE_MS_MAX),
    st.sampled_from(range(len(timed.INTEREST_MODES))), u32,
    st.lists(st.builds(Wanted, u16, periods, u64, u64), max_size=4), texts,
)  # fmt: skip
offers = st.builds(
    Offer, node_ids, u16, u16, u32, u8, u64, st.booleans(), texts, st.integers(0, 2), u64, u64,
    u64, u32, u64, u64, u32,
)  # fmt: skip
tags = st.builds(timed.Tag, u32, st.binary(min_size=4, max_size=4)).map(timed.encode_tag)
responses = st.builds(
    lambda tag, *fields: (response := Response(*fields, tag))._replace(
        flags=response.flags & ~timed.TAGGED | (timed.TAGGED if tag else 0)
    ),
    tags, st.binary(min_size=14, max_size=14), u16, u32, u8, u8, u16, u64, u64, u64, periods,
    st.binary(max_size=50),
)  # fmt: skip
directs = st.builds(Direct, node_ids, u16, u16, node_ids, u8, st.binary(max_size=50))
clocks = st.builds(
    lambda form, key, rank, t1, pair, error: ClockExchange(
        form, key, rank, t1, min(pair), max(pair), error
    ),
    st.integers(0, 1), keys, u8, u64, st.tuples(*[st.integers(0, 2**62)] * 2), u32,
)  # fmt: skip
missing_frames = st.builds(
    lambda base, places: sorted(base + place for place in places),
    st.integers(0, 2**63), st.sets(st.integers(0, 3000), min_size=1, max_size=60),
)  # fmt: skip


def encode_data(body: batch.Batch) -> bytes:
    return batch.encode(*body)


def encode_segment(segment: batch.Segment) -> bytes:
    return batch.encode_segment_head(*segment[:-1]) + segment.data


def decoder(kind: Any) -> Callable[[bytes], Any]:
    return lambda body: control.decode(kind, body)


def timed_decoder(kind: Any) -> Callable[[bytes], Any]:
    return lambda body: timed.decode_timed(kind, body)


Codec = tuple[st.SearchStrategy[Any], Callable[[Any], bytes], Callable[[bytes], Any]]

CODECS: dict[str, Codec] = {
    "data": (batches(), encode_data, decode_data),
    "segment": (segments(), encode_segment, decode_segment),
    "status": (statuses, control.encode_status, control.decode_status),
    "heartbeat": (heartbeats, control.encode_heartbeat, control.decode_heartbeat),
    "skip": (
        st.builds(control.Skip, keys, ranges), lambda skip: control.encode_skip(*skip),
        control.decode_skip,
    ),
    "lost": (losts, control.encode_lost, control.decode_lost),
    "hello": (hellos, control.encode, decoder(Hello)),
    "want": (st.builds(Want, keys), control.encode, decoder(Want)),
    "grant": (grants, control.encode, decoder(Grant)),
    "change": (changes, control.encode, decoder(Change)),
    "goodbye": (goodbyes, control.encode, decoder(Goodbye)),
    "interest": (interests, timed.encode_timed, timed_decoder(Interest)),
    "offer": (offers, timed.encode_timed, timed_decoder(Offer)),
    "direct": (directs, timed.encode_timed, timed_decoder(Direct)),
    "response": (responses, timed.encode_response, decode_response),
    "clock": (clocks, timed.encode_clock, timed.decode_clock),
    "declarations": (
        st.lists(topics, max_size=4), control.encode_declarations, control.decode_declarations
    ),
}  # fmt: skip

codecs = pytest.mark.parametrize("name", CODECS)
DECODERS = [decode for _, _, decode in CODECS.values()] + [control.decode_nak]


@codecs
@given(data=st.data())
def test_what_was_encoded_comes_back(name: str, data: st.DataObject) -> None:
    values, encode, decode = CODECS[name]
    value = data.draw(values)
    assert decode(encode(value)) == value


@codecs
@given(data=st.data())
def test_truncation_at_any_length_is_refused(name: str, data: st.DataObject) -> None:
    values, encode, decode = CODECS[name]
    value = data.draw(values)
    body = encode(value)
    for length in range(len(body)):
        decoded = decode(body[:length])
        # Only the last table of a LOST may be cut: then it names fewer of the lost messages.
        is_shorter = name == "lost" and decoded is not None and decoded.ranges == value.ranges
        assert decoded is None or (is_shorter and value.runs[: len(decoded.runs)] == decoded.runs)


@given(missing_frames, st.integers(60, 400))
def test_nak_names_the_oldest_missing_frames_and_no_other(
    missing: list[int], bytes_max: int
) -> None:
    body = control.encode_nak(b"k" * 20, missing, bytes_max)
    assert len(body) <= bytes_max
    nak = control.decode_nak(body)
    assert nak is not None
    asked = [first + place for first, count in nak.ranges for place in range(count)]
    assert asked and asked == missing[: len(asked)]
    assert all(control.decode_nak(body[:length]) is None for length in range(len(body)))


@given(st.sampled_from(sorted(VECTORS)), st.data())
def test_checksum_sees_one_to_three_flipped_bits_anywhere(name: str, data: st.DataObject) -> None:
    frame = bytearray(encode_frame(name))
    places = st.sets(st.integers(0, 8 * len(frame) - 1), min_size=1, max_size=3)
    for place in data.draw(places):
        frame[place >> 3] ^= 1 << (place & 7)
    decoded = header.decode(bytes(frame))
    assert not header.is_intact(bytes(frame), 0, len(frame), decoded.checksum)


def encode_frame(name: str) -> bytes:
    vector = VECTORS[name]
    shared = header.prefix(vector.kind, vector.flags, vector.stream, 5, b"k" * 20, 8)
    return header.finish(shared, vector.sequence, 6, 7, vector.body) + vector.body


@given(st.sampled_from(sorted(VECTORS)), st.integers(0, 80), st.binary(min_size=1, max_size=9))
def test_body_that_lies_is_refused_or_consistent(name: str, at: int, lie: bytes) -> None:
    body = bytearray(VECTORS[name].body)
    body[at : at + len(lie)] = lie
    assert_consistent(VECTORS[name].decode(bytes(body)), len(body))


@given(st.binary(max_size=200))
def test_noise_never_raises_in_any_decoder(noise: bytes) -> None:
    for decode in DECODERS:
        assert_consistent(decode(noise), len(noise))


def assert_consistent(value: Any, size_bytes: int) -> None:
    """Check that no decoded value claims more than its bytes can hold."""
    if isinstance(value, batch.Batch):
        assert sum(count for _, _, count in value.runs) == len(value.payloads)
        assert len(value.payloads) == len(value.published_ns)
        assert sum(map(len, value.payloads)) <= size_bytes
        assert all(first + count <= SEQUENCE_MAX for _, first, count in value.runs)
    elif isinstance(value, batch.Segment):
        assert 0 < len(value.data) <= min(size_bytes, value.stride)
        assert value.offset + len(value.data) <= value.total <= MESSAGE_BYTES_MAX
        assert value.offset % value.stride == 0
    elif isinstance(value, Nak | control.Skip | Lost):
        assert sum(count for _, count in value.ranges) <= MISSING_FRAMES_MAX
        assert all(count and first + count <= SEQUENCE_MAX for first, count in value.ranges)
    elif isinstance(value, Response):
        assert len(value.value) <= size_bytes and value.granted_us <= PERIOD_US_MAX
    elif isinstance(value, Interest):
        assert len(value.wants) <= size_bytes
        assert all(wanted.period_us <= PERIOD_US_MAX for wanted in value.wants)
    elif isinstance(value, ClockExchange):
        assert value.t2_ns <= value.t3_ns
    elif isinstance(value, Status):
        assert value.contiguous <= value.highest


@given(interests | offers, st.binary(max_size=5))
def test_type_of_an_interest_or_offer_is_found_without_decoding_it(
    value: Interest | Offer, before: bytes
) -> None:
    body = timed.encode_timed(value)
    data = before + body
    assert timed.peek_type(data, len(before), len(data)) == value.type


@given(st.binary(max_size=40))
def test_type_is_looked_for_in_anything_without_raising(data: bytes) -> None:
    timed.peek_type(data, 0, len(data))


@given(interests | offers, interests | offers)
def test_frames_of_two_types_never_have_the_same_mark(
    one: Interest | Offer, other: Interest | Offer
) -> None:
    marks = [timed.peek_mark(body, 0, len(body)) for body in map(timed.encode_timed, (one, other))]
    assert one.type == other.type or marks[0] != marks[1] or marks[0] == b""


@given(interests, st.integers(0, 127), st.integers(0, 100))
def test_renewed_interest_has_the_mark_of_the_one_before(
    interest: Interest, port: int, later: int
) -> None:
    asked = msgspec.structs.replace(interest, port=port, destination=0, version=2**50)
    renewed = msgspec.structs.replace(asked, version=2**50 + later, lease_ms=7)
    bodies = [timed.encode_timed(one) for one in (asked, renewed)]
    marks = {timed.peek_mark(body, 0, len(body)) for body in bodies}
    assert len(marks) == 1 and marks != {b""}
