"""HOT. The local link: pipes between the nodes of one host, over UNIX sockets.

A node listens in the runtime directory of its user, under a name made of its domain, channel and
key. Who comes later connects to everybody it finds there, so that two nodes meet without a network,
and "the same host" is not a name but a connection. Both ends say first who they are. The sockets
are of the kind SOCK_SEQPACKET: in order, lossless, with the bounds of packets kept, and their end
tells at once that the other end has closed or died; a descriptor of the other process (pidfd) tells
these two apart, also where a forked child still holds the socket. It may do so a moment later.

A packet is a greeting, one frame as it is (which need not be copied then), a run of frames behind
a head that tells their size, or a note of the depot (depot.py), with or without a descriptor.
Nobody waits in `send`: what a pipe does not take is kept for it up to a bound and then dropped,
which the protocol repairs like any loss, and no other pipe notices.

The caller serialises all methods but `receive` and `look`, which may run beside `send`; it calls
`sweep` now and then, because only where nobody sends may a socket be closed.
"""

import contextlib
import errno
import os
import select
import socket
import struct
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from hubbub.errors import LinkError
from hubbub.links.inlet import Received
from hubbub.protocol.burst import Pipes
from hubbub.wire.header import KEY_BYTES

PIPES_MAX: Final = 512
BACKLOG_BYTES_MAX: Final = 8 << 20  # Of one pipe, beyond what its socket holds.
GREETINGS_MAX: Final = 64  # Of connections that have not said yet who they are.
READS_MAX: Final = 16
_PACKET_BYTES: Final = 1 << 16
_BUFFER_BYTES: Final = 8 << 20
_BUFFERS_MAX: Final = 1000
_DOUBTFUL_MAX: Final = 64
_LOOKS_MAX: Final = 5  # Who has not greeted by then never will.
_PATH_BYTES_MAX: Final = 107

_RUN: Final = struct.Struct("!HH")  # A mark, and the size of each frame but the last.
_IS_RUN: Final = 0xFF01
_MARK: Final = 0xFF  # No frame begins so.
_IS_NOTE: Final = b"\xff\x03"
_GREETING: Final = struct.Struct(f"!4sBII{KEY_BYTES}s")
_MAGIC: Final = b"\xff\x02hu"
_VERSION: Final = 1
_DESCRIPTOR_BYTES: Final = socket.CMSG_SPACE(4)
_CREDENTIALS: Final = struct.Struct("3i")
_INT: Final = struct.Struct("i")
_NO_ROOM: Final = (errno.EAGAIN, errno.ENOBUFS)


def is_supported() -> bool:
    """Tell whether this system has what pipes need."""
    return hasattr(socket, "SO_PEERCRED") and hasattr(select, "epoll")


def runtime_directory() -> Path:
    """Return where the nodes of this user meet, made if need be; nobody else may enter."""
    chosen = os.environ.get("HUBBUB_RUNTIME_DIR")
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if chosen:
        directory = Path(chosen)
    elif base and os.path.isdir(base):
        directory = Path(base, "hubbub")
    else:
        directory = Path(f"/tmp/hubbub-{os.getuid()}")
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise LinkError(f"no runtime directory {directory}: {error.strerror}") from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not directory.is_dir():
        raise LinkError(
            f"{directory} must be a directory of this user that nobody else may enter (mode 0700)"
        )
    return directory


class Note(NamedTuple):
    """What a peer's depot says to ours."""

    key: bytes
    text: bytes
    fileno: int | None  # Who takes the note closes it.


class Closed(NamedTuple):
    """The end of a pipe, and whether it was the end of the process behind it, too."""

    key: bytes
    is_dead: bool


@dataclass(frozen=True, slots=True)
class LocalStatistics:
    """What the pipes of a node did since it was opened."""

    pipes: int
    packets_out: int
    bytes_out: int
    packets_in: int
    bytes_in: int
    backlog_bytes: int
    dropped: int
    """Bursts that a pipe had no room for; they are repaired like any other loss."""
    refused: int
    """Connections that were not of this bus, or of another user."""


