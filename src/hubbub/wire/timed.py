"""The bodies of time-triggered frames: who wants what how often, and what was sampled for it.

RESPONSE and CLOCK are frequent and fixed: structs. INTEREST, OFFER and DIRECT are rare: msgpack
arrays, validated as they are decoded. Whatever is out of bounds decodes to None.

Every body but CLOCK begins with an origin: the node and the port of the component that it comes
from. Gateways pass it on as it is, so it need not be the sender in the header.
"""

from hashlib import sha1
from struct import Struct
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from hubbub.limits import (
    DIRECT_BYTES_MAX,
    LEASE_MS_MAX,
    PERIOD_US_MAX,
    PORTS_MAX,
    SUBJECT_BYTES_MAX,
    TIME_MAX,
    WANTS_MAX,
)
from hubbub.wire.header import KEY_BYTES

NODE_BYTES: Final = KEY_BYTES - 8

# Ports. What is for the components of a vehicle is sent to the gateway; it alone uses port 1.
GATEWAY_PORT: Final = 0
INTERNAL_PORT: Final = 1
COMPONENT_PORT: Final = 2

# What an interest asks for.
ALL: Final = 0  # Samples of every producer.
ONE: Final = 1  # Of one producer, whichever the consumer chooses.
OBSERVE: Final = 2  # A copy of what is sent anyway; it starts nothing.
NEAREST: Final = 3  # Of the producer that is nearest to the consumer.
INTEREST_MODES: Final = ("all", "one", "observe", "nearest")

# How a producer plans its ticks, as OFFER says it.
SCHEDULES: Final = ("due", "strict", "harmonised")

# Flags of a RESPONSE.
SYNCHRONISED: Final = 1  # The clock that its tick is of is known to agree with others.
OUT_OF_TURN: Final = 2  # For somebody who is new: the next slot may have begun before it.
RESUMED: Final = 4  # Nobody wanted a sample before it: no slot between it and the last is owed.
TAGGED: Final = 8  # Behind the value is a tag, of as many bytes as this flag has.
LIMITED: Final = 16  # Somebody asks for more than is granted: else that is what is asked for.

DERIVED_TYPES: Final = 1 << 31  # Types from here on are made from the names of their subjects.

U64 = Annotated[int, msgspec.Meta(ge=0)]
U32 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
U8 = Annotated[int, msgspec.Meta(ge=0, le=0xFF)]
Port = Annotated[int, msgspec.Meta(ge=0, le=PORTS_MAX)]
Period = Annotated[int, msgspec.Meta(ge=0, le=PERIOD_US_MAX)]
NodeId = Annotated[bytes, msgspec.Meta(min_length=NODE_BYTES, max_length=NODE_BYTES)]
Subject = Annotated[str, msgspec.Meta(max_length=SUBJECT_BYTES_MAX)]

_RESPONSE: Final = Struct("!14sHIBBHQQQQI")
_TAG: Final = Struct("!I4s")
TAG_BYTES: Final = _TAG.size
assert TAG_BYTES == TAGGED
_CLOCK: Final = Struct("!B20sBQQQI")
RESPONSE_HEAD_BYTES: Final = _RESPONSE.size
TYPE_OFFSET: Final = NODE_BYTES + 4  # Of the type in a RESPONSE, behind origin and destination.
ORIGIN_BYTES: Final = NODE_BYTES + 2
ROUTE_BYTES: Final = TYPE_OFFSET + 4  # Origin, destination and type.


def is_component_port(port: Any) -> bool:
    """Tell whether a component can have this port."""
    is_number = isinstance(port, int) and not isinstance(port, bool)
    return is_number and COMPONENT_PORT <= port <= PORTS_MAX


def is_derived(type: int) -> bool:
    """Tell whether the number of a type is made from the name of its subject."""
    return type >= DERIVED_TYPES


