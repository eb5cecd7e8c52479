"""HOT. The receiving half of a multicast link: runs of frames in, with the least reading in vain.

A read that finds nothing costs as much as one that finds something. So while frames come one at a
time (a request, an answer), a call reads once, from the socket that had something the last time,
and leaves the rest to the next poll: it is level-triggered and will say so. Every few calls, and
always while there is more than one datagram at a time, all sockets are drained.
"""

import socket
import sys
from collections.abc import Callable
from typing import Final

from hubbub.links.faults import FaultInjector, Run, gather
from hubbub.links.recovery import Recovery
from hubbub.links.socket_pair import SocketPair
from hubbub.protocol.burst import Address, Straight

Received = tuple[bytes, int, Address]

READS_MAX: Final = 16  # Reads of up to 64 KB from one socket before the others have their turn.
SINGLE_READS: Final = 16
RUNS_AT_ONCE: Final = 4
ROUTES_MAX: Final = 4096

_READ_BYTES: Final = 65_536
_TRUNCATED: Final = int(socket.MSG_TRUNC)  # The enumeration it is costs 0.9 us a test.
_HAS_RECVMSG: Final = hasattr(socket.socket, "recvmsg")  # Windows has not.
_CONTROL_BYTES: Final = socket.CMSG_SPACE(4) if _HAS_RECVMSG else 0


class Inlet:
    """Read from the sockets of one or several interfaces."""

    def __init__(
        self, recovery: Recovery, faults: FaultInjector | None, clock: Callable[[], int]
    ) -> None:
        self._recovery = recovery
        self._pairs = recovery.pairs
        self._faults = faults
        self._clock = clock
        self._routes: dict[Address, SocketPair] = {}
        self._single_reads = 0
        self._latest = (self._pairs[0], self._pairs[0].group)
        self._straight: dict[Address, Straight] = {}  # Who sends to us alone; made once for each.
        self.frames = 0
        self.straight_frames = 0
        self.size_bytes = 0
        self.errors = 0
        self.truncated = 0
        self.own_frames = 0

    def receive(self) -> list[Received]:
        """Take some of what has come; only an empty list means that there is nothing."""
        received: list[Received] = []
        if self._single_reads:
            self._single_reads -= 1
            self._read(*self._latest, 1, received)
        if not received:
            self._read_all(received)
        return received if self._faults is None else self._left_by_faults(received)

    def look(self) -> list[Received]:
        """Read where something came last; an empty list says nothing of other sockets.

        Where it is a run of frames, more are likely there, and all that is done around a look
        costs a quarter of what it takes to take one in.
        """
        received: list[Received] = []
        self._read(*self._latest, 1, received)
        if received and received[0][1]:
            self._read(*self._latest, RUNS_AT_ONCE - 1, received)
        return received if self._faults is None else self._left_by_faults(received)

    def advance(self, now: int) -> list[Received]:
        """Take what injected faults held back until now."""
        return [] if self._faults is None else _received(gather(self._faults.release(now)))

    def route(self, peer: Address) -> SocketPair:
        """Tell by which interface a peer was heard last."""
        return self._routes.get(peer, self._pairs[0])

    def forget_sockets(self) -> None:
        """Let go of sockets that may have been replaced."""
        self._routes.clear()
        self._single_reads = 0
        self._latest = (self._pairs[0], self._pairs[0].group)

    def _left_by_faults(self, received: list[Received]) -> list[Received]:
        assert self._faults is not None
        now = self._clock()
        return [left for run in received for left in _received(self._faults.filter_run(now, run))]

    def _read_all(self, received: list[Received]) -> None:
        is_quiet = True
        for pair in self._pairs:
            for opened in pair.sockets:  # Repairs and answers first.
                count = self._read(pair, opened, READS_MAX, received)
                if count:
                    self._latest = (pair, opened)
                    is_quiet = is_quiet and count == 1
        if is_quiet:
            self._single_reads = SINGLE_READS

    def _read(
        self, pair: SocketPair, opened: socket.socket, reads: int, received: list[Received]
    ) -> int:
        """Read at most so many datagrams (or runs of them), and tell how many there were."""
        for count in range(reads):
            try:
                if _HAS_RECVMSG:
                    data, control, flags, source = opened.recvmsg(_READ_BYTES, _CONTROL_BYTES)
                else:
                    (data, source), control, flags = opened.recvfrom(_READ_BYTES), [], 0
            except BlockingIOError:
                return count
            except OSError:
                self.errors += 1  # Somebody's refusal of what we sent; the next read is fine.
                continue
            if flags & _TRUNCATED:
                self.truncated += 1
                continue
            if not pair.has_filter and source in self._recovery.own_addresses:
                self.own_frames += 1
                continue
            if len(self._pairs) > 1:
                self._remember_route(source, pair)
            size_bytes = len(data)
            segment_bytes = int.from_bytes(control[0][2], sys.byteorder) if control else 0
            frames = 1
            if 0 < segment_bytes < size_bytes:
                frames = -(-size_bytes // segment_bytes)
            else:
                segment_bytes = 0
            self.frames += frames
            self.size_bytes += size_bytes
            if opened is pair.unicast:
                self.straight_frames += frames
                source = self._straight.get(source) or self._mark(source)
            received.append((data, segment_bytes, source))
        return reads

    def _mark(self, source: Address) -> Straight:
        """Note that somebody sends to us alone."""
        if len(self._straight) >= ROUTES_MAX:
            self._straight.clear()
        self._straight[source] = marked = Straight(source)
        return marked

    def _remember_route(self, source: Address, pair: SocketPair) -> None:
        if len(self._routes) >= ROUTES_MAX and source not in self._routes:
            self._routes.clear()  # They are learnt again from the next frame of each peer.
        self._routes[source] = pair


def _received(runs: list[Run]) -> list[Received]:
    """Say that the source is known, as it is of everything that was received."""
    return [(data, segment_bytes, source or ()) for data, segment_bytes, source in runs]
