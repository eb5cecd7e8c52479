"""The bodies of service frames: the five messages of the first version, and what is around them.

A message of the first version is its type, the key of the service, and the rest; those bytes are
the same wherever they stand. Alone in a datagram they are a *bare* message, as the first version
sent it. In a SERVICE frame they stand behind an envelope, which says who asked, in which life, for
the how-manieth time, and for how long. ANSWER, NOTICE and MEMBERS are ours alone.
"""

from functools import lru_cache
from hashlib import sha1
from struct import Struct
from typing import Annotated, Any, Final, NamedTuple
from unicodedata import normalize

import msgspec

from hubbub.limits import (
    INVENTORY_NODES,
    INVENTORY_SERVICES,
    LIST_PART_ENTRIES,
    LIST_PARTS_MAX,
    RECORDS_PER_FRAME_MAX,
    SERVICE_EPOCH_MAX,
    SERVICE_LEASE_MS_MAX,
    SERVICE_NAME_BYTES_MAX,
    SERVICE_NUMBER_MAX,
    SERVICE_PATTERNS_MAX,
    SERVICE_PAYLOAD_BYTES_MAX,
    SUBJECT_BYTES_MAX,
)
from hubbub.subjects import is_subject
from hubbub.wire import payloads
from hubbub.wire.header import KEY_BYTES as PEER_KEY_BYTES
from hubbub.wire.places import is_place

NODE_BYTES: Final = PEER_KEY_BYTES - 8
KEY_BYTES: Final = 20
KEY_BITS: Final = 8 * KEY_BYTES
NOBODY: Final = bytes(NODE_BYTES)

# The types of the first version.
SUBSCRIBE_SERVICE: Final = 0
UNSUBSCRIBE_SERVICE: Final = 1
PUBLISH: Final = 2
INFO: Final = 3
CHANGE_SERVICE_MANAGER: Final = 4
TYPE_NAMES: Final = {
    SUBSCRIBE_SERVICE: "SUBSCRIBE_SERVICE", UNSUBSCRIBE_SERVICE: "UNSUBSCRIBE_SERVICE",
    PUBLISH: "PUBLISH", INFO: "INFO", CHANGE_SERVICE_MANAGER: "CHANGE_SERVICE_MANAGER",
}  # fmt: skip

# Flags of an envelope, and of an entry in a list of subscribers.
NO_LOCAL: Final = 1  # A subscriber does not want what it publishes itself.
ANSWERS: Final = 2  # A subscriber answers requests to any one member.
BARE: Final = 4  # A subscriber that speaks the first version, and nothing else.
# Of a PUBLISH: keep it for those who come later. Of an INFO: it was kept. Of a SUBSCRIBE_SERVICE:
# send what is kept, though I may have had it.
RETAIN: Final = 8
ANYCAST: Final = 16  # Of a PUBLISH or an INFO: for one member, who answers.
LEAVING: Final = 32  # Who sends this is about to leave: it manages nothing any more.
BATCH: Final = 64  # Of a PUBLISH or an INFO: several payloads, numbered from `sequence` on.
PROMPT: Final = 128  # Of a PUBLISH: somebody waits for the answer.
ABSENT: Final = 256  # Of an entry that has ended: its node seems to be dead, and may come back.
ENTRY_FLAGS: Final = NO_LOCAL | ANSWERS | BARE | ABSENT

# What became of a request, as ANSWER and NOTICE say it.
TAKEN: Final = 0  # Stored, or handed on to all subscribers.
PASSED: Final = 1  # Given to one who is closer, or held back: what became of it is told later.
UNAVAILABLE: Final = 2  # Nobody subscribes: SERVICE_UNAVAILABLE.
REFUSED: Final = 3  # By the policy of the manager.
STALE: Final = 4  # Older than what is known; the answer has the number that is.
UNKNOWN: Final = 5  # An INFO for one who has not subscribed.
FULL: Final = 6  # No room for it.
LOOPED: Final = 7  # It was passed on too often.
HEARS_GROUP: Final = 1  # The number of a TAKEN to an INFO: who sent it was heard in the group.
STATUS_NAMES: Final = (
    "taken", "passed", "unavailable", "refused", "stale", "unknown", "full", "looped",
)  # fmt: skip

ENVELOPE: Final = Struct("!IHB12sQQIIQH")
_ANSWER: Final = Struct("!IBIQ12s")
_HOP: Final = Struct("!I")
_COUNT: Final = Struct("!H")
ENVELOPE_BYTES: Final = ENVELOPE.size
ANSWER_BYTES: Final = _ANSWER.size
_V1_HEAD_BYTES: Final = 1 + KEY_BYTES
BARE_BYTES_MAX: Final = _V1_HEAD_BYTES + SERVICE_PAYLOAD_BYTES_MAX
_is_subject: Final = lru_cache(4096)(is_subject)  # The same ones come again and again.

