"""Who is at the other end of a publisher or subscription, and payloads made only for somebody."""

import time
from typing import Any

import msgspec
import pytest

import hubbub
from hubbub import (
    PublisherMatched,
    PublisherUnmatched,
    Starved,
    SubscriberMatched,
    SubscriberUnmatched,
)
from tests.integration.bus import Events, Place, acting, fresh_place, hear, say, take, wait_until

LINKS = [["multicast"], ["local", "multicast"]]
MATCHES = (PublisherMatched, PublisherUnmatched, SubscriberMatched, SubscriberUnmatched)


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


@pytest.mark.parametrize("links", [*LINKS, ["inproc", "multicast"]], ids=lambda links: links[0])
def test_publisher_is_known_at_once_and_gone_at_once(links: list[str]) -> None:
    place, waits_s = fresh_place(), []
    with place.open("s", links=links) as node, place.open("p", links=links) as other:
        subscription = node.subscribe("/a/...")
        wait_until(lambda: node.peers() and other.peers())
        for number in range(10):
            began_s = time.monotonic()
            publisher = other.publisher(f"/a/{number}")
            wait_until(lambda: len(subscription.publishers()) == 1)
            waits_s.append(time.monotonic() - began_s)
            began_s = time.monotonic()
            publisher.close()
            publisher.close()
            wait_until(lambda: not subscription.publishers())
            waits_s.append(time.monotonic() - began_s)
        assert sorted(waits_s)[len(waits_s) // 2] < 0.05, waits_s
        assert not subscription.is_connected
        other.publisher("/a/last")
        wait_until(subscription.publishers)
        other.close()
        wait_until(lambda: not subscription.publishers())


def test_subject_is_published_until_the_last_of_its_publishers_is_closed() -> None:
    place = fresh_place()
    with place.open("s") as node, place.open("p") as other:
        subscription = node.subscribe("/a")
        first, second = other.publisher("/a"), other.publisher("/a")
        wait_until(subscription.publishers)
        first.publish(b"1")
        first.close()
        second.publish(b"2")
        assert [one.sequence for one in take(subscription, 2)] == [1, 2]
        assert subscription.is_connected
        second.close()
        wait_until(lambda: not subscription.publishers())
        other.publisher("/a").publish(b"3")
        assert [one.sequence for one in take(subscription, 1)] == [3], "the topic goes on"
        wait_until(subscription.publishers)


def test_publisher_with_a_bad_listener_is_not_left_behind() -> None:
    place = fresh_place()
    with place.open("s") as node, place.open("p") as other:
        with pytest.raises(hubbub.ConfigurationError, match="on_event=7"):
            other.publisher("/bad", on_event=7)  # type: ignore[arg-type]
        other.publisher("/good")
        found = wait_until(lambda: [one for peer in node.peers() for one in peer.publications])
        assert [one.subject for one in found] == ["/good"]


def told(events: Events) -> list[tuple[str, str]]:
    return [(type(one).__name__, one.subject) for one in list(events) if isinstance(one, MATCHES)]


@pytest.mark.parametrize("links", [*LINKS, ["inproc", "multicast"]], ids=lambda links: links[0])
def test_both_ends_hear_of_their_matches_and_of_nobody_elses(links: list[str]) -> None:
    place = fresh_place()
    p, q, s, t = Events(), Events(), Events(), Events()
    with place.open("p", links=links) as node, place.open("s", links=links) as other:
        publisher = node.publisher("/a/b", on_event=p)
        node.publisher("/elsewhere", on_event=q)
        subscription = other.subscribe("/a/*", on_event=s)
        wait_until(lambda: told(p) and told(s))
        late = other.subscribe("/nothing", on_event=t)
        handle = late.add("/a/b")  # It goes on already, for another subscription.
        wait_until(lambda: told(t))
        late.remove(handle)
        wait_until(lambda: len(told(t)) == 2)
        again = Events()
        node.publisher("/a/b", on_event=again)  # Its subscriber is there already.
        wait_until(lambda: told(again))
        subscription.close()
        wait_until(lambda: len(told(p)) == 2)
        assert told(p) == [("SubscriberMatched", "/a/b"), ("SubscriberUnmatched", "/a/b")]
        assert told(s) == [("PublisherMatched", "/a/b")], "who closes it knows"
        assert told(t) == [("PublisherMatched", "/a/b"), ("PublisherUnmatched", "/a/b")]
        assert told(q) == []
        [matched] = p.of(SubscriberMatched)
        assert matched.subscriber.name == "s"
        assert str(matched).startswith("subscriber matched: s#")
        publisher.close()


def publish_until_killed(place: list[Any], links: list[str]) -> None:
    with Place(*place).open("victim", links=links) as node:
        node.publisher("/a/b", reliable=False)
        node.subscribe("/back")
        say("ready")
        hear()


@pytest.mark.parametrize("way", ["killed", "closed"])
def test_node_that_dies_ends_its_matches_as_one_that_leaves(way: str) -> None:
    place, events = fresh_place(), Events()
    links = ["local", "multicast"]
    with place.open("s", links=links, on_event=events) as node:
        subscription, publisher = node.subscribe("/a/*"), node.publisher("/back")
        with acting(publish_until_killed, list(place), links) as actor:
            assert actor.hear() == "ready"
            wait_until(lambda: subscription.publishers() and publisher.subscribers())
            if way == "killed":
                actor.process.kill()
            else:
                actor.tell()
            wait_until(lambda: len(told(events)) == 4)
        assert sorted(told(events)) == [
            ("PublisherMatched", "/a/b"), ("PublisherUnmatched", "/a/b"),
            ("SubscriberMatched", "/back"), ("SubscriberUnmatched", "/back"),
        ]  # fmt: skip
        kinds = [type(one).__name__ for one in list(events) if type(one) is not Starved]
        assert kinds[0] == "PeerJoined"
        wait_until(lambda: events.of(hubbub.PeerLeft))
        assert subscription.publishers() == () and publisher.subscribers() == ()


def test_node_lists_what_the_others_publish_and_want() -> None:
    place = fresh_place()
    with place.open("looks") as node, place.open("p") as other:
        other.publisher("/a", type=int)
        other.publish("/b", b"1")
        other.subscribe(["/x/*", "/y"])
        wait_until(lambda: [len(one.publications) for one in node.peers()] == [2])
        wait_until(lambda: [len(one.patterns) for one in node.peers()] == [2])
        [peer] = node.peers()
        assert (peer.node.name, peer.patterns) == ("p", ("/x/*", "/y"))
        schemas = {one.subject: one.schema for one in peer.publications}
        assert schemas == {"/a": "int", "/b": ""}
        assert other.flush(10)  # A node's first messages are kept for a moment.
        with place.open("newcomer") as late:
            first, second = wait_until(lambda: [p for n in late.peers() for p in n.publications])
            assert (first.sequence, second.sequence) == (0, 1), "told though nothing came"


def test_payload_that_nobody_wants_is_not_made() -> None:
    place = fresh_place()
    with place.open("p") as node:
        publisher = node.publisher("/x")
        publisher.publish(b"first")  # A node's first messages are kept, so they are made.
        assert node.flush(10)
        assert publisher.publish(lambda: pytest.fail("made for nobody")) == 0
        subscription = node.subscribe("/x")
        assert publisher.publish(lambda: b"made") == 1
        message = take(subscription, 1)[0]
        assert (message.payload, message.sequence) == (b"made", 3), "the others counted"


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


@pytest.mark.parametrize("time_ns", [-1, 1 << 64, 1.5, "now"])
def test_time_that_no_frame_can_carry_is_refused_and_the_stream_goes_on(time_ns: Any) -> None:
    place = fresh_place()
    with place.open("p") as sender, place.open("s") as receiver:
        subscription, publisher = receiver.subscribe("/x"), sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        with pytest.raises(hubbub.PayloadError, match="time_ns"):
            publisher.publish(b"never", time_ns=time_ns)
        publisher.publish(b"next", time_ns=(1 << 64) - 1)
        assert take(subscription, 1)[0].payload == b"next"


def test_closed_publisher_makes_nothing() -> None:
    with fresh_place().open("p") as node:
        publisher = node.publisher("/x")
        publisher.close()
        with pytest.raises(hubbub.ClosedError):
            publisher.publish(lambda: pytest.fail("made for nobody"))
