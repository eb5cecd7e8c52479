"""The cores of one gateway, joined: what nodes on one side want is asked for on the others.

Runs of messages are passed on whole, never back to where they came from, and only to ports where
somebody wants them. A port that is slower than what comes for it makes the others take in no more
(they answer no STATUS, so senders stay within their windows) until it has caught up.

Why not frames as they are: their sequences are of one stream, which a receiver would have to tell
from the gateway's own; and a frame holds what its own receivers want, not what those beyond do.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

from hubbub.limits import BEACON_INTERVAL, PORT_BYTES_CROWDED, TREE_LISTEN
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.gateway.port import Port
from hubbub.protocol.gateway.tree import Tree
from hubbub.protocol.peers import Peer
from hubbub.wire.gateways import Beacon, decode_beacon

Call = Callable[[Port, Callable[[int], Any]], Any]  # With `now`, under the lock of the port.


class Relay:
    """All ports of one gateway, and its place in the tree of gateways."""

    def __init__(self, now: int, ports: list[Port], call: Call) -> None:
        self.ports = ports
        self._call = call
        self._is_crowded = False  # And the ports know.
        gateway = min(port.core.endpoint.identity.id for port in ports)
        self.tree = Tree(gateway, len(ports), now)
        self.beacon_ns = now  # When to tell again where we are.
        self._beacons: deque[tuple[int, int, bytes, Beacon]] = deque()
        for port in ports:
            port.is_open = False

    @property
    def is_waiting(self) -> bool:
        """Tell whether something waits for room at a port."""
        return any(port.is_waiting for port in self.ports)

    @property
    def is_crowded(self) -> bool:
        """Tell whether so much waits at a port that the others should take in no more."""
        return any(port.queued_bytes > PORT_BYTES_CROWDED for port in self.ports)

    def hear(self, place: int, now: int, peer: Peer, body: bytes) -> None:
        """Note what another gateway says on the network of a port; under that port's lock."""
        beacon = decode_beacon(body)
        if beacon is not None:
            self._beacons.append((now, place, peer.key, beacon))

    def take(self, origin: Port, delivery: Delivery) -> None:
        """Take a run of messages that came to a port; `pump` sends it on."""
        hops = getattr(delivery.topic, "hops", 0) + 1
        subject = origin.take(delivery)
        for port in self.ports:
            if port is not origin and subject is not None:
                port.put(delivery, hops, subject)

    def look(self, now: int) -> None:
        """Look again which ports pass on and what is wanted where, and ask for it elsewhere."""
        self._settle(now)
        for place, port in enumerate(self.ports):
            ignored, kept = self.tree.ignored(place), self.tree.standing_by(place)
            self._call(port, partial(port.look, ignored=ignored, kept=kept))
        for port in self.ports:
            others = [one for one in self.ports if one is not port and port.is_listening]
            real = port.called_here(chain.from_iterable(one.patterns for one in others))
            reserve = port.called_here(chain.from_iterable(one.reserve for one in others))
            wanted, marked = real | reserve, reserve - real
            if (wanted, marked) != (port.asked, port.marked):
                self._call(port, partial(port.ask, patterns=wanted, marked=marked))

    def _settle(self, now: int) -> None:
        while self._beacons:
            self.tree.hear(*self._beacons.popleft())
        for place, port in enumerate(self.ports):
            self.tree.forget(place, port.core.peers)
        is_changed = self.tree.settle(now, self._is_present)
        if not is_changed and now < self.beacon_ns:
            return
        for place, port in enumerate(self.ports):
            is_open = self.tree.is_open[place] and not self.tree.is_standby
            if is_open != port.is_open:
                self._call(port, port.open if is_open else port.close)
            port.is_standby = self.tree.is_standby
            self._call(port, partial(port.tell, beacon=self.tree.beacon(place)))
        if now >= self.beacon_ns:  # What changes is told besides, and puts nothing off.
            self.beacon_ns = now + (TREE_LISTEN if self.tree.is_listening else BEACON_INTERVAL)

    def _is_present(self, place: int, key: bytes) -> bool:
        peer = self.ports[place].core.peers.get(key)
        # Its HELLO may come later than what it tells.
        return peer is not None and peer.lost_ns is None and peer.ends is None

    def sweep(self) -> None:
        """Forget what comes from nowhere any more; now and then."""
        heard = {port: self._call(port, port.heard) for port in self.ports}
        for port in self.ports:
            others = set().union(
                *(heard[one] for one in self.ports if one is not port and port.is_open)
            )
            self._call(port, partial(port.sweep, heard=others))

    def pump(self) -> None:
        """Send on what there is room for."""
        for port in self.ports:
            if port.is_waiting:
                self._call(port, port.feed)
        is_crowded = self.is_crowded
        if is_crowded != self._is_crowded:
            self._is_crowded = is_crowded
            for port in self.ports:
                self._call(port, partial(port.crowd, is_crowded=is_crowded))
