"""A host whose only interface is the loopback: nodes talk, and one notice says why only here."""

import logging

import pytest

import hubbub
from tests.integration.namespace import run_scenario

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


def loopback_only_by_tcp() -> None:
    lines = listen_to_log()
    with hubbub.open("one", links=["local"]), hubbub.open("two", multicast=False, listen="::1"):
        assert notices(lines) == 0, "they do not mean to be heard elsewhere"
    with hubbub.open("three", multicast=False):
        assert notices(lines) == 1


def test_node_that_listens_where_nobody_elsewhere_can_call_says_so() -> None:
    run_scenario(loopback_only_by_tcp)