class Tag(NamedTuple):
    """What a sample is more than its type says: its scope, and of which subject it is.

    Two subjects may have one derived number, so samples of such types have a mark of the subject;
    others have none.
    """

    scope: int
    mark: bytes


def mark_subject(type: int, subject: str) -> bytes:
    """Return what tells a subject from another of the same derived type."""
    return sha1(subject.encode()).digest()[:4] if is_derived(type) else bytes(4)


def encode_tag(tag: Tag) -> bytes:
    """Make the bytes behind the value of a RESPONSE; none, if there is nothing to tell."""
    return _TAG.pack(*tag) if tag.scope or any(tag.mark) else b""


def decode_tag(data: bytes) -> Tag:
    """Decode what is behind the value of a RESPONSE."""
    return Tag._make(_TAG.unpack(data)) if data else Tag(0, bytes(4))


def make_origin(node: bytes, port: int) -> bytes:
    """Join a node id and a port to what tables of components are keyed by."""
    return node + port.to_bytes(2, "big")


def split_origin(origin: bytes) -> tuple[bytes, int]:
    """Return the node id and the port of an origin."""
    return origin[:NODE_BYTES], int.from_bytes(origin[NODE_BYTES:], "big")


class Wanted(msgspec.Struct, array_like=True, frozen=True):
    """One consumer behind an interest: its port, how often it wants a sample, how it fared."""

    port: Port
    period_us: Period
    served: U64 = 0
    missed: U64 = 0


class Interest(msgspec.Struct, array_like=True, frozen=True):
    """Consumers of one node want samples of a type; without any of them it is withdrawn.

    It holds for `lease_ms`. Of several the one of the highest version counts. With `device` only
    producers whose origin begins so are meant: of one node, or one of them.
    """

    node: NodeId
    port: Port
    destination: Port
    type: U32
    hops: U8
    version: U64
    lease_ms: Annotated[int, msgspec.Meta(ge=0, le=LEASE_MS_MAX)]
    mode: Annotated[int, msgspec.Meta(ge=0, le=NEAREST)]
    scope: U32
    wants: Annotated[list[Wanted], msgspec.Meta(max_length=WANTS_MAX)]
    subject: Subject = ""
    device: Annotated[bytes, msgspec.Meta(max_length=ORIGIN_BYTES)] = b""


class Offer(msgspec.Struct, array_like=True, frozen=True):
    """A producer says what it makes, how it plans, and what it has done so far."""

    node: NodeId
    port: Port
    destination: Port
    type: U32
    hops: U8
    version: U64
    is_open: bool
    subject: Subject
    schedule: Annotated[int, msgspec.Meta(ge=0, le=len(SCHEDULES) - 1)]
    tick_us: U64
    granted_us: U64
    millihertz: U64
    interests: U32
    sent: U64
    skipped: U64
    scope: U32 = 0


class Direct(msgspec.Struct, array_like=True, frozen=True):
    """A message from one component to one port of one node."""

    node: NodeId
    port: Port
    destination: Port
    target: NodeId
    hops: U8
    payload: Annotated[bytes, msgspec.Meta(max_length=DIRECT_BYTES_MAX)]


class Response(NamedTuple):
    """A sample: what was measured when, and for which tick.

    `tick_ns` is nominal, on the slot clock of the producer; 0: it has none, as in the first version
    of this protocol. `era` changes when that clock steps. `granted_us` is the shortest period that
    the producer serves. `tag` is there if a flag says so (`decode_tag`).
    """

    origin: bytes
    destination: int
    type: int
    hops: int
    flags: int
    era: int
    sequence: int
    tick_ns: int
    sampled_ns: int
    granted_us: int
    value: bytes
    tag: bytes = b""


def encode_response(response: Response) -> bytes:
    """Make the body of a RESPONSE."""
    *head, value, tag = response
    return _RESPONSE.pack(*head, len(value)) + value + tag


