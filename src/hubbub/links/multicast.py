"""HOT. The multicast link: bursts of frames to a group and to single peers, and what comes back.

Everything is non-blocking, and nothing here waits, retries or repairs: a frame the kernel does not
take is either given back to the caller (no room now) or counted and forgotten (the protocol
repairs).

A burst is one system call: the kernel cuts it into datagrams (UDP_SEGMENT) and hands runs of
datagrams out as one buffer (UDP_GRO), which is what makes MTU-sized frames as cheap as large ones.
Where the kernel refuses, the same frames go one by one. On several interfaces a burst for the group
goes out on each, and an answer to a peer leaves by the interface on which the peer was last heard.

The caller serialises `send`, `advance` and `poll_events`; `receive` may run beside them.
"""

import errno
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from hubbub.events import Event
from hubbub.links.attachment import SOL_UDP, UDP_SEGMENT, Attachment, Endpoint
from hubbub.links.faults import Faults, Frame, gather, split
from hubbub.links.interfaces import Interface, choose
from hubbub.links.opening import check_options, frame_bytes, wanted_address, window_bytes
from hubbub.links.recovery import Recovery
from hubbub.links.statistics import LinkStatistics
from hubbub.protocol.burst import Address, Burst

Received = tuple[bytes, int, Address]

# With its headers a burst must stay below the 65,536 bytes that a device takes in one piece, or the
# kernel cuts it into datagrams again before the receiver sees it (measured: at most 65,493 bytes).
BURST_BYTES_MAX: Final = 65_400
BURST_FRAMES_MAX: Final = 64  # UDP_MAX_SEGMENTS of older kernels; newer ones take 128.
BUFFERS_MAX: Final = 1024  # UIO_MAXIOV
READS_MAX: Final = 16  # Reads of up to 64 KB from one socket before the others have their turn.
SOCKET_BUFFER_BYTES: Final = 8 << 20
ROUTES_MAX: Final = 4096

_READ_BYTES: Final = 65_536
_HAS_MESSAGES: Final = hasattr(socket.socket, "sendmsg")  # Windows has not.
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(4) if _HAS_MESSAGES else 0
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

    attachment: Attachment
    destination: Address | None
    buffers: list[bytes] | list[bytes | memoryview]
    segment_bytes: int


