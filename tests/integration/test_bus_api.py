"""What an application holds in the hand, end to end: overflow, asyncio, types, listeners."""

import asyncio
import dataclasses
import threading
from typing import Any

import msgspec
import numpy as np
import pytest

import hubbub
from hubbub import (
    Backpressure,
    Closed,
    ClosedError,
    ConfigurationError,
    Event,
    LinkDown,
    PayloadError,
    PayloadRejected,
    PeerJoined,
    SchemaMismatch,
    SlowConsumer,
    Source,
    SubjectError,
)
from tests.integration.bus import Events, acting, fresh_place, payloads, take, wait_until
from tests.integration.test_bus_membership import sit

QUEUE = 10
COUNT = 50


class Temperature(msgspec.Struct):
    celsius: float
    sensor: str = ""


@dataclasses.dataclass
class Position:
    x: int
    y: int


# Overflow.


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("drop_oldest", range(COUNT - QUEUE, COUNT)),
        ("drop_newest", range(QUEUE)),
        ("disconnect", range(QUEUE)),
    ],
)
def test_overflow_policy_acts_counts_and_reports(policy: str, kept: range) -> None:
    place, events, own_events = fresh_place(), Events(), Events()
    with place.open("p") as sender, place.open("s", on_event=events) as node:
        subscription = node.subscribe("/x", queue=QUEUE, overflow=policy, on_event=own_events)
        watcher = node.subscribe("/x")
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        for number in range(COUNT):
            publisher.publish(b"%d" % number)
        take(watcher, COUNT)
        slow = events.wait(SlowConsumer)
        wait_until(lambda: slow in own_events)
        assert slow.subscription == "/x" and slow.policy == policy
        assert slow.dropped == subscription.dropped > 0
        [(subject, source, first, last)] = slow.ranges
        assert (subject, source.name, last - first + 1) == ("/x", "p", slow.dropped)
        assert subscription.pending == QUEUE
        if policy == "disconnect":
            assert subscription.is_closed
            assert [int(subscription.receive(0).payload) for _ in kept] == list(kept)  # type: ignore[union-attr]
            with pytest.raises(ClosedError, match=f"too slow for its queue of {QUEUE}"):
                subscription.receive(0)
        else:
            assert slow.dropped == COUNT - QUEUE
            assert [int(message.payload) for message in take(subscription, QUEUE)] == list(kept)
            publisher.publish(b"later")
            assert payloads(take(subscription, 1)) == [b"later"]


def test_publisher_waits_for_room_and_then_raises() -> None:
    place = fresh_place()
    options = {"send_timeout": 0.2, "slow_ms": 60_000, "backlog_bytes": 200_000}
    with place.open("p", **options) as sender, place.open("s") as receiver:
        receiver.subscribe("/x", lambda message: gate.wait(30), inline=True)
        gate = threading.Event()
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        # The inline callback holds the I/O thread of this process, so nobody makes room.
        with pytest.raises(Backpressure, match=r"send_timeout=0\.2 s; this message was not sent"):
            publish_until_refused(publisher)
        gate.set()
        assert sender.flush(30)
        assert publisher.publish(b"again") == 1


def publish_until_refused(publisher: hubbub.Publisher) -> None:
    for _ in range(1_000):
        publisher.publish(bytes(50_000))


# asyncio.