def decode_response(buffer: bytes, start: int, end: int) -> Response | None:
    """Decode the body of a RESPONSE in `buffer[start:end]`; bytes behind the value are padding."""
    if end - start < RESPONSE_HEAD_BYTES:
        return None
    *head, size = _RESPONSE.unpack_from(buffer, start)
    begin = start + RESPONSE_HEAD_BYTES
    behind = begin + size
    tag_bytes = head[4] & TAGGED
    if behind + tag_bytes > end or head[9] > PERIOD_US_MAX:
        return None
    return Response._make((*head, buffer[begin:behind], buffer[behind : behind + tag_bytes]))


ASKS: Final = 0
ANSWERS: Final = 1


class ClockExchange(NamedTuple):
    """One leg of a two-way exchange: asked at t1, heard at t2, answered at t3.

    `t1_ns` is of the asking node's monotonic clock, the others of the answering node's slot clock.
    `rank` says how good that is, from 0; a node of rank 255 follows another and is no reference.
    """

    form: int
    target: bytes
    rank: int
    t1_ns: int
    t2_ns: int
    t3_ns: int
    error_us: int


def encode_clock(exchange: ClockExchange) -> bytes:
    """Make the body of a CLOCK."""
    return _CLOCK.pack(*exchange)


def decode_clock(body: bytes) -> ClockExchange | None:
    """Decode the body of a CLOCK."""
    if len(body) < _CLOCK.size:
        return None
    exchange = ClockExchange._make(_CLOCK.unpack_from(body))
    is_sound = exchange.form in (ASKS, ANSWERS) and exchange.t3_ns >= exchange.t2_ns
    return exchange if is_sound and exchange.t3_ns < TIME_MAX >> 1 else None


# MessagePack: what an array of more than 15 begins with, and 12 bytes; and the size of a number by
# its first byte: a small one is that byte.
_ARRAY_16: Final = b"\xdc"
_TYPE_BYTES_MAX: Final = 5
_NODE_BEGINS: Final = bytes((0xC4, NODE_BYTES))
_SMALL: Final = 0x80
_UINT_BYTES: Final = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}


def peek_type(buffer: bytes, begin: int, end: int) -> int | None:
    """Return the type of an INTEREST or OFFER without decoding it; None: that takes a decoder."""
    at = begin + (5 if buffer[begin : begin + 1] == _ARRAY_16 else 3)
    if buffer[at - 2 : at] != _NODE_BEGINS:
        return None
    at += NODE_BYTES
    for _ in range(2):  # The ports.
        if at >= end:
            return None
        at += _UINT_BYTES.get(buffer[at], 1)
    if at >= end:
        return None
    size = _UINT_BYTES.get(buffer[at], 1)
    return buffer[at] if size == 1 else int.from_bytes(buffer[at + 1 : at + size], "big")


def peek_mark(buffer: bytes, begin: int, end: int) -> bytes:
    """Return five bytes that tell the type of an INTEREST or OFFER to port 0; empty: not so simply.

    Behind a short type they hold the hops and high bytes of the version, which hardly ever change.
    """
    at = begin + NODE_BYTES + (7 if buffer[begin : begin + 1] == _ARRAY_16 else 5)
    if at + _TYPE_BYTES_MAX > end or buffer[at - 2] >= _SMALL or buffer[at - 1] != GATEWAY_PORT:
        return b""
    return buffer[at : at + _TYPE_BYTES_MAX]


_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Interest, Offer, Direct)
}
TimedBody = TypeVar("TimedBody", Interest, Offer, Direct)


def encode_timed(body: Interest | Offer | Direct) -> bytes:
    """Make the body of an INTEREST, an OFFER or a DIRECT."""
    return _encoder.encode(body)


def decode_timed(kind: type[TimedBody], data: bytes) -> TimedBody | None:
    """Decode such a body; None if it is not one."""
    try:
        body: TimedBody = _decoders[kind].decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
        return None
    return body
