"""One side of a gateway as people write it, and the node that is opened for it.

A side is a LAN, by interface, domain or multicast group, or a site that is reached by TCP. A site
is a bus of gateways: a domain of its own, without multicast, so that everything a node can do there
(windows, repair, connecting again with back-off) holds between sites, too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from hubbub import TcpOptions
from hubbub.channel import DEFAULT_GROUP, DEFAULT_PORT, Channel
from hubbub.errors import ConfigurationError
from hubbub.node import Node
from hubbub.opening import open as open_node
from hubbub.subjects import check_pattern

SITE_DOMAIN: Final = "gateways"


@dataclass(frozen=True, slots=True)
class Side:
    """Where one side of a gateway is; what is None is the default of `hubbub.open`.

    `listen` (a port, or an address with one) or `peers` make it a site: reached by TCP, and by
    multicast as well if there is a `group`. Of subjects, `only` those that match one of these
    patterns cross, to this side and from it. What `ca`, `certificate`, `key`, `allow` and
    `compress` of a site are says `hubbub.TcpOptions`.
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


_LISTS: Final = ("peers", "only", "allow")
_TEXTS: Final = tuple(field.name for field in fields(Side) if field.name not in ("port", *_LISTS))
TCP_OPTIONS: Final = tuple(field.name for field in fields(TcpOptions))
OPTIONS: Final = tuple(field.name for field in fields(Side))


def read_side(text: str) -> Side:
    """Read `name=a,interface=eth0` or `peers=10.0.0.7:7300+10.0.0.8:7300`."""
    options: dict[str, Any] = {}
    for part in text.split(","):
        key, is_given, value = part.partition("=")
        if not is_given or not value:
            raise ConfigurationError(f"side {text!r}: {part!r} is not OPTION=VALUE")
        if key in options:
            raise ConfigurationError(f"side {text!r}: {key} is there twice")
        options[key] = value
    for name in options.keys() & set(_LISTS):
        options[name] = options[name].split("+")
    return make_side(text, options)


def make_side(text: str, options: dict[str, Any]) -> Side:
    """Make a side of options as texts, from the command line or a file."""
    unknown = sorted(options.keys() - set(OPTIONS))
    if unknown:
        raise ConfigurationError(f"side {text!r}: {unknown[0]} is none of {', '.join(OPTIONS)}")
    made = dict(options)
    for name in made.keys() & set(_TEXTS):
        if not isinstance(made[name], str) or not made[name]:
            raise ConfigurationError(f"side {text!r}: {name}={made[name]!r} is not a text")
    if "port" in made:
        made["port"] = _read_port(text, made["port"])
    for name in made.keys() & set(_LISTS):
        made[name] = _read_list(text, name, made[name])
    for pattern in made.get("only", ()):
        check_pattern(pattern)
    return _check_site(Side(**{"name": text, **made}))


def _check_site(side: Side) -> Side:
    """Refuse what cannot work of a site; its certificates are read when it opens."""
    try:
        options = side.tcp
    except ConfigurationError as error:
        raise ConfigurationError(f"side {side.name!r}: {error}") from None
    if not side.is_site and options != TcpOptions():
        given = next(name for name in TCP_OPTIONS if getattr(side, name))
        raise ConfigurationError(f"side {side.name!r}: {given} is of sites: add listen or peers")
    return side


def _read_port(text: str, value: Any) -> int:
    if not str(value).isdecimal() or not 0 < int(value) <= 65_535:
        raise ConfigurationError(f"side {text!r}: port={value!r} must be from 1 to 65535")
    return int(value)


def _read_list(text: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ConfigurationError(f"side {text!r}: {name}={value!r} is not a list of texts")
    return tuple(value)


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
