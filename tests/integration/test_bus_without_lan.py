"""A host whose only interface is the loopback: nodes talk, and one notice says why only here."""

import logging
from typing import Any

import pytest

import hubbub
from hubbub import LinkUp
from tests.integration.bus import Events, take, wait_until
from tests.integration.namespace import ip, run_scenario

pytestmark = pytest.mark.netns


def listen_to_log() -> list[str]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hubbub").addHandler(handler)
    return lines


def notices(lines: list[str]) -> int:
    return len([line for line in lines if "no LAN interface is up" in line])


def loopback_only() -> None:
    lines = listen_to_log()
    with hubbub.open("one") as one, hubbub.open("two") as two:
        readings = two.subscribe("/temp")
        assert one.publisher("/temp").wait_for_subscribers(1, timeout=5)
        one.publish("/temp", b"21.5")
        message = readings.receive(timeout=5)
        assert message is not None
        assert message.payload == b"21.5"
    assert notices(lines) == 1


def test_without_a_lan_nodes_of_one_host_talk_and_one_notice_says_so() -> None:
    run_scenario(loopback_only)


def network_comes_later() -> None:
    """Begin before the network is up, as on a machine that boots."""
    events = Events()
    with (
        hubbub.open("lan", links=["multicast"], on_event=events) as lan,
        hubbub.open("all", links=["multicast"], interface="all", on_event=events) as every,
    ):
        publisher, wanted = lan.publisher("/x"), every.subscribe("/x")
        assert publisher.wait_for_subscribers(1, timeout=10)
        ip("link add cable type veth peer name beyond")
        ip("addr add 192.0.2.1/24 dev cable")
        for name in ("cable", "beyond"):
            ip(f"link set {name} up")
        wait_until(lambda: [one.interface for one in events.of(LinkUp)] == ["cable", "cable"])
        for node in (lan, every):
            assert [one.name for one in link_of(node).interfaces] == ["cable"]
        with hubbub.open("new", links=["multicast"], interface="cable") as new:
            late = new.subscribe("/x")
            assert publisher.wait_for_subscribers(2, timeout=10)
            for number in range(1000):
                publisher.publish(b"%d" % number)
            for subscription in (wanted, late):
                came = [message.payload for message in take(subscription, 1000)]
                assert came == [b"%d" % number for number in range(1000)]


def link_of(node: hubbub.Node) -> Any:
    return node.channels[0].driver.link


def test_network_that_comes_up_later_is_joined() -> None:
    run_scenario(network_comes_later)


def loopback_only_by_tcp() -> None:
    lines = listen_to_log()
    with hubbub.open("one", links=["local"]), hubbub.open("two", multicast=False, listen="::1"):
        assert notices(lines) == 0, "they do not mean to be heard elsewhere"
    with hubbub.open("three", multicast=False):
        assert notices(lines) == 1


def test_node_that_listens_where_nobody_elsewhere_can_call_says_so() -> None:
    run_scenario(loopback_only_by_tcp)
