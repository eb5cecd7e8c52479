"""What was published arrives: between processes, through faults, at any size."""

import random
import socket
import zlib
from typing import Any

import pytest

from hubbub import Faults, GapAbandoned
from tests.integration.bus import (
    IS_SOAK,
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

LARGEST_BYTES = (256 if IS_SOAK else 8) << 20
MISTREATED: dict[str, Any] = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.1}


def echo(place: list[Any]) -> None:
    """Answer each question on the subject that is one level below its own."""
    with Place(*place).open("echo") as node:
        subscription = node.subscribe("/question/*")
        say("ready")
        for message in subscription:
            node.publish(f"/answer{message.subject}", message.payload[::-1])


def publish_numbers(place: list[Any], count: int, faults: dict[str, Any]) -> None:
    """Publish numbered messages on two subjects when told to."""
    options = {"frame_bytes_max": 1472}  # So that there are frames to lose.
    with Place(*place).open("numbers", faults=Faults(**faults), **options) as node:
        publishers = [node.publisher(f"/numbers/{name}") for name in ("a", "b")]
        assert all(one.wait_for_subscribers(1, 30) for one in publishers)
        for number in range(count):
            publishers[number % 2].publish(b"%060d" % number)
        assert node.flush(60)
        say("done")
        hear()


def publish_sizes(place: list[Any], sizes: list[int], loss: float) -> None:
    """Publish random payloads of given sizes."""
    with Place(*place).open("sizes", faults=Faults(loss=loss)) as node:
        publisher = node.publisher("/sizes")
        assert publisher.wait_for_subscribers(1, 30)
        for size in sizes:
            payload = random.Random(size).randbytes(size)
            publisher.publish(payload)
            say([size, zlib.crc32(payload)])
        assert node.flush(100)
        say("done")
        hear()


def test_two_processes_talk() -> None:
    place = fresh_place()
    with acting(echo, place) as actor, place.open("asker") as node:
        assert actor.hear() == "ready"
        answers = node.subscribe("/answer/...")
        publisher = node.publisher("/question/one")
        assert publisher.wait_for_subscribers(1, 10)
        assert publisher.publish(b"abc") == 1
        [answer] = take(answers, 1)
        assert (answer.subject, answer.payload) == ("/answer/question/one", b"cba")
        assert answer.source.name == "echo" and answer.link == "multicast"
        assert answer.sequence == 1
        assert answer.published_ns <= answer.received_ns


def test_wildcards_choose_what_arrives() -> None:
    place = fresh_place()
    subjects = ["/a", "/a/b", "/a/b/c", "/b/b", "/a/x/c"]
    wanted = {
        "/a": ["/a"],
        "/a/*": ["/a/b"],
        "/*/b": ["/a/b", "/b/b"],
        "/a/...": ["/a/b", "/a/b/c", "/a/x/c"],
        "/a/*/c": ["/a/b/c", "/a/x/c"],
        "/...": subjects,
    }
    with place.open("p") as sender, place.open("s") as receiver:
        subscriptions = {pattern: receiver.subscribe(pattern) for pattern in wanted}
        for subject in subjects:
            publisher = sender.publisher(subject)
            assert publisher.wait_for_subscribers(1, 10)
            publisher.publish(subject.encode())
        for pattern, expected in wanted.items():
            heard = take(subscriptions[pattern], len(expected))
            assert sorted(message.subject for message in heard) == sorted(expected)
        assert sender.flush(10)
        assert [one.pending for one in subscriptions.values()] == [0] * len(wanted)


def test_each_of_overlapping_subscriptions_gets_its_own_delivery_and_context() -> None:
    place = fresh_place()
    with place.open("p") as sender, place.open("s") as receiver:
        one = receiver.subscribe("/a/*", context="star")
        one.add("/a/...", context="dots")
        one.add("/a/b", context="name")
        other = receiver.subscribe("/a/b", context="other")
        publisher = sender.publisher("/a/b")
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(b"x")
        assert sorted(message.context for message in take(one, 3)) == ["dots", "name", "star"]
        assert [message.context for message in take(other, 1)] == ["other"]


