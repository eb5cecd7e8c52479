"""The bodies of control frames.

STATUS, NAK and HEARTBEAT are frequent and fixed: structs. HELLO, GRANT and the like carry names and
lists: msgpack arrays, validated by msgspec as they are decoded, so a lying peer gets None, not a
crash.
"""

from collections.abc import Iterable
from struct import Struct, error
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from hubbub.limits import (
    INDEX_MAX,
    MISSING_FRAMES_MAX,
    NAK_BITMAP_BITS_MAX,
    NAK_RANGES_MAX,
    NODE_NAME_BYTES_MAX,
    RELEASE_BYTES_MAX,
    SEQUENCE_MAX,
    SUBJECT_BYTES_MAX,
)
from hubbub.wire.batch import Run, decode_runs, encode_run
from hubbub.wire.header import KEY_BYTES, NO_INDEX, RELIABLE

# msgspec reads integers up to 2**64 - 1 but states bounds only up to 2**63 - 1.
U64 = Annotated[int, msgspec.Meta(ge=0)]
U32 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
U16 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
Index = Annotated[int, msgspec.Meta(ge=NO_INDEX, le=INDEX_MAX)]
# What nodes call themselves is shown to people: no control characters, no end of line.
Name = Annotated[
    str, msgspec.Meta(max_length=NODE_NAME_BYTES_MAX, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")
]
Release = Annotated[
    str, msgspec.Meta(max_length=RELEASE_BYTES_MAX, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")
]
# A pattern, or a request for history: two numbers of at most ten digits, blanks, and a pattern.
Pattern = Annotated[str, msgspec.Meta(max_length=SUBJECT_BYTES_MAX + 22)]
Key = Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
OriginKey = Annotated[bytes, msgspec.Meta(max_length=KEY_BYTES)]  # A key, or nothing.

_STATUS: Final = Struct("!20sIQQQIII")
_NAK: Final = Struct("!20sBQH")
_RANGE: Final = Struct("!QI")
RANGE_BYTES: Final = _RANGE.size
_HEARTBEAT: Final = Struct("!QIhB")
_TAIL: Final = Struct("!HQHB")
_LOST: Final = Struct("!BH")

LOST_REASONS: Final = ("not_available", "too_slow")

Range = tuple[int, int]


class Status(NamedTuple):
    """What a receiver says of one stream: how far it is, and how much more it can take."""

    target: bytes
    debt: int
    nonce: int
    contiguous: int
    highest: int
    window_bytes: int
    echo_us: int
    delay_us: int


def encode_status(status: Status) -> bytes:
    """Make the body of a STATUS."""
    return _STATUS.pack(*status)


def decode_status(body: bytes) -> Status | None:
    """Decode the body of a STATUS."""
    if len(body) < _STATUS.size:
        return None
    status = Status._make(_STATUS.unpack_from(body))
    return status if status.contiguous <= status.highest else None


class Tail(NamedTuple):
    """The end of one stream: the sequence of its next frame, for how many receivers."""

    stream: int
    next_sequence: int
    receivers: int
    is_asking: bool


class Heartbeat(NamedTuple):
    """I am alive, my declared state has this version, my streams end here, this is my index."""

    version: int
    grtt_us: int
    tails: list[Tail]
    node_index: int = NO_INDEX


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Make the body of a HEARTBEAT."""
    version, grtt_us, tails, index = heartbeat
    head = _HEARTBEAT.pack(version, grtt_us, index, len(tails))
    return head + b"".join(_TAIL.pack(*tail) for tail in tails)


def decode_heartbeat(body: bytes) -> Heartbeat | None:
    """Decode the body of a HEARTBEAT."""
    if len(body) < _HEARTBEAT.size:
        return None
    version, grtt_us, index, count = _HEARTBEAT.unpack_from(body)
    end = _HEARTBEAT.size + count * _TAIL.size
    if len(body) < end or index < NO_INDEX:
        return None
    tails = [
        Tail(stream, sequence, receivers, bool(asking))
        for stream, sequence, receivers, asking in _TAIL.iter_unpack(body[_HEARTBEAT.size : end])
    ]
    return Heartbeat(version, grtt_us, tails, index)


class Nak(NamedTuple):
    """Frames of the target's stream that the sender of this misses."""

    target: bytes
    ranges: list[Range]


def encode_nak(target: bytes, missing: list[int], bytes_max: int) -> bytes:
    """Name the missing frames (sorted) by ranges or by a bitmap, whichever is shorter.

    What does not fit into `bytes_max` is left for the next request.
    """
    room = bytes_max - _NAK.size
    ranges = list(to_ranges(missing))[: min(NAK_RANGES_MAX, room // _RANGE.size)]
    base = missing[0]
    bits = min(missing[-1] - base + 1, room * 8, NAK_BITMAP_BITS_MAX)
    covered = ranges[-1][0] + ranges[-1][1] - base
    if len(ranges) * _RANGE.size <= (bits + 7) // 8 and covered >= bits:
        return _NAK.pack(target, 0, base, len(ranges)) + _pack_ranges(ranges)
    bitmap = bytearray((bits + 7) // 8)
    for sequence in missing:
        place = sequence - base
        if place >= bits:
            break
        bitmap[place >> 3] |= 1 << (place & 7)
    return _NAK.pack(target, 1, base, len(bitmap)) + bitmap


def decode_nak(body: bytes) -> Nak | None:
    """Decode the body of a NAK; at most MISSING_FRAMES_MAX frames are ever named."""
    if len(body) < _NAK.size:
        return None
    target, form, base, count = _NAK.unpack_from(body)
    if form == 0:
        ranges = _unpack_ranges(body[_NAK.size :], count)
    elif form == 1:
        ranges = _bitmap_ranges(base, body[_NAK.size :], count)
    else:
        return None
    return None if ranges is None else Nak(target, ranges)


def _bitmap_ranges(base: int, bitmap: bytes, count: int) -> list[Range] | None:
    bits = 8 * count
    if len(bitmap) < count or bits > NAK_BITMAP_BITS_MAX or base + bits > SEQUENCE_MAX:
        return None
    return list(to_ranges(base + i for i in range(bits) if bitmap[i >> 3] >> (i & 7) & 1))


def to_ranges(sequences: Iterable[int]) -> Iterable[Range]:
    """Join sorted sequences to (first, count) ranges."""
    first = count = 0
    for sequence in sequences:
        if count and sequence == first + count:
            count += 1
        else:
            if count:
                yield first, count
            first, count = sequence, 1
    if count:
        yield first, count


def _pack_ranges(ranges: list[Range]) -> bytes:
    return b"".join(_RANGE.pack(*pair) for pair in ranges)


def _unpack_ranges(data: bytes, count: int) -> list[Range] | None:
    if len(data) < count * _RANGE.size:
        return None
    ranges = list(_RANGE.iter_unpack(data[: count * _RANGE.size]))
    named = sum(length for _, length in ranges)
    if named > MISSING_FRAMES_MAX or any(a + n > SEQUENCE_MAX or n == 0 for a, n in ranges):
        return None
    return ranges


class Skip(NamedTuple):
    """Frames that hold nothing for the one who asked."""

    target: bytes
    ranges: list[Range]


def encode_skip(target: bytes, ranges: list[Range]) -> bytes:
    """Make the body of a SKIP for the node `target`."""
    assert len(ranges) <= 0xFFFF
    return _NAK.pack(target, 0, 0, len(ranges)) + _pack_ranges(ranges)


def decode_skip(body: bytes) -> Skip | None:
    """Decode the body of a SKIP."""
    nak = decode_nak(body)
    return None if nak is None else Skip(*nak)


class Lost(NamedTuple):
    """Frames that can no longer be had, and the messages that were in them."""

    target: bytes
    reason: str
    ranges: list[Range]
    runs: list[Run]


def encode_lost(lost: Lost) -> bytes:
    """Make the body of a LOST for the node `target`."""
    head = encode_skip(lost.target, lost.ranges)
    runs = b"".join(encode_run(*run) for run in lost.runs)
    return _LOST.pack(LOST_REASONS.index(lost.reason), len(head)) + head + runs


def decode_lost(body: bytes) -> Lost | None:
    """Decode the body of a LOST."""
    if len(body) < _LOST.size:
        return None
    reason, head_bytes = _LOST.unpack_from(body)
    skip = decode_skip(body[_LOST.size : _LOST.size + head_bytes])
    if skip is None or reason >= len(LOST_REASONS):
        return None
    runs = decode_runs(body[_LOST.size + head_bytes :])
    if any(count == 0 or first + count > SEQUENCE_MAX for _, first, count in runs):
        return None
    return Lost(skip.target, LOST_REASONS[reason], skip.ranges, runs)


class Publication(msgspec.Struct, array_like=True, frozen=True):
    """A subject that somebody publishes: how, as what type, how far it is, and over which links.

    `links` is a list of links as a number (wire/wishes.py), 0 where any will do.
    """

    subject: Pattern
    stream: U16
    schema_name: str = ""
    schema_hash: U64 = 0
    sequence: U64 = 0
    links: U16 = 0


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """Who I am, what I want and what I publish; long lists come in parts.

    `version` is that of the whole declared state, `interest_version` the one at which what I want
    changed last: grants answer that. `release` is the version of Hubbub, for people. `links` are
    those that I have; 0: I know nothing of links that somebody insists on.
    """

    name: Name
    host: Name
    pid: U32
    domain: str
    interest_version: U64
    part: U16
    parts: U16
    patterns: list[Pattern]
    window_bytes: U32
    known: list[U32]
    is_reply: bool
    version: U64 = 0
    publications: list[Publication] = []
    index: Index = NO_INDEX
    release: Release = ""
    uptime_s: U32 = 0
    links: U16 = 0


class PlacedHello(Hello, array_like=True, frozen=True):
    """The same of a node that takes datagrams at a port no group would tell.

    Only who has one says it, so that the HELLO of all others is as short as it was.
    """

    datagram_port: U16 = 0


# What one step of a declared state is; a step of another kind only counts.
WANTS: Final = 1
WANTS_NO_MORE: Final = 2
PUBLISHES: Final = 3
PUBLISHES_NO_MORE: Final = 4
WANTS_ANEW: Final = 5  # The interest is as it was, but shall be granted once more.


class Step(msgspec.Struct, array_like=True, frozen=True):
    """One change of a declared state; `name` is a pattern or a subject."""

    what: U16
    name: Pattern = ""
    stream: U16 = 0
    schema_name: str = ""
    schema_hash: U64 = 0
    sequence: U64 = 0
    links: U16 = 0


class Change(msgspec.Struct, array_like=True, frozen=True):
    """What became of my declared state since version `base`: one version a step."""

    base: U64
    steps: list[Step]

    @property
    def version(self) -> int:
        """Return the version behind the last step."""
        return self.base + len(self.steps)


class Topic(msgspec.Struct, array_like=True, frozen=True):
    """A topic's number and name, from which sequence on it is owed, and its type if it has one.

    `replayed_ns` is when somebody began to play the recording that its messages come from; 0: they
    are published for the first time. A gateway says of what it passes on whose it is: the key and
    the name of the origin, and how many gateways it has crossed (decision 0028). `links` says that
    it is for those subscriptions alone which insist on these (decision 0041).
    """

    number: U32
    stream: U16
    subject: str
    first: U64
    schema_name: str = ""
    schema_hash: U64 = 0
    replayed_ns: U64 = 0
    origin: OriginKey = b""
    origin_name: Name = ""
    hops: U16 = 0
    links: U16 = 0


class GrantedStream(msgspec.Struct, array_like=True, frozen=True):
    """From which frame on a stream is owed; `is_owed` false ends the debt.

    What it carries may have come by the stream `continues` so far (0: none): before its frame
    `until`, or it is not known yet where that ends (0).
    """

    stream: U16
    from_frame: U64
    receivers: U32
    is_owed: bool
    continues: U16 = 0
    until: U64 = 0


class Replayed(msgspec.Struct, array_like=True, frozen=True):
    """The history of the topic `live`: its messages `first..end-1` as the topic `number`.

    It is for those who made this request alone, and comes before what is new for them.
    """

    number: U32
    live: U32
    request: U32
    first: U64
    end: U64
    stream: U16 = RELIABLE


class Grant(msgspec.Struct, array_like=True, frozen=True):
    """The answer to an interest: what its receiver is owed from now on (decision 0002).

    `nonce` is the version of the interest that is answered; `serial` grows with every change of
    what is owed, and STATUS echoes it. `debt` numbers what is owed to this
    receiver from its beginning; `has_begun` says that the receiver has answered for it before, so
    one that knows nothing of it has forgotten, refuses, and gets a new debt.
    """

    target: Key
    debt: U32
    has_begun: bool
    nonce: U64
    part: U16
    parts: U16
    grtt_us: U32
    streams: list[GrantedStream]
    topics: list[Topic]
    serial: U64 = 0
    replays: list[Replayed] = []


class Want(msgspec.Struct, array_like=True, frozen=True):
    """Tell me, by HELLO, who you are and what you declare."""

    target: Key


class Goodbye(msgspec.Struct, array_like=True, frozen=True):
    """I leave; my streams ended here: (stream, sequence of the frame that will never come)."""

    ends: list[tuple[U16, U64]]


_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (Hello, PlacedHello, Grant, Want, Goodbye, Change)
}
_declarations: Final = msgspec.msgpack.Decoder(list[Topic])

Body = TypeVar("Body", Hello, PlacedHello, Grant, Want, Goodbye, Change)


def encode(body: Hello | Grant | Want | Goodbye | Change | Step) -> bytes:
    """Make the body of a control frame that carries names and lists, or a step of one."""
    return _encoder.encode(body)


def decode(kind: type[Body], data: bytes) -> Body | None:
    """Decode such a body; None if it is not one."""
    try:
        body: Body = _decoders[kind].decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
        return None
    return body


def encode_declarations(topics: list[Topic]) -> bytes:
    """Make the declarations that stand in a DATA body before the first use of its topics."""
    return _encoder.encode(topics)


def decode_declarations(data: bytes) -> list[Topic] | None:
    """Decode the declarations of a DATA body."""
    try:
        return _declarations.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError, error):
        return None
