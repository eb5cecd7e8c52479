"""Nodes that publish what they receive: large payloads go on where they lie, whoever dies."""

from typing import Any

import pytest

import hubbub
from hubbub.links.arena import is_supported
from tests.integration.bus import Actor, Place, acting, fresh_place, hear, say, take, wait_until

pytestmark = pytest.mark.skipif(not is_supported(), reason="the system has no sealed memfd")

SIZE = 1 << 16
LINKS = ["local", "multicast"]


def relay(place: list[Any], is_inline: bool) -> None:
    """Publish again what comes, until told to stop, and tell what was handed on."""
    with Place(*place).open("relay", links=LINKS) as node:
        publisher = node.publisher("/out")
        node.subscribe("/in", lambda message: publisher.publish(message.payload), inline=is_inline)
        assert publisher.wait_for_subscribers(1, 30)
        say("ready")
        while hear() != "stop":
            say(shared(node).handed_on)


def shared(node: hubbub.Node) -> Any:
    (channel,) = node.statistics().channels
    return channel.shared


def make(number: int) -> bytes:
    return number.to_bytes(4, "big") * (SIZE // 4)


def numbers_of(messages: list[hubbub.Message]) -> list[int]:
    """Read all of the payloads, and return the numbers that they are made of."""
    numbers = [int.from_bytes(bytes(message.payload[:4]), "big") for message in messages]
    assert all(
        bytes(message.payload) == make(number)
        for message, number in zip(messages, numbers, strict=True)
    )
    return numbers


def handed_on(actor: Actor) -> int:
    actor.tell("how much?")
    return int(actor.hear())


@pytest.mark.parametrize("is_inline", [True, False])
def test_relayed_payloads_come_back_whole_and_in_order_without_a_copy(is_inline: bool) -> None:
    place, at_once = fresh_place(), 30  # An inline callback cannot wait for room.
    with acting(relay, list(place), is_inline) as actor, place.open("p", links=LINKS) as node:
        subscription = node.subscribe("/out", queue=10_000)
        publisher = node.publisher("/in")
        assert actor.hear() == "ready"
        assert publisher.wait_for_subscribers(1, 30)
        kept: list[hubbub.Message] = []
        for begin in range(0, 600, at_once):
            for number in range(begin, begin + at_once):
                publisher.publish(make(number))
            messages = take(subscription, at_once)
            assert numbers_of(messages) == list(range(begin, begin + at_once))
            kept += messages[:1]
            del messages
        # Written by nobody while they are kept, though their memory is our own.
        assert numbers_of(kept) == list(range(0, 600, at_once))
        assert handed_on(actor) > 300
        kept.clear()
        publisher.publish(make(1))
        assert numbers_of(take(subscription, 1)) == [1]
        wait_until(lambda: shared(node).slots_in_use <= 4)


def test_relay_that_is_killed_leaves_everybody_what_they_have() -> None:
    place = fresh_place()
    with place.open("p", links=LINKS) as node:
        subscription = node.subscribe("/out", queue=10_000)
        publisher = node.publisher("/in")
        kept: list[hubbub.Message] = []
        for begin in (0, 50):
            with acting(relay, list(place), True) as actor:
                assert actor.hear() == "ready"
                assert publisher.wait_for_subscribers(1, 30)
                for number in range(begin, begin + 50):
                    publisher.publish(make(number))
                    kept += take(subscription, 1)
                assert handed_on(actor) > 20
                actor.process.kill()
                wait_until(lambda: publisher.receivers == 0)
        assert numbers_of(kept) == list(range(100))
