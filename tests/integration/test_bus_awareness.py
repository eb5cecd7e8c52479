"""Who is at the other end of a publisher or subscription, and payloads made only for somebody."""

import time
from typing import Any

import msgspec
import pytest

import hubbub
from tests.integration.bus import fresh_place, take, wait_until

LINKS = [["multicast"], ["local", "multicast"]]


@pytest.mark.parametrize("links", LINKS, ids=["multicast", "local"])
def test_publisher_knows_its_subscribers(links: list[str]) -> None:
    place = fresh_place()
    with place.open("p", links=links) as node, place.open("s", links=links) as other:
        publisher = node.publisher("/a/b")
        assert publisher.subscribers() == () and not publisher.is_connected
        before_ns = time.time_ns()
        other.subscribe("/a/*")
        other.subscribe("/elsewhere")
        assert publisher.wait_for_subscribers(1, 10) and publisher.is_connected
        wait_until(lambda: publisher.subscribers()[0].link == links[0])
        [subscriber] = publisher.subscribers()
        assert (subscriber.node.name, subscriber.node.id) == ("s", other.id)
        assert subscriber.pid and subscriber.host and not subscriber.is_slow
        assert abs(subscriber.since_ns - before_ns) < 60e9 and subscriber.heard_ms_ago >= 0
        other.close()
        wait_until(lambda: publisher.subscribers() == ())
        assert not publisher.is_connected


@pytest.mark.parametrize("links", LINKS, ids=["multicast", "local"])
def test_subscription_knows_its_publishers_before_they_publish(links: list[str]) -> None:
    place = fresh_place()
    with place.open("s", links=links) as node, place.open("p", links=links) as other:
        subscription = node.subscribe(["/a/*", "/c"])
        other.publisher("/a/b")
        other.publisher("/c", type=int, reliable=False)
        other.publisher("/elsewhere")
        wait_until(lambda: len(subscription.publishers()) == 2)
        by_subject = {one.subject: one for one in subscription.publishers()}
        assert by_subject.keys() == {"/a/b", "/c"} and subscription.is_connected
        assert by_subject["/a/b"].node.name == "p" and by_subject["/a/b"].is_reliable
        assert not by_subject["/c"].is_reliable and by_subject["/c"].schema == "int"
        assert [one.sequence for one in by_subject.values()] == [0, 0]
        other.publish("/a/b", b"1")
        take(subscription, 1)
        wait_until(lambda: max(one.sequence for one in subscription.publishers()) == 1)
        assert node.subscribe("/nothing").publishers() == ()


def test_payload_that_nobody_wants_is_not_made() -> None:
    place = fresh_place()
    with place.open("p") as node:
        publisher = node.publisher("/x")
        time.sleep(0.1)  # A node's first messages are kept, so they are made.
        assert publisher.publish(lambda: pytest.fail("made for nobody")) == 0
        subscription = node.subscribe("/x")
        assert publisher.publish(lambda: b"made") == 1
        message = take(subscription, 1)[0]
        assert (message.payload, message.sequence) == (b"made", 2), "the first one counted"


class Reading(msgspec.Struct):
    value: float

    def __call__(self) -> float:
        return self.value


@pytest.mark.parametrize("payload", [Reading(1.5), lambda: Reading(1.5)])
def test_value_that_can_be_called_is_a_value_where_its_type_is_published(payload: Any) -> None:
    with fresh_place().open("p") as node:
        subscription = node.subscribe("/x", type=Reading)
        node.publisher("/x", type=Reading).publish(payload)
        assert take(subscription, 1)[0].payload == Reading(1.5)


def test_time_of_what_a_message_tells_can_be_given() -> None:
    with fresh_place().open("p") as node:
        subscription, publisher = node.subscribe("/x"), node.publisher("/x")
        for number in range(100):
            publisher.publish(b"x", time_ns=number)
        assert [one.published_ns for one in take(subscription, 100)] == list(range(100))


def test_closed_publisher_makes_nothing() -> None:
    with fresh_place().open("p") as node:
        publisher = node.publisher("/x")
        publisher.close()
        with pytest.raises(hubbub.ClosedError):
            publisher.publish(lambda: pytest.fail("made for nobody"))
