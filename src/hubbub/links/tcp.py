"""HOT. The TCP link: pipes to nodes that were named by address, or found, or that called us.

Each node listens at a port that others can know (listening.py), and calls those it was told of
(dialling.py). Who is at the other end says so in a greeting of fixed size; then come records, each
a burst of frames (records.py). A connection that ends tells nothing about the process behind it,
which may live. All else is as with every pipe (pipes.py).
"""

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final
from zlib import crc32

from hubbub.errors import LinkError
from hubbub.links.allowing import AllowList, Refusals
from hubbub.links.compression import OFFERS, Codec, agree, make_codecs, offer, pack
from hubbub.links.dialling import Dialler, HostAndPort, IsNearby, Target
from hubbub.links.inlet import Received
from hubbub.links.listening import address_text
from hubbub.links.pipes import LISTENING, NO_ROOM, Buffers, Pipe, PipeLink, PipeStatistics
from hubbub.links.records import HEAD_BYTES, RecordReader, encode_head, encode_packed
from hubbub.links.tcp_options import TcpOptions
from hubbub.protocol.burst import FarPipes, Pipes
from hubbub.protocol.delivery import TCP
from hubbub.wire.header import KEY_BYTES

if TYPE_CHECKING:
    from hubbub.links.tls import TlsSession

_READ_BYTES: Final = 1 << 18
_READS_MAX: Final = 4  # Of so much, before other pipes have their turn.
_PACKED_READ_BYTES: Final = 1 << 14  # Where records are packed: some thousand times that comes out.
_KEPT_AT_ONCE: Final = 64
_GREETING: Final = struct.Struct(f"!4sBII{KEY_BYTES}s")
_MAGIC: Final = b"\xff\x04hu"
_VERSION: Final = 1
_TLS_HELLO: Final = b"\x16\x03"

# An end that nobody told of is found by the want of answers, as soon as a silent peer is: meanwhile
# what goes this way is stuck, though another way may be open.
_PATIENCE: Final = {
    "TCP_KEEPIDLE": 2,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 3_000,
}


@dataclass(frozen=True, slots=True)
class TcpStatistics(PipeStatistics):
    """The same of TCP, and where this node listens."""

    address: str
    calls: int
    """Peers that are called just now and have not answered yet."""
    found: int
    """Peers that nobody named, but others told of."""
    saved_bytes_out: int
    """What compression kept off the wire."""


class _TcpPipe(Pipe):
    """A connection to another host, or at least to another process."""

    __slots__ = ("codec", "greeting", "is_admitted", "place", "reader", "session", "target")

    def __init__(self, opened: socket.socket, target: Target | None) -> None:
        super().__init__(opened, is_ours=target is not None)
        self.target = target
        self.place = _place_of(opened)
        self.greeting = b""  # As far as it has come.
        self.session: TlsSession | None = None
        self.codec: Codec | None = None
        self.is_admitted = True  # Else its certificate must say that it may be here.
        self.reader = RecordReader()


