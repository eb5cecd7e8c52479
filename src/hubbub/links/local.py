"""HOT. The local link: pipes between the nodes of one host, over UNIX sockets.

The nodes of one user meet in a directory (meeting.py). The sockets are of the kind SOCK_SEQPACKET:
in order, lossless, with the bounds of packets kept, and their end tells at once that the other end
has closed or died; a descriptor of the other process (processes.py) tells these two apart, also
where a forked child still holds the socket. It may do so a moment later.

A packet is a greeting, one frame as it is (which need not be copied then), a run of frames behind
a head that tells their size, or a note of the depot (depot.py), with or without a descriptor.
"""

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from hubbub.links.inlet import Received
from hubbub.links.meeting import MeetingPoint
from hubbub.links.pipes import LISTENING, NO_ROOM, PIPES_MAX, Buffers, Closed, Pipe, PipeLink
from hubbub.links.processes import Doubtful, is_over, is_readable, open_process
from hubbub.protocol.delivery import LOCAL
from hubbub.wire.header import KEY_BYTES

_PACKET_BYTES: Final = 1 << 16
_BUFFER_BYTES: Final = 8 << 20

_RUN: Final = struct.Struct("!HH")  # A mark, and the size of each frame but the last.
_IS_RUN: Final = 0xFF01
_MARK: Final = 0xFF  # No frame begins so.
_IS_NOTE: Final = b"\xff\x03"
_GREETING: Final = struct.Struct(f"!4sBII{KEY_BYTES}s")
_MAGIC: Final = b"\xff\x02hu"
_VERSION: Final = 2  # Since frames have no checksum here.
_DESCRIPTOR_BYTES: Final = socket.CMSG_SPACE(4)
_CREDENTIALS: Final = struct.Struct("3i")
_INT: Final = struct.Struct("i")


class Note(NamedTuple):
    """What a peer's depot says to ours."""

    key: bytes
    text: bytes
    fileno: int | None  # Who takes the note closes it.


