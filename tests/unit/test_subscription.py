"""A subscription as an application reads it, fed by hand: no thread, no clock."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Any

import msgspec
import pytest

from hubbub.errors import ClosedError, ConfigurationError
from hubbub.events import CallbackFailed, PayloadRejected, SlowConsumer
from hubbub.limits import ASYNC_TURN_MESSAGES
from hubbub.message import Message
from hubbub.subscription import Subscription
from tests.unit.runtime.fakes import LIDAR, RADAR, FakeNode, FakeTopic, run


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


def open_on(node: FakeNode, pattern: str = "/plant/...", **options: Any) -> Subscription:
    subscription = Subscription(node, **options)
    subscription.add(pattern)
    return subscription


def sequences(subscription: Subscription) -> list[int]:
    """Return what can be read without waiting."""
    found = []
    while (message := subscription.receive(timeout=0)) is not None:
        found.append(message.sequence)
    return found


def inline(node: FakeNode, callback: Callable[[Message], object], **options: Any) -> Subscription:
    return open_on(node, callback=callback, inline=True, **options)


# Reading.


def test_messages_come_out_in_the_order_they_went_in(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 3), "context")
    subscription.deliver(run(4, 1), "context")
    subscription.deliver(run(5, 2), "context")
    messages = list(islice(subscription, 6))
    assert [message.sequence for message in messages] == [1, 2, 3, 4, 5, 6]
    assert messages[0].context == "context"


def test_polling_an_empty_subscription_returns_none(node: FakeNode) -> None:
    assert open_on(node).receive(timeout=0) is None


def test_iteration_and_receive_share_one_queue(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 5), None)
    messages = iter(subscription)
    assert next(messages).sequence == 1
    assert sequences(subscription) == [2, 3, 4, 5]
    subscription.deliver(run(6, 1), None)
    assert next(messages).sequence == 6


def test_pending_and_received_count_messages(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 5), None)
    subscription.receive()
    assert (subscription.pending, subscription.received) == (4, 5)


# Closing.


def test_a_closed_subscription_is_read_to_the_end_then_says_so(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 3), None)
    subscription.close()
    assert [message.sequence for message in subscription] == [1, 2, 3]
    with pytest.raises(ClosedError, match=r"/plant/\.\.\. is closed: the application closed it"):
        subscription.receive(timeout=0)


def test_closing_leaves_the_node_once(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.add("/other")
    subscription.close()
    subscription.close()
    assert node.patterns == {}
    assert node.forgotten == [subscription]


def test_the_node_closes_without_being_called_back(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 1), None)
    subscription.close_from_node("the node was closed")
    assert node.forgotten == []
    assert sequences_until_closed(subscription) == ([1], "the node was closed")


def sequences_until_closed(subscription: Subscription) -> tuple[list[int], str]:
    found = []
    try:
        while (message := subscription.receive(timeout=0)) is not None:
            found.append(message.sequence)
    except ClosedError as error:
        return found, str(error).rpartition(": ")[2]
    raise AssertionError("it is not closed")


def test_what_comes_between_the_look_and_the_closing_is_still_read(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = open_on(node)
    take = subscription._take

    def take_too_early() -> Message | None:
        monkeypatch.setattr(subscription, "_take", take)
        message = take()
        subscription.deliver(run(1, 1), None)
        subscription.close()
        return message

    monkeypatch.setattr(subscription, "_take", take_too_early)
    message = subscription.receive()
    assert message is not None
    assert message.sequence == 1


def test_leaving_a_with_block_closes(node: FakeNode) -> None:
    with open_on(node) as subscription:
        assert not subscription.is_closed
    assert subscription.is_closed


def test_what_comes_after_closing_is_not_taken(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.close()
    subscription.deliver(run(1, 3), None)
    assert (subscription.pending, subscription.received) == (0, 0)


def test_a_forked_child_is_told_to_open_its_own(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 3), None)
    subscription._lock.acquire()  # By a thread that does not exist in the child.
    subscription.forked()
    with pytest.raises(ClosedError, match="forked"):
        subscription.receive()
    with pytest.raises(ClosedError, match="forked"):
        subscription.add("/other")
    with pytest.raises(ClosedError, match="forked"):
        list(subscription)
    subscription.close()


# Patterns.


def test_patterns_come_and_go(node: FakeNode) -> None:
    subscription = Subscription(node, context="default")
    first = subscription.add("/a")
    subscription.add("/b", context="own")
    subscription.add("/c", context=None)
    contexts = [context for _, _, context in node.patterns.values()]
    assert contexts == ["default", "own", None]
    subscription.remove(first)
    assert subscription.patterns == ("/b", "/c")
    assert len(node.patterns) == 2


def test_a_handle_is_removed_once(node: FakeNode) -> None:
    subscription = Subscription(node)
    handle = subscription.add("/a")
    subscription.remove(handle)
    with pytest.raises(ConfigurationError, match="no longer"):
        subscription.remove(handle)


def test_a_pattern_added_while_another_thread_closes_is_taken_back(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = open_on(node)
    add_pattern = node.add_pattern

    def close_meanwhile(*arguments: Any) -> int:
        subscription.close()
        return add_pattern(*arguments)

    monkeypatch.setattr(node, "add_pattern", close_meanwhile)
    with pytest.raises(ClosedError):
        subscription.add("/late")
    assert node.patterns == {}


# Options.


@pytest.mark.parametrize("queue", [0, -1, 1.5, True, "many"])
def test_a_queue_without_room_is_refused(node: FakeNode, queue: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"queue={queue!r}.*at least 1"):
        Subscription(node, queue=queue)


def test_an_unknown_policy_is_refused_with_the_known_ones(node: FakeNode) -> None:
    with pytest.raises(ConfigurationError, match=r"'block'.*drop_oldest, drop_newest, disconnect"):
        Subscription(node, overflow="block")


def test_inline_without_a_callback_is_refused(node: FakeNode) -> None:
    with pytest.raises(ConfigurationError, match="give a callback"):
        Subscription(node, inline=True)


def test_a_coroutine_function_is_refused_as_a_callback(node: FakeNode) -> None:
    async def callback(message: Message) -> None: ...

    with pytest.raises(ConfigurationError, match="never be awaited"):
        Subscription(node, callback=callback)


def test_a_callback_must_be_callable(node: FakeNode) -> None:
    with pytest.raises(ConfigurationError, match="can be called"):
        Subscription(node, callback="print")  # type: ignore[arg-type]


def test_a_subscription_with_a_callback_cannot_be_read(node: FakeNode) -> None:
    subscription = inline(node, print)
    with pytest.raises(ConfigurationError, match="has a callback"):
        subscription.receive()
    with pytest.raises(ConfigurationError, match="has a callback"):
        next(iter(subscription))


# Overflow.


def test_drop_oldest_keeps_the_newest_and_reports_the_rest(node: FakeNode) -> None:
    subscription = open_on(node, queue=4)
    subscription.deliver(run(1, 3), None)
    subscription.deliver(run(4, 3), None)
    subscription.deliver(run(7, 3), None)
    node.time.make_calls()
    ranges = (("/plant/temp", LIDAR, 1, 5),)
    assert node.events == [SlowConsumer("", "drop_oldest", 5, "/plant/...", ranges)]
    assert sequences(subscription) == [6, 7, 8, 9]
    assert (subscription.dropped, subscription.received) == (5, 9)


def test_drop_newest_keeps_the_oldest_and_reports_the_rest(node: FakeNode) -> None:
    subscription = open_on(node, queue=4, overflow="drop_newest")
    subscription.deliver(run(1, 3), None)
    subscription.deliver(run(4, 3), None)
    subscription.deliver(run(7, 3), None)
    node.time.make_calls()
    ranges = (("/plant/temp", LIDAR, 5, 9),)
    assert node.events == [SlowConsumer("", "drop_newest", 5, "/plant/...", ranges)]
    assert sequences(subscription) == [1, 2, 3, 4]
    assert subscription.dropped == 5


def test_disconnect_keeps_what_fits_then_says_why(node: FakeNode) -> None:
    subscription = open_on(node, queue=4, overflow="disconnect")
    subscription.deliver(run(1, 3), None)
    subscription.deliver(run(4, 3), None)
    subscription.deliver(run(7, 3), None)
    ranges = (("/plant/temp", LIDAR, 5, 6),)
    assert node.events == [SlowConsumer("", "disconnect", 2, "/plant/...", ranges)]
    assert node.forgotten == [subscription]
    reason = "it was too slow for its queue of 4 messages"
    assert sequences_until_closed(subscription) == ([1, 2, 3, 4], reason)


def test_iterating_over_a_disconnected_subscription_raises_at_its_end(node: FakeNode) -> None:
    subscription = open_on(node, queue=2, overflow="disconnect")
    subscription.deliver(run(1, 3), None)
    messages = iter(subscription)
    assert [next(messages).sequence for _ in range(2)] == [1, 2]
    with pytest.raises(ClosedError, match="too slow"):
        next(messages)


def test_losses_of_one_second_are_one_event_with_every_topic(node: FakeNode) -> None:
    subscription = open_on(node, queue=1)
    wind = FakeTopic("/plant/wind", RADAR)
    for first in range(1, 5):
        subscription.deliver(run(first, 1), None)
        subscription.deliver(run(first, 1, wind), None)
    assert node.events == []
    assert len(node.time.calls) == 1
    node.time.make_calls()
    ranges = (("/plant/temp", LIDAR, 1, 4), ("/plant/wind", RADAR, 1, 3))
    assert node.events == [SlowConsumer("", "drop_oldest", 7, "/plant/...", ranges)]


def test_the_next_second_of_losses_is_another_event(node: FakeNode) -> None:
    subscription = open_on(node, queue=1)
    for first in (1, 2):
        subscription.deliver(run(3 * first, 3), None)
        node.time.make_calls()
    assert [event.dropped for event in node.events if isinstance(event, SlowConsumer)] == [2, 3]


def test_losses_not_yet_reported_are_reported_on_closing(node: FakeNode) -> None:
    subscription = open_on(node, queue=1)
    subscription.deliver(run(1, 3), None)
    subscription.close()
    assert [type(event) for event in node.events] == [SlowConsumer]
    node.time.make_calls()
    assert len(node.events) == 1


def test_without_an_io_thread_losses_are_reported_at_once(node: FakeNode) -> None:
    node.time.is_closed = True
    subscription = open_on(node, queue=1)
    subscription.deliver(run(1, 3), None)
    assert len(node.events) == 1


def test_a_queue_that_never_overflows_drops_nothing(node: FakeNode) -> None:
    subscription = open_on(node, queue=3)
    for first in range(1, 31, 3):
        subscription.deliver(run(first, 3), None)
        assert sequences(subscription) == [first, first + 1, first + 2]
    assert subscription.dropped == 0
    assert node.time.calls == []


# Callbacks.


def test_an_inline_callback_gets_every_message_before_deliver_returns(node: FakeNode) -> None:
    got: list[int] = []
    subscription = inline(node, lambda message: got.append(message.sequence))
    subscription.deliver(run(1, 3), None)
    assert got == [1, 2, 3]
    assert subscription.statistics().delivered == 3


def test_pending_is_right_inside_the_callback(node: FakeNode) -> None:
    pending: list[int] = []
    subscription = inline(node, lambda message: pending.append(subscription.pending))
    subscription.deliver(run(1, 4), None)
    subscription.deliver(run(5, 1), None)
    assert pending == [3, 2, 1, 0, 0]


def test_a_callback_that_raises_is_reported_and_the_next_message_follows(node: FakeNode) -> None:
    got: list[int] = []
    error = ValueError("bad reading")

    def fail_on_two(message: Message) -> None:
        got.append(message.sequence)
        if message.sequence == 2:
            raise error

    subscription = inline(node, fail_on_two)
    subscription.deliver(run(1, 3), None)
    assert got == [1, 2, 3]
    assert node.events == [CallbackFailed("", "/plant/...", "/plant/temp", error)]
    assert subscription.statistics().callbacks_failed == 1


def test_sys_exit_in_a_callback_is_reported_like_any_other_failure(node: FakeNode) -> None:
    def leave(message: Message) -> None:
        raise SystemExit(3)

    inline(node, leave).deliver(run(1, 2), None)
    assert [type(event) for event in node.events] == [CallbackFailed, CallbackFailed]


def test_control_c_in_an_inline_callback_reaches_the_program(node: FakeNode) -> None:
    def interrupted(message: Message) -> None:
        raise KeyboardInterrupt

    subscription = inline(node, interrupted)
    with pytest.raises(KeyboardInterrupt):
        subscription.deliver(run(1, 2), None)
    assert subscription.pending == 1
    with pytest.raises(KeyboardInterrupt):
        subscription.deliver(run(3, 1), None)


def test_a_callback_that_removes_its_pattern_still_gets_the_rest_of_the_queue(
    node: FakeNode,
) -> None:
    got: list[int] = []

    def remove_once(message: Message) -> None:
        got.append(message.sequence)
        if message.sequence == 1:
            subscription.remove(handle)

    subscription = Subscription(node, callback=remove_once, inline=True)
    handle = subscription.add("/plant/...")
    subscription.deliver(run(1, 3), None)
    assert got == [1, 2, 3]
    assert node.patterns == {}


def test_a_callback_that_closes_its_subscription_is_not_called_again(node: FakeNode) -> None:
    got: list[int] = []

    def close_at_two(message: Message) -> None:
        got.append(message.sequence)
        if message.sequence == 2:
            subscription.close()

    subscription = inline(node, close_at_two)
    subscription.deliver(run(1, 5), None)
    subscription.deliver(run(6, 5), None)
    assert got == [1, 2]
    assert subscription.pending == 0
    assert subscription.statistics().discarded == 3


def test_a_run_that_slips_in_behind_the_closing_is_not_called_back(node: FakeNode) -> None:
    got: list[int] = []
    subscription = inline(node, lambda message: got.append(message.sequence))
    subscription.close()
    subscription._closed_reason = None  # As a deliver that looked just before the closing saw it.
    subscription.deliver(run(1, 2), None)
    assert got == []
    assert subscription.pending == 0


def test_a_callback_that_publishes_to_itself_is_not_entered_twice(node: FakeNode) -> None:
    log: list[str] = []

    def echo(message: Message) -> None:
        log.append(f"enter {message.sequence}")
        if message.sequence < 3:
            subscription.deliver(run(message.sequence + 1, 1), None)
        log.append(f"leave {message.sequence}")

    subscription = inline(node, echo)
    subscription.deliver(run(1, 1), None)
    assert log == ["enter 1", "leave 1", "enter 2", "leave 2", "enter 3", "leave 3"]


def test_a_callback_that_floods_itself_meets_its_own_queue_bound(node: FakeNode) -> None:
    got: list[int] = []

    def flood(message: Message) -> None:
        got.append(message.sequence)
        if message.sequence == 0:
            subscription.deliver(run(1, 100), None)

    subscription = inline(node, flood, queue=10, overflow="drop_newest")
    subscription.deliver(run(0, 1), None)
    assert got == list(range(11))
    assert subscription.dropped == 90


# Typed payloads.


class Reading(msgspec.Struct):
    celsius: float


def encoded(*values: object) -> list[bytes]:
    return [msgspec.msgpack.encode(value) for value in values]


def test_a_typed_subscription_hands_out_values(node: FakeNode) -> None:
    subscription = open_on(node, type=Reading)
    payloads = encoded(Reading(1.5), Reading(2.5))
    subscription.deliver(run(1, 2, payloads=payloads), "context")
    message = subscription.receive()
    assert message == Message(
        "/plant/temp", Reading(1.5), LIDAR, 1, 1001, 77, "multicast", "context"
    )
    assert isinstance(message, Message)
    assert [m.payload for m in islice(subscription, 1)] == [Reading(2.5)]


def test_a_payload_that_does_not_decode_is_skipped_and_reported(node: FakeNode) -> None:
    subscription = open_on(node, type=Reading)
    payloads = [b"\xc1", *encoded(Reading(1.0), {"celsius": "warm"}, 7, Reading(2.0))]
    subscription.deliver(run(1, 5, payloads=payloads), None)
    assert sequences(subscription) == [2, 5]
    node.time.make_calls()
    (event,) = node.events
    assert isinstance(event, PayloadRejected)
    assert event.rejected == 3
    assert event.ranges == (("/plant/temp", LIDAR, 1, 1), ("/plant/temp", LIDAR, 3, 4))
    assert "/plant/temp from lidar#010101" in event.error
    statistics = subscription.statistics()
    assert (statistics.undecodable, statistics.delivered) == (3, 2)


def test_a_subscription_of_which_nothing_decodes_has_no_message(node: FakeNode) -> None:
    subscription = open_on(node, type=Reading)
    subscription.deliver(run(1, 2, payloads=[b"", b"\xc1"]), None)
    assert subscription.receive(timeout=0) is None


def test_code_of_the_application_that_runs_while_decoding_holds_no_lock(node: FakeNode) -> None:
    pending: list[int] = []

    class Nosy(msgspec.Struct):
        celsius: float

        def __post_init__(self) -> None:
            subscription.deliver(run(9, 1, payloads=[b"\xc1"]), None)  # Overflows: needs the lock.
            pending.append(subscription.pending)

    subscription = open_on(node, type=Nosy, queue=2)
    subscription.deliver(run(1, 2, payloads=encoded(Reading(1.0), Reading(2.0))), None)
    assert subscription.receive() is not None
    assert pending == [2]


# asyncio.


async def awaited(subscription: Subscription, count: int) -> list[int]:
    found: list[int] = []
    async for message in subscription:
        found.append(message.sequence)
        if len(found) == count:
            break
    return found


def test_async_iteration_waits_for_what_comes_later(node: FakeNode) -> None:
    async def scenario() -> list[int]:
        subscription = open_on(node)
        reader = asyncio.create_task(awaited(subscription, 3))
        await asyncio.sleep(0)
        subscription.deliver(run(1, 2), None)
        await asyncio.sleep(0)
        subscription.deliver(run(3, 1), None)
        return await reader

    assert asyncio.run(scenario()) == [1, 2, 3]


def test_async_iteration_ends_when_closed(node: FakeNode) -> None:
    async def scenario() -> list[int]:
        subscription = open_on(node)
        subscription.deliver(run(1, 2), None)
        reader = asyncio.create_task(awaited(subscription, 9))
        await asyncio.sleep(0)
        subscription.close()
        return await reader

    assert asyncio.run(scenario()) == [1, 2]


def test_async_iteration_over_a_disconnected_subscription_raises(node: FakeNode) -> None:
    async def scenario() -> None:
        subscription = open_on(node, queue=1, overflow="disconnect")
        subscription.deliver(run(1, 2), None)
        await awaited(subscription, 9)

    with pytest.raises(ClosedError, match="too slow"):
        asyncio.run(scenario())


def test_awaiting_a_closed_subscription_raises(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.close()
    with pytest.raises(ClosedError):
        asyncio.run(subscription.receive_async())


def test_a_cancelled_reader_loses_no_message_and_leaves_no_waiter(node: FakeNode) -> None:
    async def scenario() -> None:
        subscription = open_on(node)
        reader = asyncio.create_task(subscription.receive_async())
        await asyncio.sleep(0)
        subscription.deliver(run(1, 1), None)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert not subscription._waiters.waiting
        assert (await subscription.receive_async()).sequence == 1

    asyncio.run(scenario())


def test_a_wake_up_meant_for_a_cancelled_reader_reaches_another(node: FakeNode) -> None:
    async def scenario() -> None:
        subscription = open_on(node)
        first = asyncio.create_task(subscription.receive_async())
        second = asyncio.create_task(subscription.receive_async())
        await asyncio.sleep(0)
        subscription.deliver(run(1, 1), None)
        first.cancel()
        assert (await asyncio.wait_for(second, 5)).sequence == 1

    asyncio.run(scenario())


def test_one_run_serves_every_waiting_reader(node: FakeNode) -> None:
    async def scenario() -> list[int]:
        subscription = open_on(node)
        readers = [asyncio.create_task(subscription.receive_async()) for _ in range(3)]
        await asyncio.sleep(0)
        subscription.deliver(run(1, 3), None)
        return [message.sequence for message in await asyncio.gather(*readers)]

    assert asyncio.run(scenario()) == [1, 2, 3]


def test_a_run_wakes_nobody_when_nobody_waits_and_one_reader_once(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> int:
        subscription = open_on(node)
        wakes = 0
        loop = asyncio.get_running_loop()
        call_soon_threadsafe = loop.call_soon_threadsafe

        def counted(*arguments: Any, **options: Any) -> asyncio.Handle:
            nonlocal wakes
            wakes += 1
            return call_soon_threadsafe(*arguments, **options)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        reader = asyncio.create_task(awaited(subscription, 40))
        await asyncio.sleep(0)
        for first in range(1, 41, 10):
            subscription.deliver(run(first, 10), None)
        await reader
        subscription.deliver(run(41, 10), None)
        return wakes

    assert asyncio.run(scenario()) == 1


def test_a_full_queue_does_not_keep_other_coroutines_from_running(node: FakeNode) -> None:
    async def scenario() -> int:
        subscription = open_on(node, queue=10 * ASYNC_TURN_MESSAGES)
        subscription.deliver(run(1, 10 * ASYNC_TURN_MESSAGES), None)
        reader = asyncio.create_task(awaited(subscription, 10 * ASYNC_TURN_MESSAGES))
        turns = 0
        while not reader.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(scenario()) >= 9


def test_a_timed_out_wait_does_not_end_the_iterator(node: FakeNode) -> None:
    async def scenario() -> int:
        subscription = open_on(node)
        messages: AsyncIterator[Message] = aiter(subscription)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(messages), 0.001)
        subscription.deliver(run(1, 1), None)
        return (await anext(messages)).sequence

    assert asyncio.run(scenario()) == 1


# Statistics.


def test_statistics_account_for_every_message(node: FakeNode) -> None:
    subscription = open_on(node, queue=4)
    subscription.deliver(run(1, 6), None)
    subscription.receive()
    statistics = subscription.statistics()
    assert statistics.received == 6
    assert (statistics.delivered, statistics.pending, statistics.dropped) == (1, 3, 2)
    assert statistics.patterns == ("/plant/...",)


def test_the_representation_says_what_it_is(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 2), None)
    assert repr(subscription) == "<Subscription /plant/... open, 2 pending>"