def test_async_iteration_receives_everything_in_order() -> None:
    place = fresh_place()

    async def scenario() -> None:
        with place.open("p") as sender, place.open("s") as receiver:
            subscription = receiver.subscribe("/x", queue=10_000)
            publisher = sender.publisher("/x")
            assert await asyncio.to_thread(publisher.wait_for_subscribers, 1, 10)
            for number in range(2_000):
                assert await publisher.publish_async(b"%d" % number) == 1
            heard = []
            async for message in subscription:
                heard.append(int(message.payload))
                if len(heard) == 2_000:
                    break
            assert heard == list(range(2_000))

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_node_and_subscription_close_at_the_end_of_async_with() -> None:
    place = fresh_place()

    async def scenario() -> None:
        async with place.open("n") as node, node.subscribe("/x") as subscription:
            assert node.publish("/x", b"1") == 1
            message = await subscription.receive_async()
            assert message is not None and message.payload == b"1"
        with pytest.raises(hubbub.ClosedError):
            node.publish("/x", b"2")

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_cancelled_receive_loses_nothing_and_leaves_no_waiter() -> None:
    place = fresh_place()

    async def scenario() -> None:
        with place.open("n") as node:
            subscription = node.subscribe("/x")
            for _ in range(20):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(subscription.receive_async(), 0.005)
            assert not subscription._waiters.waiting
            node.publish("/x", b"kept")
            message = await asyncio.wait_for(subscription.receive_async(), 10)
            assert message.payload == b"kept"
            waiting = asyncio.create_task(subscription.receive_async())
            await asyncio.sleep(0)
            subscription.close()
            with pytest.raises(ClosedError):
                await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_async_iteration_ends_when_the_node_is_closed() -> None:
    place = fresh_place()

    async def scenario() -> list[bytes]:
        node = place.open("n")
        subscription = node.subscribe("/x")
        node.publish("/x", b"one")
        heard = []
        async for message in subscription:
            heard.append(message.payload)
            await asyncio.to_thread(node.close)
        return heard

    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == [b"one"]


def test_publish_async_lets_the_event_loop_run_while_it_waits_for_room() -> None:
    place = fresh_place()
    ticks = 0

    async def scenario() -> None:
        nonlocal ticks
        options = {"backlog_bytes": 100_000, "slow_ms": 60_000, "send_timeout": 30}
        receiving = place.open("s", window_bytes=1 << 20)
        with place.open("p", **options) as sender, receiving as receiver:
            gate = threading.Event()
            receiver.subscribe("/x", lambda message: gate.wait(30), inline=True)
            publisher = sender.publisher("/x")
            assert await asyncio.to_thread(publisher.wait_for_subscribers, 1, 10)
            await asyncio.to_thread(wait_until, lambda: not publisher._sender.is_held)

            async def publish() -> None:
                for _ in range(300):
                    await publisher.publish_async(bytes(50_000))

            task = asyncio.create_task(publish())
            while ticks < 50:
                ticks += 1
                await asyncio.sleep(0.002)
            was_done = task.done()
            gate.set()
            assert not was_done
            await asyncio.wait_for(task, 30)

    asyncio.run(scenario())


def test_publish_async_waits_no_longer_than_publish_and_leaves_no_waiter() -> None:
    place, gate = fresh_place(), threading.Event()
    options = {"send_timeout": 0.2, "slow_ms": 60_000, "backlog_bytes": 200_000}

    async def publish_until_refused(publisher: hubbub.Publisher) -> None:
        while True:
            await publisher.publish_async(bytes(50_000))

    async def give_up(publisher: hubbub.Publisher) -> None:
        task = asyncio.create_task(publisher.publish_async(bytes(50_000)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with place.open("p", **options) as sender, place.open("s") as receiver:
        receiver.subscribe("/x", lambda message: gate.wait(30), inline=True)
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        # The inline callback holds the I/O thread of this process, so nobody makes room.
        with pytest.raises(Backpressure, match=r"/x did not make room within send_timeout=0\.2 s"):
            asyncio.run(publish_until_refused(publisher))
        asyncio.run(give_up(publisher))
        assert not publisher._driver.changes.waiting
        gate.set()
        assert sender.flush(30)
        assert asyncio.run(publisher.publish_async(b"again")) == 1


def test_publish_async_drops_best_effort_rather_than_wait() -> None:
    place = fresh_place()
    options = {"rate_limit_bits": 1_000_000, "backlog_bytes": 100_000, "linger_ms": 0}

    async def publish(publisher: hubbub.Publisher) -> None:
        for _ in range(100):  # Which would take the rate limit 40 s.
            await publisher.publish_async(bytes(50_000))

    with place.open("p", **options) as sender, place.open("s") as receiver:
        receiver.subscribe("/x")
        publisher = sender.publisher("/x", reliable=False)
        assert publisher.wait_for_subscribers(1, 10)
        asyncio.run(asyncio.wait_for(publish(publisher), 20))
        [channel] = sender.statistics().channels
        assert channel.counters["best_effort_dropped"] > 0


# Types.


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Temperature, Temperature(21.5, "north")), (Position, Position(3, -4)), (list[int], [1, 2])],
    ids=["Struct", "dataclass", "list"],
)
def test_typed_payloads_travel_as_values(kind: Any, value: Any) -> None:
    place = fresh_place()
    with place.open("p") as sender, place.open("s") as receiver:
        typed = receiver.subscribe("/x", type=kind)
        raw = receiver.subscribe("/x")
        publisher = sender.publisher("/x", type=kind)
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(value)
        assert payloads(take(typed, 1)) == [value]
        assert type(take(raw, 1)[0].payload) is bytes
        with pytest.raises(PayloadError, match="not a"):
            publisher.publish("something else")


