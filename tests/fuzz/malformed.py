"""Malformed datagrams that know the format: random ones, bent ones, cut ones, and liars.

Random bytes die at the magic number, so most are made from frames of a real conversation or built
by grammar. Each is sent twice: as it is, and as an insider would send it, with a right checksum.
"""

from collections.abc import Callable, Iterator
from random import Random
from struct import pack
from typing import NamedTuple
from zlib import crc32

from hubbub.limits import MESSAGE_BYTES_MAX, MISSING_FRAMES_MAX, NAK_BITMAP_BITS_MAX
from hubbub.wire import batch, control, header, timed
from hubbub.wire.control import (
    Change,
    Goodbye,
    Grant,
    GrantedStream,
    Heartbeat,
    Hello,
    Lost,
    Publication,
    Step,
    Tail,
    Topic,
)
from hubbub.wire.header import CHECKSUM_OFFSET, HEADER_BYTES

EDGES = [0, 1, 2, 15, 16, 17, 255, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 2, 2**64 - 1]
SUBJECTS = [
    "/a/b",
    "/a/large",
    "/victim/x",
    "",
    "no slash",
    "/a//b",
    "/*",
    "/\x1b[2J",
    "/" + "x" * 1100,
]
PATTERNS = ["/...", "/a/*", "/victim/x", "", "/.../x", "x", "/a/\x00", "/" + "y/" * 80]
KINDS = [*header.KIND_NAMES, 0, 13, 21, 24, 32, 255]


class Target(NamedTuple):
    """What an attacker knows of its victim: enough to be taken for a peer of it."""

    key: bytes
    domain: int
    known: list[bytes]  # The keys of real peers.
    frames: dict[int, list[bytes]]  # What those have sent, by kind.
    next_frame: int  # About where their streams are.
    version: int  # Of the victim's interest.


