"""Nodes of one process hand messages over: in order, once, to whoever wants them just now."""

import os
import threading
from typing import Any

import pytest

import hubbub
from hubbub import ConfigurationError, SchemaMismatch
from tests.integration.bus import Events, Place, fresh_place, payloads, take, wait_until

NEAR = ["inproc", "local"]


@pytest.fixture
def place() -> Place:
    return fresh_place()


def test_message_goes_from_node_to_node_without_a_frame(place: Place) -> None:
    with place.open("a", links=NEAR) as one, place.open("b", links=NEAR) as two:
        subscription = two.subscribe("/x/*")
        publisher = one.publisher("/x/y")
        assert publisher.receivers == 1, "who is in this process is known at once"
        body = bytes(200_000)
        assert publisher.publish(body) == 1
        (message,) = take(subscription, 1)
        assert message.payload is body, "the object itself was handed over"
        assert (message.link, message.sequence, message.source.name) == ("inproc", 1, "a")
        assert one.statistics().channels[0].frames_sent == 0


def test_subscribers_and_publishers_are_counted_once(place: Place) -> None:
    with (
        place.open("a", links=NEAR) as one,
        place.open("b", links=NEAR) as two,
        place.open("c", links=NEAR) as three,
    ):
        publisher = one.publisher("/x")
        own, first, second = one.subscribe("/x"), two.subscribe("/x"), two.subscribe("/...")
        third = three.subscribe("/x")
        assert publisher.receivers == 2 and publisher.is_connected
        assert publisher.publish(b"1") == 3, "two others, and this node itself"
        for subscription in (own, first, second, third):
            assert payloads(take(subscription, 1)) == [b"1"]
        listed = wait_until(lambda: len(publisher.subscribers()) == 2 and publisher.subscribers())
        assert {(one.node.name, one.link) for one in listed} == {("b", "inproc"), ("c", "inproc")}
        two.close()
        assert publisher.receivers == 1
        assert publisher.publish(b"2") == 2
        third.close()
        assert publisher.publish(b"3") == 1, "only its own node is left"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(["local"], NEAR), (NEAR, ["local"]), (["local", "multicast"], ["inproc", "multicast"])],
)
def test_both_must_allow_it(place: Place, ours: list[str], theirs: list[str]) -> None:
    with place.open("a", links=ours) as one, place.open("b", links=theirs) as two:
        subscription = two.subscribe("/x")
        publisher = one.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(b"1")
        (message,) = take(subscription, 1)
        assert message.link in ("local", "multicast")


def test_other_domain_and_other_channel_are_elsewhere(place: Place) -> None:
    elsewhere = place._replace(domain=place.domain + "-other")
    with place.open("a", links=NEAR) as one, elsewhere.open("b", links=NEAR) as two:
        two.subscribe("/x")
        assert one.publisher("/x").receivers == 0
    with (
        place.open("a", links=NEAR) as one,
        fresh_place()._replace(domain=place.domain).open("b", links=NEAR) as two,
    ):
        two.subscribe("/x")
        assert one.publisher("/x").receivers == 0


def test_loopback_silences_a_nodes_own_messages_only(place: Place) -> None:
    with (
        place.open("a", links=NEAR, loopback=False) as one,
        place.open("b", links=NEAR) as two,
    ):
        own, other = one.subscribe("/x"), two.subscribe("/x", no_local=True)
        assert one.publisher("/x").publish(b"1") == 1
        assert payloads(take(other, 1)) == [b"1"]
        assert own.receive(0.1) is None


def test_nodes_of_other_processes_get_the_same_sequence(place: Place) -> None:
    links = [*NEAR, "multicast"]
    far_links = ["multicast"]
    with (
        place.open("a", links=links) as one,
        place.open("b", links=links) as two,
        place.open("c", links=far_links) as three,
    ):
        near, far = (node.subscribe("/x", queue=5_000) for node in (two, three))
        publisher = one.publisher("/x")
        assert publisher.wait_for_subscribers(2, 10)
        for number in range(5_000):
            publisher.publish(b"%d" % number)
        for subscription, link in ((near, "inproc"), (far, "multicast")):
            messages = take(subscription, 5_000)
            assert payloads(messages) == [b"%d" % number for number in range(5_000)]
            assert [one.sequence for one in messages] == list(range(1, 5_001))
            assert {one.link for one in messages} == {link}


def test_inline_callbacks_of_two_nodes_may_answer_each_other(place: Place) -> None:
    done = threading.Event()
    heard: list[int] = []
    with place.open("a", links=NEAR) as one, place.open("b", links=NEAR) as two:
        ping, pong = one.publisher("/ping"), two.publisher("/pong")

        def on_ping(message: hubbub.Message) -> None:
            pong.publish(message.payload)

        def on_pong(message: hubbub.Message) -> None:
            heard.append(int(message.payload))
            if heard[-1] == 2_000:
                done.set()
            else:
                ping.publish(b"%d" % (heard[-1] + 1))

        two.subscribe("/ping", on_ping, inline=True)
        one.subscribe("/pong", on_pong, inline=True)
        ping.publish(b"1")
        assert done.wait(30)
        assert heard == list(range(1, 2_001))


def test_subscriptions_come_and_go_while_threads_publish(place: Place) -> None:
    with place.open("a", links=NEAR) as one, place.open("b", links=NEAR) as two:
        keeper = two.subscribe("/x", queue=1_000_000)
        publishers = [one.publisher("/x") for _ in range(2)]
        threads = [threading.Thread(target=publish_many, args=(each,)) for each in publishers]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            with two.subscribe("/x") as visitor:
                visitor.receive(0.001)
        one.flush(10)
        messages = take(keeper, 40_000)
        assert [one.sequence for one in messages] == list(range(1, 40_001))


def publish_many(publisher: hubbub.Publisher) -> None:
    for number in range(20_000):
        publisher.publish(b"%d" % number)


def test_mismatching_type_is_reported_once(place: Place) -> None:
    events = Events()
    with place.open("a", links=NEAR) as one, place.open("b", links=NEAR, on_event=events) as two:
        two.subscribe("/x", type=int)
        publisher = one.publisher("/x", type=str)
        two.subscribe("/other")
        assert publisher.publish("text") == 0
        events.wait(SchemaMismatch)
        two.subscribe("/another")
        assert len(events.of(SchemaMismatch)) == 1


def test_inproc_alone_is_refused(place: Place) -> None:
    with pytest.raises(ConfigurationError, match="at least one of local, tcp, multicast"):
        place.open("a", links=["inproc"])


def test_forked_child_has_neighbours_of_its_own(place: Place) -> None:
    with place.open("a", links=NEAR) as one:
        one.subscribe("/x")
        child = os.fork()
        if child == 0:
            os._exit(_count_receivers(place))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _count_receivers(place: Any) -> int:
    with place.open("b", links=NEAR) as two:
        publisher = two.publisher("/x")
        listed, counted = -1, 0
        while listed != len(publisher.subscribers()):  # Somebody was found in between.
            listed, counted = len(publisher.subscribers()), publisher.receivers
        return counted - listed