class _LocalPipe(Pipe):
    """A connection to a process of this host."""

    __slots__ = ("pidfd",)

    def __init__(self, opened: socket.socket, pid: int, *, is_ours: bool) -> None:
        super().__init__(opened, is_ours=is_ours)
        self.pidfd = open_process(pid)

    def filenos(self) -> list[int]:
        """Name the socket and the process."""
        filenos = super().filenos()
        return filenos if self.pidfd is None else [*filenos, self.pidfd]

    def close(self) -> None:
        """Close both."""
        super().close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class LocalLink(PipeLink[_LocalPipe]):
    """The pipes of one node on one channel to others of this host."""

    name = LOCAL

    def __init__(
        self,
        key: bytes,
        domain: int,
        channel: str,
        directory: Path,
        may_meet: Callable[[bytes], bool] = lambda key: True,
    ) -> None:
        place = crc32(channel.encode())
        super().__init__(key, _GREETING.pack(_MAGIC, _VERSION, domain, place, key))
        self._may_meet = may_meet
        self._doubtful = Doubtful(self._epoll)
        self.notes: deque[Note] = deque()
        try:
            self._meeting = MeetingPoint(key, domain, place, directory, PIPES_MAX)
        except BaseException:
            self._epoll.close()
            raise
        self._epoll.register(self._meeting.fileno(), LISTENING)
        for neighbour in self._neighbours():
            self._connect(neighbour)

    def look_around(self) -> None:
        """Connect again to whom no pipe leads, now and then; only one of the two does."""
        super().look_around()
        for key in self._neighbours():
            if self._key < key and key not in self._pipes and len(self._strangers) == 0:
                self._connect(key)

    def _neighbours(self) -> list[bytes]:
        return [key for key in self._meeting.neighbours() if self._may_meet(key)]

    def _is_welcome(self, key: bytes) -> bool:
        return self._may_meet(key)

    def _connect(self, key: bytes) -> None:
        opened = self._meeting.connect(key)
        if opened is not None:
            self._begin(opened, is_ours=True)

    def _accept(self) -> None:
        while (opened := self._meeting.accept()) is not None:
            self._begin(opened, is_ours=False)

    def _begin(self, opened: socket.socket, *, is_ours: bool) -> None:
        """Look who is there, and greet it if it is of this user."""
        pid, user, _ = _CREDENTIALS.unpack(
            opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user != os.getuid() or self._is_crowded():
            self._refused += 1
            opened.close()
            return
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._greet(_LocalPipe(opened, pid, is_ours=is_ours))

    # Sending.

    def _head(self, buffers: Buffers, segment_bytes: int) -> bytes:
        return _RUN.pack(_IS_RUN, segment_bytes)

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

    def _send_kept(self, pipe: _LocalPipe) -> bool:
        while pipe.backlog:
            try:
                self._bytes_out += pipe.socket.send(pipe.backlog[0])
                self._packets_out += 1
            except OSError as error:
                if error.errno in NO_ROOM:
                    return False
                self._dropped += 1  # Its end is found by reading.
            pipe.backlog_bytes -= len(pipe.backlog.popleft())
        return True

    # Receiving.

    def receive(self) -> list[Received]:
        """Take some of what has come; `opened`, `closed` and `has_room` tell the rest."""
        received: list[Received] = []
        for fileno, events in self._epoll.poll(0):
            pipe = self._by_fileno.get(fileno)
            if fileno == self._meeting.fileno():
                self._accept()
            elif pipe is None:
                self._learn_of_death(fileno)
            elif fileno == pipe.pidfd:
                self._bury(pipe, received)
            else:
                self._serve(pipe, events, received)
        return received

    def _read(self, pipe: _LocalPipe, reads: int, received: list[Received]) -> bool:
        for _ in range(reads):
            try:
                packet, extra, flags, _ = pipe.socket.recvmsg(
                    _PACKET_BYTES, _DESCRIPTOR_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return True
            except OSError:
                return False
            fileno = _descriptor(extra) if extra else None
            if flags & socket.MSG_TRUNC:
                self._refused += 1  # Longer than any of ours.
                if fileno is not None:
                    os.close(fileno)
                continue
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
        self, pipe: _LocalPipe, packet: bytes, fileno: int | None, received: list[Received]
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

    # Ending.

    def _bury(self, pipe: _LocalPipe, received: list[Received]) -> None:
        """Read what a dead process has left, and end its pipe."""
        while self._read(pipe, 1, received):
            if not is_readable(pipe.socket):
                break
        self._end(pipe)

    def _end(self, pipe: _LocalPipe) -> None:
        """End with a pipe; its process has ended, too, or may be about to die."""
        if self._pipes.get(pipe.key) is pipe:
            del self._pipes[pipe.key]
            is_dead = is_over(pipe.pidfd)
            self._closed_by(pipe.key, is_dead=is_dead)
            if pipe.pidfd is not None and not is_dead:
                self._by_fileno.pop(pipe.pidfd, None)
                self._doubtful.add(pipe.pidfd, pipe.key)
                pipe.pidfd = None
        self._discard(pipe)

    def _closed_by(self, key: bytes, *, is_dead: bool) -> None:
        """Tell the end of a pipe; who was killed could not remove its socket."""
        self.closed.append(Closed(key, is_dead))
        if is_dead:
            self._meeting.remove(key)

    def _learn_of_death(self, pidfd: int) -> None:
        key = self._doubtful.take(pidfd)
        if key and key not in self._pipes:
            self._closed_by(key, is_dead=True)

    def close(self) -> None:
        """Close every pipe and listen no more; a second call does nothing."""
        if not self._is_closed:
            self._meeting.close()
            self.abandon()

    def abandon(self) -> None:
        """Close the descriptors alone: in a forked child, whose parent goes on."""
        self._meeting.abandon()
        self._doubtful.abandon()
        super().abandon()


def _descriptor(extra: list[tuple[int, int, bytes]]) -> int | None:
    """Return the one descriptor that came with a packet."""
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(data) >= _INT.size:
            return int(_INT.unpack_from(data)[0])
    return None
