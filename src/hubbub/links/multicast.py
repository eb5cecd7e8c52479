"""The multicast link: bursts of frames to a group and to single peers, and what comes back.

Everything is non-blocking, and nothing here waits, retries or repairs: a frame the kernel does not
take is either given back to the caller (no room now) or counted and forgotten (the protocol
repairs).

A burst is one system call: the kernel cuts it into datagrams (UDP_SEGMENT) and hands runs of
datagrams out as one buffer (UDP_GRO), which is what makes MTU-sized frames as cheap as large ones.
Where the kernel refuses, the same frames go one by one. On several interfaces a burst for the group
goes out on each, and an answer to a peer leaves by the interface on which the peer was last heard.

The caller serialises `send`, `advance` and `poll_events`; `receive` may run beside them.
"""

import time
from collections.abc import Callable
from typing import Final

from hubbub.events import Event
from hubbub.links.faults import Faults
from hubbub.links.inlet import Inlet, Received
from hubbub.links.interfaces import Interface
from hubbub.links.opening import check_options, frame_bytes, wanted_address, window_bytes
from hubbub.links.outlet import BURST_BYTES_MAX, BURST_FRAMES_MAX, Outlet
from hubbub.links.recovery import Recovery
from hubbub.links.socket_pair import Endpoint
from hubbub.links.statistics import LinkStatistics
from hubbub.protocol.burst import Address, Burst

SOCKET_BUFFER_BYTES: Final = 8 << 20


class MulticastLink:
    """A multicast group on one or several interfaces."""

    name = "multicast"
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
        has_group: bool = True,
    ) -> None:
        self.group = check_options(group, port, ttl, frame_bytes_max)
        self.port = port
        self.channel = f"{self.group}:{port}"
        endpoint = Endpoint(
            group=self.group,
            port=port,
            wanted_address=wanted_address(interface),
            ttl=ttl,
            receive_buffer_bytes=receive_buffer_bytes or SOCKET_BUFFER_BYTES,
            send_buffer_bytes=send_buffer_bytes or SOCKET_BUFFER_BYTES,
            wants_gso=gso is not False,
            has_group=has_group,
        )
        self._recovery = Recovery(endpoint, self.channel, interface)
        self._pairs = self._recovery.pairs
        self.frame_bytes_max = frame_bytes(
            self.interfaces, endpoint.family, frame_bytes_max, is_growing=self._recovery.is_growing
        )
        self._faults_in = faults.injector("in") if faults else None
        self._faults_out = faults.injector("out") if faults else None
        self._inlet = Inlet(self._recovery, self._faults_in, clock)
        self._outlet = Outlet(self._pairs, self._inlet.route, self._faults_out, clock)
        self._is_closed = False

    @property
    def interfaces(self) -> list[Interface]:
        """The interfaces the link is on, as last seen."""
        return [pair.interface for pair in self._pairs]

    @property
    def address(self) -> Address:
        """Our own unicast address (of the first interface), as peers see it as a source."""
        return self._pairs[0].address

    @property
    def address_text(self) -> str:
        """The same for people: host:port."""
        host, port = self.address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def burst_bytes_max(self) -> int:
        """The largest burst that leaves in one call; 0: frames are sent one by one."""
        return BURST_BYTES_MAX if all(pair.has_gso for pair in self._pairs) else 0

    @property
    def window_bytes(self) -> int:
        """How much all senders together may have on the way to us."""
        buffer_bytes = min(pair.receive_buffer_bytes() for pair in self._pairs)
        return window_bytes(buffer_bytes, self.frame_bytes_max)

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading; ask again when `poll_events` returned something."""
        return [one.fileno() for pair in self._pairs for one in pair.sockets]

    def writable_fileno(self) -> int:
        """Which descriptor to poll for room after `send` returned False."""
        return self._outlet.blocked_pair().unicast.fileno()

    def send(self, burst: Burst) -> bool:
        """Send a burst; False: call again with this same burst when there is room.

        Frames that went out before the room ended are not sent again: the link keeps the rest and
        knows the burst. What the system refuses for another reason is counted, and done with.
        """
        return self._outlet.send(burst)

    def receive(self) -> list[Received]:
        """Take some of what has come as (frames, size of each, source).

        What is left makes a descriptor readable again; only an empty list means that nothing is.
        """
        return self._inlet.receive()

    def look(self) -> list[Received]:
        """Take what has come where something came last, if anything has."""
        return self._inlet.look()

    def deadline(self) -> int | None:
        """When `advance` has something to do: only injected faults hold frames back."""
        if self._faults_in is None and self._faults_out is None:
            return None
        injectors = (self._faults_in, self._faults_out)
        times = [one.deadline() for one in injectors if one is not None]
        return min((time_ns for time_ns in times if time_ns is not None), default=None)

    def advance(self, now: int) -> list[Received]:
        """Send what injected faults held back; return what they held back on the way in."""
        self._outlet.advance(now)
        return self._inlet.advance(now)

    def poll_events(self, now: int) -> list[Event]:
        """Look after the interfaces, about once a second; tell when one went or came back."""
        if self._is_closed:
            return []
        events = self._recovery.poll()
        if events:
            self._inlet.forget_sockets()
            self._outlet.note_pairs()
        return events

    def close(self) -> None:
        """Leave the group and close everything; a second call does nothing."""
        self._is_closed = True
        self._outlet.clear()
        self._recovery.close()

    def statistics(self) -> LinkStatistics:
        """Count what the link did."""
        outlet, inlet = self._outlet, self._inlet
        return LinkStatistics(
            name=self.name,
            channel=self.channel,
            interfaces=tuple(one.name for one in self.interfaces),
            frames_out=outlet.frames,
            bytes_out=outlet.size_bytes,
            frames_in=inlet.frames,
            bytes_in=inlet.size_bytes,
            straight_out=outlet.straight_frames,
            straight_in=inlet.straight_frames,
            is_segmenting=self.burst_bytes_max > 0,
            is_coalescing=all(pair.has_gro for pair in self._pairs),
            would_block=outlet.would_block,
            send_errors=outlet.errors,
            segmentation_refused=outlet.segmentation_refused,
            receive_errors=inlet.errors,
            truncated=inlet.truncated,
            own_frames=inlet.own_frames,
            kernel_drops=self._recovery.kernel_drops(),
            faults_in=None if self._faults_in is None else self._faults_in.statistics(),
            faults_out=None if self._faults_out is None else self._faults_out.statistics(),
        )
