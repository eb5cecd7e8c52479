"""Whom the rendezvous finds is called by TCP: without multicast one address will do (decision 56).

Nodes that share services tell each other of all who do, and each has its TCP where its services
are. So who was told of one node alone is connected to all of them, with everything that
connections promise. Those of this host that a pipe leads to need no connection beside it.
"""

from itertools import islice
from time import monotonic_ns

from hubbub.limits import FOUND_PEERS_MAX
from hubbub.links.dialling import HostAndPort
from hubbub.runtime.driver import Driver
from hubbub.runtime.logs import logger_of
from hubbub.runtime.service_driver import ServiceDriver
from hubbub.wire.header import make_key

_log = logger_of("connection")
_ANYBODY = b""  # Stands for those that the first one who is known will tell of.


class Introductions:
    """Makes connections of one channel to the nodes that its services know."""

    def __init__(self, services: ServiceDriver, driver: Driver, *, is_told_of_some: bool) -> None:
        self._services = services
        self._driver = driver
        self._version = -1  # Of the view that was followed last.
        self._has_told = False
        if is_told_of_some:
            driver.core.expect([_ANYBODY])

    def follow(self) -> None:
        """Call whoever is there now; no lock is held."""
        driver, tcp, view = self._driver, self._driver.tcp, self._services.machine.view
        assert tcp is not None
        if view.version == self._version:  # Many come at once, as many news.
            return
        with self._services.lock:
            self._version, members = view.version, view.present()
        if len(members) > FOUND_PEERS_MAX:
            self._tell_bound(len(members))
        found = {
            HostAndPort(*one.place): make_key(one.node, one.life)
            for one in islice(members, FOUND_PEERS_MAX)
        }
        with driver.lock:
            tcp.link.call_also(found, self._is_nearby)
            driver.core.expect(found.values())
        driver.loop.wake_by(monotonic_ns())

    def _tell_bound(self, count: int) -> None:
        """Say once that not everybody is connected to."""
        if not self._has_told:
            self._has_told = True
            _log.warning(
                "%d nodes share this bus, of which %d are connected to though nobody named them;"
                ' with links=["services"] there is no such bound', count, FOUND_PEERS_MAX,
            )  # fmt: skip

    def _is_nearby(self, key: bytes) -> bool:
        """Tell whether a pipe of this host leads to a node."""
        pipes = self._driver.pipes
        return pipes is not None and pipes.link.leads_to(key)
