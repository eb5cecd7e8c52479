"""One side of a gateway as people write it, and the node that is opened for it.

A side is a LAN, by interface, domain or multicast group, or a site that is reached by TCP. A site
is a bus of gateways: a domain of its own, without multicast, so that everything a node can do there
(windows, repair, connecting again with back-off) holds between sites, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hubbub import TcpOptions
from hubbub.channel import DEFAULT_GROUP, DEFAULT_PORT, Channel
from hubbub.errors import ConfigurationError
from hubbub.node import Node
from hubbub.opening import open as open_node

SITE_DOMAIN: Final = "gateways"


@dataclass(frozen=True, slots=True)
class Side:
    """Where one side of a gateway is; what is None is the default of `hubbub.open`.

    `listen` (a port, or an address with one) or `peers` make it a site: reached by TCP, and by
    multicast as well if there is a `group`. Of subjects, `only` those that match one of these
    patterns cross, to this side and from it. What `ca`, `certificate`, `key`, `allow` and
    `compress` of a site are says `hubbub.TcpOptions`. No more than `rate_limit_bits` go out here in
    a second, those of `urgent` subjects first. `remap` says what subjects below each of its keys
    are called on the other sides, and so the other way round. Patterns are those of this side.
    """

    name: str
    domain: str | None = None
    interface: str | None = None
    group: str | None = None
    port: int | None = None
    listen: str | None = None
    peers: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ca: str = ""
    certificate: str = ""
    key: str = ""
    allow: tuple[str, ...] = ()
    compress: str = ""
    rate_limit_bits: int | None = None
    urgent: tuple[str, ...] = ()
    remap: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_site(self) -> bool:
        """Tell whether it is reached by TCP."""
        return self.listen is not None or bool(self.peers)

    @property
    def place(self) -> tuple[object, ...]:
        """Return what two sides must not have in common."""
        if self.is_site:
            return self.listen, self.peers
        return self.domain, self.interface, self.group or DEFAULT_GROUP, self.port or DEFAULT_PORT

    @property
    def tcp(self) -> TcpOptions:
        """Return what connections of a site are like, or say what cannot work."""
        return TcpOptions(self.ca, self.certificate, self.key, self.allow, self.compress)


def check_sides(sides: Iterable[Side]) -> tuple[Side, ...]:
    """Refuse sides that cannot be joined, and return them."""
    given = tuple(sides)
    if len(given) < 2:
        raise ConfigurationError(f"a gateway joins at least 2 sides, not {len(given)}")
    for place, side in enumerate(given):
        for other in given[:place]:
            if other.name == side.name:
                raise ConfigurationError(f"two sides are named {side.name!r}")
            if other.place == side.place:
                raise ConfigurationError(
                    f"{other.name} and {side.name} are the same network: give each an interface,"
                    " domain or group of its own"
                )
    return given


def open_side(side: Side, *, name: str, is_apart: bool = True, **options: Any) -> Node:
    """Open the node of a side; its own messages never come back to it.

    Nodes of one host find each other by domain and group alone. `is_apart` says that no other side
    has both in common with this one; else it does without pipes.
    """
    channel = Channel(side.group or DEFAULT_GROUP, side.port or DEFAULT_PORT)
    is_lan = not side.is_site or side.group is not None
    links = ["local"] if is_apart else []
    links += ["tcp"] if side.is_site else []
    links += ["multicast"] if is_lan else []
    if side.rate_limit_bits is not None:
        options["rate_limit_bits"] = side.rate_limit_bits
    domain = side.domain or (None if is_lan else SITE_DOMAIN)
    return open_node(
        name, domain=domain, interface=side.interface, channels=[channel], loopback=False,
        links=links, multicast=is_lan, peers=list(side.peers) or None, listen=_listen_at(side),
        tcp=side.tcp, **options,
    )  # fmt: skip


def _listen_at(side: Side) -> int | str | None:
    """Return where others find a site; one that only calls others needs no port of its own."""
    if side.listen is None:
        return 0 if side.peers else None
    return int(side.listen) if side.listen.isdecimal() else side.listen


def open_sides(sides: Iterable[Side], name: str, **options: Any) -> list[Node]:
    """Open the nodes of all sides, or none."""
    given = check_sides(sides)
    meeting = [(side.domain, side.group, side.port) for side in given]
    nodes: list[Node] = []
    try:
        for side, place in zip(given, meeting, strict=True):
            is_apart = meeting.count(place) == 1
            nodes.append(open_side(side, name=name, is_apart=is_apart, **options))
    except BaseException:
        for node in nodes:
            node.close(0)
        raise
    return nodes
