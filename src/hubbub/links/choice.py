"""Which links a node may use: what was asked for, what follows from it, and what cannot work."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from hubbub.errors import ConfigurationError
from hubbub.links.dialling import HostAndPort, parse_address
from hubbub.links.faults import Faults
from hubbub.links.listening import ListenAt, parse_listen
from hubbub.links.tcp_options import TcpOptions

LINKS: Final = ("inproc", "local", "tcp", "multicast", "datagram")
REGISTRATIONS: Final = ("both", "network", "local")
_BUS_LINKS: Final = ("local", "tcp", "multicast")  # By which nodes find each other.
_SERVICES: Final = ("services",)  # All subjects by services: it stands alone (decision 31).
_NETWORK: Final = {"tcp", "multicast", "datagram", *_SERVICES}


class AskedWays(NamedTuple):
    """What an application asked for; None is nothing."""

    links: tuple[str, ...] | None
    peers: tuple[HostAndPort, ...]
    listen: ListenAt | None
    has_multicast: bool
    has_network: bool = True
    registration: str = "both"


def take_ways(
    links: Iterable[str] | None,
    peers: Iterable[str] | str | None,
    listen: int | str | None,
    multicast: bool,
    network: bool = True,
    registration: str = "both",
) -> AskedWays:
    """Read the options that say how messages may travel."""
    for option, value in (("multicast", multicast), ("network", network)):
        if not isinstance(value, bool):
            raise ConfigurationError(f"{option}={value!r}: give True or False")
    for option, names in (("links", links), ("peers", peers)):
        if not isinstance(names, Iterable | None):
            raise ConfigurationError(f"{option}={names!r}: give a list of names")
    if registration not in REGISTRATIONS:
        known = ", ".join(REGISTRATIONS)
        raise ConfigurationError(f"registration={registration!r} is none of {known}")
    chosen = (links,) if isinstance(links, str) else None if links is None else tuple(links)
    if isinstance(peers, str):
        peers = peers.split(",")
    named = () if peers is None else tuple(parse_address(peer, "peers") for peer in peers)
    at = None if listen is None else parse_listen(listen)
    return AskedWays(chosen, named, at, multicast, network, registration)


def choose_links(asked: AskedWays, faults: Faults | None) -> tuple[str, ...]:
    """Return the links that may be used, or say what contradicts itself."""
    links = _choose(asked, faults)
    if not asked.has_network and set(links) & _NETWORK:
        raise ConfigurationError(f"links={links!r} and network=False: leave one of them out")
    if asked.registration == "network" and not set(links) & _NETWORK:
        raise ConfigurationError(f"registration='network': links={links!r} are of this host alone")
    if asked.registration == "local" and "local" not in links:
        raise ConfigurationError(f"registration='local': links={links!r} do without it")
    return links


def _choose(asked: AskedWays, faults: Faults | None) -> tuple[str, ...]:
    wants_tcp = bool(asked.peers) or asked.listen is not None
    if asked.links is None:
        is_only_way = asked.registration != "local" and not asked.has_multicast
        return _default(asked, faults, wants_tcp or (asked.has_network and is_only_way))
    chosen = asked.links
    if chosen == _SERVICES and faults is None:
        return chosen
    if set(_SERVICES) & set(chosen):
        raise ConfigurationError(f"links={chosen!r}: services carry all subjects, or none")
    _check_names(chosen)
    if wants_tcp and "tcp" not in chosen:
        raise ConfigurationError(f"links={chosen!r}: peers= and listen= are of tcp; add it")
    if "multicast" in chosen and not asked.has_multicast:
        raise ConfigurationError(f"links={chosen!r} and multicast=False: leave one of them out")
    if faults is not None and not {"multicast", "datagram"} & set(chosen):
        raise ConfigurationError(f"links={chosen!r}: faults are of multicast; add it")
    return chosen


def _check_names(chosen: tuple[str, ...]) -> None:
    """Refuse what is no link, and a node that could find nobody."""
    for link in chosen:
        if link not in LINKS:
            raise ConfigurationError(f"links={chosen!r}: {link!r} is none of {', '.join(LINKS)}")
    if not set(chosen).intersection(_BUS_LINKS):
        raise ConfigurationError(
            f"links={chosen!r}: a node needs at least one of {', '.join(_BUS_LINKS)}"
        )
    if "datagram" in chosen and not {"tcp", "multicast"} & set(chosen):
        raise ConfigurationError(
            f"links={chosen!r}: by datagram nobody is found; add multicast, or tcp and peers="
        )


def best_effort_links(asked: AskedWays) -> tuple[str, ...]:
    """Return the links of a node's best effort, where the node names datagram; else none: any.

    They are the node's, in its order. Only TCP never comes before datagram: it is there wherever
    datagrams are without a group, and nobody names these for nothing.
    """
    links = asked.links or ()
    if "datagram" not in links:
        return ()
    others = [link for link in links if link != "datagram"]
    place = min(links.index(link) for link in ("datagram", "tcp") if link in links)
    return (*others[:place], "datagram", *others[place:])


def is_finding(asked: AskedWays, tcp: TcpOptions) -> bool:
    """Tell whether a node connects to those, too, that nobody named, but others tell of.

    Who names links means these alone, and who says by certificates or addresses whom it trusts
    does not follow what anybody tells it.
    """
    if asked.links is not None or tcp.ca or tcp.allow:
        return False
    return asked.has_network and not asked.has_multicast and asked.registration != "local"


def insist_on(links: Iterable[str] | None, has: tuple[str, ...]) -> tuple[str, ...]:
    """Return the links that a publisher or subscription insists on, of those its node has.

    None is any: then there are none.
    """
    if links is None:
        return ()
    if not isinstance(links, Iterable):
        raise ConfigurationError(f"links={links!r}: give a list of names")
    chosen = (links,) if isinstance(links, str) else tuple(links)
    there = f"this node has {', '.join(has)}"
    if not chosen:
        raise ConfigurationError(f"links={chosen!r}: name at least one, or leave it out; {there}")
    if set(has) == set(_SERVICES):
        raise ConfigurationError(f"links={chosen!r}: services carry all subjects of this node")
    for link in chosen:
        if link not in LINKS:
            raise ConfigurationError(f"links={chosen!r}: {link!r} is none of {', '.join(LINKS)}")
        if link not in has:
            raise ConfigurationError(
                f"links={chosen!r}: {link!r} is no link of this node; {there}; open it with that"
            )
        if chosen.count(link) > 1:
            raise ConfigurationError(f"links={chosen!r}: {link!r} is there twice; name it once")
    if "inproc" in chosen[1:]:
        raise ConfigurationError(
            f"links={chosen!r}: nodes of one process hand over before anything else is looked at;"
            " name inproc first, or not at all"
        )
    return chosen


def refuse_unrepaired(links: tuple[str, ...]) -> None:
    """Refuse datagram as the only way of what is to be reliable."""
    if "datagram" in links and not set(links) & set(_BUS_LINKS):
        raise ConfigurationError(
            f"links={links!r}: datagram repairs nothing: name tcp or multicast too, or publish with"
            " reliable=False"
        )


def _has_multicast(asked: AskedWays) -> bool:
    return asked.has_multicast and asked.has_network and asked.registration != "local"


def _default(asked: AskedWays, faults: Faults | None, has_tcp: bool) -> tuple[str, ...]:
    if faults is not None:
        if not _has_multicast(asked):
            raise ConfigurationError("faults are of multicast, which is left out")
        return ("tcp", "multicast", "datagram") if has_tcp else ("multicast", "datagram")
    # The socket of the group takes datagrams, too; without it one is opened only for who names it.
    left_out = {
        *(() if has_tcp else ("tcp",)),
        *(() if _has_multicast(asked) else ("multicast", "datagram")),
    }
    return tuple(link for link in LINKS if link not in left_out)
