"""Who may connect by TCP: a list of names and networks, and an account of who was refused.

A network is looked up by the address that a call comes from. A name is one that a certificate is
for: a name that anybody could claim would let everybody in.
"""

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from hubbub.errors import ConfigurationError
from hubbub.limits import REFUSAL_INTERVAL

_REMEMBERED_MAX: Final = 256

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AllowList:
    """Names and networks, one of which is enough; without any, everybody may connect."""

    def __init__(self, entries: Iterable[str]) -> None:
        self.networks: list[Network] = []
        self.names: set[str] = set()
        for entry in entries:
            network = _read_network(entry)
            if network is None:
                self.names.add(entry)
            else:
                self.networks.append(network)

    @property
    def is_open(self) -> bool:
        """Tell whether everybody may connect."""
        return not (self.networks or self.names)

    def has_network(self, host: str) -> bool:
        """Tell whether an address is enough."""
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        return any(address in network for network in self.networks)

    def has_name(self, names: frozenset[str]) -> bool:
        """Tell whether a certificate is enough."""
        return not self.names.isdisjoint(names)


def _read_network(entry: str) -> Network | None:
    """Read a network, or a single address; None: it is a name."""
    try:
        return ipaddress.ip_network(entry)
    except ValueError as error:
        if "/" in entry or entry.replace(".", "").isdigit():
            raise ConfigurationError(f"allow: {error}") from None
        return None


class Refusal(NamedTuple):
    """Somebody who was not let in, and why."""

    address: str
    reason: str


class Refusals:
    """Counts who was refused, and tells of it; of who comes again and again, only now and then."""

    def __init__(self) -> None:
        self.count = 0
        self.untold: deque[Refusal] = deque(maxlen=_REMEMBERED_MAX)
        self._told_ns: OrderedDict[Refusal, int] = OrderedDict()

    def note(self, now: int, host: str, port: int, reason: str) -> None:
        """Count one; tell of it unless the same was told a short while ago."""
        self.count += 1
        key = Refusal(host, reason)
        told_ns = self._told_ns.get(key)
        if told_ns is not None and now - told_ns < REFUSAL_INTERVAL:
            return
        self._told_ns[key] = now
        self._told_ns.move_to_end(key)
        if len(self._told_ns) > _REMEMBERED_MAX:
            self._told_ns.popitem(last=False)
        self.untold.append(Refusal(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", reason))