def test_array_of_objects_is_refused_because_it_holds_addresses() -> None:
    place = fresh_place()
    with place.open("p") as sender, place.open("s") as receiver:
        arrays = receiver.subscribe("/x")
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        with pytest.raises(PayloadError, match="addresses"):
            publisher.publish(np.array([None, 1], dtype=object))
        publisher.publish(np.array([1, 2], dtype=np.uint8))
        assert payloads(take(arrays, 1)) == [b"\x01\x02"]


def test_publisher_of_another_type_is_an_event_and_its_messages_are_skipped() -> None:
    place, events, own_events = fresh_place(), Events(), Events()
    with place.open("p") as sender, place.open("s", on_event=events) as receiver:
        typed = receiver.subscribe("/x", type=Temperature, on_event=own_events)
        other = receiver.subscribe("/x", type=Position)
        publisher = sender.publisher("/x", type=Position)
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(Position(1, 2))
        assert payloads(take(other, 1)) == [Position(1, 2)]
        mismatch = events.wait(SchemaMismatch)
        wait_until(lambda: mismatch in own_events)
        assert (mismatch.expected, mismatch.announced) == ("Temperature", "Position")
        assert mismatch.publisher.name == "p" and mismatch.subject == "/x"
        publisher.publish(Position(3, 4))
        take(other, 1)
        assert typed.received == 0
        assert len(events.of(SchemaMismatch)) == 1


def test_bytes_that_do_not_decode_are_rejected_and_reported() -> None:
    place, events = fresh_place(), Events()
    with place.open("n", on_event=events) as node:
        typed = node.subscribe("/x", type=Temperature)
        node.publish("/x", b"\xff garbage")
        node.publish("/x", msgspec.msgpack.encode(Temperature(1.0)))
        assert payloads(take(typed, 1)) == [Temperature(1.0)]
        rejected = events.wait(PayloadRejected)
        assert (rejected.subscription, rejected.rejected) == ("/x", 1)


@pytest.mark.parametrize("payload", ["text", 5, None, {"a": 1}, object()])
def test_payload_that_is_no_buffer_is_refused_with_a_hint(payload: Any) -> None:
    with fresh_place().open("n") as node, pytest.raises(PayloadError, match="type="):
        node.publish("/x", payload)


def test_mutable_payload_is_copied_at_publish() -> None:
    with fresh_place().open("n") as node:
        subscription = node.subscribe("/x")
        data = bytearray(b"before")
        node.publish("/x", data)
        data[:] = b"after!"
        assert payloads(take(subscription, 1)) == [b"before"]


def test_message_above_the_bound_is_refused_with_value_and_bound() -> None:
    with fresh_place().open("n", message_bytes=1_000_000) as node:
        node.subscribe("/x")
        with pytest.raises(PayloadError, match="1000001 bytes are more than message_bytes=1000000"):
            node.publish("/x", bytes(1_000_001))


# Subjects and own messages.


@pytest.mark.parametrize("subject", ["", "x", "/a/*", "/...", "/a//b", "/a/", "/a/…"])
def test_malformed_subject_is_refused_at_publish(subject: str) -> None:
    with fresh_place().open("n") as node:
        with pytest.raises(SubjectError):
            node.publish(subject, b"")
        with pytest.raises(SubjectError):
            node.publisher(subject)


@pytest.mark.parametrize(
    "pattern", ["", "foo", "xyz/foo", "/.../x", "//", "/a/", "/…", 5, None, b"/a", ["/a", "//"]]
)
def test_malformed_pattern_is_refused_at_subscribe(pattern: Any) -> None:
    with fresh_place().open("n") as node:
        with pytest.raises(SubjectError):
            node.subscribe(pattern)
        assert node.statistics().subscriptions == ()
        subscription = node.subscribe("/b")
        with pytest.raises(SubjectError):
            subscription.add(pattern)
        assert subscription.patterns == ("/b",)


