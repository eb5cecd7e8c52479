"""A subscription of a simulated node that insists on links: the ledger compares it apart."""

from typing import TYPE_CHECKING

from hubbub.protocol.burst import Pipes, Straight
from hubbub.protocol.delivery import DATAGRAM, LOCAL, MULTICAST, TCP, Delivery
from hubbub.wire.header import (
    CHECKSUM_OFFSET,
    DATA,
    HEADER_BYTES,
    KIND_OFFSET,
    SEGMENT,
    is_intact,
    read_stream,
)
from hubbub.wire.wishes import LINKS_OF, Links

if TYPE_CHECKING:
    from hubbub.protocol.burst import Address
    from hubbub.simulation.latecomer import Latecomer
    from hubbub.simulation.node import SimulatedNode


class Insistent:
    """What one subscription with links gets."""

    has_history = False
    request = 0

    def __init__(self, node: "SimulatedNode", pattern: str, links: Links) -> None:
        self.node = node
        self.index = node.index
        self.name = f"{node.name} by {'/'.join(links)}"
        self.pattern = pattern
        self.links = links
        self.patterns = {pattern: 1}

    def take(self, delivery: Delivery) -> None:
        """Take a run; it must have come by a link that is allowed."""
        check_run(self, delivery)
        self.node.ledger.delivered(self, delivery)


def check_run(subscriber: "Insistent | Latecomer", delivery: Delivery) -> None:
    """Check that a run came by a link that its subscription allows."""
    link = getattr(delivery.link, "link", delivery.link)
    is_allowed = not (subscriber.links and delivery.payloads) or link in subscriber.links
    text = f"{subscriber.name} got {delivery.topic.subject} by {link}"
    subscriber.node.world.check(is_allowed, text)


def link_of(source: "Address", links: Links) -> str:
    """Return by which link a frame of a stream that keeps to these links came from there."""
    if isinstance(source, Pipes):
        return LOCAL if source.is_near else TCP
    # Of a stream that takes no datagrams this is how the group reaches its only receiver.
    return DATAGRAM if isinstance(source, Straight) and DATAGRAM in links else MULTICAST


def check_link(node: "SimulatedNode", frame: bytes, source: "Address") -> None:
    """Check that a frame of a stream that keeps to links came by one of them."""
    if not isinstance(source, Pipes) and not _is_intact(frame):
        return  # Damaged on its way: whatever stream it names, the receiver drops it.
    links = LINKS_OF.get(read_stream(frame, 0))
    if links is not None and frame[KIND_OFFSET] in (DATA, SEGMENT):
        link = link_of(source, links)
        node.world.check(
            link in links, f"{node.name} got a frame by {link} of a stream for {'/'.join(links)}"
        )


def _is_intact(frame: bytes) -> bool:
    return len(frame) >= HEADER_BYTES and is_intact(
        frame, 0, len(frame), int.from_bytes(frame[CHECKSUM_OFFSET:HEADER_BYTES], "big")
    )
