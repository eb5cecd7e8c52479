"""HOT. The fixed header of every frame: 70 bytes, big-endian, the same for data and control.

One frame is one datagram. Fields that are the same for many frames come first, so a sender packs
them once (`prefix`) and adds 24 bytes a frame (`finish`). The checksum covers the whole frame but
itself; a sealed frame (decision 0006) leaves it zero and carries a 16-byte tag behind the body
instead. docs/protocol.md has the table of the fields.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

MAGIC: Final = 0x6862
MAJOR: Final = 1
MINOR: Final = 0
VERSION: Final = MAJOR << 4 | MINOR

# Kinds. 16-23 are of time-triggered topics, 24-31 of services, 32-39 reserved for
# gateways.
DATA: Final = 1
SEGMENT: Final = 2
HEARTBEAT: Final = 3
STATUS: Final = 4
NAK: Final = 5
SKIP: Final = 6
LOST: Final = 7
HELLO: Final = 8
WANT: Final = 9
GRANT: Final = 10
GOODBYE: Final = 11
CHANGE: Final = 12
INTEREST: Final = 16
RESPONSE: Final = 17
OFFER: Final = 18
DIRECT: Final = 19
CLOCK: Final = 20
TIMED: Final = range(INTEREST, CLOCK + 1)
SERVICE: Final = 24
ANSWER: Final = 25
NOTICE: Final = 26
MEMBERS: Final = 27
BEACON: Final = 32

KIND_NAMES: Final = {
    DATA: "DATA", SEGMENT: "SEGMENT", HEARTBEAT: "HEARTBEAT", STATUS: "STATUS", NAK: "NAK", SKIP:
    "SKIP", LOST: "LOST", HELLO: "HELLO", WANT: "WANT", GRANT: "GRANT", GOODBYE: "GOODBYE",
    CHANGE: "CHANGE", INTEREST: "INTEREST", RESPONSE: "RESPONSE", OFFER: "OFFER", DIRECT: "DIRECT",
    CLOCK: "CLOCK", SERVICE: "SERVICE", ANSWER: "ANSWER", NOTICE: "NOTICE", MEMBERS: "MEMBERS",
    BEACON: "BEACON",
}  # fmt: skip

# Flags.
ASK: Final = 1  # The sender wants a STATUS now.
REPAIR: Final = 2  # Sent before under another packet number.
DECLARES: Final = 4  # The body names topics before their first use.
SEALED: Final = 8  # Body encrypted, 16-byte tag at the end.
OPEN_BITMAP: Final = 16  # Receivers beyond the bitmap, or not known: everybody looks at the topics.
REFERS: Final = 128  # The payloads are references to shared memory (wire/batch.py).
REFUSES: Final = 64  # A STATUS that knows nothing of the debt it answers.

# Streams of a channel. 2 is reserved for bulk (decision 0003 keeps large messages in the reliable
# one). Where a class has receivers on this host and elsewhere, those elsewhere have a stream of
# their own beside the first (decision 0027).
RELIABLE: Final = 1
BEST_EFFORT: Final = 3
RELIABLE_BESIDE: Final = 4
BEST_EFFORT_BESIDE: Final = 5
CLASSES: Final = (RELIABLE, BEST_EFFORT)
BESIDE: Final = {RELIABLE: RELIABLE_BESIDE, BEST_EFFORT: BEST_EFFORT_BESIDE}
STREAMS: Final = (*CLASSES, *BESIDE.values())
RELIABLES: Final = (RELIABLE, RELIABLE_BESIDE)
CLASS_OF: Final = {stream: cls for cls in CLASSES for stream in (cls, BESIDE[cls])}

NOBODY: Final = -2
MANY: Final = -1
NO_INDEX: Final = -1  # Of a node that has not taken one yet, or not said which.
BITMAP_BITS: Final = 64

_HEADER: Final = Struct("!HBBHBBHI20siQQQII")
_PREFIX: Final = Struct("!HBBHBBHI20siQ")
TAIL: Final = Struct("!QQI")
CRC: Final = Struct("!I")
_NO_CHECKSUM: Final = bytes(4)
HEADER_BYTES: Final = _HEADER.size
PREFIX_BYTES: Final = _PREFIX.size
CHECKSUM_OFFSET: Final = HEADER_BYTES - 4
KIND_OFFSET: Final = 3
_STREAM_OFFSET: Final = 8
TAG_BYTES: Final = 16
KEY_BYTES: Final = 20

assert HEADER_BYTES == 70
assert _PREFIX.size + TAIL.size + 4 == HEADER_BYTES


class Header(NamedTuple):
    """A decoded header; `key` is sender id and incarnation in one, as tables use it."""

    magic: int
    version: int
    kind: int
    flags: int
    hop_limit: int
    key_epoch: int
    stream: int
    domain: int
    key: bytes
    receiver: int
    bitmap: int
    sequence: int
    packet: int
    sent_us: int
    checksum: int


# A third of the time of `Header._make`, which checks the length.
_new_header: Final[Callable[[tuple[Any, ...]], Header]] = partial(tuple.__new__, Header)


class Prefix(NamedTuple):
    """The part of a header that many frames share, with its running checksum."""

    data: bytes
    crc: int


def make_key(sender: bytes, incarnation: int) -> bytes:
    """Join a sender id and an incarnation to what tables of peers are keyed by."""
    assert len(sender) == KEY_BYTES - 8
    return sender + incarnation.to_bytes(8, "big")


def split_key(key: bytes) -> tuple[bytes, int]:
    """Return the sender id and the incarnation of a key."""
    return key[:-8], int.from_bytes(key[-8:], "big")


def prefix(
    kind: int,
    flags: int,
    stream: int,
    domain: int,
    key: bytes,
    hop_limit: int,
    receiver: int = MANY,
    bitmap: int = 0,
) -> Prefix:
    """Pack the shared part of a header."""
    data = _PREFIX.pack(
        MAGIC, VERSION, kind, flags, hop_limit, 0, stream, domain, key, receiver, bitmap
    )
    return Prefix(data, crc32(data))


def finish(shared: Prefix, sequence: int, packet: int, sent_us: int, body: bytes) -> bytes:
    """Complete a header for this body."""
    tail = TAIL.pack(sequence, packet, sent_us)
    return shared.data + tail + CRC.pack(crc32(body, crc32(tail, shared.crc)))


def finish_unchecked(shared: Prefix, sequence: int, packet: int, sent_us: int) -> bytes:
    """Complete a header without a checksum, for a pipe of this host."""
    return shared.data + TAIL.pack(sequence, packet, sent_us) + _NO_CHECKSUM


def finish_parts(
    shared: Prefix, sequence: int, packet: int, sent_us: int, head: bytes, data: memoryview
) -> bytes:
    """Complete a header for a body in two parts, which need not be joined for it."""
    tail = TAIL.pack(sequence, packet, sent_us)
    crc = crc32(data, crc32(head, crc32(tail, shared.crc)))
    return shared.data + tail + CRC.pack(crc)


def decode(buffer: bytes, offset: int = 0) -> Header:
    """Decode the header at this offset; the caller has checked that 70 bytes are there."""
    return _new_header(_HEADER.unpack_from(buffer, offset))


def read_stream(buffer: bytes, start: int) -> int:
    """Return the stream of a frame whose header is known to be sound."""
    return int.from_bytes(buffer[start + _STREAM_OFFSET : start + _STREAM_OFFSET + 2], "big")


def is_intact(buffer: bytes, start: int, end: int, checksum: int) -> bool:
    """Compare the checksum of the frame in `buffer[start:end]` with the one it carries."""
    view = memoryview(buffer)
    body = start + HEADER_BYTES
    return crc32(view[body:end], crc32(view[start : body - 4])) == checksum