def test_own_messages_come_back_only_if_wanted() -> None:
    place = fresh_place()
    with place.open("n") as node, place.open("deaf", loopback=False) as deaf:
        own, others = node.subscribe("/x"), node.subscribe("/x", no_local=True)
        none = deaf.subscribe("/x")
        publisher, deaf_publisher = node.publisher("/x"), deaf.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10) and deaf_publisher.wait_for_subscribers(1, 10)
        assert publisher.publish(b"from n") == 2
        assert deaf_publisher.publish(b"from deaf") == 1
        assert sorted(payloads(take(own, 2))) == [b"from deaf", b"from n"]
        assert payloads(take(others, 1)) == [b"from deaf"]
        assert payloads(take(none, 1)) == [b"from n"]
        assert {own.pending, others.pending, none.pending} == {0}


def test_nobody_wants_it_and_nothing_is_sent() -> None:
    place = fresh_place()
    with place.open("p") as node, place.open("s") as receiver:
        publisher = node.publisher("/x")
        receiver.subscribe("/y")
        wait_until(lambda: node.statistics().channels[0].peers)
        wait_until(lambda: not publisher._sender.is_held)
        assert publisher.publish(b"nobody") == 0
        assert node.statistics().channels[0].frames_sent == 0
        late = receiver.subscribe("/x")
        assert publisher.wait_for_subscribers(1, 10)
        assert publisher.publish(b"somebody") == 1
        [message] = take(late, 1)
        assert (message.payload, message.sequence) == (b"somebody", 2)


def test_message_published_while_its_first_receiver_comes_is_not_skipped() -> None:
    """It was owed, counted as wanted by nobody, and then reported as lost."""
    with fresh_place().open("p") as node:
        publisher = node.publisher("/x")
        wait_until(lambda: not publisher._sender.is_held)
        topic = publisher._topic

        class Late:
            """A lock whose taking is the moment in which a receiver is counted in."""

            def __enter__(self) -> None:
                topic.receivers = 1

            def __exit__(self, *_: object) -> None:
                pass

        driver, lock = publisher._driver, publisher._driver.lock
        driver.lock = Late()  # type: ignore[assignment]
        try:
            assert not publisher._skip()
        finally:
            driver.lock, topic.receivers = lock, 0
        assert publisher.sequence == 0
        assert publisher.publish(b"1") == 0
        wait_until(lambda: publisher.sequence == 1)  # The I/O thread may be at it just then.


def test_pattern_can_be_added_and_removed_at_run_time() -> None:
    with fresh_place().open("n") as node:
        subscription = node.subscribe(["/a", "/b"])
        handle = subscription.add("/c", context="c")
        assert subscription.patterns == ("/a", "/b", "/c")
        for subject in ("/a", "/b", "/c", "/d"):
            node.publish(subject, subject.encode())
        heard = take(subscription, 3)
        assert [(m.subject, m.context) for m in heard] == [("/a", None), ("/b", None), ("/c", "c")]
        subscription.remove(handle)
        node.publish("/c", b"")
        node.publish("/b", b"still")
        assert payloads(take(subscription, 1)) == [b"still"]
        with pytest.raises(ConfigurationError, match="no longer"):
            subscription.remove(handle)


def test_publishers_of_one_subject_share_its_sequence_and_may_not_disagree() -> None:
    with fresh_place().open("n") as node:
        subscription = node.subscribe("/x")
        one, two = node.publisher("/x"), node.publisher("/x")
        for publisher in (one, two, one):
            publisher.publish(b"")
        assert [message.sequence for message in take(subscription, 3)] == [1, 2, 3]
        with pytest.raises(ConfigurationError):
            node.publisher("/x", reliable=False)
        with pytest.raises(ConfigurationError):
            node.publisher("/x", type=Temperature)


def test_best_effort_arrives_in_order_without_repairs() -> None:
    place = fresh_place()
    with place.open("p") as sender, place.open("s") as receiver:
        subscription = receiver.subscribe("/x")
        publisher = sender.publisher("/x", reliable=False)
        assert publisher.wait_for_subscribers(1, 10)
        for number in range(COUNT):
            assert publisher.publish(b"%d" % number) == 1
        assert payloads(take(subscription, COUNT)) == [b"%d" % n for n in range(COUNT)]
        [channel] = sender.statistics().channels
        assert channel.cache_frames == channel.repairs_sent == 0


