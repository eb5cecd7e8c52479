"""The scenarios in which eCAL and RODOS fail, with processes and sockets; see docs/originals.md."""

import signal
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import hubbub
from hubbub import Closed, GapAbandoned, PeerJoined, PeerLeft
from tests.integration.bus import (
    Events,
    Place,
    acting,
    fresh_place,
    hear,
    is_stopped,
    payloads,
    say,
    take,
    wait_until,
)

LINKS = [["multicast"], ["local", "multicast"]]
links_of = pytest.mark.parametrize("links", LINKS, ids=["multicast", "local"])


def listen(place: list[Any], links: list[str]) -> None:
    """Tell subject, sequence and payload of every message."""
    with Place(*place).open("listener", links=links) as node:
        subscription = node.subscribe("/x/...")
        say("ready")
        for message in subscription:
            say([message.subject, message.sequence, bytes(message.payload).decode()])


# First message after create.


@links_of
def test_first_message_of_a_publisher_that_was_just_made_arrives(links: list[str]) -> None:
    place = fresh_place()
    with place.open("p", links=links) as node, acting(listen, place, links) as actor:
        assert actor.hear() == "ready"
        assert node.publisher("/x/known").wait_for_subscribers(1, 10)
        for number in range(20):
            is_reliable = number % 2 == 0
            publisher = node.publisher(f"/x/{number}", reliable=is_reliable)
            assert publisher.publish(b"first") == 1
            assert actor.hear() == [f"/x/{number}", 1, "first"]


# Kill -9 of a subscriber during Send.


def ignore(place: list[Any], links: list[str]) -> None:
    """Subscribe, until stopped."""
    with Place(*place).open("victim", links=links) as node:
        node.subscribe("/x")
        say("ready")
        hear()


@pytest.mark.parametrize(
    ("links", "size"),
    [(LINKS[0], 10_000), (LINKS[1], 10_000), (LINKS[1], 1 << 20)],
    ids=["multicast", "local", "by_reference"],
)
def test_publisher_that_waits_for_a_stopped_subscriber_goes_on_when_it_is_killed(
    links: list[str], size: int
) -> None:
    place, events, count = fresh_place(), Events(), (64 << 20) // size
    # Only its death can free the publisher: it is never too slow. A pipe tells of it at once.
    patience = {"slow_ms": 60_000, "send_timeout": 60, "cache_bytes": 512 << 20}
    timeouts = {
        "heartbeat_ms": 100,
        "repair_window_ms": 100,
        "peer_timeout_ms": 60_000 if "local" in links else 1_500,
    }
    with (
        acting(ignore, place, links) as victim,
        place.open("p", links=links, on_event=events, **patience, **timeouts) as node,
    ):
        assert victim.hear() == "ready"
        publisher, published = node.publisher("/x"), []
        assert publisher.wait_for_subscribers(1, 10)

        def publish() -> None:
            published.extend(publisher.publish(bytes(size)) for _ in range(count))

        victim.signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(victim.pid))  # Else it may take all in before it stands.
        thread = threading.Thread(target=publish)
        thread.start()
        wait_until(does_not_change(published))
        assert thread.is_alive(), "it waits for room"
        victim.signal(signal.SIGKILL)
        thread.join(30)
        assert not thread.is_alive() and len(published) == count
        events.wait(PeerLeft)
        wait_until(lambda: publisher.receivers == 0)


def does_not_change(numbers: list[int]) -> Callable[[], bool]:
    """Make a condition that holds once nothing was added for fifty looks."""
    seen: list[int] = []

    def is_so() -> bool:
        seen.append(len(numbers))
        return len(seen) > 50 and seen[-50] == seen[-1] > 0

    return is_so


# Re-subscribe within the timeout.


@links_of
def test_subscriber_killed_and_started_again_within_the_timeout_is_served(links: list[str]) -> None:
    place = fresh_place()
    with place.open("p", links=links, peer_timeout_ms=60_000, heartbeat_ms=1000) as node:
        publisher = node.publisher("/x/tick")
        for life in range(2):
            with acting(listen, place, links) as actor:
                assert actor.hear() == "ready"
                wait_until(lambda: actor.pid in {one.pid for one in publisher.subscribers()})
                publisher.publish(b"%d" % life)
                assert actor.hear() == ["/x/tick", life + 1, str(life)]
                actor.signal(signal.SIGKILL)


# Destroy inside callback.