U64 = Annotated[int, msgspec.Meta(ge=0)]
U32 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
# What is counted on from what a peer says stays far below what a frame can carry.
Number = Annotated[int, msgspec.Meta(ge=0, le=SERVICE_NUMBER_MAX)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=SERVICE_EPOCH_MAX)]
Status = Annotated[int, msgspec.Meta(ge=0, le=len(STATUS_NAMES) - 1)]
U16 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
U8 = Annotated[int, msgspec.Meta(ge=0, le=0xFF)]
NodeId = Annotated[bytes, msgspec.Meta(min_length=NODE_BYTES, max_length=NODE_BYTES)]
ServiceKey = Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Name = Annotated[str, msgspec.Meta(max_length=SERVICE_NAME_BYTES_MAX)]
Host = Annotated[str, msgspec.Meta(max_length=64)]
Place = tuple[Host, U16]
Subject = Annotated[str, msgspec.Meta(max_length=SUBJECT_BYTES_MAX)]
Patterns = Annotated[list[Subject], msgspec.Meta(max_length=SERVICE_PATTERNS_MAX)]
Payload = Annotated[bytes, msgspec.Meta(max_length=SERVICE_PAYLOAD_BYTES_MAX)]


def node_key(node: bytes) -> bytes:
    """Return the key of a node: the SHA-1 of its id."""
    return sha1(node, usedforsecurity=False).digest()


def service_key(name: str) -> bytes:
    """Return the key of a service: the SHA-1 of its name, the same however it was typed."""
    return sha1(normalize("NFC", name).encode(), usedforsecurity=False).digest()


def distance(one: bytes, other: bytes) -> int:
    """Return how far two keys are apart: their bits XORed, read as a number."""
    return int.from_bytes(one, "big") ^ int.from_bytes(other, "big")


class Message(NamedTuple):
    """A message of the first version; `rest` is a payload, or the ids of a change of managers."""

    type: int
    key: bytes
    rest: bytes = b""


def encode_message(message: Message) -> bytes:
    """Write a message as the first version did."""
    return bytes((message.type,)) + message.key + message.rest


def decode_message(data: bytes, *, is_bare: bool = True) -> Message | None:
    """Read such a message; alone in a datagram it must not have an empty payload."""
    if not _V1_HEAD_BYTES <= len(data) <= BARE_BYTES_MAX:
        return None
    type, rest = data[0], data[_V1_HEAD_BYTES:]
    if type in (SUBSCRIBE_SERVICE, UNSUBSCRIBE_SERVICE):
        is_sound = not rest
    elif type in (PUBLISH, INFO):
        is_sound = bool(rest) or not is_bare
    else:
        is_sound = type == CHANGE_SERVICE_MANAGER and bool(rest) and not len(rest) % NODE_BYTES
    return Message(type, data[1:_V1_HEAD_BYTES], rest) if is_sound else None


def join_ids(manager: bytes, subscribers: list[bytes]) -> bytes:
    """Write the rest of a CHANGE_SERVICE_MANAGER."""
    return manager + b"".join(subscribers)


def split_ids(rest: bytes) -> tuple[bytes, list[bytes]]:
    """Return the new manager and the subscribers of a CHANGE_SERVICE_MANAGER."""
    ids = [rest[at : at + NODE_BYTES] for at in range(0, len(rest), NODE_BYTES)]
    return ids[0], ids[1:]


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """One line of a list of subscribers: who, since which request, and whether it is one still."""

    node: NodeId
    stamp: Number
    is_in: bool
    flags: U16 = 0
    place: Place | None = None
    patterns: Patterns = []


class Extra(msgspec.Struct, array_like=True, frozen=True):
    """What only some messages carry.

    `place` is where the origin can be reached, `nodes` for whom an INFO is passed on. A list of
    subscribers goes in parts, `entries` beside the ids of the message; `last_order` and `kept` are
    what else a new manager must know. What is published may have a `subject`, and who subscribes
    may want only what matches some `patterns`.
    """

    place: Place | None = None
    name: Name = ""
    credentials: Annotated[bytes, msgspec.Meta(max_length=1024)] = b""
    nodes: list[NodeId] = []
    part: U16 = 0
    parts: Annotated[int, msgspec.Meta(ge=1, le=LIST_PARTS_MAX)] = 1
    entries: Annotated[list[Entry], msgspec.Meta(max_length=LIST_PART_ENTRIES)] = []
    last_order: Number = 0
    subject: Subject = ""
    patterns: Patterns = []


