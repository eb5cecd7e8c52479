"""Large messages between processes of one host: what is copied, and when."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import hubbub
from hubbub.links.arena import is_supported
from tests.integration.bus import Place, acting, fresh_place, hear, say, take

pytestmark = pytest.mark.skipif(not is_supported(), reason="the system has no sealed memfd")

NEAR = ["local", "multicast"]
MESSAGES = 20


def echo(place: list[Any], options: dict[str, Any]) -> None:
    """Send back what comes until something small does."""
    with Place(*place).open("echo", links=NEAR, **options) as node:
        publisher = node.publisher("/back")
        subscription = node.subscribe("/there")
        say("ready")
        for message in subscription:
            if len(message.payload) < 100:
                break
            publisher.publish(message.payload)
        hear()


@contextmanager
def echoing(**options: Any) -> Iterator[tuple[hubbub.Publisher, hubbub.Subscription]]:
    """Give a publisher and a subscription that hears back what was published."""
    place = fresh_place()
    with (
        acting(echo, place, options) as actor,
        place.open("p", links=NEAR, **options) as node,
    ):
        subscription = node.subscribe("/back")
        publisher = node.publisher("/there")
        assert actor.hear() == "ready"
        assert publisher.wait_for_subscribers(1, 10)
        for _ in range(3):  # What is shared must be offered and mapped first.
            publisher.publish(bytes(100_000))
            take(subscription, 1)
        yield publisher, subscription


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: memoryview(data).cast("I")])
def test_large_buffers_are_copied_when_they_are_published_and_may_change_afterwards(
    kind: Any,
) -> None:
    with echoing() as (publisher, subscription):
        for number in range(MESSAGES):
            data = bytearray([number]) * (1 << 20)
            publisher.publish(kind(data))
            data[:] = bytes(1 << 20)
            [message] = take(subscription, 1)
            assert message.payload == bytes([number]) * (1 << 20)


def test_large_buffer_that_is_not_in_one_piece_is_published_all_the_same() -> None:
    with echoing() as (publisher, subscription):
        data = bytes(range(256)) * (1 << 13)
        publisher.publish(memoryview(data)[::2])
        [message] = take(subscription, 1)
        assert message.payload == data[::2]


def test_large_arrays_are_published_as_they_lie_and_those_of_objects_are_refused() -> None:
    with echoing() as (publisher, subscription):
        for kind in ("<f8", ">f8", [("x", "<f4"), ("y", ">i4")]):
            array = np.zeros(1 << 16, dtype=kind)
            publisher.publish(array)
            [message] = take(subscription, 1)
            assert message.payload == array.tobytes()
        with pytest.raises(hubbub.PayloadError, match="addresses"):
            publisher.publish(np.full(1 << 16, None))


def test_history_keeps_a_large_buffer_as_it_was_published() -> None:
    place = fresh_place()
    with acting(echo, place, {}) as actor, place.open("p", links=NEAR) as node:
        publisher = node.publisher("/there", history=2)
        answers = node.subscribe("/back")
        assert actor.hear() == "ready"
        assert publisher.wait_for_subscribers(1, 10)
        for number in range(1, 4):
            data = bytearray([number]) * (1 << 20)
            publisher.publish(data)
            data[:] = bytes(1 << 20)
            take(answers, 1)
        with place.open("late", links=NEAR) as other:
            late = other.subscribe("/there", history=True)
            kept = [bytes(message.payload[:1]) for message in take(late, 2)]
        assert kept == [b"\2", b"\3"]


def test_answers_are_not_held_back_where_who_publishes_waits_in_between() -> None:
    # One in a hundred round trips of 64 KiB took the hold-back time longer.
    with echoing(holdback_ms=1000, holdback_rate=1) as (publisher, subscription):
        at_once = 0
        for _ in range(MESSAGES):
            publisher.publish(bytes(1 << 16))
            at_once += publisher._framer.pending_count == 0
            take(subscription, 1)
        # Unless the I/O thread was just at it, and sent it then.
        assert at_once >= MESSAGES * 3 // 4


def test_publisher_that_waits_for_room_is_not_taken_for_one_that_answers() -> None:
    # Its messages went one by one after each wait, at a fifth of the speed.
    with echoing(holdback_ms=1000, holdback_rate=1) as (publisher, subscription):
        for _ in range(3):
            publisher.publish(bytes(1 << 16))
        assert publisher._framer.is_busy
        publisher._driver.publishing_paused()
        publisher._driver.after()
        assert publisher._framer.is_busy
        take(subscription, 3)
