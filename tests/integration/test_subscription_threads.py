"""Subscriptions between real threads and event loops: nothing lost, nothing twice, nobody stuck."""

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from hubbub.errors import ClosedError
from hubbub.events import CallbackFailed, SlowConsumer
from hubbub.message import Message
from hubbub.runtime.loop import Loop
from hubbub.subscription import Subscription
from tests.integration.bus import wait_until
from tests.integration.test_loop import Probe
from tests.unit.runtime.fakes import FakeNode, FakeTopic, run

PATIENCE_S = 20.0


class LiveNode(FakeNode):
    """The fake node with the real I/O thread's time."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def call_at(self, deadline_ns: int, function: Callable[[], object]) -> None:
        self._loop.call_at(deadline_ns, function)


@pytest.fixture
def node() -> Iterator[LiveNode]:
    loop, probe = Loop(), Probe()
    loop.attach(probe)
    node = LiveNode(loop)
    node.time.call_at = loop.call_at  # type: ignore[method-assign] # The pool's clock as well.
    node.pool._call_at = loop.call_at
    yield node
    node.pool.close(PATIENCE_S)
    loop.detach(probe)
    probe.close()


@pytest.fixture
def tiny_switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread is stuck"


def in_order(messages: list[Message]) -> bool:
    """Tell whether each topic's sequence only grows."""
    last: dict[str, int] = defaultdict(lambda: -1)
    for message in messages:
        if message.sequence <= last[message.subject]:
            return False
        last[message.subject] = message.sequence
    return True


def feed(subscription: Subscription, topic: FakeTopic, count: int, run_length: int) -> None:
    for first in range(0, count, run_length):
        subscription.deliver(run(first, min(run_length, count - first), topic), None)


def _extend(messages: list[Message], subscription: Subscription) -> None:
    messages.extend(subscription)


def _is_empty(subscription: Subscription) -> bool:
    return subscription.pending == 0


# Waiting.


def test_a_waiting_reader_is_woken_by_what_comes(node: LiveNode) -> None:
    subscription = Subscription(node)
    got: list[Message | None] = []
    reader = in_thread(lambda: got.append(subscription.receive()))
    wait_until(lambda: subscription._waiters.waiting)
    subscription.deliver(run(7, 1), None)
    join(reader)
    assert [message.sequence for message in got if message] == [7]


def test_waiting_in_vain_ends_after_the_timeout(node: LiveNode) -> None:
    subscription = Subscription(node)
    began = time.monotonic()
    assert subscription.receive(timeout=0.02) is None
    assert time.monotonic() - began >= 0.02
    assert not subscription._waiters.waiting


def test_an_endless_timeout_is_one(node: LiveNode) -> None:
    subscription = Subscription(node)
    got: list[Message | None] = []
    reader = in_thread(lambda: got.append(subscription.receive(timeout=float("inf"))))
    wait_until(lambda: subscription._waiters.waiting)
    subscription.deliver(run(1, 1), None)
    join(reader)
    assert got[0] is not None


def test_closing_ends_every_wait(node: LiveNode) -> None:
    subscription = Subscription(node)
    ends: list[str] = []

    def receive() -> None:
        with pytest.raises(ClosedError):
            subscription.receive()
        ends.append("receive")

    def iterate() -> None:
        for _ in subscription:
            raise AssertionError("nothing was published")
        ends.append("iterate")

    async def iterate_async() -> None:
        async for _ in subscription:
            raise AssertionError("nothing was published")
        ends.append("async")

    readers = [
        in_thread(receive),
        in_thread(iterate),
        in_thread(lambda: asyncio.run(iterate_async())),
    ]
    wait_until(lambda: len(subscription._waiters.waiting) == 3)
    subscription.close()
    join(*readers)
    assert sorted(ends) == ["async", "iterate", "receive"]


