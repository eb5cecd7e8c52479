"""A host whose only interface is the loopback: nodes talk, and one notice says why only here."""

import logging

import pytest

import hubbub
from tests.integration.namespace import run_scenario

pytestmark = pytest.mark.netns


def loopback_only() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hubbub").addHandler(handler)
    with hubbub.open("one") as one, hubbub.open("two") as two:
        readings = two.subscribe("/temp")
        assert one.publisher("/temp").wait_for_subscribers(1, timeout=5)
        one.publish("/temp", b"21.5")
        message = readings.receive(timeout=5)
        assert message is not None
        assert message.payload == b"21.5"
    assert len([line for line in lines if "no LAN interface is up" in line]) == 1


def test_without_a_lan_nodes_of_one_host_talk_and_one_notice_says_so() -> None:
    run_scenario(loopback_only)