class Request(NamedTuple):
    """A message in its envelope.

    `origin`, `incarnation` and `sequence` are the id of what was asked or published first, whoever
    passes it on; of a batch, of the first message in it. `hop` is what the next node acknowledges,
    `order` the place of an INFO among all of its service.
    """

    hop: int
    flags: int
    hops: int
    origin: bytes
    incarnation: int
    sequence: int
    epoch: int
    lease_ms: int
    order: int
    message: Message
    extra: Extra

    @property
    def messages(self) -> int:
        """Return how many messages this is."""
        return payloads.count_of(self.message.rest) if self.flags & BATCH else 1

    @property
    def payloads(self) -> list[bytes]:
        """Return the payload of each message."""
        rest = self.message.rest
        return payloads.split(rest) if self.flags & BATCH else [rest]


NOTHING: Final = Extra()


def encode_extra(extra: Extra) -> bytes:
    """Write what only some messages carry."""
    return b"" if extra is NOTHING else _encoder.encode(extra)


def encode_request(request: Request) -> bytes:
    """Make the body of a SERVICE frame."""
    *head, message, extra = request
    tail = encode_extra(extra)
    return ENVELOPE.pack(*head, len(tail)) + encode_message(message) + tail


def decode_request(body: bytes) -> Request | None:
    """Decode the body of a SERVICE frame."""
    if len(body) < ENVELOPE_BYTES:
        return None
    *head, extra_bytes = ENVELOPE.unpack_from(body)
    end = len(body) - extra_bytes
    message = decode_message(body[ENVELOPE_BYTES:end], is_bare=False)
    if end < ENVELOPE_BYTES or message is None or head[7] > SERVICE_LEASE_MS_MAX:
        return None
    _, _, _, _, _, sequence, epoch, _, order = head
    is_sound = sequence < 1 << 63 and epoch <= SERVICE_EPOCH_MAX and order <= SERVICE_NUMBER_MAX
    if not is_sound:
        return None
    if head[1] & BATCH and not _is_batch(message, head[1]):
        return None
    extra = NOTHING
    if extra_bytes:
        decoded = _decode(_extra_decoder, body[end:])
        if decoded is None or not _is_reachable(decoded.place, decoded.entries):
            return None
        extra = decoded
    if extra.subject and not _is_subject(extra.subject):
        return None
    return Request._make((*head, message, extra))


def _is_reachable(place: Place | None, entries: list[Entry]) -> bool:
    """Tell whether what is said to be the place of a node is one."""
    places = [place, *(entry.place for entry in entries)] if entries else [place]
    return all(one is None or is_place(*one) for one in places)


def _is_batch(message: Message, flags: int) -> bool:
    """Tell whether a message may be one: what is kept or asked goes alone."""
    is_plain = message.type in (PUBLISH, INFO) and not flags & (RETAIN | ANYCAST)
    return is_plain and payloads.is_sound(message.rest)


class Answer(NamedTuple):
    """What became of a request; `manager` is who looks after the service, as far as is known."""

    hop: int
    status: int
    epoch: int = 0
    number: int = 0
    manager: bytes = NOBODY


class Record(msgspec.Struct, array_like=True, frozen=True):
    """What is told of a member; without a host it is the sender, at the address it sends from."""

    node: NodeId
    host: Host
    port: U16
    incarnation: Number
    life: U64
    state: Annotated[int, msgspec.Meta(ge=0, le=3)]
    weight: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1

    @property
    def is_reachable(self) -> bool:
        """Tell whether a member can be there: who repeats what it was told may repeat nonsense."""
        return is_place(self.host, self.port)


Records = Annotated[list[Record], msgspec.Meta(max_length=RECORDS_PER_FRAME_MAX)]


def encode_answers(answers: list[Answer], hints: list[Record]) -> bytes:
    """Make the body of an ANSWER: several of them, and where their managers are."""
    parts = [_COUNT.pack(len(answers)), *(_ANSWER.pack(*answer) for answer in answers)]
    if hints:
        parts.append(_encoder.encode(hints))
    return b"".join(parts)


def decode_answers(body: bytes) -> tuple[list[Answer], list[Record]] | None:
    """Decode the body of an ANSWER."""
    if len(body) < _COUNT.size:
        return None
    begin, end = _COUNT.size, _COUNT.size + _COUNT.unpack_from(body)[0] * ANSWER_BYTES
    if end > len(body):
        return None
    answers = [Answer._make(one) for one in _ANSWER.iter_unpack(body[begin:end])]
    if not all(map(_is_sound, answers)):
        return None
    hints = _decode(_records_decoder, body[end:]) if end < len(body) else []
    return None if hints is None else (answers, hints)


