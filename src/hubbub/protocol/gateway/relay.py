"""The cores of one gateway, joined: what nodes on one side want is asked for on the others.

Runs of messages are passed on whole, never back to where they came from, and only to ports where
somebody wants them. A port that is slower than what comes for it makes the others take in no more
(they answer no STATUS, so senders stay within their windows) until it has caught up.

Why not frames as they are: their sequences are of one stream, which a receiver would have to tell
from the gateway's own; and a frame holds what its own receivers want, not what those beyond do.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

from hubbub.limits import PORT_BYTES_CROWDED
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.gateway.port import Port

Call = Callable[[Port, Callable[[int], Any]], Any]  # With `now`, under the lock of the port.


class Relay:
    """All ports of one gateway."""

    def __init__(self, ports: list[Port], call: Call) -> None:
        self.ports = ports
        self._call = call
        self._is_crowded = False  # And the ports know.

    @property
    def is_waiting(self) -> bool:
        """Tell whether something waits for room at a port."""
        return any(port.is_waiting for port in self.ports)

    @property
    def is_crowded(self) -> bool:
        """Tell whether so much waits at a port that the others should take in no more."""
        return any(port.queued_bytes > PORT_BYTES_CROWDED for port in self.ports)

    def take(self, origin: Port, delivery: Delivery) -> None:
        """Take a run of messages that came to a port; `pump` sends it on."""
        hops = getattr(delivery.topic, "hops", 0) + 1
        for port in self.ports:
            if port is not origin:
                port.put(delivery, hops)

    def look(self) -> None:
        """Look again what is wanted where, and ask for it everywhere else."""
        changed = [port for port in self.ports if self._call(port, port.look)]
        if not changed:
            return
        for port in self.ports:
            others = (one.patterns for one in self.ports if one is not port)
            wanted = frozenset(chain.from_iterable(others))
            if wanted != port.asked:
                self._call(port, partial(port.ask, patterns=wanted))

    def sweep(self) -> None:
        """Forget what comes from nowhere any more; now and then."""
        heard = {port: self._call(port, port.heard) for port in self.ports}
        for port in self.ports:
            others = set().union(*(heard[one] for one in self.ports if one is not port))
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