@pytest.mark.parametrize("inline", [False, True], ids=["pool", "inline"])
@pytest.mark.parametrize("what", ["publisher", "other", "pattern", "channel"])
def test_callback_may_close_whatever_there_is(what: str, inline: bool) -> None:
    place, is_done = fresh_place(), threading.Event()
    seen: list[bytes] = []
    with place.open("p") as sender, place.open("s") as node:
        publisher, own = sender.publisher("/x"), node.publisher("/own")
        other, bystander = node.subscribe("/x"), node.subscribe("/x")
        deeds: dict[str, Callable[[], object]] = {
            "publisher": own.close,
            "other": other.close,
            "pattern": lambda: subscription.remove(handle),
            "channel": lambda: node.channels[0].close(),
        }

        def destroy(message: hubbub.Message) -> None:
            seen.append(message.payload)
            if message.payload == b"first":
                deeds[what]()
                is_done.set()

        subscription = node.subscribe((), destroy, inline=inline)
        handle = subscription.add("/x")
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(b"first")
        assert is_done.wait(30)
        if what == "channel":
            wait_until(lambda: not publisher.is_connected and not node.channels)
            return
        publisher.publish(b"second")
        assert payloads(take(bystander, 2)) == [b"first", b"second"]
        wait_until(lambda: len(seen) == 2 or what == "pattern")
        if what == "publisher":
            with pytest.raises(hubbub.ClosedError):
                own.publish(b"closed")
        assert other.is_closed == (what == "other")
    assert seen == ([b"first"] if what == "pattern" else [b"first", b"second"])


@pytest.mark.parametrize("kind", [PeerJoined, PeerLeft, Closed], ids=lambda kind: kind.__name__)
def test_listener_may_close_the_node_that_tells_it(kind: type[hubbub.Event]) -> None:
    place, events, heard = fresh_place(), Events(), Events()
    with place.open("other") as other, place.open("n") as node:

        def destroy(event: hubbub.Event) -> None:
            if isinstance(event, kind):
                node.close()
                heard.append(event)

        node.on_event(events)
        node.on_event(destroy)
        events.wait(PeerJoined)
        if kind is PeerLeft:
            other.close()
        elif kind is Closed:
            node.close()
        heard.wait(kind)
        assert node.is_closed and not node.channels


# 1000+ entities.


def test_pattern_beyond_what_peers_keep_is_refused_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hubbub.connection.PATTERNS_MAX", 3)
    place = fresh_place()
    with place.open("n") as node, place.open("p") as sender:
        kept, publisher = node.subscribe(["/a", "/b"]), sender.publisher("/c")
        with pytest.raises(hubbub.ConfigurationError, match="/d would be pattern 4 of this node"):
            node.subscribe(["/a", "/c", "/d"])
        third = kept.add("/c")
        kept.add("/a")  # It is one pattern, however often.
        with pytest.raises(hubbub.ConfigurationError):
            kept.add("/d")
        assert kept.patterns == ("/a", "/b", "/c", "/a")
        assert publisher.wait_for_subscribers(1, 10)
        kept.remove(third)
        wait_until(lambda: not publisher.is_connected)
        assert node.subscribe("/d").patterns == ("/d",)


# 200 Hz small messages beside 10 Hz images.


def check_both(place: list[Any], links: list[str], images: int) -> None:
    """Take samples and images, and tell what was missing or damaged."""
    events = Events()
    with Place(*place).open("receiver", links=links, on_event=events) as node:
        samples = node.subscribe("/sample", queue=100_000)
        pictures = node.subscribe("/image", queue=1000)
        say("ready")
        for number in range(images):
            [image] = take(pictures, 1)
            payload = bytes(image.payload)
            assert zlib.crc32(payload[4:]) == int.from_bytes(payload[:4], "big")
            assert image.sequence == number + 1
        assert payloads(take(samples, 20 * images)) == [b"%d" % n for n in range(20 * images)]
        say([samples.dropped, pictures.dropped, len(events.of(GapAbandoned))])


@links_of
def test_samples_and_images_in_the_ratio_of_200_to_10_hz_arrive_without_a_loss(
    links: list[str],
) -> None:
    place, images = fresh_place(), 20
    with acting(check_both, place, links, images) as actor, place.open("p", links=links) as node:
        assert actor.hear() == "ready"
        image, sample = node.publisher("/image"), node.publisher("/sample")
        assert image.wait_for_subscribers(1, 10) and sample.wait_for_subscribers(1, 10)
        for number in range(images):
            pixels = bytes([number]) * 2_000_000
            image.publish(zlib.crc32(pixels).to_bytes(4, "big") + pixels)
            for place_in_turn in range(20):
                sample.publish(b"%d" % (20 * number + place_in_turn))
        assert actor.hear() == [0, 0, 0]