class MulticastLink:
    """A multicast group on one or several interfaces."""

    name: Final = "multicast"
    burst_frames_max: Final = BURST_FRAMES_MAX

    def __init__(
        self,
        group: str,
        port: int,
        *,
        interface: str | None,
        ttl: int = 1,
        receive_buffer_bytes: int = 0,
        send_buffer_bytes: int = 0,
        frame_bytes_max: int = 0,
        gso: bool | None = None,
        faults: Faults | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.group = check_options(group, port, ttl, frame_bytes_max)
        self.port = port
        self.channel = f"{self.group}:{port}"
        self._clock = clock
        endpoint = Endpoint(
            group=self.group,
            port=port,
            wanted_address=wanted_address(interface),
            ttl=ttl,
            receive_buffer_bytes=receive_buffer_bytes or SOCKET_BUFFER_BYTES,
            send_buffer_bytes=send_buffer_bytes or SOCKET_BUFFER_BYTES,
            wants_gso=gso is not False and _HAS_MESSAGES,
        )
        self._recovery = Recovery(endpoint, self.channel, choose(interface))
        self._attachments = self._recovery.attachments
        self.frame_bytes_max = frame_bytes(self.interfaces, endpoint.family, frame_bytes_max)
        self._faults_in = faults.injector("in") if faults else None
        self._faults_out = faults.injector("out") if faults else None
        self._is_simple = len(self._attachments) == 1 and self._faults_out is None
        self._routes: dict[Address, Attachment] = {}
        self._rest: deque[_Piece] = deque()
        self._partial: Burst | None = None
        self._is_closed = False
        self._frames_out = self._bytes_out = self._frames_in = self._bytes_in = 0
        self._would_block = self._send_errors = self._gso_refusals = 0
        self._receive_errors = self._truncated = self._own_frames = 0

    @property
    def interfaces(self) -> list[Interface]:
        """The interfaces the link is on, as last seen."""
        return [attachment.interface for attachment in self._attachments]

    @property
    def address(self) -> Address:
        """Our own unicast address (of the first interface), as peers see it as a source."""
        return self._attachments[0].address

    @property
    def address_text(self) -> str:
        """The same for people: host:port."""
        host, port = self.address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def burst_bytes_max(self) -> int:
        """The largest burst that leaves in one call; 0: frames are sent one by one."""
        return BURST_BYTES_MAX if all(one.has_gso for one in self._attachments) else 0

    @property
    def window_bytes(self) -> int:
        """How much all senders together may have on the way to us."""
        buffer_bytes = min(one.receive_buffer_bytes() for one in self._attachments)
        return window_bytes(buffer_bytes, self.frame_bytes_max)

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading; look again when `poll_events` returned something."""
        return [one.fileno() for pair in self._attachments for one in (pair.group, pair.unicast)]

    def writable_fileno(self) -> int:
        """Which descriptor to poll for room after `send` returned False."""
        blocked = self._rest[0].attachment if self._rest else self._attachments[0]
        return blocked.unicast.fileno()

    def send(self, burst: Burst) -> bool:
        """Send a burst; False: call again with this same burst when there is room.

        Frames that went out before the room ended are not sent again: the link keeps the rest and
        knows the burst. What the system refuses for another reason is counted, and the burst is
        done with.
        """
        if self._rest or self._partial is not None:
            if not self._send_rest():
                return False
            if burst is self._partial:
                self._partial = None
                return True
        if self._is_simple:
            outcome = self._transmit(self._attachments[0], *burst)
            if outcome != _REFUSED:
                return outcome == _TAKEN
        self._rest.extend(self._pieces(burst))
        if self._send_rest():
            return True
        if self._partial is not None:
            return True  # Another burst is already waited for; the rest of this one goes by itself.
        self._partial = burst
        return False

    def receive(self, fileno: int | None = None) -> list[Received]:
        """Take what has come (on one descriptor only, if given): (frames, size of each, source)."""
        received: list[Received] = []
        for attachment in self._attachments:
            for opened in (attachment.group, attachment.unicast):
                if fileno is None or opened.fileno() == fileno:
                    self._drain(attachment, opened, received)
        if self._faults_in is None:
            return received
        frames = [(one, source) for data, size, source in received for one in split(data, size)]
        return _joined(self._faults_in.filter(self._clock(), list(frames)))

    def deadline(self) -> int | None:
        """When `advance` has something to do: only injected faults hold frames back."""
        injectors = (self._faults_in, self._faults_out)
        times = [one.deadline() for one in injectors if one is not None]
        return min((time_ns for time_ns in times if time_ns is not None), default=None)

    def advance(self, now: int) -> list[Received]:
        """Send the frames that injected faults held back; return those they held on the way in."""
        if self._faults_out is not None:
            self._rest.extend(self._gathered(self._faults_out.release(now)))
            self._send_rest()
        return [] if self._faults_in is None else _joined(self._faults_in.release(now))

    def poll_events(self, now: int) -> list[Event]:
        """Look after the interfaces (about once a second); tell when one went or came back."""
        return [] if self._is_closed else self._recovery.poll()

    def close(self) -> None:
        """Leave the group and close everything; a second call does nothing."""
        self._is_closed = True
        self._rest.clear()
        self._partial = None
        self._recovery.close()

    def statistics(self) -> LinkStatistics:
        """Count what the link did."""
        return LinkStatistics(
            channel=self.channel,
            interfaces=tuple(one.name for one in self.interfaces),
            frames_out=self._frames_out,
            bytes_out=self._bytes_out,
            frames_in=self._frames_in,
            bytes_in=self._bytes_in,
            is_segmenting=self.burst_bytes_max > 0,
            is_coalescing=all(one.has_gro for one in self._attachments),
            would_block=self._would_block,
            send_errors=self._send_errors,
            segmentation_refused=self._gso_refusals,
            receive_errors=self._receive_errors,
            truncated=self._truncated,
            own_frames=self._own_frames,
            kernel_drops=self._recovery.kernel_drops(),
            faults_in=None if self._faults_in is None else self._faults_in.statistics(),
            faults_out=None if self._faults_out is None else self._faults_out.statistics(),
        )

    def _drain(
        self, attachment: Attachment, opened: socket.socket, received: list[Received]
    ) -> None:
        is_alone = len(self._attachments) == 1
        for _ in range(READS_MAX):
            try:
                if _HAS_MESSAGES:
                    data, ancillary, flags, source = opened.recvmsg(_READ_BYTES, _ANCILLARY_BYTES)
                else:
                    (data, source), ancillary, flags = opened.recvfrom(_READ_BYTES), [], 0
            except BlockingIOError:
                return
            except OSError:
                self._receive_errors += 1
                continue
            if flags & socket.MSG_TRUNC:
                self._truncated += 1
                continue
            if not (attachment.has_filter or self._recovery.own_addresses.isdisjoint((source,))):
                self._own_frames += 1
                continue
            if not is_alone:
                self._remember_route(source, attachment)
            size_bytes = len(data)
            segment_bytes = int.from_bytes(ancillary[0][2], sys.byteorder) if ancillary else 0
            if 0 < segment_bytes < size_bytes:
                self._frames_in += -(-size_bytes // segment_bytes)
            else:
                segment_bytes = 0
                self._frames_in += 1
            self._bytes_in += size_bytes
            received.append((data, segment_bytes, source))

    def _transmit(
        self,
        attachment: Attachment,
        destination: Address | None,
        buffers: list[bytes] | list[bytes | memoryview],
        segment_bytes: int,
    ) -> int:
        if segment_bytes and not attachment.has_gso:
            return _REFUSED
        if len(buffers) > BUFFERS_MAX:
            buffers = [b"".join(buffers)]
        target = attachment.destination if destination is None else destination
        try:
            if segment_bytes:
                control = [(SOL_UDP, UDP_SEGMENT, _SEGMENT.pack(segment_bytes))]
                sent_bytes = attachment.unicast.sendmsg(buffers, control, 0, target)
                frames = -(-sent_bytes // segment_bytes)
            elif _HAS_MESSAGES:
                sent_bytes, frames = attachment.unicast.sendmsg(buffers, (), 0, target), 1
            else:
                sent_bytes, frames = attachment.unicast.sendto(b"".join(buffers), target), 1
        except OSError as error:
            return self._not_sent(attachment, destination, segment_bytes, error)
        self._frames_out += frames
        self._bytes_out += sent_bytes
        if destination is None:
            attachment.send_error = ""
            attachment.looped_back += 1 if attachment.has_gro else frames
        return _TAKEN

    def _not_sent(
        self,
        attachment: Attachment,
        destination: Address | None,
        segment_bytes: int,
        error: OSError,
    ) -> int:
        code = error.errno or 0
        if code in _NO_ROOM:
            self._would_block += 1
            return _BLOCKED
        if segment_bytes and code in _NO_SEGMENTATION:
            self._gso_refusals += 1
            # Without checksum offload every burst would be refused; the other reasons pass.
            attachment.has_gso = code != errno.EIO
            return _REFUSED
        self._send_errors += 1
        # A frame that is too large, or one peer that is gone, says nothing about the link.
        if destination is None and code != errno.EMSGSIZE:
            attachment.send_error = os.strerror(code)
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
                frames = split(b"".join(piece.buffers), piece.segment_bytes)
                singles = [_Piece(*piece[:2], [frame], 0) for frame in frames]
                rest.extendleft(reversed(singles))
        return True

    def _pieces(self, burst: Burst) -> list[_Piece]:
        """Spread a burst over the interfaces; with faults, what they leave of it."""
        if self._faults_out is None:
            return [_Piece(one, *burst) for one in self._towards(burst.destination)]
        frames = split(b"".join(burst.buffers), burst.segment_bytes)
        addressed: list[Frame] = [(frame, burst.destination) for frame in frames]
        return self._gathered(self._faults_out.filter(self._clock(), addressed))

    def _gathered(self, frames: list[Frame]) -> list[_Piece]:
        return [
            _Piece(attachment, destination, run, segment_bytes)
            for run, segment_bytes, destination in gather(frames, BURST_BYTES_MAX, BURST_FRAMES_MAX)
            for attachment in self._towards(destination)
        ]

    def _towards(self, destination: Address | None) -> list[Attachment]:
        if destination is None or len(self._attachments) == 1:
            return self._attachments
        return [self._routes.get(destination, self._attachments[0])]

    def _remember_route(self, source: Address, attachment: Attachment) -> None:
        if len(self._routes) >= ROUTES_MAX and source not in self._routes:
            self._routes.clear()  # They are learnt again from the next frame of each peer.
        self._routes[source] = attachment


def _joined(frames: list[Frame]) -> list[Received]:
    return [
        (run[0] if len(run) == 1 else b"".join(run), segment_bytes, source or ())
        for run, segment_bytes, source in gather(frames, BURST_BYTES_MAX, sys.maxsize)
    ]
