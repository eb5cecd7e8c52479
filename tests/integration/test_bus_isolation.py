"""One subscriber stops: the others get everything, and whoever publishes goes on.

How much of their speed they keep is measured by `python -m benchmarks.stopped` and shown exactly by
the simulator's scenario `stopped_receiver`; here it is that they go on at all, with real processes.
"""

import asyncio
import signal
import threading
from typing import Any

import pytest

from hubbub import Backpressure, ConfigurationError, Message, Publisher, SlowConsumer
from hubbub.limits import REFERENCE_BYTES_MIN
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
)  # fmt: skip

MESSAGES = 20_000
LINKS = [["multicast"], ["local", "multicast"], ["local"]]


def follow(place: list[Any], links: list[str], count: int) -> None:
    """Receive numbered messages; tell whether they are complete and in order."""
    with Place(*place).open("follower", links=links) as node:
        subscription = node.subscribe("/numbers", queue=2 * count)
        say("ready")
        numbers = [message.sequence for _, message in zip(range(count), subscription, strict=False)]
        say(numbers == list(range(1, count + 1)))
        hear()


@pytest.mark.parametrize("links", LINKS, ids="+".join)
@pytest.mark.parametrize("size", [500, 20_000])
def test_stopped_process_holds_up_nobody_else(links: list[str], size: int) -> None:
    place, heard = fresh_place(), Events()
    count = MESSAGES * 500 // size
    # So long that nobody is taken for stopped who only waits for a busy processor.
    options = {"links": links, "peer_timeout_ms": 120_000, "cache_bytes": 1 << 20, "slow_ms": 2000}
    with (
        acting(follow, place, links, count) as stopped,
        acting(follow, place, links, count) as one,
        acting(follow, place, links, count) as two,
        place.open("p", on_event=heard, **options) as node,
    ):
        assert stopped.hear() == one.hear() == two.hear() == "ready"
        publisher = node.publisher("/numbers")
        assert publisher.wait_for_subscribers(3, 30)
        stopped.signal(signal.SIGSTOP)
        for _ in range(count):
            publisher.publish(bytes(size))
        publisher.flush()
        assert one.hear(60) is True and two.hear(60) is True
        if (
            size < REFERENCE_BYTES_MIN or "local" not in links
        ):  # References to all of it fit a window.
            assert heard.wait(SlowConsumer).policy == "left_behind"
        assert len(heard.of(SlowConsumer)) <= 1


def publish_until_refused(publisher: Publisher, count: int) -> int:
    for published in range(count):
        try:
            publisher.publish(bytes(5000))
        except Backpressure:
            return published
    return count


@pytest.mark.parametrize("links", LINKS, ids="+".join)
def test_publisher_that_blocks_waits_for_a_stopped_process_and_others_of_its_node_go_on(
    links: list[str],
) -> None:
    place, count = fresh_place(), MESSAGES
    options = {"links": links, "peer_timeout_ms": 120_000, "send_timeout": 1.0}
    with (
        acting(follow, place, links, count) as stopped,
        place.open("p", **options) as node,
        place.open("s", links=links) as other,
    ):
        assert stopped.hear() == "ready"
        publisher = node.publisher("/numbers", on_slow="block")
        assert publisher.wait_for_subscribers(1, 30)
        stopped.signal(signal.SIGSTOP)
        published = publish_until_refused(publisher, count)
        assert published < count
        with pytest.raises(Backpressure, match="did not catch up within send_timeout="):
            asyncio.run(publisher.publish_async(b"x"))
        beside = other.subscribe("/beside")
        going_on = node.publisher("/beside")
        assert going_on.wait_for_subscribers(1, 30)
        for number in range(500):
            going_on.publish(b"%d" % number)
        assert payloads(take(beside, 500)) == [b"%d" % number for number in range(500)]
        stopped.signal(signal.SIGCONT)
        wait_until(lambda: not any(one.is_slow for one in publisher.subscribers()))
        for _ in range(published, count):
            publisher.publish(bytes(500))
        publisher.flush()
        assert stopped.hear(60) is True


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_slow": "wait"}, "on_slow='wait': choose one of drop, block"),
        ({"on_slow": "block", "reliable": False}, "on_slow='block' needs reliable=True"),
    ],
)
def test_treatment_of_slow_receivers_that_there_is_not_is_refused(
    options: dict[str, Any], text: str
) -> None:
    with fresh_place().open("p") as node, pytest.raises(ConfigurationError, match=text):
        node.publisher("/a", **options)


@pytest.mark.parametrize("links", [["multicast"], ["local", "multicast"]], ids="+".join)
def test_callback_that_blocks_holds_up_neither_its_process_nor_another(links: list[str]) -> None:
    place, count, release = fresh_place(), 5_000, threading.Event()
    seen: list[int] = []

    def block(message: Message) -> None:
        release.wait(60)

    with (
        acting(follow, place, links, count) as elsewhere,
        place.open("p", links=links) as node,
        place.open("s", links=links) as other,
    ):
        assert elsewhere.hear() == "ready"
        for subscriber in (node, other):
            subscriber.subscribe("/numbers", block, queue=10)
        other.subscribe("/numbers", lambda message: seen.append(message.sequence), queue=2 * count)
        own = node.subscribe("/numbers", queue=2 * count)
        publisher = node.publisher("/numbers")
        assert publisher.wait_for_subscribers(2, 30)
        for _ in range(count):
            publisher.publish(bytes(200))
        publisher.flush()
        assert elsewhere.hear(60) is True
        wait_until(lambda: len(seen) == count and own.pending == count)
        assert seen == list(range(1, count + 1))
        release.set()
