"""Subscribers of this host beside others elsewhere: each gets what is published by its own way."""

import signal
from collections import Counter
from typing import Any

import pytest

import hubbub
from hubbub import GapAbandoned
from tests.integration.bus import (
    Actor,
    Events,
    Place,
    acting,
    fresh_place,
    hear,
    say,
    take,
    wait_until,
)

NEAR = ["local", "multicast"]
FAR = ["multicast"]
LARGE_BYTES = 1 << 20
LARGE_MESSAGES = 40


def payload(number: int, size_bytes: int) -> bytes:
    return number.to_bytes(8, "big") * (size_bytes // 8)


def read(place: list[Any], links: list[str], messages: int, size_bytes: int) -> None:
    """Receive so many messages; tell whether all was right, and how they came."""
    events = Events()
    with Place(*place).open("reader", links=links, on_event=events) as node:
        subscription = node.subscribe("/x", queue=2 * messages, overflow="drop_newest")
        say("ready")
        are_right, how, last = True, Counter(), -1
        for _ in range(messages):
            message = take(subscription, 1)[0]
            number = int.from_bytes(bytes(message.payload[:8]), "big")
            are_right = are_right and number == last + 1
            are_right = are_right and bytes(message.payload) == payload(number, size_bytes)
            how[f"{message.link} {type(message.payload).__name__}"] += 1
            last = number
        say([are_right, how, len(events.of(GapAbandoned))])
        hear()


def moves_of(node: hubbub.Node) -> int:
    [channel] = node.statistics().channels
    return channel.counters.get("moves", 0)


def is_sorted(node: hubbub.Node) -> bool:
    """Tell whether those elsewhere have a stream of their own, and nobody is on the way to it."""
    grants = node.channels[0].driver.core.outgoing.grants
    return bool(grants.split) and not grants.moving and moves_of(node) > 0


def meet(publisher: hubbub.Publisher, *actors: Actor) -> None:
    for actor in actors:
        assert actor.hear() == "ready"
    assert publisher.wait_for_subscribers(len(actors), 10)


def test_large_messages_go_by_reference_to_those_here_though_others_are_elsewhere() -> None:
    place = fresh_place()
    with (
        acting(read, place, NEAR, LARGE_MESSAGES, LARGE_BYTES) as near,
        acting(read, place, FAR, LARGE_MESSAGES, LARGE_BYTES) as far,
        place.open("p", links=NEAR) as node,
    ):
        publisher = node.publisher("/x")
        meet(publisher, near, far)
        wait_until(lambda: is_sorted(node))
        for number in range(LARGE_MESSAGES):
            publisher.publish(payload(number, LARGE_BYTES))
        are_right, how, gaps = near.hear()
        assert are_right and not gaps
        assert how.pop("local memoryview") > LARGE_MESSAGES // 2, "all but while memory is offered"
        assert how.keys() <= {"local bytes"}
        assert far.hear() == [True, {"multicast bytes": LARGE_MESSAGES}, 0]


@pytest.mark.parametrize("size_bytes", [64, 40_000])
def test_nothing_is_lost_or_out_of_order_while_receivers_get_streams_of_their_own(
    size_bytes: int,
) -> None:
    place, messages = fresh_place(), 6000
    with (
        acting(read, place, NEAR, messages, size_bytes) as near,
        acting(read, place, FAR, messages, size_bytes) as far,
        place.open("p", links=NEAR) as node,
    ):
        publisher = node.publisher("/x")
        meet(publisher, near, far)
        for number in range(messages):
            publisher.publish(payload(number, size_bytes))
            if number == messages // 2:
                wait_until(lambda: is_sorted(node))
        for actor in (near, far):
            are_right, how, gaps = actor.hear()
            assert are_right and not gaps
            assert ("local" in " ".join(how)) == (actor is near)


@pytest.mark.parametrize("victim", [0, 1])
def test_kill_of_a_subscriber_on_either_side_leaves_the_other_alone(victim: int) -> None:
    place, messages = fresh_place(), 4000
    with (
        acting(read, place, NEAR, messages, 1000) as near,
        acting(read, place, FAR, messages, 1000) as far,
        place.open("p", links=NEAR, peer_timeout_ms=700, heartbeat_ms=200) as node,
    ):
        publisher = node.publisher("/x")
        meet(publisher, near, far)
        wait_until(lambda: is_sorted(node))
        for number in range(messages):
            if number == messages // 2:
                (near, far)[victim].signal(signal.SIGKILL)
            publisher.publish(payload(number, 1000))
        are_right, how, gaps = (far, near)[victim].hear()
        assert are_right and not gaps
        assert how == {f"{('multicast', 'local')[victim]} bytes": messages}
        wait_until(lambda: len(publisher.subscribers()) == 1)


def test_publisher_that_dies_is_missed_on_both_sides() -> None:
    place = fresh_place()
    left: list[Events] = [Events(), Events()]
    with (
        place.open("near", links=NEAR, on_event=left[0]) as near,
        place.open(
            "far", links=FAR, on_event=left[1], peer_timeout_ms=700, heartbeat_ms=200
        ) as far,
        acting(publish, place) as actor,
    ):
        subscriptions = [near.subscribe("/x"), far.subscribe("/x")]
        assert actor.hear() == "sorted"
        for subscription in subscriptions:
            take(subscription, 100)
        actor.signal(signal.SIGKILL)
        for events in left:
            wait_until(lambda heard=events: "p" in [e.peer.name for e in heard.of(hubbub.PeerLeft)])


def publish(place: list[Any]) -> None:
    """Publish without end to two subscribers; tell when each has its stream."""
    with Place(*place).open("p", links=NEAR) as node:
        publisher = node.publisher("/x")
        publisher.wait_for_subscribers(2, 10)
        wait_until(lambda: is_sorted(node))
        say("sorted")
        while True:
            publisher.publish(b"x" * 100)
