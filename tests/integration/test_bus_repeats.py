"""A task that publishes again what it published before it failed: who stayed gets it once."""

import pytest

import hubbub
from hubbub.repeats import repeatable_id
from tests.integration.bus import Place, fresh_place, payloads, take

WAYS = [["multicast"], ["local", "multicast"], ["inproc", "multicast"]]


def publish(place: Place, links: list[str], node_id: bytes, count: int) -> None:
    """Open a node, publish so many messages, and leave."""
    with place.open("spark", links=links, node_id=node_id) as node:
        publisher = node.publisher("/rows")
        assert publisher.wait_for_subscribers(1, 10)
        for n in range(1, count + 1):
            publisher.publish(b"%d" % n)
        assert node.flush(10)


@pytest.mark.parametrize("links", WAYS, ids="-".join)
@pytest.mark.parametrize("history", [False, True])
def test_attempts_of_one_task_are_taken_once(links: list[str], history: bool) -> None:
    place = fresh_place()
    with place.open("stays", links=links) as node:
        subscription = node.subscribe("/...", history=history)
        for count in (10, 4, 15):
            publish(place, links, repeatable_id("query-7-0"), count)
        publish(place, links, repeatable_id("query-7-1"), 2)
        messages = take(subscription, 17)
        assert payloads(messages) == [b"%d" % n for n in (*range(1, 16), 1, 2)]
        assert [message.sequence for message in messages] == [*range(1, 16), 1, 2]
        assert subscription.receive(0) is None
        assert subscription.statistics().repeats == 14


def test_who_comes_between_two_attempts_gets_what_is_published_from_then_on() -> None:
    place, links = fresh_place(), ["multicast"]
    with place.open("stays", links=links) as node:
        first = node.subscribe("/rows")
        publish(place, links, repeatable_id("task"), 3)
        second = node.subscribe("/rows")
        publish(place, links, repeatable_id("task"), 5)
        assert payloads(take(first, 5)) == [b"1", b"2", b"3", b"4", b"5"]
        assert payloads(take(second, 5)) == [b"1", b"2", b"3", b"4", b"5"]


def test_node_that_comes_back_with_an_id_of_its_own_is_heard_again() -> None:
    place, links = fresh_place(), ["multicast"]
    with place.open("stays", links=links) as node:
        subscription: hubbub.Subscription = node.subscribe("/rows")
        for _ in range(2):
            publish(place, links, b"no task at a", 3)
        assert payloads(take(subscription, 6)) == [b"1", b"2", b"3"] * 2
        assert subscription.statistics().repeats == 0
