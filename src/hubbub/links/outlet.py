"""HOT. The sending half of a multicast link: bursts out, one system call each if the kernel plays.

A burst that found no room is either untouched, or its rest is kept here and goes out before
anything else. The caller offers the same burst again in both cases, so the outlet remembers whose
rest it has.
"""

import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from hubbub.links.faults import FaultInjector, Run, gather, split
from hubbub.links.socket_pair import SOL_UDP, UDP_SEGMENT, SocketPair
from hubbub.protocol.burst import Address, Burst

# With its headers a burst must stay below the 65,536 bytes that a device takes in one piece, or the
# kernel cuts it into datagrams again before the receiver sees it (measured: at most 65,493 bytes).
BURST_BYTES_MAX: Final = 65_400
BURST_FRAMES_MAX: Final = 64  # UDP_MAX_SEGMENTS of older kernels; newer ones take 128.
BUFFERS_MAX: Final = 1024  # UIO_MAXIOV

Buffers = list[bytes] | list[bytes | memoryview]

_HAS_SENDMSG: Final = hasattr(socket.socket, "sendmsg")  # Windows has not.
_SEGMENT: Final = struct.Struct("=H")
_NO_ROOM: Final = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS)
# What kernels answer that cannot segment: a segment above the MTU (EMSGSIZE, formerly EINVAL), too
# many segments (EINVAL), a device that computes no checksums (EIO).
_NO_SEGMENTATION: Final = (errno.EMSGSIZE, errno.EINVAL, errno.EIO, errno.EOPNOTSUPP)

_BLOCKED: Final = 0
_TAKEN: Final = 1
_REFUSED: Final = 2


class _Piece(NamedTuple):
    """A part of a burst on its way out by one interface."""

    pair: SocketPair
    destination: Address | None
    buffers: Buffers
    segment_bytes: int


class Outlet:
    """Send bursts by the sockets of one or several interfaces."""

    def __init__(
        self,
        pairs: list[SocketPair],
        route: Callable[[Address], SocketPair],
        faults: FaultInjector | None,
        clock: Callable[[], int],
    ) -> None:
        self._pairs = pairs
        self._route = route
        self._faults = faults
        self._clock = clock
        self.note_pairs()
        self._rest: deque[_Piece] = deque()
        self._partial: Burst | None = None
        self.frames = 0
        self.straight_frames = 0
        self.size_bytes = 0
        self.would_block = 0
        self.errors = 0
        self.segmentation_refused = 0

    def note_pairs(self) -> None:
        """Look again how many interfaces there are."""
        self._is_simple = len(self._pairs) == 1 and self._faults is None

    def send(self, burst: Burst) -> bool:
        """Send a burst; False: offer this same burst again when there is room."""
        if self._rest or self._partial is not None:
            if not self._send_rest():
                return False
            if burst is self._partial:
                self._partial = None
                return True
        if self._is_simple:
            outcome = self._transmit(self._pairs[0], *burst)
            if outcome != _REFUSED:
                return outcome == _TAKEN
            self._rest.extend(_singles(_Piece(self._pairs[0], *burst)))
        else:
            self._rest.extend(self._pieces(burst))
        if self._send_rest():
            return True
        if self._partial is not None:
            return True  # Another burst is waited for already; this one's rest goes out with it.
        self._partial = burst
        return False

    def advance(self, now: int) -> None:
        """Send what injected faults held back until now."""
        if self._faults is not None:
            self._rest.extend(self._spread(gather(self._faults.release(now))))
            self._send_rest()

    def blocked_pair(self) -> SocketPair:
        """Tell whose room is waited for after `send` returned False."""
        return self._rest[0].pair if self._rest else self._pairs[0]

    def clear(self) -> None:
        """Forget what is left to send."""
        self._rest.clear()
        self._partial = None

    def _transmit(
        self,
        pair: SocketPair,
        destination: Address | None,
        buffers: Buffers,
        segment_bytes: int,
    ) -> int:
        if len(buffers) > BUFFERS_MAX or not _HAS_SENDMSG:
            buffers = [b"".join(buffers)]
        target = pair.destination if destination is None else destination
        frames = 1
        try:
            if segment_bytes:
                if not pair.has_gso:
                    return _REFUSED
                control = [(SOL_UDP, UDP_SEGMENT, _SEGMENT.pack(segment_bytes))]
                sent_bytes = pair.unicast.sendmsg(buffers, control, 0, target)
                frames = -(-sent_bytes // segment_bytes)
            elif _HAS_SENDMSG and len(buffers) > 1:
                sent_bytes = pair.unicast.sendmsg(buffers, (), 0, target)
            else:
                sent_bytes = pair.unicast.sendto(buffers[0], target)
        except OSError as error:
            return self._not_sent(pair, destination, segment_bytes, error)
        self.frames += frames
        self.size_bytes += sent_bytes
        if destination is None:
            pair.send_error = ""
            pair.looped_back += 1 if pair.has_gro else frames
        else:
            self.straight_frames += frames
        return _TAKEN

    def _not_sent(
        self, pair: SocketPair, destination: Address | None, segment_bytes: int, error: OSError
    ) -> int:
        code = error.errno or 0
        if code in _NO_ROOM:
            self.would_block += 1
            return _BLOCKED
        if segment_bytes and code in _NO_SEGMENTATION:
            self.segmentation_refused += 1
            # Without checksum offload every burst would be refused; the other reasons pass.
            pair.has_gso = code != errno.EIO
            return _REFUSED
        self.errors += 1
        # A frame that is too large, or one peer that is gone, says nothing about the link.
        if destination is None and code != errno.EMSGSIZE:
            pair.send_error = os.strerror(code)
        return _TAKEN

    def _send_rest(self) -> bool:
        """Send what earlier calls left, in order; False: there is no room for all of it."""
        rest = self._rest
        while rest:
            piece = rest[0]
            outcome = self._transmit(*piece)
            if outcome == _BLOCKED:
                return False
            rest.popleft()
            if outcome == _REFUSED:
                rest.extendleft(reversed(_singles(piece)))
        return True

    def _pieces(self, burst: Burst) -> list[_Piece]:
        """Spread a burst over the interfaces; with faults, what they leave of it."""
        if self._faults is None:
            return [_Piece(pair, *burst) for pair in self._towards(burst.destination)]
        run = (b"".join(burst.buffers), burst.segment_bytes, burst.destination)
        return self._spread(self._faults.filter_run(self._clock(), run))

    def _spread(self, runs: list[Run]) -> list[_Piece]:
        return [
            _Piece(pair, destination, [data], segment_bytes)
            for data, segment_bytes, destination in runs
            for pair in self._towards(destination)
        ]

    def _towards(self, destination: Address | None) -> list[SocketPair]:
        return self._pairs if destination is None else [self._route(destination)]


def _singles(piece: _Piece) -> list[_Piece]:
    frames = split(b"".join(piece.buffers), piece.segment_bytes)
    return [_Piece(piece.pair, piece.destination, [frame], 0) for frame in frames]
