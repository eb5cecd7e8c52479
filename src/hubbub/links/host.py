"""Stands in for multicast where there shall be none: the group is everybody who has a pipe to us.

What is for all goes by every pipe, so nodes find each other, hear heartbeats and ask for repairs as
ever. No UDP socket is opened, and without TCP no IP socket at all.
"""

from typing import Final

from hubbub.errors import LinkError
from hubbub.events import Event
from hubbub.limits import PIPE_FRAME_BYTES, WINDOW_BYTES
from hubbub.links.inlet import Received
from hubbub.links.interfaces import Interface
from hubbub.links.pipe_set import PipeSet
from hubbub.links.statistics import LinkStatistics
from hubbub.protocol.burst import Burst


class HostLink:
    """A group that is all pipes."""

    name: Final = "pipes"
    frame_bytes_max: Final = PIPE_FRAME_BYTES
    burst_bytes_max: Final = 0
    window_bytes: Final = WINDOW_BYTES

    def __init__(self, group: str, port: int, *, may_be_alone: bool = False) -> None:
        self._may_be_alone = may_be_alone  # Others are reached in another way, by services.
        self.channel = f"{group}:{port}"
        self.interfaces: list[Interface] = []
        self.address_text = "this host"
        self._pipes = PipeSet([])

    def use(self, pipes: PipeSet) -> None:
        """Send by these from now on; there is nothing else."""
        if not pipes.links and self._may_be_alone:
            return
        if not pipes.links:
            raise LinkError("links=['local'] needs UNIX sockets and a runtime directory")
        self._pipes = pipes
        self.address_text = pipes.links[-1].address_text

    def filenos(self) -> list[int]:
        """Name no descriptor: pipes are read elsewhere."""
        return []

    def writable_fileno(self) -> int:
        """Nobody has to wait: `send` takes everything."""
        raise AssertionError("a pipe that is full keeps what it gets")

    def send(self, burst: Burst) -> bool:
        """Send a burst to everybody here; one for a single address has none to go to."""
        if burst.destination is None:
            self._pipes.send_to_all(burst.buffers, burst.segment_bytes)
        return True

    def receive(self) -> list[Received]:
        """Receive nothing: pipes are read elsewhere."""
        return []

    def look(self) -> list[Received]:
        """Receive nothing."""
        return []

    def deadline(self) -> int | None:
        """Have no timer."""
        return None

    def advance(self, now: int) -> list[Received]:
        """Do nothing."""
        return []

    def poll_events(self, now: int) -> list[Event]:
        """Have nothing to tell: no interface can go down."""
        return []

    def close(self) -> None:
        """Do nothing: the pipes are closed by who opened them."""

    def statistics(self) -> LinkStatistics:
        """Count nothing: the pipes do."""
        return LinkStatistics(
            name=self.name, channel=self.channel, interfaces=(), frames_out=0, bytes_out=0,
            frames_in=0,
            bytes_in=0, straight_out=0, straight_in=0, is_segmenting=False, is_coalescing=False,
            would_block=0, send_errors=0, segmentation_refused=0, receive_errors=0, truncated=0,
            own_frames=0, kernel_drops=0, faults_in=None, faults_out=None,
        )  # fmt: skip
