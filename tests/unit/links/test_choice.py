"""Which links a node may use, from what was asked for."""

from typing import Any

import pytest

from hubbub.errors import ConfigurationError
from hubbub.links.choice import (
    best_effort_links,
    choose_links,
    is_finding,
    refuse_unrepaired,
    take_ways,
)
from hubbub.links.dialling import HostAndPort
from hubbub.links.faults import Faults
from hubbub.links.listening import ListenAt
from hubbub.links.tcp_options import TcpOptions


def links(
    links: Any = None, peers: Any = None, listen: Any = None, multicast: Any = True,
    faults: Faults | None = None, **where: Any,
) -> tuple[str, ...]:  # fmt: skip
    return choose_links(take_ways(links, peers, listen, multicast, **where), faults)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, ("inproc", "local", "multicast", "datagram")),
        ({"peers": ["10.0.0.7"]}, ("inproc", "local", "tcp", "multicast", "datagram")),
        ({"peers": []}, ("inproc", "local", "multicast", "datagram")),
        ({"listen": 7266}, ("inproc", "local", "tcp", "multicast", "datagram")),
        ({"multicast": False}, ("inproc", "local", "tcp")),
        ({"links": ["local", "tcp"]}, ("local", "tcp")),
        ({"links": "tcp", "peers": ["h"]}, ("tcp",)),
        ({"links": ["local"], "multicast": False}, ("local",)),
        ({"network": False}, ("inproc", "local")),
        ({"network": False, "multicast": False}, ("inproc", "local")),
        ({"network": False, "links": ["local"]}, ("local",)),
        ({"registration": "local"}, ("inproc", "local")),
        ({"registration": "local", "peers": "h"}, ("inproc", "local", "tcp")),
        ({"registration": "network"}, ("inproc", "local", "multicast", "datagram")),
        ({"faults": Faults(loss=0.1)}, ("multicast", "datagram")),
        ({"faults": Faults(loss=0.1), "peers": "h"}, ("tcp", "multicast", "datagram")),
        ({"links": ["tcp", "datagram"], "multicast": False}, ("tcp", "datagram")),
        (
            {"links": ["datagram", "multicast"], "faults": Faults(loss=0.1)},
            ("datagram", "multicast"),
        ),
    ],
)
def test_tcp_is_used_where_it_is_asked_for(options: dict[str, Any], chosen: Any) -> None:
    assert links(**options) == chosen


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"links": []}, "at least one of local, tcp, multicast"),
        ({"links": ["inproc"]}, "at least one of local, tcp, multicast"),
        ({"links": ["local", "pigeon"]}, "'pigeon' is none of inproc, local, tcp, multicast"),
        ({"links": ["datagram"]}, "at least one of local, tcp, multicast"),
        ({"links": ["local", "datagram"]}, "by datagram nobody is found; add multicast, or tcp"),
        ({"links": ["tcp", "datagram"], "network": False}, "network=False: leave one of them out"),
        ({"links": ["local"], "peers": ["h"]}, "peers= and listen= are of tcp; add it"),
        ({"links": ["multicast"], "listen": 80}, "peers= and listen= are of tcp; add it"),
        ({"links": ["tcp", "multicast"], "multicast": False}, "leave one of them out"),
        ({"faults": Faults(loss=0.1), "multicast": False}, "faults are of multicast"),
        ({"links": ["tcp"], "faults": Faults(loss=0.1)}, "faults are of multicast; add it"),
        ({"multicast": None}, "multicast=None: give True or False"),
        ({"network": 0}, "network=0: give True or False"),
        ({"network": False, "links": ["local", "tcp"]}, "network=False: leave one of them out"),
        ({"network": False, "peers": ["h"]}, "network=False: leave one of them out"),
        ({"network": False, "faults": Faults(loss=0.1)}, "faults are of multicast"),
        ({"registration": "udp"}, "registration='udp' is none of both, network, local"),
        ({"registration": "network", "network": False}, "are of this host alone"),
        ({"registration": "local", "links": ["multicast"]}, "do without it"),
        ({"peers": ["h:0"]}, "port '0' must be from 1 to 65535"),
        ({"peers": [7266]}, "peers=7266 is no text"),
        ({"listen": 65_536}, "listen=65536 must be a port from 0"),
        ({"listen": True}, "listen=True is no text"),
        ({"listen": "host:x"}, "listen='host:x'"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        links(**options)


def test_peers_are_named_by_text_or_list() -> None:
    asked = take_ways(None, "10.0.0.7:7300, plant-7", "10.0.0.1:7300", True)
    assert asked.peers == (HostAndPort("10.0.0.7", 7300), HostAndPort("plant-7", 0))
    assert asked.listen == ListenAt("10.0.0.1", 7300)
    assert take_ways(None, [], None, True).peers == ()


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        (None, ()),
        (["local", "multicast"], ()),
        (["local", "multicast", "datagram"], ("local", "multicast", "datagram")),
        (["datagram", "local", "multicast"], ("datagram", "local", "multicast")),
        (["local", "tcp", "datagram"], ("local", "datagram", "tcp")),
        (["tcp", "local", "datagram"], ("datagram", "tcp", "local")),
    ],
)
def test_best_effort_keeps_to_the_links_of_a_node_that_names_datagram(
    named: Any, kept: Any
) -> None:
    assert best_effort_links(take_ways(named, None, None, True)) == kept


def test_datagram_alone_is_refused_for_what_is_to_be_reliable() -> None:
    for links in (("datagram",), ("inproc", "datagram")):
        with pytest.raises(
            ConfigurationError, match=r"datagram repairs nothing: name tcp or multi"
        ):
            refuse_unrepaired(links)
    for links in ((), ("inproc",), ("datagram", "tcp"), ("local", "datagram")):
        refuse_unrepaired(links)


@pytest.mark.parametrize(
    ("options", "tcp", "wanted"),
    [
        ({"multicast": False, "peers": "h"}, TcpOptions(), True),
        ({"multicast": False}, TcpOptions(compress="zlib"), True),
        ({"peers": "h"}, TcpOptions(), False),
        ({"links": ["local", "tcp"], "peers": "h"}, TcpOptions(), False),
        ({"multicast": False, "peers": "h"}, TcpOptions(allow=("10.0.0.0/8",)), False),
        ({"multicast": False}, TcpOptions(ca="a", certificate="b", key="c"), False),
        ({"multicast": False, "registration": "local", "peers": "h"}, TcpOptions(), False),
        ({"multicast": False, "network": False}, TcpOptions(), False),
    ],
)
def test_others_are_found_where_nothing_says_whom_to_connect_to(
    options: dict[str, Any], tcp: TcpOptions, wanted: bool
) -> None:
    asked = take_ways(**{"links": None, "peers": None, "listen": None, "multicast": True} | options)
    assert is_finding(asked, tcp) is wanted
