"""Datagrams to single nodes where there shall be no multicast: the group is all pipes.

The socket is the one that a multicast link has for what is for one node, opened, watched and mended
in the same way (links/recovery.py); only that no group is joined, and that what is for all goes by
every pipe, as links/host.py has it.
"""

from typing import Any

from hubbub.limits import WINDOW_BYTES
from hubbub.links.multicast import MulticastLink
from hubbub.links.pipe_set import PipeSet
from hubbub.protocol.burst import Burst


class UnicastLink(MulticastLink):
    """A UDP socket for each interface, and pipes for a group."""

    name = "datagram"

    def __init__(self, group: str, port: int, **options: Any) -> None:
        super().__init__(group, port, has_group=False, **options)
        self._pipes = PipeSet([])

    def use(self, pipes: PipeSet) -> None:
        """Send by these from now on what is for all."""
        self._pipes = pipes

    @property
    def window_bytes(self) -> int:
        """How much may be on the way to us: what has a window comes by pipes."""
        return WINDOW_BYTES

    def send(self, burst: Burst) -> bool:
        """Send a burst to one address, or by all pipes; False: as ever."""
        if burst.destination is None:
            self._pipes.send_to_all(burst.buffers, burst.segment_bytes)
            return True
        return super().send(burst)