class TcpLink(PipeLink[_TcpPipe]):
    """The pipes of one node on one channel to nodes anywhere."""

    name = TCP
    _has_heads = True

    def __init__(
        self, key: bytes, domain: int, channel: str, listener: socket.socket,
        peers: list[HostAndPort], random: Random, clock: Callable[[], int], scope: int = 0,
        options: TcpOptions | None = None,
    ) -> None:  # fmt: skip
        options = options or TcpOptions()
        self._tls = options.make_tls()
        self._allowed = AllowList(options.allow)
        self.refusals = Refusals()
        self._codecs = make_codecs(options.compress)
        self._saved_bytes_out = 0
        place = crc32(channel.encode())
        super().__init__(key, _GREETING.pack(_MAGIC, _VERSION, domain, place, key))
        version = _VERSION | offer(self._codecs)
        self._hello = _GREETING.pack(_MAGIC, version, domain, place, key)
        self._listener = listener
        self._clock = clock
        self.address_text = address_text(listener.getsockname())
        self.place: tuple[str, int] = listener.getsockname()[:2]
        self._epoll.register(listener, LISTENING)
        self._dialler = Dialler(peers, key, random, self._epoll, scope)

    @property
    def is_on_loopback(self) -> bool:
        """Tell whether nobody elsewhere can call us."""
        return ipaddress.ip_address(self._listener.getsockname()[0].partition("%")[0]).is_loopback

    # Beginning.

    def call_also(self, told: dict[HostAndPort, bytes], is_nearby: IsNearby) -> None:
        """Call those, too, of whom others tell, by address and key, unless they are nearby."""
        if not self._is_closed:
            self._dialler.is_nearby = is_nearby
            self._dialler.call_also(told)

    def advance(self, now: int) -> None:
        """Call who is due."""
        self._dialler.advance(now, self._pipes)

    def deadline(self) -> int | None:
        """Say when that is."""
        return self._dialler.deadline()

    def _begin(self, opened: socket.socket, target: Target | None) -> None:
        _set_up(opened)
        pipe = _TcpPipe(opened, target)
        reason = "there are too many already" if self._is_crowded() else self._doubt(pipe)
        if reason:
            self._refuse(pipe, reason)
            opened.close()
            if target is not None:
                self._dialler.retry(self._clock(), target)
            return
        if self._tls is not None:
            pipe.session = self._tls.begin(None if target is None else target.host)
        self._greet(pipe)

    def _doubt(self, pipe: _TcpPipe) -> str:
        """Say why somebody may not call us, as far as its address tells."""
        if pipe.target is not None or self._allowed.is_open:
            return ""
        pipe.is_admitted = self._allowed.has_network(pipe.place[0])
        return "" if pipe.is_admitted or self._allowed.names else "its address is not allowed"

    def _say_hello(self, pipe: _TcpPipe) -> None:
        if pipe.session is None:
            self._send_small(pipe, self._hello)
        else:
            self._shake_hands(pipe, b"")

    def _shake_hands(self, pipe: _TcpPipe, data: bytes) -> bytes | None:
        """Go on with a connection that must be sealed first; None: it must end."""
        assert pipe.session is not None
        try:
            data = pipe.session.take(data)
        except LinkError as error:
            self._refuse(pipe, str(error))
            self._send_small(pipe, pipe.session.seal())  # It shall know why.
            return None
        if pipe.session.is_open and not pipe.is_admitted:
            names = pipe.session.names()
            if not self._allowed.has_name(names):
                self._refuse(pipe, f"its certificate of {', '.join(sorted(names))} is not allowed")
                return None
            pipe.is_admitted = True
        greeting = self._hello if pipe.session.is_open else b""
        self._send_small(pipe, pipe.session.seal(greeting))
        return data

    def _unseal(self, pipe: _TcpPipe, data: bytes) -> bytes | None:
        """Return what came as it was before it was sealed; None: the connection must end."""
        assert pipe.session is not None
        if not pipe.session.is_open:
            return self._shake_hands(pipe, data)
        try:
            return pipe.session.take(data)
        except LinkError as error:
            self._refuse(pipe, str(error))
            return None

    def _send_small(self, pipe: _TcpPipe, data: bytes) -> None:
        """Send the first bytes of a connection, for which there is always room."""
        with contextlib.suppress(OSError):
            pipe.socket.send(data)

    def _refuse(self, pipe: _TcpPipe, reason: str) -> None:
        super()._refuse(pipe, reason)
        self.refusals.note(self._clock(), *pipe.place, reason)

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            opened.setblocking(False)
            self._begin(opened, None)

    def _make_source(self, pipe: _TcpPipe) -> Pipes:
        source = FarPipes((pipe.key,))
        source.place = address_text(pipe.place) if pipe.place[1] else "gone"
        return source

    def _hear_greeting(self, pipe: _TcpPipe, data: bytes) -> bytes | None:
        """Take the first bytes of a connection; return what follows them, None if it must end."""
        heard, size = pipe.greeting + data, len(self._greeting)
        common = self._greeting[:-KEY_BYTES]
        plain, offered = _split_offer(heard[:size])
        if not common.startswith(plain[: len(common)]):
            # At once: who speaks another language may wait for an answer.
            self._refuse(pipe, _explain(heard))
            return None
        if len(heard) < size:
            pipe.greeting = heard
            return b""
        pipe.greeting = b""
        if pipe.target is not None:
            self._dialler.met(pipe.target, heard[size - KEY_BYTES : size])
        pipe.codec = agree(self._codecs, offered)
        pipe.reader.unpack = None if pipe.codec is None else pipe.codec.unpack
        return heard[size:] if self._identify(pipe, plain) else None

    # Sending.

    def _head(self, buffers: Buffers, segment_bytes: int) -> bytes:
        return encode_head(sum(map(len, buffers)), segment_bytes)

    def _pack(self, pipe: _TcpPipe, buffers: Buffers) -> Buffers:
        if pipe.codec is None and pipe.session is None:
            return buffers
        record = b"".join(buffers)
        if pipe.codec is not None:
            record = self._make_smaller(pipe.codec, record)
        return [record if pipe.session is None else pipe.session.seal(record)]

    def _make_smaller(self, codec: Codec, record: bytes) -> bytes:
        packed = pack(codec, record[HEAD_BYTES:])
        if packed is None:
            return record
        smaller = encode_packed(record, packed)
        self._saved_bytes_out += len(record) - len(smaller)
        return smaller

    def _transmit(self, pipe: _TcpPipe, buffers: Buffers) -> int | None:
        buffers = self._pack(pipe, buffers)
        sent_bytes = super()._transmit(pipe, buffers)
        if sent_bytes is not None and sent_bytes < sum(map(len, buffers)):
            # What has begun must be ended, whatever else waits.
            self._keep_all(pipe, b"".join(buffers)[sent_bytes:])
        return sent_bytes

    def _send_kept(self, pipe: _TcpPipe) -> bool:
        backlog = pipe.backlog
        while backlog:
            try:
                sent_bytes = pipe.socket.sendmsg(list(islice(backlog, _KEPT_AT_ONCE)))
            except OSError as error:
                if error.errno in NO_ROOM:
                    return False
                self._dropped += len(backlog)  # Its end is found by reading.
                backlog.clear()
                pipe.backlog_bytes = 0
                return True
            self._bytes_out += sent_bytes
            pipe.backlog_bytes -= sent_bytes
            while backlog and sent_bytes >= len(backlog[0]):
                sent_bytes -= len(backlog.popleft())
            if sent_bytes:
                backlog[0] = backlog[0][sent_bytes:]
        return True

    # Receiving.

    def receive(self) -> list[Received]:
        """Take some of what has come; `opened`, `closed` and `has_room` tell the rest."""
        received: list[Received] = []
        for fileno, events in self._epoll.poll(0):
            pipe = self._by_fileno.get(fileno)
            if pipe is not None:
                self._serve(pipe, events, received)
            elif fileno in self._dialler:
                answered = self._dialler.answered(self._clock(), fileno)
                if answered is not None:
                    self._begin(*answered)
            elif fileno == self._listener.fileno():
                self._accept()
        return received

    def _read(self, pipe: _TcpPipe, reads: int, received: list[Received]) -> bool:
        is_plain = pipe.codec is None
        size_bytes = _READ_BYTES if is_plain else _PACKED_READ_BYTES
        for _ in range(min(reads, _READS_MAX if is_plain else 1)):
            try:
                data: bytes | None = pipe.socket.recv(size_bytes)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            if pipe.session is not None:
                data = self._unseal(pipe, data)
            if not pipe.key and data is not None:
                data = self._hear_greeting(pipe, data)
            if data is None:
                return False
            self._bytes_in += len(data)
            self._latest = pipe
            for burst, segment_bytes in pipe.reader.feed(data):
                self._packets_in += 1
                received.append((burst, segment_bytes, pipe.source))
            if pipe.reader.fault:
                self._refuse(pipe, pipe.reader.fault)
                return False
        return True

    # Ending.

    def _end(self, pipe: _TcpPipe) -> None:
        super()._end(pipe)
        if pipe.key:
            self._dialler.missed(self._clock(), pipe.key)

    def _discard(self, pipe: _TcpPipe) -> None:
        super()._discard(pipe)
        target, pipe.target = pipe.target, None
        if target is not None:
            self._dialler.retry(self._clock(), target)

    def close(self) -> None:
        """Close every pipe and listen no more; a second call does nothing."""
        if not self._is_closed:
            self.abandon()

    def abandon(self) -> None:
        """Close the descriptors alone: in a forked child, whose parent goes on."""
        self._listener.close()
        self._dialler.close()
        super().abandon()

    def statistics(self) -> TcpStatistics:
        """Count what the pipes did."""
        return TcpStatistics(
            **asdict(super().statistics()),
            address=self.address_text,
            calls=self._dialler.calls,
            found=self._dialler.found,
            saved_bytes_out=self._saved_bytes_out,
        )


def _place_of(opened: socket.socket) -> tuple[str, int]:
    """Return where a connection leads; port 0: it has ended already."""
    try:
        host, port = opened.getpeername()[:2]
    except OSError:
        return "0.0.0.0", 0
    return host, port


def _split_offer(heard: bytes) -> tuple[bytes, int]:
    """Take out of a greeting, as far as it has come, what is offered in it."""
    at = len(_MAGIC)
    if len(heard) <= at:
        return heard, 0
    version = heard[at]
    return heard[:at] + bytes([version & ~OFFERS]) + heard[at + 1 :], version & OFFERS


def _explain(heard: bytes) -> str:
    """Say what is wrong with a greeting."""
    if heard.startswith(_TLS_HELLO):
        return "it speaks TLS, which is not asked for here"
    return "it is of another bus" if heard.startswith(_MAGIC) else "it speaks another language"


def _set_up(opened: socket.socket) -> None:
    """Send at once, and find out when nobody is there any more."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PATIENCE.items():
        if hasattr(socket, option):
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
