"""Datagrams from node to node: one UDP socket, no group, no repair.

Services use it (decision 0025). What the kernel has no room for waits here, bounded, and the oldest
is dropped: whoever sent it repeats it.
"""

import errno
import socket
from collections import deque
from dataclasses import dataclass
from typing import Final

from hubbub.errors import LinkError
from hubbub.links.listening import address_text

Place = tuple[str, int]
_READS_MAX: Final = 256  # Of one turn of the loop.
_SINGLES_MAX: Final = 4  # So often one is taken for the only one that waits.
_DATAGRAM_BYTES_MAX: Final = 65_536
_WAITING_MAX: Final = 8192
_BUFFER_BYTES: Final = 8 << 20
_FULL: Final = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS)


@dataclass(frozen=True, slots=True)
class DatagramStatistics:
    """What went through the socket of services."""

    address: str
    sent: int
    received: int
    dropped: int
    """For which the kernel had no room for too long."""
    failed: int
    """That it refused: nobody is there, or there is no way."""


class DatagramLink:
    """One UDP socket, bound to an address that others can send to."""

    def __init__(self, host: str, port: int, *, may_move: bool = True) -> None:
        self._socket = _bind(host, port, may_move=may_move)
        self.place: Place = self._socket.getsockname()[:2]
        self.sent = 0
        self.received = 0
        self.dropped = 0
        self.failed = 0
        self.waiting: deque[tuple[Place, bytes]] = deque()
        self._singles = 0  # How often only one was read since all that waited was.
        self._is_alone = False  # Which was one, then.

    @property
    def sender(self) -> socket.socket:
        """Return what it sends by, to be aimed at a group."""
        return self._socket

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._socket.fileno()

    def receive_some(self) -> list[tuple[bytes, Place]]:
        """Return some of what has come: the loop calls again if that was not all.

        Where datagrams come one by one, a second read finds nothing, and takes as long as the
        first. So while a look to the end finds one, only each fifth goes on to it.
        """
        if self._is_alone and self._singles < _SINGLES_MAX:
            self._singles += 1
            try:
                data, address = self._socket.recvfrom(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return []
            except OSError:
                self.failed += 1  # As in `receive`, which is called next.
                return self.receive()
            self.received += 1
            return [(data, (address[0], address[1]))]
        return self.receive()

    def receive(self) -> list[tuple[bytes, Place]]:
        """Return what has come."""
        received: list[tuple[bytes, Place]] = []
        receive = self._socket.recvfrom
        while len(received) < _READS_MAX:
            try:
                data, address = receive(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                break
            except OSError:  # An ICMP message: somebody to whom we sent is not there.
                self.failed += 1
                continue
            received.append((data, (address[0], address[1])))
        self._singles, self._is_alone = 0, len(received) == 1
        self.received += len(received)
        return received

    def send(self, place: Place, data: bytes) -> None:
        """Send a datagram, or let it wait."""
        if self.waiting:
            self._wait(place, data)
            return
        try:
            self._socket.sendto(data, place)
            self.sent += 1
        except OSError as error:
            if error.errno in _FULL:
                self._wait(place, data)
            else:
                self.failed += 1
        except (TypeError, ValueError, OverflowError):  # That is no address.
            self.failed += 1

    def _wait(self, place: Place, data: bytes) -> None:
        self.waiting.append((place, data))
        if len(self.waiting) > _WAITING_MAX:
            self.waiting.popleft()
            self.dropped += 1

    def send_waiting(self) -> None:
        """Send what waits, as far as there is room."""
        waiting, self.waiting = self.waiting, deque()
        while waiting:
            self.send(*waiting.popleft())
            if self.waiting:
                self.waiting.extend(waiting)
                return

    @property
    def is_full(self) -> bool:
        """Tell whether something waits."""
        return bool(self.waiting)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def statistics(self) -> DatagramStatistics:
        """Return what went through it."""
        return DatagramStatistics(
            address_text(self.place), self.sent, self.received, self.dropped, self.failed
        )


def _bind(host: str, port: int, *, may_move: bool) -> socket.socket:
    """Bind to this port, or to any if another has it and nobody insists."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        try:
            opened.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not (port and may_move):
                raise
            opened.bind((host, 0))
    except OSError as error:
        opened.close()
        reason = error.strerror or error
        raise LinkError(f"no socket for services at {host} port {port}: {reason}") from None
    return opened


def resolve(host: str, port: int, *, is_numeric: bool = False) -> Place | None:
    """Return the numeric address of a host; None: nobody knows it, or it would have to be asked."""
    flags = socket.AI_NUMERICHOST if is_numeric else 0
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=flags)
    except (OSError, UnicodeError):
        return None
    address = found[0][4]
    return str(address[0]), int(address[1])
