"""HOT. What all links of pipes have in common: connections between two nodes, one for each pair.

Both ends say first who they are. Two nodes that connect to each other at the same moment keep one
connection, and both know which. Nobody waits in `send`: what a pipe does not take is kept for it up
to a bound and then dropped, which the protocol repairs like any loss, and no other pipe notices.

The caller serialises all methods but `receive` and `look`, which may run beside `send`; it calls
`sweep` now and then, because only where nobody sends may a socket be closed.
"""

import contextlib
import errno
import select
import socket
from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from hubbub.links.inlet import Received
from hubbub.protocol.burst import Pipes
from hubbub.wire.header import KEY_BYTES

PIPES_MAX: Final = 512
BACKLOG_BYTES_MAX: Final = 8 << 20  # Of one pipe, beyond what its socket holds.
GREETINGS_MAX: Final = 64  # Of connections that have not said yet who they are.
READS_MAX: Final = 16
LOOKS_MAX: Final = 5  # Who has not greeted by then never will.
_BUFFERS_MAX: Final = 1000
NO_ROOM: Final = (errno.EAGAIN, errno.ENOBUFS)

Buffers = list[bytes | memoryview]


class Closed(NamedTuple):
    """The end of a pipe, and whether it was the end of the process behind it, too."""

    key: bytes
    is_dead: bool


@dataclass(frozen=True, slots=True)
class PipeStatistics:
    """What the pipes of a node did since it was opened."""

    pipes: int
    packets_out: int
    bytes_out: int
    packets_in: int
    bytes_in: int
    backlog_bytes: int
    dropped: int
    """Bursts that a pipe had no room for, or ended before; repaired like any other loss."""
    refused: int
    """Connections that were not of this bus, or of another user."""


class Pipe:
    """One connection."""

    __slots__ = ("backlog", "backlog_bytes", "is_ours", "key", "looks", "socket", "source")

    def __init__(self, opened: socket.socket, *, is_ours: bool) -> None:
        self.socket = opened
        self.looks = 0  # How often we looked around before it said who it is.
        self.is_ours = is_ours  # We connected.
        self.key = b""  # Not known yet.
        self.source = Pipes()
        self.backlog: deque[bytes] = deque()
        self.backlog_bytes = 0

    def filenos(self) -> list[int]:
        """Name what is watched for this pipe."""
        return [self.socket.fileno()]

    def close(self) -> None:
        """Close what belongs to it."""
        self.socket.close()


P = TypeVar("P", bound=Pipe)


# Listening sockets are told of once, not as long as somebody waits there: where no descriptor is
# left to accept with, they would be told of for ever.
LISTENING: Final = select.EPOLLIN | select.EPOLLET


