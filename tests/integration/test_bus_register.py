"""Indices, receivers and the straight way between real nodes."""

import gc
import time
from typing import Any

import pytest

import hubbub
from hubbub import GapAbandoned
from tests.integration.bus import (
    Events,
    Place,
    acting,
    fresh_place,
    hear,
    payloads,
    say,
    take,
    wait_until,
)
from tests.integration.namespace import ip, run_scenario
from tests.integration.test_bus_veth import add_host, is_able, leave

LINKS = [["multicast"], ["local", "multicast"], ["local"]]


@pytest.mark.parametrize("links", LINKS, ids=["multicast", "both", "local"])
def test_publisher_shows_for_whom_its_messages_are(links: list[str]) -> None:
    place = fresh_place()
    with place.open("p", links=links) as node:
        wait_until(lambda: node.index == 0)
        publisher = node.publisher("/a/b")
        assert (publisher.receiver, publisher.receivers_bitmap) == (-2, 0)
        with place.open("s", links=links) as one, place.open("t", links=links) as other:
            wait_until(lambda: {one.index, other.index} == {1, 2})
            for each in (node, one, other):
                each.subscribe("/a/*")
            wait_until(lambda: (publisher.receiver, publisher.receivers_bitmap) == (-1, 0b110))
            later = node.publisher("/a/c")
            assert (later.receiver, later.receivers_bitmap) == (-1, 0b110)
            other.close()
            wait_until(lambda: publisher.receiver == one.index)
            assert publisher.receivers_bitmap == later.receivers_bitmap == 1 << publisher.receiver
            [channel] = node.statistics().channels
            assert channel.index == 0
            assert [peer.index for peer in channel.peers if peer.is_present] == [one.index]
        wait_until(lambda: publisher.receiver == -2)
        assert publisher.receivers_bitmap == 0


def frames_in(node: hubbub.Node) -> int:
    [channel] = node.statistics().channels
    return channel.link.frames_in


def test_frames_for_one_receiver_do_not_trouble_others() -> None:
    place, events = fresh_place(), Events()
    with (
        place.open("p", on_event=events) as node,
        place.open("s", on_event=events) as one,
        place.open("bystander") as bystander,
    ):
        bystander.subscribe("/elsewhere")
        subscription = one.subscribe("/x", queue=10_000)
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        wait_until(lambda: None not in (node.index, one.index, bystander.index))
        before = frames_in(bystander)
        for number in range(200):
            publisher.publish(b"%d" % number, flush=True)
        assert payloads(take(subscription, 200)) == [b"%d" % number for number in range(200)]
        assert frames_in(bystander) - before < 100  # Heartbeats are for all.
        second = bystander.subscribe("/x", queue=10_000)
        assert publisher.wait_for_subscribers(2, 10)
        for number in range(200):
            publisher.publish(b"%d" % number, flush=True)
        for each in (subscription, second):
            assert payloads(take(each, 200)) == [b"%d" % number for number in range(200)]
        assert events.of(GapAbandoned) == []


def test_receiver_drops_what_is_for_others_by_its_header() -> None:
    place = fresh_place()
    with place.open("p") as node, place.open("a") as one, place.open("b") as other:
        for_one, for_other = one.subscribe("/one"), other.subscribe("/other")
        publishers = [node.publisher("/one"), node.publisher("/other")]
        assert all(publisher.wait_for_subscribers(1, 10) for publisher in publishers)
        wait_until(lambda: -1 not in [publisher.receiver for publisher in publishers])
        for _ in range(50):
            for publisher in publishers:
                publisher.publish(b"x", flush=True)
            time.sleep(0.001)
        take(for_one, 50)
        take(for_other, 50)
        for each in (one, other):
            [channel] = each.statistics().channels
            assert channel.drops["not_for_us"] >= 25
            assert channel.gaps == 0


def test_several_publishers_of_a_subject_share_its_sequence_and_one_may_close() -> None:
    place = fresh_place()
    with place.open("p") as node, place.open("s") as other:
        subscription = other.subscribe("/x")
        first, second = node.publisher("/x"), node.publisher("/x")
        assert first.wait_for_subscribers(1, 10)
        first.publish(b"1")
        second.publish(b"2")
        first.close()
        assert second.publish(b"3") == 1
        assert [(m.sequence, m.payload) for m in take(subscription, 3)] == [
            (1, b"1"), (2, b"2"), (3, b"3"),
        ]  # fmt: skip
        wait_until(lambda: second.receiver == other.index)
        own = node.subscribe("/x")
        second.publish(b"4")
        [message] = take(subscription, 1)
        assert message.receiver == other.index
        assert message.receivers_bitmap == second.receivers_bitmap == 1 << second.receiver
        assert message.link == "multicast" and not gc.is_tracked(message)
        [message] = take(own, 1)
        assert (message.link, message.receiver, message.receivers_bitmap) == (
            "loopback", None, None,
        )  # fmt: skip


def publish_by_all_interfaces(place: list[Any]) -> None:
    """Publish from the other end of the cable, by two cables at once."""
    leave()
    ip("link set there2 up")
    ip("address add 10.72.67.2/24 dev there2")
    say("up")
    with Place(*place).open("there", interface="all") as node:
        publisher = node.publisher("/numbers")
        assert publisher.wait_for_subscribers(1, 30)
        for number in range(1000):
            publisher.publish(b"%d" % number, flush=number % 10 == 0)
        say("sent")
        hear()


def two_hosts_by_all_interfaces() -> None:
    is_able()
    place, events = fresh_place(), Events()
    with acting(publish_by_all_interfaces, place) as actor:
        assert actor.hear() == "elsewhere"
        add_host(actor)
        ip(f"link add here2 type veth peer name there2 netns {actor.pid}")
        ip("link set here2 up")
        ip("address add 10.72.67.1/24 dev here2")
        actor.tell()
        assert actor.hear() == "up"
        with place.open("here", interface="all", on_event=events) as node:
            assert len(node.statistics().channels[0].link.interfaces) == 2
            subscription = node.subscribe("/numbers", queue=1000)
            numbers = [int(message.payload) for message in take(subscription, 1000)]
            assert numbers == list(range(1000)) and events.of(GapAbandoned) == []
            assert actor.hear() == "sent"
            actor.tell()


@pytest.mark.netns
def test_frames_go_straight_to_a_receiver_on_the_right_one_of_several_interfaces() -> None:
    run_scenario(two_hosts_by_all_interfaces)
