"""HOT. Frames of samples from peers whose header was looked at before.

All that the header of a sample says, but for packet number, time and checksum, is the same in every
frame of a node. A frame that begins with the very bytes of one which was checked closely need only
be checked for damage: that saves 3 us (`python -m benchmarks.relay`).
"""

from collections.abc import Callable
from typing import Final
from zlib import crc32

from hubbub.limits import PEERS_MAX
from hubbub.protocol.burst import Address, Pipes
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.peers import Peer
from hubbub.protocol.timetrigger.relay import Relay
from hubbub.wire.header import CHECKSUM_OFFSET, HEADER_BYTES, PREFIX_BYTES

_NO_SEQUENCE: Final = bytes(8)  # Samples are in no stream.


class Lanes:
    """Beginnings of frames that are known, and whose they are."""

    def __init__(
        self, endpoint: Endpoint, peers: dict[bytes, Peer], relay: Relay,
        look_closely: Callable[[int, bytes, int, int, Address], object],
    ) -> None:  # fmt: skip
        self._peers = peers
        self._relay = relay
        self._drops = endpoint.drops
        self._look_closely = look_closely
        self._lanes: dict[bytes, tuple[Peer, int]] = {}

    def open(self, peer: Peer, buffer: bytes, start: int) -> None:
        """Remember a frame of a peer that was in order."""
        if len(self._lanes) >= PEERS_MAX:
            self._lanes.clear()
        prefix = buffer[start : start + PREFIX_BYTES]
        self._lanes[prefix] = peer, crc32(prefix)

    def receive(self, now: int, buffer: bytes, step: int, source: Address) -> None:
        """Take a datagram of samples, or several of one size that the kernel joined."""
        size, take = len(buffer), self.take
        for start in range(0, size, step):
            end = start + step if start + step < size else size
            if not take(now, buffer, start, end, source):
                self._look_closely(now, buffer, start, end, source)

    def take(self, now: int, buffer: bytes, start: int, end: int, source: Address) -> bool:
        """Take a frame of samples; False: it must be looked at closely."""
        behind = start + PREFIX_BYTES
        lane = self._lanes.get(buffer[start:behind])
        if lane is None:
            return False
        peer, crc = lane
        if peer.lost_ns is not None or self._peers.get(peer.key) is not peer:
            return False
        if not (isinstance(source, Pipes) and source[0] == peer.key) and peer.address != source:
            return False
        tail = buffer[behind : start + CHECKSUM_OFFSET]
        body = start + HEADER_BYTES
        checksum = int.from_bytes(buffer[body - 4 : body], "big")
        if (
            not tail.startswith(_NO_SEQUENCE)
            or crc32(buffer[body:end], crc32(tail, crc)) != checksum
        ):
            return False
        peer.heard_ns = now
        if not self._relay.take(now, peer, buffer, body, end):
            self._drops["malformed"] += 1
        return True