# Listeners.


def test_node_publisher_subscription_and_channel_hear_who_comes_and_are_told_who_is_here() -> None:
    place = fresh_place()
    ears = {name: Events() for name in ("node", "channel", "publisher", "subscription")}
    with (
        acting(sit, place, {}) as actor,
        place.open("n", channels=[], on_event=ears["node"]) as node,
    ):
        assert actor.hear() == "ready"
        node.connect(hubbub.Channel(place.group, place.port), on_event=ears["channel"])
        for name in ("node", "channel"):
            assert ears[name].wait(PeerJoined).peer.name == "sitter"
        # These come later, and are told of the peer that is here already.
        publisher = node.publisher("/x", on_event=ears["publisher"])
        subscription = node.subscribe("/x", on_event=ears["subscription"])
        for events in ears.values():
            assert events.wait(PeerJoined).peer.name == "sitter"
        publisher.close()
        subscription.close()
        with place.open("late"):
            wait_until(lambda: len(ears["node"].of(PeerJoined)) == 2)
            wait_until(lambda: len(ears["channel"].of(PeerJoined)) == 2)
        for name in ("publisher", "subscription"):  # They may hear that the machine is busy.
            assert len(ears[name].of(PeerJoined)) == 1


def test_all_that_listen_hear_that_the_node_is_closed() -> None:
    place = fresh_place()
    ears = {name: Events() for name in ("node", "channel", "publisher", "subscription")}
    with place.open("n", channels=[], on_event=ears["node"]) as node:
        channel = hubbub.Channel(place.group, place.port)
        node.connect(channel, on_event=ears["channel"])
        node.publisher("/x", on_event=ears["publisher"])
        node.subscribe("/x", on_event=ears["subscription"])
    for events in ears.values():
        assert events.wait(Closed).channel == channel.name
        assert len(events.of(Closed)) == 1


def test_listener_that_raises_hurts_no_other(caplog: pytest.LogCaptureFixture) -> None:
    place, events = fresh_place(), Events()

    def fail(event: Event) -> None:
        raise ZeroDivisionError

    with place.open("n", on_event=fail) as node:
        node.on_event(events)
        with place.open("peer"):
            assert events.wait(PeerJoined).peer.name == "peer"
    assert "a listener failed on: peer joined: peer#" in caplog.text


class Wordy(Exception):
    """As those of some libraries are, which list what is wrong."""

    def __repr__(self) -> str:
        return "2 errors:\n a\n b"

    __str__ = __repr__


def test_every_event_prints_as_one_line() -> None:
    source = Source("name", bytes(12), 1)
    values: dict[str, Any] = {
        "channel": "239.1.2.3:4", "peer": source, "publisher": source, "host": "h", "pid": 1,
        "address": "127.0.0.1:5", "reason": "timeout", "subject": "/a", "first": 1, "last": 2,
        "policy": "suspend", "dropped": 3, "subscription": "/a, /b", "requests": 5, "seconds": 1.5,
        "ranges": (("/a", source, 1, 2),), "error": Wordy(), "rejected": 2, "version": 2,
        "expected": "A", "announced": "B\n\x1b[2J", "late_ms": 21.5, "interface": "eth0",
        "subscriber": source, "schema": "Temperature", "is_reliable": False, "producer": source,
        "port": 2, "period_ms": 100.0, "slots": 3, "is_lost": True, "asked_ms": 1.0,
        "granted_ms": 10.0, "refused": 4, "skipped": 5, "by_ms": -60.0, "era": 1,
        "service": "news", "data_type": 1, "peer_subject": "/b", "peer_data_type": 2,
        "manager": source, "epoch": 3, "published": ("tcp", "multicast"), "wanted": (),
        "is_publisher": True, "is_hopeless": False, "uptime_s": 6,
    }  # fmt: skip
    kinds = [kind for kind in vars(hubbub).values() if is_event(kind)]
    assert len(kinds) >= 13 and LinkDown in kinds
    for kind in kinds:
        event = kind(**{name: values[name] for name in kind.__struct_fields__})
        assert "\n" not in str(event) and len(str(event)) > 15
        assert "(" not in str(event).split(" ")[0], f"{kind} has no text of its own"


def is_event(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
