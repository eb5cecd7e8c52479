"""Which interfaces a channel uses, given what the machine has."""

from dataclasses import replace

import pytest

from hubbub.errors import ConfigurationError
from hubbub.links import interfaces as module
from hubbub.links.interfaces import Interface, choose

LOOPBACK = Interface("lo", 1, ("127.0.0.1",), ("::1",), 65536, True, True, False)
FIRST = Interface("eth0", 2, ("192.0.2.7",), ("fe80::7",), 1500, True, False, True)
SECOND = Interface("eth1", 3, ("198.51.100.7", "198.51.100.8"), (), 1500, True, False, True)
UNPLUGGED = Interface("eth2", 4, ("203.0.113.7",), (), 1500, False, False, True)
TUNNEL = Interface("tun0", 5, ("10.8.0.2",), (), 1400, True, False, False)
BARE = Interface("br0", 6, (), (), 1500, True, False, True)
ALL = [LOOPBACK, FIRST, SECOND, UNPLUGGED, TUNNEL, BARE]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> "Machine":
    return Machine(monkeypatch)


class Machine:
    """The edge to the operating system: its interfaces, and where the default routes lead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def has(self, known: list[Interface], *outward: str) -> None:
        self._monkeypatch.setattr(module, "interfaces", lambda: known)
        self._monkeypatch.setattr(module, "_outward_addresses", lambda: iter(outward))


def test_the_default_is_the_interface_of_the_default_route(machine: Machine) -> None:
    machine.has(ALL, "198.51.100.8")
    assert choose(None) == [SECOND]


def test_ipv6_route_counts_where_there_is_no_other(machine: Machine) -> None:
    machine.has([LOOPBACK, SECOND, FIRST], "fe80::7")
    assert choose(None) == [FIRST]


def test_without_a_default_route_the_first_usable_interface_serves(machine: Machine) -> None:
    machine.has([LOOPBACK, UNPLUGGED, TUNNEL, BARE, SECOND, FIRST])
    assert choose(None) == [SECOND]


def test_an_interface_with_an_ipv4_address_comes_before_one_without(machine: Machine) -> None:
    machine.has([LOOPBACK, replace(BARE, ipv6=("fe80::9",)), SECOND])
    assert choose(None) == [SECOND]


def test_default_route_over_something_without_multicast_is_not_the_lan(machine: Machine) -> None:
    machine.has(ALL, "10.8.0.2")
    assert choose(None) == [FIRST]


@pytest.mark.parametrize("wanted", [None, "all"])
def test_without_a_lan_loopback_serves(machine: Machine, wanted: str | None) -> None:
    machine.has([LOOPBACK, UNPLUGGED, TUNNEL, BARE])
    assert choose(wanted) == [LOOPBACK]


def test_all_are_those_that_are_up_and_have_an_address(machine: Machine) -> None:
    machine.has(ALL)
    assert choose("all") == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("eth1", SECOND),
        ("198.51.100.8", SECOND),
        ("fe80:0:0::7", FIRST),
        ("fe80::7%eth0", FIRST),
        ("::1", LOOPBACK),
        ("eth2", UNPLUGGED),
    ],
)
def test_an_interface_is_found_by_name_and_address(
    machine: Machine, wanted: str, found: Interface
) -> None:
    machine.has(ALL)
    assert choose(wanted) == [found]


def test_an_unknown_interface_is_an_error_that_lists_what_there_is(machine: Machine) -> None:
    machine.has(ALL)
    with pytest.raises(ConfigurationError) as raised:
        choose("eth7")
    text = str(raised.value)
    assert "'eth7'" in text
    assert "lo (127.0.0.1, ::1)" in text
    assert "eth2 (203.0.113.7, down)" in text
    assert "br0 (no address)" in text


def test_a_machine_without_anything_up_is_an_error(machine: Machine) -> None:
    machine.has([UNPLUGGED])
    with pytest.raises(ConfigurationError, match="no interface is up, not even loopback"):
        choose(None)