def test_nothing_is_missing_or_twice_or_out_of_order_through_faults_both_ways() -> None:
    place, count, events = fresh_place(), 6_000, Events()
    with (
        acting(publish_numbers, place, count, MISTREATED) as actor,
        place.open("s", faults=Faults(**MISTREATED), on_event=events) as node,
    ):
        subscription = node.subscribe("/numbers/*", queue=count + 1)
        messages = take(subscription, count)
        assert actor.hear() == "done"
        for parity, name in enumerate("ab"):
            own = [int(m.payload) for m in messages if m.subject == f"/numbers/{name}"]
            assert own == list(range(parity, count, 2))
        assert subscription.pending == 0
        assert events.of(GapAbandoned) == []
        [channel] = node.statistics().channels
        assert channel.link.faults_in is not None and channel.link.faults_in.lost > 0
        assert channel.link.faults_in.duplicated > 0 and channel.link.faults_in.reordered > 0


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
def test_messages_of_any_size_are_byte_equal_whatever_is_lost(loss: float) -> None:
    draw = random.Random(loss)
    sizes = [1, 100, 61_000, 62_000, 200_000, 5_000_000]
    sizes += [int(10 ** draw.uniform(0, 6.5)) for _ in range(20)]
    place, events = fresh_place(), Events()
    with (
        acting(publish_sizes, place, sizes, loss) as actor,
        place.open("s", faults=Faults(loss=loss), on_event=events) as node,
    ):
        messages = take(node.subscribe("/sizes"), len(sizes))
        published = [actor.hear() for _ in sizes]
        assert [[len(data), zlib.crc32(data)] for data in payloads(messages)] == published
        assert [message.sequence for message in messages] == list(range(1, len(sizes) + 1))
        assert events.of(GapAbandoned) == []


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_message_of_256_mib_is_byte_equal_beside_small_ones() -> None:
    place, payload = fresh_place(), random.Random(1).randbytes(1 << 20)
    payload *= LARGEST_BYTES >> 20
    with place.open("p") as sender, place.open("s", faults=Faults(loss=0.01)) as receiver:
        large, small = receiver.subscribe("/large"), receiver.subscribe("/small")
        publishers = [sender.publisher(subject) for subject in ("/large", "/small")]
        assert all(one.wait_for_subscribers(1, 10) for one in publishers)
        for publisher, data in zip(publishers, (payload, b"small"), strict=True):
            publisher.publish(data)
        assert payloads(take(small, 1)) == [b"small"]
        message = large.receive(300)
        assert message is not None and message.payload == payload


def test_random_datagrams_at_the_group_are_counted_and_hurt_nobody() -> None:
    place, draw = fresh_place(), random.Random(1)
    sizes = [0, 1, 19, 20, 69, 70, 71, 1472, 65_507]
    with place.open("p") as sender, place.open("s") as receiver:
        subscription = receiver.subscribe("/x")
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            here = socket.inet_aton("127.0.0.1")
            stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
            for size in sizes:
                stranger.sendto(draw.randbytes(size), (place.group, place.port))
                publisher.publish(b"%d" % size)
        assert payloads(take(subscription, len(sizes))) == [b"%d" % size for size in sizes]
        for node in (sender, receiver):
            wait_until(lambda node=node: drops_of(node) == {"short": 5, "magic": 4})


def drops_of(node: Any) -> dict[str, int]:
    return dict(node.statistics().channels[0].drops)


def test_two_publishers_with_the_same_sequences_are_both_complete() -> None:
    place, count = fresh_place(), 2_000
    with (
        acting(publish_numbers, place, count, MISTREATED) as one,
        acting(publish_numbers, place, count, {}) as two,
        place.open("s", faults=Faults(loss=0.1)) as node,
    ):
        messages = take(node.subscribe("/numbers/*", queue=2 * count + 1), 2 * count)
        assert one.hear() == two.hear() == "done"
        sources = {message.source for message in messages}
        assert len(sources) == 2
        for source in sources:
            own = [m for m in messages if m.source == source and m.subject == "/numbers/a"]
            assert [message.sequence for message in own] == list(range(1, count // 2 + 1))