@pytest.fixture
def control_c() -> Iterator[None]:
    """Have Ctrl-C raise as in a terminal; a job in the background inherits that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_control_c_interrupts_a_wait_and_loses_nothing(node: LiveNode, control_c: None) -> None:
    subscription = Subscription(node)

    def interrupt() -> None:
        wait_until(lambda: subscription._waiters.waiting)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupter = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        subscription.receive(PATIENCE_S)
    join(interrupter)
    assert not subscription._waiters.waiting
    subscription.deliver(run(1, 1), None)
    assert subscription.receive(0) is not None


# Several readers.


def test_two_threads_reading_one_subscription_lose_and_duplicate_nothing(
    node: LiveNode, tiny_switch_interval: None
) -> None:
    count = 20_000
    subscription = Subscription(node, queue=count)
    got: list[list[Message]] = [[], []]
    readers = [in_thread(partial(_extend, mine, subscription)) for mine in got]
    feed(subscription, FakeTopic("/a"), count, 37)
    subscription.close()
    join(*readers)
    assert all(in_order(mine) for mine in got)
    assert sorted(m.sequence for mine in got for m in mine) == list(range(count))


def test_readers_of_different_kinds_share_the_messages(
    node: LiveNode, tiny_switch_interval: None
) -> None:
    count = 6_000
    subscription = Subscription(node, queue=count)
    got: list[list[Message]] = [[], [], [], []]

    async def read(mine: list[Message]) -> None:
        mine.extend([message async for message in subscription])

    async def read_twice(first: list[Message], second: list[Message]) -> None:
        await asyncio.gather(read(first), read(second))

    def receive(mine: list[Message]) -> None:
        with contextlib.suppress(ClosedError):
            while True:
                mine.extend(filter(None, [subscription.receive(timeout=0.001)]))

    readers = [
        in_thread(lambda: asyncio.run(read_twice(got[0], got[1]))),
        in_thread(lambda: asyncio.run(read(got[2]))),
        in_thread(lambda: receive(got[3])),
    ]
    feed(subscription, FakeTopic("/a"), count, 11)
    subscription.close()
    join(*readers)
    assert all(in_order(mine) for mine in got)
    assert sorted(m.sequence for mine in got for m in mine) == list(range(count))


def test_one_run_keeps_every_waiting_thread_busy(node: LiveNode) -> None:
    """A reader that works long on its message does not keep the rest of the run from others."""
    subscription = Subscription(node)
    together = threading.Barrier(3, timeout=PATIENCE_S)

    def read_one() -> None:
        assert subscription.receive() is not None
        together.wait()  # Nobody goes on before all three have a message.

    readers = [in_thread(read_one) for _ in range(3)]
    wait_until(lambda: len(subscription._waiters.waiting) == 3)
    subscription.deliver(run(1, 3), None)
    join(*readers)


# Many producers.


def test_eight_threads_deliver_at_once_and_nothing_is_lost_or_torn(
    node: LiveNode, tiny_switch_interval: None
) -> None:
    count, threads = 20_000, 8
    subscription = Subscription(node, queue=count * threads)
    got: list[Message] = []
    reader = in_thread(lambda: got.extend(subscription))
    topics = [FakeTopic(f"/topic/{number}") for number in range(threads)]
    producers = [in_thread(partial(feed, subscription, topic, count, 13)) for topic in topics]
    join(*producers)
    subscription.close()
    join(reader)
    assert in_order(got)
    assert len(got) == count * threads
    assert all(message.payload == b"%d" % message.sequence for message in got)
    assert subscription.statistics().delivered == count * threads


@pytest.mark.parametrize("inline", [False, True])
def test_eight_threads_deliver_to_one_callback_never_run_twice_at_once(
    node: LiveNode, tiny_switch_interval: None, inline: bool
) -> None:
    count, threads = 5_000, 8
    got: list[Message] = []
    inside: list[int] = []
    overlaps: list[int] = []

    def callback(message: Message) -> None:
        inside.append(1)
        if len(inside) > 1:
            overlaps.append(message.sequence)
        got.append(message)
        inside.pop()

    subscription = Subscription(node, callback=callback, inline=inline, queue=count * threads)
    topics = [FakeTopic(f"/topic/{number}") for number in range(threads)]
    producers = [in_thread(partial(feed, subscription, topic, count, 7)) for topic in topics]
    join(*producers)
    wait_until(lambda: len(got) == count * threads)
    assert in_order(got)
    assert overlaps == []


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest"])
def test_a_slow_reader_is_told_exactly_what_it_missed(
    node: LiveNode, tiny_switch_interval: None, overflow: str
) -> None:
    count = 20_000
    subscription = Subscription(node, queue=50, overflow=overflow)
    got: list[Message] = []
    reader = in_thread(lambda: got.extend(subscription))
    feed(subscription, FakeTopic("/a"), count, 23)
    subscription.close()
    join(reader)
    events = [event for event in node.events if isinstance(event, SlowConsumer)]
    assert in_order(got)
    assert subscription.dropped == sum(event.dropped for event in events)
    assert len(got) + subscription.dropped == count
    taken = {message.sequence for message in got}
    listed = [s for event in events for _, _, a, z in event.ranges for s in range(a, z + 1)]
    assert len(listed) == len(set(listed))
    assert taken.isdisjoint(listed)


# Callbacks on the pool.


def test_a_callback_that_blocks_delays_no_other_subscription(node: LiveNode) -> None:
    may_go, entered = threading.Event(), threading.Event()
    got: list[Message] = []

    def block(message: Message) -> None:
        entered.set()
        may_go.wait(PATIENCE_S)

    blocked = Subscription(node, callback=block)
    other = Subscription(node, callback=got.append)
    blocked.deliver(run(1, 1), None)
    assert entered.wait(PATIENCE_S)
    other.deliver(run(1, 5), None)
    wait_until(lambda: len(got) == 5)
    assert not may_go.is_set()
    may_go.set()


def test_a_callback_that_raises_delays_no_other_and_gets_its_next_message(node: LiveNode) -> None:
    failed: list[int] = []
    got: list[Message] = []

    def fail(message: Message) -> None:
        failed.append(message.sequence)
        raise ValueError(message.sequence)

    failing = Subscription(node, callback=fail)
    other = Subscription(node, callback=got.append)
    failing.deliver(run(1, 3), None)
    other.deliver(run(1, 3), None)
    wait_until(lambda: len(failed) == 3 and len(got) == 3)
    wait_until(lambda: failing.statistics().callbacks_failed == 3)
    wait_until(lambda: sum(isinstance(event, CallbackFailed) for event in node.events) == 3)


def test_a_callback_may_close_its_subscription_and_read_pending(node: LiveNode) -> None:
    seen: list[tuple[int, int]] = []
    begin = threading.Event()

    def close_at_three(message: Message) -> None:
        assert begin.wait(PATIENCE_S)
        seen.append((message.sequence, subscription.pending))
        if message.sequence == 3:
            subscription.close()

    subscription = Subscription(node, callback=close_at_three)
    subscription.deliver(run(1, 4), None)
    subscription.deliver(run(5, 4), None)
    begin.set()
    wait_until(lambda: subscription.is_closed and subscription.pending == 0)
    assert node.pool.close(PATIENCE_S)
    assert seen == [(1, 7), (2, 6), (3, 5)]


def test_after_closing_from_another_thread_no_callback_begins(
    node: LiveNode, tiny_switch_interval: None
) -> None:
    for _ in range(50):
        is_closed = threading.Event()
        late: list[int] = []

        def callback(
            message: Message,
            is_closed: threading.Event = is_closed,
            late: list[int] = late,
        ) -> None:
            if is_closed.is_set():
                late.append(message.sequence)

        subscription = Subscription(node, callback=callback, queue=10_000)
        producer = in_thread(partial(feed, subscription, FakeTopic(), 300, 3))
        subscription.close()
        is_closed.set()
        join(producer)
        wait_until(partial(_is_empty, subscription))
        assert len(late) <= 1  # The one that was under way may look at the flag too late.
