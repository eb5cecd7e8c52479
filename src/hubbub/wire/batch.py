"""HOT. Many messages <-> the body of one DATA frame; a piece of a large one <-> a SEGMENT frame.

A DATA body is tables first, payloads last, so that one `struct.pack` and one `join` make it, and
one `unpack_from` a table takes it apart, whatever the number of messages:

    u16 runs, u16 bytes of declarations, u32 messages
    declarations (msgpack), runs x {u32 topic, u64 first sequence, u32 count}
    messages x u32 length, messages x u64 publish time in ns, payloads, padding

With the flag REFERS each payload is a reference, {u32 arena, u64 offset, u64 size}, to memory that
the sender shares with its receivers; payloads that lie together in one slot add {u64 slot}, where
it begins. Padding lets frames of one offloaded burst have the same size.
A body without messages only declares. A SEGMENT body is {u32 topic, u64 sequence, u64 publish time,
u64 total, u64 offset, u32 stride} and data.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack
from typing import Final, NamedTuple

from hubbub.limits import MESSAGE_BYTES_MAX, SEGMENT_STRIDE_MIN, SEQUENCE_MAX
from hubbub.wire.times import Times

_HEAD: Final = Struct("!HHI")
_RUN: Final = Struct("!IQI")
_SEGMENT: Final = Struct("!IQQQQI")
_REFERENCE: Final = Struct("!IQQ")
_PART: Final = Struct("!IQQQ")
_SINGLE: Final = Struct("!HHIIQIIQ")
HEAD_BYTES: Final = _HEAD.size
RUN_BYTES: Final = _RUN.size
SINGLE_BYTES: Final = _SINGLE.size
SEGMENT_HEAD_BYTES: Final = _SEGMENT.size
TABLE_BYTES_PER_MESSAGE: Final = 12
_SLICED_AT_ONCE: Final = 32

Run = tuple[int, int, int]
Place = tuple[int, int]  # Offset and size.
Reference = tuple[int, int, int, int]  # Arena, offset, size, and where its slot begins.


class Batch(NamedTuple):
    """A decoded DATA body."""

    runs: list[Run]
    payloads: list[bytes]
    published_ns: Sequence[int]
    declarations: bytes


class Segment(NamedTuple):
    """A decoded SEGMENT body."""

    topic: int
    sequence: int
    published_ns: int
    total: int
    offset: int
    stride: int
    data: bytes


def encode(
    runs: Sequence[Run],
    payloads: Sequence[bytes],
    published_ns: Sequence[int],
    declarations: bytes = b"",
) -> bytes:
    """Make the body of a DATA frame."""
    count = len(payloads)
    if count == 1 and not declarations:
        return encode_single(runs[0][0], runs[0][1], payloads[0], published_ns[0])
    return b"".join(
        (
            _HEAD.pack(len(runs), len(declarations), count),
            declarations,
            *[_RUN.pack(*run) for run in runs],
            pack(f"!{count}I", *map(len, payloads)),
            pack(f"!{count}Q", *published_ns),
            *payloads,
        )
    )


def encode_single(
    topic: int, sequence: int, payload: bytes | memoryview, published_ns: int
) -> bytes:
    """Make the body of a DATA frame that holds one message."""
    return _SINGLE.pack(1, 0, 1, topic, sequence, 1, len(payload), published_ns) + payload


def decode(buffer: bytes, start: int, end: int) -> Batch | None:
    """Take the body of a DATA frame apart; None if its counts and lengths do not add up."""
    if end - start < HEAD_BYTES:
        return None
    run_count, declared, count = _HEAD.unpack_from(buffer, start)
    if count == 1 and run_count == 1 and not declared:
        return _decode_single(buffer, start, end)
    at = start + HEAD_BYTES
    declarations = buffer[at : at + declared]
    at += declared
    runs_end = at + run_count * RUN_BYTES
    data = runs_end + count * TABLE_BYTES_PER_MESSAGE
    if data > end:
        return None
    runs = [_RUN.unpack_from(buffer, place) for place in range(at, runs_end, RUN_BYTES)]
    if not _adds_up(runs, count):
        return None
    lengths = buffer[runs_end : runs_end + 4 * count]
    payloads = _slice(buffer, lengths, data, end)
    if payloads is None:
        return None
    return Batch(runs, payloads, Times(buffer[runs_end + 4 * count : data]), declarations)


def _slice(buffer: bytes, lengths: bytes, data: int, end: int) -> list[bytes] | None:
    """Cut the payloads out of a body; None if they reach beyond its end.

    Messages of one size, as sensors send them, are cut by the dozen by one call of a `Struct`:
    45 ns a message against 160 ns for a slice each.
    """
    count = len(lengths) // 4
    if count < _SLICED_AT_ONCE or lengths != lengths[:4] * count:
        edges = list(accumulate(unpack(f"!{count}I", lengths), initial=data))
        return None if edges[-1] > end else [buffer[a:b] for a, b in pairwise(edges)]
    size = int.from_bytes(lengths[:4], "big")
    if data + count * size > end:
        return None
    payloads: list[bytes] = []
    cut = _cutter(size).unpack_from
    at_once = count - count % _SLICED_AT_ONCE
    for place in range(0, at_once, _SLICED_AT_ONCE):
        payloads += cut(buffer, data + place * size)
    for place in range(at_once, count):
        payloads.append(buffer[data + place * size : data + (place + 1) * size])
    return payloads


@lru_cache(maxsize=64)
def _cutter(size: int) -> Struct:
    return Struct(f"{size}s" * _SLICED_AT_ONCE)


def _decode_single(buffer: bytes, start: int, end: int) -> Batch | None:
    data = start + _SINGLE.size
    if data > end:
        return None
    _, _, _, topic, first, count, size, published_ns = _SINGLE.unpack_from(buffer, start)
    if count != 1 or first >= SEQUENCE_MAX or data + size > end:
        return None
    return Batch([(topic, first, 1)], [buffer[data : data + size]], (published_ns,), b"")


def _adds_up(runs: list[Run], count: int) -> bool:
    total = 0
    for _, first, length in runs:
        if length == 0 or first + length > SEQUENCE_MAX:
            return False
        total += length
    return total == count


def read_runs(body: bytes) -> bytes:
    """Return the run table of an encoded DATA body: what outlives its payloads in the cache."""
    run_count, declared, _ = _HEAD.unpack_from(body)
    at = HEAD_BYTES + declared
    return body[at : at + run_count * RUN_BYTES]


def encode_run(topic: int, first: int, count: int) -> bytes:
    """Make a run table of one run."""
    return _RUN.pack(topic, first, count)


def decode_runs(table: bytes) -> list[Run]:
    """Take a run table apart; an incomplete last entry is left out."""
    return list(_RUN.iter_unpack(table[: len(table) - len(table) % RUN_BYTES]))


def encode_segment_head(
    topic: int, sequence: int, published_ns: int, total: int, offset: int, stride: int
) -> bytes:
    """Make what stands before the data in a SEGMENT body."""
    return _SEGMENT.pack(topic, sequence, published_ns, total, offset, stride)


def decode_segment(buffer: bytes, start: int, end: int) -> Segment | None:
    """Take a SEGMENT body apart; None unless it is exactly one stride of its message."""
    if end - start <= SEGMENT_HEAD_BYTES:
        return None
    topic, sequence, published_ns, total, offset, stride = _SEGMENT.unpack_from(buffer, start)
    size = end - start - SEGMENT_HEAD_BYTES
    if not 0 < total <= MESSAGE_BYTES_MAX or sequence >= SEQUENCE_MAX:
        return None
    if stride < SEGMENT_STRIDE_MIN:
        return None
    if offset % stride or offset >= total or size != min(stride, total - offset):
        return None
    data = buffer[start + SEGMENT_HEAD_BYTES : end]
    return Segment(topic, sequence, published_ns, total, offset, stride, data)


def read_segment_run(head: bytes) -> bytes:
    """Return the run table of a SEGMENT: the one message that it is part of."""
    topic, sequence, *_ = _SEGMENT.unpack(head)
    return encode_run(topic, sequence, 1)


def encode_reference(arena: int, offset: int, size_bytes: int) -> bytes:
    """Make what stands for a payload that lies in a slot of shared memory of its own."""
    return _REFERENCE.pack(arena, offset, size_bytes)


def encode_parts(arena: int, slot: int, places: Sequence[Place]) -> list[bytes]:
    """Make what stands for payloads that lie together in one slot, each by offset and size."""
    if len(places) == 1 and places[0][0] == slot:
        return [encode_reference(arena, *places[0])]
    pack = _PART.pack
    return [pack(arena, offset, size_bytes, slot) for offset, size_bytes in places]


def decode_references(payloads: Sequence[bytes]) -> list[Reference] | None:
    """Return arena, offset, size and slot of what these stand for; None: they are malformed."""
    if all(len(payload) == _PART.size for payload in payloads):
        return list(_PART.iter_unpack(b"".join(payloads)))
    found = []
    for payload in payloads:
        if len(payload) == _PART.size:
            found.append(_PART.unpack(payload))
        elif len(payload) == _REFERENCE.size:
            arena, offset, size_bytes = _REFERENCE.unpack(payload)
            found.append((arena, offset, size_bytes, offset))
        else:
            return None
    return found
