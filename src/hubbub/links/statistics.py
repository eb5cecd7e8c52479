"""What a link counts."""

from dataclasses import dataclass

from hubbub.links.faults import FaultStatistics


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """A snapshot of a link's counters since it was opened."""

    name: str
    """`multicast`; `datagram` or `pipes` where there is none."""
    channel: str
    interfaces: tuple[str, ...]
    frames_out: int
    """Frames the kernel took, once for each interface they went out on."""
    bytes_out: int
    frames_in: int
    bytes_in: int
    straight_out: int
    """Of these frames, those to one node alone: answers, repairs for one, and datagrams."""
    straight_in: int
    is_segmenting: bool
    """Bursts leave by one call (UDP_SEGMENT)."""
    is_coalescing: bool
    """Runs of frames arrive by one call (UDP_GRO)."""
    would_block: int
    """How often there was no room to send."""
    send_errors: int
    """Frames or bursts the system refused for good; they are lost and repaired like any other."""
    segmentation_refused: int
    """Bursts that had to be sent frame by frame."""
    receive_errors: int
    truncated: int
    """Datagrams dropped because they did not fit."""
    own_frames: int
    """Own frames that came back and were dropped by us, for want of a filter in the kernel."""
    kernel_drops: int
    """Datagrams, or coalesced runs of them, that the kernel dropped because we read too slowly."""
    faults_in: FaultStatistics | None
    faults_out: FaultStatistics | None
