"""Whether datagrams get through between nodes that no group joins.

Nodes of a group hear each other's frames from the very sockets that take datagrams, so each knows
where the other is, and that it is there. Nodes that are connected by TCP know neither: a port is
not told by another, and a firewall may pass one and not the other. So each that means to send them
tells in its HELLO at which port it takes them, and sends the other a heartbeat there, once a second
and at once when the first one comes. Who hears these knows the way and that it is open; when they
stay away for `peer_timeout_ms`, it is not (decision 0051).

Such a heartbeat names no stream, which those of the group always do.
"""

from collections.abc import Callable, Iterable

from hubbub.limits import MS
from hubbub.protocol.burst import Address, Pipes
from hubbub.protocol.delivery import DATAGRAM
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.peers import Peer
from hubbub.wire.header import HEARTBEAT


class Probing:
    """Heartbeats by datagrams to those whom we may send datagrams, of one node on one channel."""

    def __init__(
        self,
        endpoint: Endpoint,
        make_heartbeat: Callable[[], bytes],
        on_open: Callable[[int], None],
    ) -> None:
        self.endpoint = endpoint
        self.make_heartbeat = make_heartbeat
        self.on_open = on_open
        self._timeout_ns = int(endpoint.settings.peer_timeout_ms * MS)

    def tell(self, peers: Iterable[Peer]) -> None:
        """Tell peers that we are there, by a datagram each."""
        if not self.endpoint.datagram_port:
            return  # Nobody here means to send or get any.
        for peer in peers:
            address = self._address_of(peer)
            if address is not None:
                self.endpoint.send(address, HEARTBEAT, 0, self.make_heartbeat())

    def greet(self, peer: Peer) -> None:
        """Tell one at once that has just said who it is."""
        if peer.straight_ns is None:
            self.tell([peer])

    def hear(self, now: int, peer: Peer) -> None:
        """Hear that datagrams of a peer come through; one that did not know of us is answered."""
        is_news = not self._is_recent(peer.straight_ns)
        peer.straight_ns = now
        if is_news:
            self.tell([peer])
            self.on_open(now)

    def _address_of(self, peer: Peer) -> Address | None:
        """Return where a peer takes datagrams; None: nowhere, or the group tells it anyway."""
        ways = self.endpoint.ways
        if DATAGRAM not in peer.links or not peer.is_present:
            return None
        if ways.has_group and self._is_recent(peer.grouped_ns):
            return None
        if not isinstance(peer.address, Pipes):
            return peer.address
        host = ways.host_of(peer.key)
        return (host, peer.datagram_port) if host and peer.datagram_port else None

    def _is_recent(self, heard_ns: int | None) -> bool:
        return heard_ns is not None and heard_ns >= self.endpoint.now - self._timeout_ns
