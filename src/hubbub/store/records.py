"""The records of a journal segment: values <-> bytes, no file, no clock.

A record is a head of 32 bytes and a body. The head says where in which segment it stands, and has a
checksum of its own, so that after a damaged record the next sound one is found by looking for a
head: what a payload happens to contain is never taken for one, as it cannot know the segment's id
and stands elsewhere. A run tells its whole topic, so that damage to one record never takes another
with it.

    head   4s magic, u8 kind, 3 x 0, u32 bytes of body, u32 id of the segment, u32 position,
           u32 synced, u32 crc of the body, u32 crc of the head before it
    BEGIN  u16 format, 16s recorder, u64 segment, u64 first offset, u64 first number, u64 time
    RUN    u64 offset, u64 first sequence, u64 received, u64 replayed, u32 count, u16 bytes of label
           label (msgpack: topic and link; then, where they are known, service, its epoch and hops),
           count x u32 length, count x u64 publish time, payloads
    SAMPLE u64 tick, u64 period, u64 epoch; then as RUN. The period is 0 where its slot has a sample
    CLOCK  as SAMPLE, but before what is as RUN i64 offset, i64 error of the clock, -1: not known
    ROW    msgpack: number, table, values
    END    u64 end offset, u64 end number; only a segment that was closed whole has it

`synced` is how many bytes of the segment were on the disk for certain when the record was written:
damage before it is rot, damage behind it may be a write that never ended. Everything is little
endian. Zeros are no record.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

MAGIC: Final = b"\xf4HbJ"
FORMAT: Final = 1
BEGIN: Final = 1
RUN: Final = 2
ROW: Final = 3
END: Final = 4
SAMPLE: Final = 5  # Only of older recordings.
CLOCK: Final = 6
KINDS: Final = (BEGIN, RUN, ROW, END, SAMPLE, CLOCK)
_SCANNED: Final = (RUN, ROW, SAMPLE, CLOCK)

_HEAD: Final = Struct("<4sB3xIIIII")
_U32: Final = Struct("<I")
_CRC: Final = _U32
_BEGIN: Final = Struct("<H16sQQQQ")
_RUN: Final = Struct("<QQQQIH")
_TIMINGS: Final = {SAMPLE: Struct("<QQQ"), CLOCK: Struct("<QQQqq")}
_END: Final = Struct("<QQ")
HEAD_BYTES: Final = _HEAD.size + _CRC.size
END_BYTES: Final = HEAD_BYTES + _END.size
ZEROS: Final = bytes(HEAD_BYTES)
_NOT_REPLAYED: Final = 0
# Payloads of at least so many bytes are written from where they lie; copying others is cheaper.
_APART_BYTES: Final = 16 << 10


class Topic(NamedTuple):
    """What messages belong to: a subject at one incarnation of a source."""

    subject: str
    source_name: str
    source_id: bytes
    incarnation: int
    schema_name: str
    schema_hash: int
    service: str = ""  # That it came by,
    epoch: int = 0  # and of that.
    hops: int = 0  # Gateways that it crossed.


class Timing(NamedTuple):
    """What a sample of a time-triggered topic was made for."""

    tick_ns: int  # 0: its producer has no ticks.
    period_ns: int  # 0: another sample has the slot already.
    epoch_ns: int  # The tick from which on slots are counted.
    clock_offset_ns: int = 0  # Of the clock that ticks are on, against the recorder's.
    clock_error_ns: int = -1  # How wrong that may be; -1: not known.


class Run(NamedTuple):
    """Consecutive messages of one topic, as they were received."""

    offset: int  # Of the first, in the recording.
    topic: Topic
    first: int  # Its sequence.
    payloads: list[bytes]
    published_ns: Sequence[int]
    received_ns: int
    link: str
    replayed_ns: int | None
    timing: Timing | None = None

    @property
    def end_offset(self) -> int:
        """Return the offset behind the last."""
        return self.offset + len(self.payloads)


class PackedRun(NamedTuple):
    """A run whose messages are not taken apart: for those who handle very many of them at once."""

    offset: int
    topic: Topic
    first: int
    size: int  # In messages.
    lengths: bytes  # Each a little-endian u32,
    published_ns: bytes  # and each a u64.
    payloads: bytes  # One behind the other.
    received_ns: int
    link: str
    replayed_ns: int | None
    timing: Timing | None = None

    @property
    def end_offset(self) -> int:
        """Return the offset behind the last."""
        return self.offset + self.size

    def part(self, begin: int, end: int, payloads: bytes) -> "PackedRun":
        """Take some of the messages, by their places; these are their payloads."""
        return self._replace(
            offset=self.offset + begin, first=self.first + begin, size=end - begin,
            lengths=self.lengths[4 * begin : 4 * end],
            published_ns=self.published_ns[8 * begin : 8 * end],
            payloads=payloads,
        )  # fmt: skip


class Row(NamedTuple):
    """One row of events, announcements or counters, without its recorder and number."""

    number: int
    table: str
    values: dict[str, Any]


class Begin(NamedTuple):
    """What a segment says of itself."""

    recorder: bytes
    number: int
    first_offset: int
    first_number: int
    created_ns: int


class End(NamedTuple):
    """Where a segment ended that was closed whole."""

    end_offset: int
    end_number: int


class Head(NamedTuple):
    """A sound head of a record."""

    kind: int
    size_bytes: int  # Of the body.
    segment_id: int
    position: int
    synced: int
    crc: int


Buffers = list[bytes]


def encode_record(
    kind: int, body: Sequence[bytes], segment_id: int, position: int, synced: int
) -> Buffers:
    """Put a head before the pieces of a body."""
    crc = 0
    for piece in body:
        crc = crc32(piece, crc)
    size = sum(map(len, body))
    head = _HEAD.pack(MAGIC, kind, size, segment_id, position, synced, crc)
    return [head + _CRC.pack(crc32(head)), *body]


class Chain:
    """Makes the records of one segment, each in its place."""

    def __init__(self, segment_id: int) -> None:
        self.segment_id = segment_id
        self.position = 0
        self.synced = 0

    def add(self, kind: int, body: Sequence[bytes]) -> Buffers:
        """Make the record that comes next."""
        record = encode_record(kind, body, self.segment_id, self.position, self.synced)
        self.position += sum(map(len, record))
        return record


def decode_head(data: bytes, at: int = 0) -> Head | None:
    """Read a head; None: there is no sound one."""
    if len(data) - at < HEAD_BYTES:
        return None
    magic, kind, size, segment_id, position, synced, crc = _HEAD.unpack_from(data, at)
    if magic != MAGIC or kind not in KINDS:
        return None
    if _CRC.unpack_from(data, at + _HEAD.size)[0] != crc32(data[at : at + _HEAD.size]):
        return None
    return Head(kind, size, segment_id, position, synced, crc)


def encode_begin(begin: Begin) -> Buffers:
    """Make the body of the first record of a segment."""
    return [_BEGIN.pack(FORMAT, *begin)]


def decode_begin(body: bytes) -> Begin | None:
    """Read the first record; None: it is of another format."""
    if len(body) != _BEGIN.size or _BEGIN.unpack(body)[0] != FORMAT:
        return None
    return Begin(*_BEGIN.unpack(body)[1:])


def encode_end(end: End) -> Buffers:
    """Make the body of the last record of a segment."""
    return [_END.pack(*end)]


def decode_end(body: bytes) -> End | None:
    """Read the last record."""
    return End(*_END.unpack(body)) if len(body) == _END.size else None


def encode_label(topic: Topic, link: str) -> bytes:
    """Make what all runs of a topic that come by one link have in common."""
    plain, further = topic[:_PLAIN], topic[_PLAIN:]
    return msgspec.msgpack.encode((*plain, link, *further) if any(further) else (*plain, link))


def encode_run(
    label: bytes,
    offset: int,
    first: int,
    payloads: Sequence[bytes],
    published_ns: Sequence[int],
    received_ns: int,
    replayed_ns: int | None = None,
    timing: Timing | None = None,
) -> Buffers:
    """Make the body of a run, or of a sample; payloads may be any objects that hold bytes."""
    count = len(payloads)
    lengths = [*map(len, payloads)]
    tables = [
        b"" if timing is None else _TIMINGS[CLOCK].pack(*timing),
        _RUN.pack(offset, first, received_ns, replayed_ns or _NOT_REPLAYED, count, len(label)),
        label,
        pack(f"<{count}I{count}Q", *lengths, *published_ns),
    ]
    if sum(lengths) < count * _APART_BYTES:
        return [b"".join((*tables, *payloads))]
    return [b"".join(tables), *payloads]


def encode_row(number: int, table: str, values: dict[str, Any]) -> Buffers:
    """Make the body of a row; values are what msgpack can say."""
    return [msgspec.msgpack.encode((number, table, values))]


Scanned = tuple[int, Run | PackedRun | Row]  # With the position behind it.


class Decoder:
    """Reads the bodies of one segment; remembers the labels it has seen, which repeat."""

    def __init__(self, *, is_packed: bool = False) -> None:
        self._is_packed = is_packed
        self._labels: dict[bytes, tuple[Topic, str]] = {}

    def decode(self, kind: int, body: bytes) -> Run | PackedRun | Row | Begin | End | None:
        """Read a body of the kind that its head told; None: it is malformed."""
        if kind == RUN:
            return self._decode_run(body)
        if kind in _TIMINGS:
            return self._decode_sample(kind, body)
        if kind == ROW:
            return _decode_row(body)
        return decode_begin(body) if kind == BEGIN else decode_end(body)

    def scan(self, window: bytes, start: int, segment_id: int) -> Iterator[Scanned]:
        """Read runs and rows that lie side by side in a window of a segment, while all is well.

        The first record that is not plainly sound ends it: whoever reads carefully may judge that.
        A run of one message is converted in 7 us, against 11 us if each record is read carefully.
        """
        at, size = 0, len(window)
        unpack, unpack_crc = _HEAD.unpack_from, _CRC.unpack_from
        while at + HEAD_BYTES <= size:
            magic, kind, length, found_id, position, _, crc = unpack(window, at)
            end = at + HEAD_BYTES + length
            if magic != MAGIC or kind not in _SCANNED or end > size:
                return
            if found_id != segment_id or position != start + at:
                return
            head_end = at + _HEAD.size
            body = window[at + HEAD_BYTES : end]
            if unpack_crc(window, head_end)[0] != crc32(window[at:head_end]) or crc32(body) != crc:
                return
            value: Run | PackedRun | Row | None
            if kind == RUN:
                value = self._decode_run(body)
            else:
                is_row = kind == ROW
                value = _decode_row(body) if is_row else self._decode_sample(kind, body)
            if value is None:
                return
            at = end
            yield start + end, value

    def _decode_run(self, body: bytes) -> Run | PackedRun | None:
        if len(body) < _RUN.size:
            return None
        offset, first, received_ns, replayed_ns, count, label_bytes = _RUN.unpack_from(body)
        tables = _RUN.size + label_bytes
        times = tables + 4 * count
        payloads_at = times + 8 * count
        if payloads_at > len(body):
            return None
        label = self._decode_label(body[_RUN.size : tables])
        lengths = (
            _U32.unpack_from(body, tables)
            if count == 1
            else unpack_from(f"<{count}I", body, tables)
        )
        if label is None or payloads_at + sum(lengths) != len(body):
            return None
        if self._is_packed:
            return PackedRun(
                offset, label[0], first, count, body[tables:times], body[times:payloads_at],
                body[payloads_at:], received_ns, label[1], replayed_ns or None,
            )  # fmt: skip
        published_ns = unpack_from(f"<{count}Q", body, times)
        ends = accumulate(lengths, initial=payloads_at)
        payloads = [body[begin:end] for begin, end in pairwise(ends)]
        return Run(
            offset,
            label[0],
            first,
            payloads,
            published_ns,
            received_ns,
            label[1],
            replayed_ns or None,
        )

    def _decode_sample(self, kind: int, body: bytes) -> Run | PackedRun | None:
        timing = _TIMINGS[kind]
        run = self._decode_run(body[timing.size :])
        return None if run is None else run._replace(timing=Timing(*timing.unpack_from(body)))

    def _decode_label(self, data: bytes) -> tuple[Topic, str] | None:
        label = self._labels.get(data)
        if label is None:
            try:
                is_long = data[:1] == _LONG_LABEL
                fields: tuple[Any, ...] = (_LABEL_FURTHER if is_long else _LABEL).decode(data)
            except msgspec.MsgspecError:
                return None
            topic = Topic(*fields[:_PLAIN], *fields[_PLAIN + 1 :])
            label = self._labels[data] = (topic, fields[_PLAIN])
        return label


_PLAIN: Final = 6  # So many fields every topic has; the link comes behind them.
_LABEL: Final = msgspec.msgpack.Decoder(tuple[str, str, bytes, int, str, int, str])
_LABEL_FURTHER: Final = msgspec.msgpack.Decoder(
    tuple[str, str, bytes, int, str, int, str, str, int, int]
)
_LONG_LABEL: Final = b"\x9a"  # An array of ten.
_ROW: Final = msgspec.msgpack.Decoder(tuple[int, str, dict[str, Any]])


def _decode_row(body: bytes) -> Row | None:
    try:
        return Row(*_ROW.decode(body))
    except msgspec.MsgspecError:
        return None
