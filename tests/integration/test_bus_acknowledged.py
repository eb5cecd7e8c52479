"""Publishers that wait for their receivers: the count is of those who have the message."""

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

import hubbub
from tests.integration.bus import (
    DEADLINE_S,
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
)  # fmt: skip

LINKS = [["multicast"], ["local", "multicast"], ["local"], ["inproc", "multicast"]]
PATIENT_MS = 1000 * DEADLINE_S


@pytest.fixture
def place() -> Place:
    return fresh_place()


def listen(place: list[Any], links: list[str]) -> None:
    """Subscribe, and say so."""
    with Place(*place).open("listener", links=links) as node:
        node.subscribe("/a")
        say("ready")
        hear()


@pytest.mark.parametrize("links", LINKS, ids="+".join)
def test_publish_returns_how_many_nodes_have_taken_the_message(
    place: Place, links: list[str]
) -> None:
    with place.open("p", links=links) as node, place.open("s", links=links) as other:
        publisher = node.publisher("/a", acknowledge_ms=PATIENT_MS)
        wait_until(lambda: not node.channels[0].driver.core.outgoing.reliable.is_held)
        assert publisher.publish(b"for nobody") == 0
        subscription = other.subscribe("/a")
        assert publisher.wait_for_subscribers(1, DEADLINE_S)
        assert publisher.publish(b"1") == 1
        own = node.subscribe("/a")
        assert publisher.publish(b"2", time_ns=7) == 2
        assert publisher.publish(bytes(500_000)) == 2
        assert publisher.publish(lambda: b"lazy") == 2
        assert len(take(subscription, 4)) == 4 and len(take(own, 3)) == 3


def test_message_published_while_the_node_looks_around_is_acknowledged_too(place: Place) -> None:
    with place.open("s") as other:
        subscription = other.subscribe("/a")
        with place.open("p") as node:
            assert node.publisher("/a", acknowledge_ms=PATIENT_MS).publish(b"1") == 1
        assert payloads(take(subscription, 1)) == [b"1"]


@pytest.mark.parametrize("links", [["multicast"], ["local", "multicast"]], ids="+".join)
def test_receiver_that_is_stopped_costs_the_time_once_and_is_waited_for_when_it_is_back(
    place: Place, links: list[str]
) -> None:
    heard = Events()
    options = {"links": links, "peer_timeout_ms": 60_000}
    with place.open("p", on_event=heard, **options) as node, place.open("s", links=links) as other:
        publisher = node.publisher("/a", acknowledge_ms=1500)
        subscription = other.subscribe("/a")
        with acting(listen, [*place], links) as stopped:
            assert stopped.hear() == "ready"
            assert publisher.wait_for_subscribers(2, DEADLINE_S)
            stopped.signal(signal.SIGSTOP)
            wait_until(lambda: is_stopped(stopped.pid))
            start_s = time.monotonic()
            assert publisher.publish(b"0") == 1
            assert time.monotonic() - start_s >= 1.5
            for number in range(1, 20):
                assert publisher.publish(b"%d" % number) == 1
            heard.wait(hubbub.SlowConsumer)
            assert len(heard.of(hubbub.SlowConsumer)) == 1
            assert heard.of(hubbub.SlowConsumer)[0].policy == "unacknowledged"
            assert [one.is_skipped for one in publisher.subscribers()].count(True) == 1
            assert node.statistics().channels[0].counters["unacknowledged"] == 1
            stopped.signal(signal.SIGCONT)
            wait_until(lambda: publisher.publish(b"again") == 2)
        got = payloads(take(subscription, 21))
        assert got[:20] == [b"%d" % number for number in range(20)]


def test_lost_frames_are_repaired_before_they_are_acknowledged(place: Place) -> None:
    faults = hubbub.Faults(seed=5, loss=0.2)
    with place.open("p", faults=faults) as node, place.open("s") as other:
        subscription = other.subscribe("/a")
        publisher = node.publisher("/a", acknowledge_ms=PATIENT_MS)
        assert publisher.wait_for_subscribers(1, DEADLINE_S)
        for number in range(30):
            assert publisher.publish(b"%d" % number) == 1
            assert subscription.received == number + 1


def test_inline_callback_cannot_wait_and_is_told_so(place: Place) -> None:
    heard = Events()
    with place.open("p", on_event=heard) as node, place.open("s") as other:
        subscription = other.subscribe("/b")
        publisher = node.publisher("/b", acknowledge_ms=PATIENT_MS)
        node.subscribe("/a", lambda message: publisher.publish(b"x"), inline=True)
        answers: list[int] = []
        node.subscribe("/c", lambda message: answers.append(publisher.publish(b"pool")))
        assert publisher.wait_for_subscribers(1, DEADLINE_S)
        other.publish("/a", b"1")
        assert "publish in another thread" in str(heard.wait(hubbub.CallbackFailed).error)
        other.publish("/c", b"1")
        assert payloads(take(subscription, 1)) == [b"pool"]
        wait_until(lambda: answers == [1])


def test_coroutine_awaits_the_acknowledgements(place: Place) -> None:
    async def publish(publisher: hubbub.Publisher) -> list[int]:
        return [await publisher.publish_async(b"%d" % number) for number in range(5)]

    async def give_up(publisher: hubbub.Publisher) -> None:
        for _ in range(100):
            task = asyncio.create_task(publisher.publish_async(b"x"))
            await asyncio.sleep(0)
            if not task.done():
                break  # Else the receiver was quicker than this thread, which a busy one can be.
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with place.open("p") as node, place.open("s") as other:
        subscription = other.subscribe("/a")
        publisher = node.publisher("/a", acknowledge_ms=PATIENT_MS)
        assert publisher.wait_for_subscribers(1, DEADLINE_S)
        assert asyncio.run(publish(publisher)) == [1] * 5
        assert len(take(subscription, 5)) == 5
        asyncio.run(give_up(publisher))
        closed = node.publisher("/a", acknowledge_ms=PATIENT_MS)
        closed.close()
        with pytest.raises(hubbub.ClosedError):
            asyncio.run(closed.publish_async(b"x"))
        assert publisher.publish(b"last") == 1
        receipts = node.channels[0].driver.core.outgoing.receipts
        assert receipts.open == []
        assert not any(one.is_awaited for one in receipts.senders.values())


def test_several_threads_wait_for_their_own_messages(place: Place) -> None:
    with place.open("p") as node, place.open("s") as other:
        subscription = other.subscribe("/a")
        publisher = node.publisher("/a", acknowledge_ms=PATIENT_MS)
        assert publisher.wait_for_subscribers(1, DEADLINE_S)
        counts: list[int] = []

        def publish() -> None:
            counts.extend(publisher.publish(b"x") for _ in range(50))

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == [1] * 200 and len(take(subscription, 200)) == 200


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"acknowledge_ms": 0}, "acknowledge_ms=0 must be more than 0 and at most 60000"),
        ({"acknowledge_ms": 60_001}, "acknowledge_ms=60001 must be"),
        ({"acknowledge_ms": float("nan")}, "acknowledge_ms=nan must be"),
        ({"acknowledge_ms": "soon"}, "acknowledge_ms='soon' is not a number"),
        ({"acknowledge_ms": 1, "reliable": False}, "acknowledge_ms=1 needs reliable=True"),
    ],
)
def test_time_that_cannot_be_waited_for_is_refused(
    place: Place, options: dict[str, Any], text: str
) -> None:
    with place.open("p") as node, pytest.raises(hubbub.ConfigurationError, match=text):
        node.publisher("/a", **options)