class PipeLink(Generic[P]):
    """The pipes of one node on one channel, of one kind."""

    name = ""
    address_text = "this host"  # Where others reach us.
    _has_heads = False  # Whether a single frame needs a head, too.

    def __init__(self, key: bytes, greeting: bytes) -> None:
        self._key = key
        self._greeting = greeting  # The same for all of this bus, then our key.
        self._pipes: dict[bytes, P] = {}
        self._by_fileno: dict[int, P] = {}
        self._strangers: dict[int, P] = {}
        self._latest: P | None = None
        # Closed later, by who has the lock: a number that is free again could be another socket's.
        self._ended: list[P] = []
        # Where pipes lead that the caller has not heard of yet, and keys of those that ended.
        self.opened: deque[Pipes] = deque()
        self.closed: deque[Closed] = deque()
        self.has_room = False  # A pipe that had none takes data again: call `flush`.
        self._packets_out = self._bytes_out = self._packets_in = self._bytes_in = 0
        self._dropped = self._refused = 0
        self._is_closed = False
        self._epoll = select.epoll()

    def fileno(self) -> int:
        """Return the descriptor that is readable when anything is to be done."""
        return self._epoll.fileno()

    @property
    def everybody(self) -> Pipes:
        """Return all who have a pipe to us."""
        return Pipes(self._pipes)

    def leads_to(self, key: bytes) -> bool:
        """Tell whether a pipe leads to a node."""
        return key in self._pipes

    def source_of(self, key: bytes) -> Pipes | None:
        """Name where frames of a node come from that a pipe leads to."""
        pipe = self._pipes.get(key)
        return None if pipe is None else pipe.source

    # Beginning.

    def advance(self, now: int) -> None:
        """Do what is due."""

    def deadline(self) -> int | None:
        """Say when that is."""
        return None

    def look_around(self) -> None:
        """Once a second: look after connections that have not begun yet."""
        self._let_strangers_go()
        self._accept()  # Whom we had no descriptor for.

    def _accept(self) -> None:
        """Take in everybody who has connected to us."""
        raise NotImplementedError

    def receive(self) -> list[Received]:
        """Take some of what has come; `opened`, `closed` and `has_room` tell the rest."""
        raise NotImplementedError

    def close(self) -> None:
        """Close every pipe and listen no more."""
        raise NotImplementedError

    def _is_crowded(self) -> bool:
        return len(self._by_fileno) >= PIPES_MAX or len(self._strangers) >= GREETINGS_MAX

    def _greet(self, pipe: P) -> None:
        """Begin with a connection: say who we are, and wait to hear who is there."""
        self._strangers[pipe.socket.fileno()] = pipe
        for fileno in pipe.filenos():
            self._by_fileno[fileno] = pipe
            self._epoll.register(fileno, select.EPOLLIN)
        self._say_hello(pipe)

    def _say_hello(self, pipe: P) -> None:
        """Send our greeting, or what must go before it."""
        with contextlib.suppress(OSError):
            pipe.socket.send(self._greeting)

    def _identify(self, pipe: P, greeting: bytes) -> bool:
        """Take the greeting of a connection; False: it is not of this bus, or one too many."""
        self._strangers.pop(pipe.socket.fileno(), None)
        size = len(self._greeting)
        if len(greeting) < size or not greeting.startswith(self._greeting[:-KEY_BYTES]):
            self._refuse(pipe, "it is of another bus")
            return False
        key = greeting[size - KEY_BYTES : size]
        other = self._pipes.get(key)
        is_surplus = other is not None and not self._is_preferred(pipe, key)
        if key == self._key or is_surplus or not self._is_welcome(key):
            return False
        pipe.key = key
        pipe.source = self._make_source(pipe)
        self._pipes[key] = pipe
        if other is None:
            self.opened.append(pipe.source)
        else:
            self._discard(other)
        return True

    def _is_welcome(self, key: bytes) -> bool:
        """Tell whether this node may be at the other end."""
        return True

    def _make_source(self, pipe: P) -> Pipes:
        """Name where frames come from that a pipe brings."""
        return Pipes((pipe.key,))

    def _is_preferred(self, pipe: P, key: bytes) -> bool:
        """Tell which of two connections stays, if both nodes connected at the same moment."""
        return pipe.is_ours == (self._key < key)

    def _let_strangers_go(self) -> None:
        """End with those who have not said who they are for too long."""
        for stranger in list(self._strangers.values()):
            stranger.looks += 1
            if stranger.looks > LOOKS_MAX:
                self._refuse(stranger, "it did not say who it is")
                self._discard(stranger)

    def _refuse(self, pipe: P, reason: str) -> None:
        """Count a connection that is not wanted."""
        self._refused += 1

    # Sending.

    def send(self, destination: Pipes, buffers: Buffers, segment_bytes: int) -> None:
        """Send a burst by the pipes to these nodes; one that is gone is no more."""
        if segment_bytes or self._has_heads:
            buffers = [self._head(buffers, segment_bytes), *buffers]
        if len(buffers) > _BUFFERS_MAX:
            buffers = [b"".join(buffers)]
        for key in destination:
            pipe = self._pipes.get(key)
            if pipe is None:
                self._dropped += 1
            elif pipe.backlog:
                self._keep(pipe, buffers)
            else:
                self._transmit(pipe, buffers)

    def _head(self, buffers: Buffers, segment_bytes: int) -> bytes:
        """Make what goes before a burst."""
        raise NotImplementedError

    def _transmit(self, pipe: P, buffers: Buffers) -> int | None:
        """Send now and return how many bytes went; None: all of it is kept, or lost."""
        try:
            sent_bytes = pipe.socket.sendmsg(buffers)
        except OSError as error:
            if error.errno in NO_ROOM:
                self._keep_all(pipe, b"".join(buffers))
            else:
                self._dropped += 1  # Its end is found by reading.
            return None
        self._packets_out += 1
        self._bytes_out += sent_bytes
        return sent_bytes

    def _keep(self, pipe: P, buffers: Buffers) -> None:
        if pipe.backlog_bytes + sum(map(len, buffers)) > BACKLOG_BYTES_MAX:
            self._dropped += 1
            return
        self._keep_all(pipe, b"".join(self._pack(pipe, buffers)))

    def _pack(self, pipe: P, buffers: Buffers) -> Buffers:
        """Make of a burst what goes by a pipe; from then on it must go, and in this order."""
        return buffers

    def _keep_all(self, pipe: P, packet: bytes) -> None:
        if not pipe.backlog:
            self._watch(pipe, select.EPOLLIN | select.EPOLLOUT)
        pipe.backlog.append(packet)
        pipe.backlog_bytes += len(packet)

    def flush(self) -> None:
        """Send what was kept for pipes that take data again."""
        self.has_room = False
        for pipe in list(self._pipes.values()):
            if pipe.backlog and not self._send_kept(pipe):
                self._watch(pipe, select.EPOLLIN | select.EPOLLOUT)

    def _send_kept(self, pipe: P) -> bool:
        """Send what was kept for a pipe; False: there is no room again."""
        raise NotImplementedError

    def _watch(self, pipe: P, events: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._epoll.modify(pipe.socket, events)

    # Receiving.

    def look(self) -> list[Received]:
        """Read once where something came last."""
        received: list[Received] = []
        pipe = self._latest
        if pipe is not None and not self._read(pipe, 1, received):
            self._end(pipe)
        return received

    def _serve(self, pipe: P, events: int, received: list[Received]) -> None:
        """Do what a poll says of a pipe."""
        if events & select.EPOLLOUT:
            self._watch(pipe, select.EPOLLIN)
            self.has_room = True
        if events & ~select.EPOLLOUT and not self._read(pipe, READS_MAX, received):
            self._end(pipe)

    def _read(self, pipe: P, reads: int, received: list[Received]) -> bool:
        """Read at most so many times; False: the pipe has ended."""
        raise NotImplementedError

    # Ending.

    def _end(self, pipe: P) -> None:
        """End with a pipe that is no more."""
        if self._pipes.get(pipe.key) is pipe:
            del self._pipes[pipe.key]
            self.closed.append(Closed(pipe.key, False))
        self._discard(pipe)

    def _discard(self, pipe: P) -> None:
        if self._latest is pipe:
            self._latest = None
        for fileno in pipe.filenos():
            if self._by_fileno.pop(fileno, None) is not None:
                self._strangers.pop(fileno, None)
                with contextlib.suppress(OSError, ValueError):
                    self._epoll.unregister(fileno)
        self._ended.append(pipe)

    @property
    def has_ended(self) -> bool:
        """Tell whether anything waits to be closed."""
        return bool(self._ended)

    def sweep(self) -> None:
        """Close what has ended; under the lock under which `send` is called."""
        while self._ended:
            self._ended.pop().close()

    def abandon(self) -> None:
        """Close the descriptors alone: in a forked child, whose parent goes on."""
        self._is_closed = True
        self.sweep()
        for pipe in set(self._by_fileno.values()):
            pipe.close()
        self._pipes.clear()
        self._by_fileno.clear()
        self._strangers.clear()
        self._latest = None
        self._epoll.close()

    def statistics(self) -> PipeStatistics:
        """Count what the pipes did."""
        pipes = list(self._pipes.values())
        return PipeStatistics(
            pipes=len(pipes),
            packets_out=self._packets_out,
            bytes_out=self._bytes_out,
            packets_in=self._packets_in,
            bytes_in=self._bytes_in,
            backlog_bytes=sum(pipe.backlog_bytes for pipe in pipes),
            dropped=self._dropped,
            refused=self._refused,
        )
