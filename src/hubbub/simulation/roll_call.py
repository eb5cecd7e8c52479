"""What holds in the end: indices are unique, topics name their receivers, no frame is missed."""

from typing import TYPE_CHECKING

from hubbub.protocol.peers import Peer
from hubbub.simulation.checkers import Ledger, Publication
from hubbub.wire.header import BITMAP_BITS, MANY, NO_INDEX, NOBODY, OPEN_BITMAP

if TYPE_CHECKING:
    from hubbub.simulation.node import SimulatedNode


def misnumbered(ledger: Ledger) -> str:
    """Say which index or bitmap is wrong; empty when all are as they should be."""
    owners: dict[int, SimulatedNode] = {}
    for node in ledger.nodes:
        index = node.core.register.index
        if index == NO_INDEX:
            return f"{node.name} has no index"
        other = owners.setdefault(index, node)
        if other is not node:
            return f"{node.name} and {other.name} both have index {index}"
    indices = {node.key: node.core.register.index for node in ledger.nodes}
    for publication in ledger.publications.values():
        if publication.node.is_alive and (wrong := _misaddressed(publication, indices)):
            return wrong
    return ""


def unsettled(ledger: Ledger) -> str:
    """Say who still misses frames of whom; empty when nobody does."""
    for node in ledger.nodes:
        for peer in node.core.peers.values():
            for receiver in peer.incoming.values():
                if receiver.requester.missing and peer.is_present:
                    missing = list(receiver.requester.missing)[:5]
                    return f"{node.name} misses the frames {missing} of {peer.source}"
    return ""


def _misaddressed(publication: Publication, indices: dict[bytes, int]) -> str:
    """Say what is wrong with the receiver field and the bitmap of a topic."""
    topic, peers = publication.topic, publication.node.core.peers.values()
    owed = [peer for peer in peers if topic.number in peer.debt.owed]
    named = {_index_of(peer, indices) for peer in owed}
    bitmap = sum(1 << index for index in named if 0 <= index < BITMAP_BITS)
    is_open = any(not 0 <= index < BITMAP_BITS for index in named)
    receiver = NOBODY if not owed else MANY if len(owed) > 1 or is_open else named.pop()
    found, flags = topic.audience, OPEN_BITMAP if is_open else 0
    if (found.receiver, found.bitmap, found.flags) == (receiver, bitmap, flags):
        return ""
    return f"{publication.node.name} sends {topic.subject} to {found}, not {receiver} {bitmap:#x}"


def _index_of(peer: Peer, indices: dict[bytes, int]) -> int:
    # One that is gone, and still owed, is known by its last index.
    return indices.get(peer.key, peer.index)
