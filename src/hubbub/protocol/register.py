"""The register: each node of a channel owns a small index, which is its bit in every bitmap.

A node takes its index when its opening is over: everybody here has said by then who has which. Two
may still take the same, because they open at once, do not hear each other, or were apart: then the
smaller key keeps it. Who must take one does not take just the lowest that is free, because others
must, too: all of them line up by their keys, and the third in line takes the third that is free. So
nodes that know the same choose differently, and thirty of them that meet thirty others need one
round, not thirty. Whoever knows less chooses wrongly, hears of it, and chooses again.

A publisher may know us by an index that we had before: for as long as it did not hear of the newer
one, and in frames that it keeps for repairs. No timer can bound that, so every index that was ours
in this life is honoured to its end. A bitmap errs only towards "for me".
"""

from itertools import count, islice

from hubbub.limits import INDEX_PATIENCE
from hubbub.protocol.peers import Peer
from hubbub.wire.header import BITMAP_BITS, NO_INDEX, OPEN_BITMAP, Header


class Register:
    """Our own index, and what follows from those of the peers."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.peers: dict[bytes, Peer] = {}
        self.index = NO_INDEX
        self.due_ns: int | None = None  # When to look whether to take another.
        self.changes = 0
        self.bits = 0  # Of every index that was ours.
        self._indices: set[int] = set()

    def is_for_us(self, header: Header) -> bool:
        """Tell by its header whether a frame may hold something for us."""
        return bool(
            header.flags & OPEN_BITMAP
            or header.bitmap & self.bits
            or header.receiver in self._indices
        )

    def open(self, now: int) -> None:
        """Take an index now: everybody here has had the time to say which it has."""
        self.due_ns = now

    def hear(self, now: int, peer: Peer) -> None:
        """Compare the index of a peer, just heard, with ours."""
        if peer.index == self.index != NO_INDEX and peer.key < self.key and self.due_ns is None:
            self.due_ns = now + INDEX_PATIENCE

    def advance(self, now: int) -> bool:
        """Take an index if we have none, or one that is another's; True: the others must know."""
        if self.due_ns is None or now < self.due_ns:
            return False
        self.due_ns = None
        index = self._choose()
        if index == self.index:
            return False
        self.index = index
        self.changes += 1
        self._indices.add(index)
        if index < BITMAP_BITS:
            self.bits |= 1 << index
        return True

    def _choose(self) -> int:
        """Return which index is ours, as all who know the same find it."""
        claims = {self.key: self.index}
        # One that timed out may return, and finds its index still free.
        claims |= {peer.key: peer.index for peer in self.peers.values() if peer.is_known}
        holders: dict[int, bytes] = {}
        for key, index in claims.items():
            if index != NO_INDEX and key <= holders.get(index, key) and self._counts(key, index):
                holders[index] = key
        if holders.get(self.index) == self.key:
            return self.index
        line = sorted(key for key, index in claims.items() if holders.get(index) != key)
        free = (index for index in count() if index not in holders)
        return next(islice(free, line.index(self.key), None))

    def _counts(self, key: bytes, index: int) -> bool:
        """Tell whether a claim counts against ours: nobody yields to one that is away."""
        return index != self.index or key == self.key or self.peers[key].is_present
