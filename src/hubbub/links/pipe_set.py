"""HOT. All pipes of a channel, of whatever kind: each node is reached by the best there is."""

from typing import Any

from hubbub.links.pipes import Buffers, PipeLink
from hubbub.protocol.burst import Pipes


class PipeSet:
    """Links of pipes, the best one first."""

    def __init__(self, links: list[PipeLink[Any]]) -> None:
        self.links = links

    def send(self, destination: Pipes, buffers: Buffers, segment_bytes: int) -> None:
        """Send a burst to these nodes; who has no pipe any more misses it."""
        if len(self.links) == 1:
            self.links[0].send(destination, buffers, segment_bytes)
            return
        left = list(destination)
        for link in self.links:
            keys = [key for key in left if link.leads_to(key)]
            if keys:
                link.send(Pipes(keys), buffers, segment_bytes)
                left = [key for key in left if key not in keys]

    def send_to_all(self, buffers: Buffers, segment_bytes: int) -> None:
        """Send a burst to everybody who has a pipe to us."""
        keys = dict.fromkeys(key for link in self.links for key in link.everybody)
        self.send(Pipes(keys), buffers, segment_bytes)