class _Pipe:
    """One connection."""

    __slots__ = (
        "backlog", "backlog_bytes", "is_ours", "key", "looks", "pidfd", "socket", "source",
    )  # fmt: skip

    def __init__(self, opened: socket.socket, pid: int, *, is_ours: bool) -> None:
        self.socket = opened
        self.looks = 0  # How often we looked around before it said who it is.
        self.pidfd = _open_process(pid)
        self.is_ours = is_ours  # We connected.
        self.key = b""  # Not known yet.
        self.source = Pipes()
        self.backlog: deque[bytes] = deque()
        self.backlog_bytes = 0

    def close(self) -> None:
        self.socket.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class LocalLink:
    """The pipes of one node on one channel."""

    name: Final = "local"

    def __init__(self, key: bytes, domain: int, channel: str, directory: Path) -> None:
        self._key = key
        self._place = crc32(channel.encode())
        self._domain = domain
        self._directory = directory
        self._prefix = f"{domain:08x}{self._place:08x}-"
        self._path = self._path_of(key)
        self._greeting = _GREETING.pack(_MAGIC, _VERSION, domain, self._place, key)
        self._pipes: dict[bytes, _Pipe] = {}
        self._by_fileno: dict[int, _Pipe] = {}
        self._strangers: dict[int, _Pipe] = {}
        self._latest: _Pipe | None = None
        self._doubtful: dict[int, bytes] = {}  # Processes whose pipe ended, and its key.
        # Closed later, by who has the lock: a number that is free again could be another socket's.
        self._ended: list[_Pipe] = []
        self.opened: deque[bytes] = deque()  # Keys of pipes that the caller has not heard of yet,
        self.closed: deque[Closed] = deque()  # and of those that ended.
        self.notes: deque[Note] = deque()
        self.has_room = False  # A pipe that had none takes data again: call `flush`.
        self._packets_out = self._bytes_out = self._packets_in = self._bytes_in = 0
        self._dropped = self._refused = 0
        self._is_closed = False
        self._epoll = select.epoll()
        self._listener = self._listen()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._connect_to_all()

    def fileno(self) -> int:
        """Return the descriptor that is readable when anything is to be done."""
        return self._epoll.fileno()

    def _listen(self) -> socket.socket:
        if len(os.fsencode(self._path)) > _PATH_BYTES_MAX:
            raise LinkError(f"{self._path} is too long for the name of a UNIX socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        hidden = self._path.with_name(f".{self._key.hex()}{os.getpid()}")
        try:
            listener.setblocking(False)
            listener.bind(str(hidden))
            os.chmod(hidden, 0o600)
            listener.listen(PIPES_MAX)
            os.rename(hidden, self._path)  # Only now: who finds it can connect.
        except OSError as error:
            listener.close()
            with contextlib.suppress(OSError):
                os.unlink(hidden)
            raise LinkError(f"cannot listen in {self._directory}: {error.strerror}") from None
        return listener

    def _connect_to_all(self) -> None:
        """Connect to everybody who is here before us."""
        for key in self._neighbours():
            self._connect(key)

    def look_around(self) -> None:
        """Connect again to whom no pipe leads, now and then; only one of the two does."""
        for stranger in list(self._strangers.values()):
            stranger.looks += 1
            if stranger.looks > _LOOKS_MAX:
                self._refused += 1
                self._discard(stranger)
        for key in self._neighbours():
            if self._key < key and key not in self._pipes and len(self._strangers) == 0:
                self._connect(key)

    def _neighbours(self) -> list[bytes]:
        """Find the keys of the nodes that listen here."""
        names = [name for name in self._listed() if name.startswith(self._prefix)]
        keys = [_key_of(name.removeprefix(self._prefix)) for name in names]
        return [key for key in keys if key not in (b"", self._key)]

    def _listed(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except OSError:
            return []

    def _connect(self, key: bytes) -> None:
        path = self._path_of(key)
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opened.setblocking(False)
        try:
            opened.connect(str(path))
        except ConnectionRefusedError:  # Who listened there was killed.
            opened.close()
            with contextlib.suppress(OSError):
                os.unlink(path)
        except OSError:
            opened.close()
        else:
            self._greet(opened, is_ours=True)

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            opened.setblocking(False)
            self._greet(opened, is_ours=False)

    def _greet(self, opened: socket.socket, *, is_ours: bool) -> None:
        """Begin with a connection: look who is there, and say who we are."""
        pid, user, _ = _CREDENTIALS.unpack(
            opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        is_full = len(self._by_fileno) >= PIPES_MAX or len(self._strangers) >= GREETINGS_MAX
        if user != os.getuid() or is_full:
            self._refused += 1
            opened.close()
            return
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        pipe = _Pipe(opened, pid, is_ours=is_ours)
        self._by_fileno[opened.fileno()] = self._strangers[opened.fileno()] = pipe
        self._epoll.register(opened, select.EPOLLIN)
        if pipe.pidfd is not None:
            self._by_fileno[pipe.pidfd] = pipe
            self._epoll.register(pipe.pidfd, select.EPOLLIN)
        with contextlib.suppress(OSError):
            opened.send(self._greeting)

    # Sending.

    def send(
        self, destination: Pipes, buffers: list[bytes | memoryview], segment_bytes: int
    ) -> None:
        """Send a burst by the pipes to these nodes; one that is gone is no more."""
        if segment_bytes:
            buffers = [_RUN.pack(_IS_RUN, segment_bytes), *buffers]
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

    @property
    def everybody(self) -> Pipes:
        """Return all who have a pipe to us."""
        return Pipes(self._pipes)

    def send_note(self, key: bytes, text: bytes, fileno: int | None = None) -> bool:
        """Say something to a peer's depot, in the order of frames; False: there is no room."""
        pipe = self._pipes.get(key)
        if pipe is None or (pipe.backlog and fileno is not None):
            return False
        if fileno is None:
            (self._keep if pipe.backlog else self._transmit)(pipe, [_IS_NOTE, text])
            return True
        try:
            socket.send_fds(pipe.socket, [_IS_NOTE, text], [fileno])
        except OSError:
            return False
        return True

    def _transmit(self, pipe: _Pipe, buffers: list[bytes | memoryview]) -> None:
        try:
            sent_bytes = pipe.socket.sendmsg(buffers)
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._keep(pipe, buffers)
            else:
                self._dropped += 1  # Its end is found by reading.
            return
        self._packets_out += 1
        self._bytes_out += sent_bytes

    def _keep(self, pipe: _Pipe, buffers: list[bytes | memoryview]) -> None:
        packet = b"".join(buffers)
        if pipe.backlog_bytes + len(packet) > BACKLOG_BYTES_MAX:
            self._dropped += 1
            return
        if not pipe.backlog:
            self._watch(pipe, select.EPOLLIN | select.EPOLLOUT)
        pipe.backlog.append(packet)
        pipe.backlog_bytes += len(packet)

    def flush(self) -> None:
        """Send what was kept for pipes that take data again."""
        self.has_room = False
        for pipe in list(self._pipes.values()):
            while pipe.backlog:
                try:
                    self._bytes_out += pipe.socket.send(pipe.backlog[0])
                except OSError as error:
                    if error.errno in _NO_ROOM:
                        self._watch(pipe, select.EPOLLIN | select.EPOLLOUT)
                        break
                self._packets_out += 1
                pipe.backlog_bytes -= len(pipe.backlog.popleft())

    def _watch(self, pipe: _Pipe, events: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._epoll.modify(pipe.socket, events)

    # Receiving.

    def receive(self) -> list[Received]:
        """Take some of what has come; `opened`, `closed` and `has_room` tell the rest."""
        received: list[Received] = []
        for fileno, events in self._epoll.poll(0):
            if fileno == self._listener.fileno():
                self._accept()
                continue
            pipe = self._by_fileno.get(fileno)
            if pipe is None:
                self._learn_of_death(fileno)
                continue
            if fileno == pipe.pidfd:
                self._bury(pipe, received)
                continue
            if events & select.EPOLLOUT:
                self._watch(pipe, select.EPOLLIN)
                self.has_room = True
            if events & ~select.EPOLLOUT and not self._read(pipe, READS_MAX, received):
                self._end(pipe, is_dead=_is_over(pipe.pidfd))
        return received

    def look(self) -> list[Received]:
        """Read once where something came last."""
        received: list[Received] = []
        pipe = self._latest
        if pipe is not None and not self._read(pipe, 1, received):
            self._end(pipe, is_dead=_is_over(pipe.pidfd))
        return received

    def _read(self, pipe: _Pipe, reads: int, received: list[Received]) -> bool:
        """Read at most so many packets; False: the pipe has ended."""
        for _ in range(reads):
            try:
                packet, extra, _, _ = pipe.socket.recvmsg(
                    _PACKET_BYTES, _DESCRIPTOR_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return True
            except OSError:
                return False
            fileno = _descriptor(extra) if extra else None
            if len(packet) <= _RUN.size:
                self._refused += bool(packet)  # Empty: its end. Nobody of ours sends so little.
                return False
            if pipe.key and packet[0] != _MARK and fileno is None:
                self._packets_in += 1
                self._bytes_in += len(packet)
                self._latest = pipe
                received.append((packet, 0, pipe.source))
            elif not self._take_marked(pipe, packet, fileno, received):
                return False
        return True

    def _take_marked(
        self, pipe: _Pipe, packet: bytes, fileno: int | None, received: list[Received]
    ) -> bool:
        """Take a packet that is not one frame; False: the pipe has ended."""
        if packet.startswith(_IS_NOTE) and pipe.key:
            self.notes.append(Note(pipe.key, packet[len(_IS_NOTE) :], fileno))
            return True
        if fileno is not None:
            os.close(fileno)
        if not pipe.key:
            return self._identify(pipe, packet)
        self._packets_in += 1
        self._bytes_in += len(packet)
        self._latest = pipe
        mark, segment_bytes = _RUN.unpack_from(packet)
        if mark == _IS_RUN:
            received.append((packet[_RUN.size :], segment_bytes, pipe.source))
        return True

    def _identify(self, pipe: _Pipe, packet: bytes) -> bool:
        """Take the greeting of a connection; False: it is not of this bus, or one too many."""
        self._strangers.pop(pipe.socket.fileno(), None)
        if (
            len(packet) < _GREETING.size
            or packet[: len(self._greeting) - KEY_BYTES] != (self._greeting[:-KEY_BYTES])
        ):
            self._refused += 1
            return False
        key = packet[len(self._greeting) - KEY_BYTES : len(self._greeting)]
        other = self._pipes.get(key)
        if key == self._key or (other is not None and not self._is_preferred(pipe, key)):
            return False
        pipe.key = key
        pipe.source = Pipes((key,))
        self._pipes[key] = pipe
        if other is None:
            self.opened.append(key)
        else:
            self._discard(other)
        return True

    def _is_preferred(self, pipe: _Pipe, key: bytes) -> bool:
        """Tell which of two connections stays, if both nodes connected at the same moment."""
        return pipe.is_ours == (self._key < key)

    def _bury(self, pipe: _Pipe, received: list[Received]) -> None:
        """Read what a dead process has left, and end its pipe."""
        while self._read(pipe, 1, received):
            if not _is_readable(pipe.socket):
                break
        self._end(pipe, is_dead=True)

    def _end(self, pipe: _Pipe, *, is_dead: bool) -> None:
        if self._pipes.get(pipe.key) is pipe:
            del self._pipes[pipe.key]
            self._closed_by(pipe.key, is_dead=is_dead)
            if pipe.pidfd is not None and not is_dead:
                self._doubt(pipe)
        self._discard(pipe)

    def _closed_by(self, key: bytes, *, is_dead: bool) -> None:
        """Tell the end of a pipe; who was killed could not remove its socket."""
        self.closed.append(Closed(key, is_dead))
        if is_dead:
            with contextlib.suppress(OSError):
                os.unlink(self._path_of(key))

    def _path_of(self, key: bytes) -> Path:
        return self._directory / f"{self._prefix}{key.hex()}"

    def _doubt(self, pipe: _Pipe) -> None:
        """Go on watching the process of a pipe that ended: it may be about to die."""
        assert pipe.pidfd is not None
        self._by_fileno.pop(pipe.pidfd, None)
        self._doubtful[pipe.pidfd] = pipe.key
        pipe.pidfd = None
        if len(self._doubtful) > _DOUBTFUL_MAX:
            self._trust(next(iter(self._doubtful)))

    def _learn_of_death(self, pidfd: int) -> None:
        key = self._trust(pidfd)
        if key and key not in self._pipes:
            self._closed_by(key, is_dead=True)

    def _trust(self, pidfd: int) -> bytes:
        """Watch a process no longer; return the key of the pipe that led to it."""
        key = self._doubtful.pop(pidfd, b"")
        if key:
            self._epoll.unregister(pidfd)
            os.close(pidfd)
        return key

    def _discard(self, pipe: _Pipe) -> None:
        if self._latest is pipe:
            self._latest = None
        for fileno in (pipe.socket.fileno(), pipe.pidfd):
            if fileno is not None and self._by_fileno.pop(fileno, None) is not None:
                self._strangers.pop(fileno, None)
                with contextlib.suppress(OSError, ValueError):
                    self._epoll.unregister(fileno)
        self._ended.append(pipe)

    def sweep(self) -> None:
        """Close what has ended; under the lock under which `send` is called."""
        while self._ended:
            self._ended.pop().close()

    def close(self) -> None:
        """Close every pipe and listen no more; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self.abandon()

    def abandon(self) -> None:
        """Close the descriptors alone: in a forked child, whose parent goes on."""
        self._is_closed = True
        self._listener.close()
        self.sweep()
        for pipe in set(self._by_fileno.values()):
            pipe.close()
        for pidfd in self._doubtful:  # Left in the parent's poller, which is the same.
            os.close(pidfd)
        self._doubtful.clear()
        self._pipes.clear()
        self._by_fileno.clear()
        self._latest = None
        self._epoll.close()

    def statistics(self) -> LocalStatistics:
        """Count what the pipes did."""
        pipes = list(self._pipes.values())
        return LocalStatistics(
            pipes=len(pipes),
            packets_out=self._packets_out,
            bytes_out=self._bytes_out,
            packets_in=self._packets_in,
            bytes_in=self._bytes_in,
            backlog_bytes=sum(pipe.backlog_bytes for pipe in pipes),
            dropped=self._dropped,
            refused=self._refused,
        )


def _descriptor(extra: list[tuple[int, int, bytes]]) -> int | None:
    """Return the one descriptor that came with a packet."""
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(data) >= _INT.size:
            return int(_INT.unpack_from(data)[0])
    return None


def _key_of(text: str) -> bytes:
    """Return the key in a name; empty if there is none."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return b""
    return key if len(key) == KEY_BYTES else b""


def _open_process(pid: int) -> int | None:
    """Return a descriptor that is readable once a process has ended; None: nobody can say."""
    if pid == os.getpid() or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _is_over(pidfd: int | None) -> bool:
    return pidfd is not None and _is_readable(pidfd)


def _is_readable(opened: int | socket.socket) -> bool:
    look = select.poll()
    look.register(opened, select.POLLIN)
    return bool(look.poll(0))