class Attacker:
    """Makes datagrams for one victim."""

    def __init__(self, random: Random, target: Target) -> None:
        self.random = random
        self.target = target
        # A few strangers come again and again, so that their state grows, too.
        self.strangers = [random.randbytes(header.KEY_BYTES) for _ in range(5)]
        self.builders: dict[int, Callable[[], bytes]] = {
            header.DATA: self._data,
            header.SEGMENT: self._segment,
            header.HEARTBEAT: self._heartbeat,
            header.STATUS: self._status,
            header.NAK: self._nak,
            header.SKIP: self._skip,
            header.LOST: self._lost,
            header.HELLO: self._hello,
            header.WANT: lambda: control.encode(control.Want(self._key())),
            header.GRANT: self._grant,
            header.GOODBYE: self._goodbye,
            header.CHANGE: self._change,
            header.INTEREST: self._interest,
            header.RESPONSE: self._response,
            header.OFFER: self._offer,
            header.DIRECT: self._direct,
            header.CLOCK: self._clock,
        }

    def datagrams(self) -> Iterator[bytes]:
        """Make datagrams without end, each as it is and with a right checksum."""
        makers = [self.random_bytes, self.flipped, self.flipped, self.cut, self.built]
        while True:
            datagram = self.random.choice(makers)()
            yield datagram
            if len(datagram) >= HEADER_BYTES:
                yield self.correct(datagram)

    def random_bytes(self) -> bytes:
        """Make noise, now and then behind a sound header."""
        size = self.random.choice([0, 1, 69, 70, 71, 100, 1400, self.random.randrange(3000)])
        noise = self.random.randbytes(size)
        if self.random.random() < 0.5:
            return noise
        return self._header(self.random.choice(KINDS)) + noise

    def flipped(self) -> bytes:
        """Flip one to eight bits of a real frame."""
        frame = bytearray(self._real())
        for _ in range(self.random.randint(1, 8)):
            frame[self.random.randrange(len(frame))] ^= 1 << self.random.randrange(8)
        return bytes(frame)

    def cut(self) -> bytes:
        """Cut a real frame short, or add to it."""
        frame = self._real()
        if self.random.random() < 0.7:
            return frame[: self.random.randrange(len(frame))]
        return frame + self.random.randbytes(self.random.choice([1, 2, 70, 500]))

    def built(self) -> bytes:
        """Build a frame by grammar, with values at the edges and counts that may lie."""
        kind = self._kind(list(self.builders))
        body = bytearray(self.builders[kind]())
        if body and self.random.random() < 0.3:
            at = self.random.randrange(min(len(body), 40))
            body[at : at + 2] = self.random.choice([b"\xff\xff", b"\x00\x00", b"\x00\x01"])
        return self._header(kind) + bytes(body)

    def correct(self, datagram: bytes) -> bytes:
        """Return the datagram as an insider would send it."""
        frame = bytearray(datagram)
        if self.random.random() < 0.9:
            frame[0:3] = pack("!HB", header.MAGIC, header.VERSION)
            frame[4] &= 0xFF
            frame[5] &= ~header.SEALED & 0xFF
            frame[10:14] = pack("!I", self.target.domain)
        if self.random.random() < 0.5:
            frame[14:34] = self._sender()
        checksum = crc32(frame[HEADER_BYTES:], crc32(frame[:CHECKSUM_OFFSET]))
        frame[CHECKSUM_OFFSET:HEADER_BYTES] = pack("!I", checksum)
        return bytes(frame)

    def _real(self) -> bytes:
        return self.random.choice(self.target.frames[self._kind(list(self.target.frames))])

    def _kind(self, kinds: list[int]) -> int:
        # A farewell is seldom, because little can be tried on one who has left.
        weights = [0.02 if kind == header.GOODBYE else 1 for kind in kinds]
        return self.random.choices(kinds, weights)[0]

    def _sender(self) -> bytes:
        draw = self.random.random()
        if draw < 0.75:
            return self.random.choice(self.target.known)
        if draw < 0.97:
            return self.random.choice(self.strangers)
        if draw < 0.98:
            return self.target.key
        return self.random.randbytes(header.KEY_BYTES)

    def _header(self, kind: int) -> bytes:
        flags = self.random.choice([0, header.ASK, header.REPAIR, header.DECLARES, header.REFUSES])
        stream = self.random.choice([0, 1, 1, 1, 2, 3, 77, 0xFFFF])
        shared = header.prefix(kind, flags, stream, self.target.domain, self._sender(), 8)
        return header.finish(shared, self._frame_number(), 1, 1, b"")

    def _edge(self, bits: int) -> int:
        return self.random.choice(EDGES) & ((1 << bits) - 1)

    def _frame_number(self) -> int:
        if self.random.random() < 0.2:
            return self._edge(64)
        return max(0, self.target.next_frame + self.random.randint(-20, 60))

    def _key(self) -> bytes:
        return self.random.choice([self.target.key, self.target.key, *self.target.known])

    def _number(self) -> int:
        return self.random.choice([16, 16, 17, 18, self._edge(32), self.random.randrange(10**6)])

    def _ranges(self) -> list[control.Range]:
        count = self.random.choice([0, 1, 2, 10, 80])
        lengths = [1, 2, 100]
        if self.random.random() < 0.3:
            lengths += [MISSING_FRAMES_MAX, self._edge(32)]
        return [(self._frame_number(), self.random.choice(lengths)) for _ in range(count)]

    def _runs(self) -> list[batch.Run]:
        count = self.random.choice([0, 1, 1, 2, 5, 40])
        return [
            (self._number(), self._frame_number(), self.random.choice([0, 1, 1, 2, self._edge(32)]))
            for _ in range(count)
        ]

    def _topics(self) -> list[Topic]:
        return [
            Topic(
                self._number(),
                self.random.choice([0, 1, 1, 3, 9]),
                self.random.choice(SUBJECTS),
                self._frame_number(),
                "T",
                self._edge(64),
            )
            for _ in range(self.random.choice([0, 1, 1, 3]))
        ]

    def _data(self) -> bytes:
        runs = [(topic, first, min(count, 5)) for topic, first, count in self._runs()]
        total = sum(count for _, _, count in runs)
        payloads = [self.random.randbytes(self.random.choice([0, 1, 20])) for _ in range(total)]
        declarations = control.encode_declarations(self._topics())
        runs = runs or [(16, 1, 1)]
        payloads = payloads or [b"x"]
        return batch.encode(runs, payloads, [self._edge(64)] * len(payloads), declarations)

    def _segment(self) -> bytes:
        stride = self.random.choice([1000, 1000, 256, 1, self._edge(32)])
        total = self.random.choice([3000, 2_000_000, MESSAGE_BYTES_MAX, self._edge(64)])
        offset = self.random.choice([0, stride, 2 * stride, self._edge(64)]) & (2**64 - 1)
        head = batch.encode_segment_head(
            self._number(), self._frame_number(), self._edge(64), total, offset, stride
        )
        return head + bytes(self.random.choice([stride & 0x7FF, 1000, 0]))

    def _heartbeat(self) -> bytes:
        tails = [
            Tail(self.random.choice([1, 3, 9]), self._frame_number(), self._edge(16), True)
            for _ in range(self.random.choice([0, 1, 2, 255]))
        ]
        index = self.random.choice([-32_768, -2, -1, 0, 5, 63, 64, 32_767])
        return control.encode_heartbeat(Heartbeat(self._edge(64), self._edge(32), tails, index))

    def _status(self) -> bytes:
        first, second = sorted([self._frame_number(), self._frame_number()])
        return control.encode_status(
            control.Status(
                self._key(),
                self.random.choice([0, 0, 1, self._edge(32)]),
                self._edge(64),
                first,
                second,
                self._edge(32),
                self._edge(32),
                self._edge(32),
            )
        )

    def _nak(self) -> bytes:
        if self.random.random() < 0.5:
            return control.encode_skip(self._key(), self._ranges())
        size = self.random.choice([0, 1, 100, 1300, NAK_BITMAP_BITS_MAX // 8, 60_000])
        head = pack("!20sBQH", self._key(), 1, self._frame_number(), size)
        return head + self.random.randbytes(size if self.random.random() < 0.8 else 5)

    def _skip(self) -> bytes:
        return control.encode_skip(self._key(), self._ranges())

    def _lost(self) -> bytes:
        reason = self.random.choice(control.LOST_REASONS)
        return control.encode_lost(Lost(self._key(), reason, self._ranges(), self._runs()))

    def _hello(self) -> bytes:
        parts = self.random.choice([1, 1, 1, 2, self._edge(16)])
        return control.encode(
            Hello(
                self.random.choice(["peer", "", "\x1b[31m", "n" * 2000]),
                "host",
                self._edge(32),
                self.random.choice(["default", "default", "other"]),
                self._edge(64),
                self.random.choice([0, 0, 1, self._edge(16)]),
                parts,
                self.random.choices(PATTERNS, k=self.random.choice([0, 1, 3, 50])),
                self._edge(32),
                [self._edge(32)],
                self.random.random() < 0.5,
                version=self.random.choice([0, 1, 2, self._edge(64)]),
                publications=[
                    Publication(
                        subject[:1024],
                        self.random.choice([1, 3, self._edge(16)]),
                        "t",
                        self._edge(64),
                        self._edge(64),
                    )
                    for subject in self.random.choices(SUBJECTS, k=self.random.choice([0, 1, 5]))
                ],
                index=self.random.choice([-(2**40), -2, -1, 0, 5, 63, 64, 2**16, 2**40]),
                release=self.random.choice(["", "0.1.0", "\x1b[31m", "9" * 2000]),
                uptime_s=self._edge(32),
            )
        )

    def _change(self) -> bytes:
        names = self.random.choices(PATTERNS + SUBJECTS, k=self.random.choice([0, 1, 3, 50]))
        return control.encode(
            Change(
                self.random.choice([0, 1, 2, 5, self._edge(64)]),
                [
                    Step(self.random.choice([1, 2, 3, 4, 5, self._edge(16)]), name, 1)
                    for name in names
                ],
            )
        )

    def _grant(self) -> bytes:
        streams = [
            GrantedStream(
                self.random.choice([1, 1, 3, 0, self._edge(16)]),
                self._frame_number(),
                self._edge(32),
                self.random.random() < 0.9,
            )
            for _ in range(self.random.choice([0, 1, 2, 40]))
        ]
        version = self.random.choice([self.target.version, self.target.version, self._edge(64)])
        return control.encode(
            Grant(
                self._key(),
                self.random.choice([0, 0, 1, self._edge(32)]),
                self.random.random() < 0.3,
                version,
                self.random.choice([0, 0, self._edge(16)]),
                self.random.choice([1, 1, 2, self._edge(16)]),
                self._edge(32),
                streams,
                self._topics(),
            )
        )

    def _node(self) -> bytes:
        return self._key()[:12]

    def _type(self) -> int:
        return self.random.choice([0, 1, 1, 2, 3, self._edge(32)])

    def _interest(self) -> bytes:
        periods = [0, 1, 1000, 33_000, 100_000, self._edge(40), self._edge(64)]
        wants = [
            timed.Wanted(self._edge(16), self.random.choice(periods), self._edge(64), 0)
            for _ in range(self.random.choice([0, 1, 1, 3, 64, 65]))
        ]
        return timed.encode_timed(
            timed.Interest(
                self._node(), self._edge(16), self.random.choice([0, 0, 1, 9]), self._type(),
                self._edge(8), self._edge(64), self._edge(40), self.random.choice([0, 0, 1, 2, 3]),
                self._edge(32), wants, self.random.choice(SUBJECTS),
            )
        )  # fmt: skip

    def _response(self) -> bytes:
        return timed.encode_response(
            timed.Response(
                self._node() + self.random.randbytes(2), self.random.choice([0, 0, 0, 1, 9]),
                self._type(), self._edge(8), self._edge(8), self._edge(16), self._edge(64),
                self._edge(64), self._edge(64), self._edge(36), b"21.5",
                self.random.randbytes(self.random.choice([0, 0, 7, 8])),
            )
        )  # fmt: skip

    def _offer(self) -> bytes:
        numbers = [self._edge(64) for _ in range(3)]
        return timed.encode_timed(
            timed.Offer(
                self._node(), self._edge(16), 0, self._type(), self._edge(8), self._edge(64), True,
                self.random.choice(SUBJECTS), self.random.choice([0, 1, 2, 3]), *numbers,
                self._edge(32), self._edge(64), self._edge(64),
            )
        )  # fmt: skip

    def _direct(self) -> bytes:
        size = self.random.choice([0, 1, 1024, 1025])
        return timed.encode_timed(
            timed.Direct(self._node(), self._edge(16), self._edge(16), self._node(), 1, bytes(size))
        )

    def _clock(self) -> bytes:
        numbers = [self._edge(64) for _ in range(3)]
        form, rank = self.random.choice([0, 1, 2]), self._edge(8)
        exchange = timed.ClockExchange(form, self._key(), rank, *numbers, self._edge(32))
        return timed.encode_clock(exchange)

    def _goodbye(self) -> bytes:
        ends = [
            (self.random.choice([1, 3, self._edge(16)]), self._frame_number())
            for _ in range(self.random.choice([0, 1, 2, 200]))
        ]
        return control.encode(Goodbye(ends))