def _is_sound(answer: Answer) -> bool:
    is_known = answer.status < len(STATUS_NAMES) and answer.epoch <= SERVICE_EPOCH_MAX
    return is_known and answer.number <= SERVICE_NUMBER_MAX


class Result(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """To the origin of a request that came by others: what became of it."""

    key: ServiceKey
    asked: U8
    sequence: U64
    status: Status
    epoch: Epoch
    number: Number = 0
    subject: Subject = ""


class Query(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """To those who come next: I seem to be the manager of this service; do you know of it?"""

    key: ServiceKey


class Known(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Back: I know nothing, or the list is coming, or ask that one.

    Who is new itself cannot be sure that there is nothing to know.
    """

    key: ServiceKey
    status: Status
    manager: NodeId
    is_sure: bool


class Copy(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """From a manager to those who come next: what has changed in its list, or all of it.

    `count` and `digest` are of the whole list, so that who holds a copy sees whether it is one.
    """

    key: ServiceKey
    name: Name
    epoch: Epoch
    order: Number
    count: U32
    digest: U64
    is_full: bool
    entries: Annotated[list[Entry], msgspec.Meta(max_length=LIST_PART_ENTRIES)]


class ListTaken(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """To the last manager: I have the whole list, and manage the service from now on."""

    key: ServiceKey
    offered: Epoch
    epoch: Epoch


class Reply(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """From the member that a request for any one came to, straight to who asked."""

    key: ServiceKey
    sequence: U64
    payload: Payload


class Kept(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """The last value of a service, for the next manager and for copies."""

    key: ServiceKey
    epoch: Epoch
    order: Number
    origin: NodeId
    incarnation: U64
    sequence: U64
    lease_ms: U32
    payload: Payload


class Inquiry(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """From anybody who looks on: which services do you manage?

    With a key it is to a manager: how many would have a message of that service, on this subject?
    Or, with `is_listing`: who are its subscribers?
    """

    number: U32
    key: Annotated[bytes, msgspec.Meta(max_length=KEY_BYTES)] = b""
    subject: Subject = ""
    is_listing: bool = False


class Managed(msgspec.Struct, array_like=True, frozen=True):
    """One service that a node manages."""

    key: ServiceKey
    name: Name
    epoch: Epoch
    messages: U64
    subscribers: U32


class Inventory(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Back: these, or some of them; and those that we managed until lately, at its end.

    Of a service that was asked for alone, some of its subscribers.
    """

    number: U32
    services: Annotated[list[Managed], msgspec.Meta(max_length=INVENTORY_SERVICES)]
    ended: Annotated[list[Managed], msgspec.Meta(max_length=INVENTORY_SERVICES)] = []
    nodes: Annotated[list[NodeId], msgspec.Meta(max_length=INVENTORY_NODES)] = []


Notice = Result | Query | Known | Copy | ListTaken | Reply | Kept | Inquiry | Inventory


def encode_notice(hop: int, notice: Notice) -> bytes:
    """Make the body of a NOTICE."""
    return _HOP.pack(hop) + _encoder.encode(notice)


def decode_notice(body: bytes) -> tuple[int, Notice] | None:
    """Decode the body of a NOTICE."""
    if len(body) < _HOP.size:
        return None
    notice = _decode(_notice_decoder, body[_HOP.size :])
    if isinstance(notice, Copy) and not _is_reachable(None, notice.entries):
        return None
    return None if notice is None else (_HOP.unpack_from(body)[0], notice)


# Forms of MEMBERS.
PING: Final = 0
ACK: Final = 1
ASK: Final = 2  # Ping the target for me.
NEWS: Final = 3
JOIN: Final = 4  # I know nobody yet: tell me of all.
COMPARE: Final = 5  # My view has this digest.
VIEW: Final = 6  # A piece of my view.


class Members(msgspec.Struct, array_like=True, frozen=True):
    """What members tell each other of members; the first record is that of the sender."""

    form: Annotated[int, msgspec.Meta(ge=0, le=VIEW)]
    number: U32
    target: NodeId
    digest: U64
    records: Records


def encode_members(members: Members) -> bytes:
    """Make the body of a MEMBERS."""
    return _encoder.encode(members)


def decode_members(body: bytes) -> Members | None:
    """Decode the body of a MEMBERS."""
    members: Members | None = _decode(_members_decoder, body)
    return members if members is not None and members.records else None


_encoder: Final = msgspec.msgpack.Encoder()
_extra_decoder: Final = msgspec.msgpack.Decoder(Extra)
_records_decoder: Final = msgspec.msgpack.Decoder(Records)
_notice_decoder: Final = msgspec.msgpack.Decoder(Notice)
_members_decoder: Final = msgspec.msgpack.Decoder(Members)


def _decode(decoder: Any, data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
        return None
