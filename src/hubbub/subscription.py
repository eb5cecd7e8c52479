"""HOT. What an application holds in the hand to receive: patterns, one queue, ways to read it.

The node feeds runs of messages with `deliver`; the application iterates, calls `receive`, awaits,
or gave a callback. A slow reader is the business of its own overflow policy and hurts nobody else.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

from hubbub.awareness import RemotePublisher
from hubbub.closing import Closing
from hubbub.errors import ClosedError, ConfigurationError
from hubbub.events import CallbackFailed, Event, PayloadRejected, SlowConsumer
from hubbub.limits import ASYNC_TURN_MESSAGES, DROP_REPORT, QUEUE_MESSAGES, SECOND
from hubbub.message import Batch, Message, Source
from hubbub.protocol.delivery import Delivery
from hubbub.runtime.callbacks import Callback, CallbackRunner
from hubbub.runtime.decoding import DecodingInbox
from hubbub.runtime.inbox import Inbox
from hubbub.runtime.logs import logger_of
from hubbub.runtime.pool import Pool
from hubbub.runtime.waiters import Waiters
from hubbub.subscription_options import check_options, read_history

_log = logger_of("subscription")

_Taken = TypeVar("_Taken")
_INHERIT: Final = object()  # `None` is a context, too.


class Host(Protocol):
    """What a subscription needs of its node or service; nothing is called under a lock."""

    pool: Pool

    def add_pattern(self, subscription: "Subscription", pattern: str, context: Any, /) -> Any:
        """Let it hear a pattern; returns a handle."""

    def remove_pattern(self, handle: Any, /) -> None:
        """Let it hear that pattern no longer."""

    def forget(self, subscription: "Subscription", /) -> None:
        """Look after it no longer: it is closed."""

    def emit(self, event: Event, subscription: "Subscription", /) -> None:
        """Report what happened to it."""

    def call_at(self, deadline_ns: int, function: Callable[[], object], /) -> None:
        """Run a function on the I/O thread at a time."""

    def lead_until(self, is_ready: Callable[[], bool], deadline_ns: int | None, /) -> bool:
        """Run the loop in the caller's thread while it waits; False: it has to be woken."""

    def publishers_of(self, subscription: "Subscription", /) -> tuple[RemotePublisher, ...]:
        """Return the other nodes that publish what it wants."""

    def nudge(self) -> None:
        """Wake a reader that runs the loop."""


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """What became of the messages that reached a subscription.

    `received` is the sum of `delivered`, `pending`, `dropped` (by the overflow policy), `discarded`
    (queued for a callback when it was closed) and `undecodable`. `repeats` are not among them: what
    a task of Spark that was run again published again.
    """

    patterns: tuple[str, ...]
    received: int
    delivered: int
    pending: int
    dropped: int
    discarded: int
    undecodable: int
    repeats: int
    callbacks_failed: int
    lost_event_loops: int


class Subscription(Closing):
    """Receive the messages of one or more patterns, in order, in any thread or event loop.

    for message in subscription: ...
    async for message in subscription: ...
    message = subscription.receive(timeout=1.0)
    for batch in subscription.batches(): ...  # All of a frame at once.
    """

    def __init__(
        self,
        host: Host,
        *,
        callback: Callback | None = None,
        context: Any = None,
        queue: int = QUEUE_MESSAGES,
        overflow: str = "drop_oldest",
        inline: bool = False,
        no_local: bool = False,
        copy: bool = False,
        channel: Any = None,
        type: Any = None,
        on_event: Callable[[Event], object] | None = None,
        history: bool | int = False,
        links: tuple[str, ...] = (),
    ) -> None:
        check_options(queue, overflow, callback, inline, type)
        self.links = links  # That it insists on; none: any will do.
        # How many messages of each topic are asked for; 0: all that are kept, None: none.
        self.history = read_history(history)
        self.context = context
        self.no_local = no_local
        self.copy = copy
        self.channel = channel
        self.type = type
        self.on_event = on_event
        self.repeats = 0  # Messages of a task that was run again, and that came the first time.
        self.mismatches: set[tuple[Source, str]] = set()  # Topics of another type.
        self._host = host
        self._overflow = overflow
        self._lock = threading.Lock()
        self._delivering = threading.Lock()
        self._handles: dict[Any, str] = {}
        self._closed_reason: str | None = None
        self._is_broken = False  # Closed by what went wrong, and by nobody's wish.
        self._is_report_due = False
        self._received = 0
        self._async_streak = 0
        self._inbox = Inbox(queue)
        self._waiters = Waiters()
        self._take = self._inbox.take
        self._notify = self._waiters.wake_one
        self._decoding: DecodingInbox | None = None
        self._callbacks: CallbackRunner | None = None
        self._express: CallbackRunner | None = None  # Inline callbacks need no queue.
        if type is not None:
            self._decoding = DecodingInbox(self._inbox, type, self._report_later)
            self._take = self._decoding.take
        if callback is not None:
            self._call_back(callback, inline)

    def _call_back(self, callback: Callback, inline: bool) -> None:
        """Hand every message to a callback."""
        self._callbacks = CallbackRunner(self._inbox, self._take, callback, self._callback_failed)
        if inline:
            self._notify = self._callbacks.run_inline
        else:
            self._notify = self._host.pool.lane(self._callbacks.run_turn).notify
        if inline and self.type is None:
            self._express = self._callbacks

    def deliver(self, delivery: Delivery, context: Any) -> None:
        """Take a run from the node; several channels may do so at once, each in its own order."""
        if self._closed_reason is not None:
            return
        if self.copy:
            delivery = delivery._replace(payloads=[bytes(one) for one in delivery.payloads])
        if self._express is not None and self._express.run_at_once(delivery, context):
            return
        with self._delivering:
            self._received += len(delivery.payloads)
            dropped = 0
            if not self._inbox.put(delivery, context):
                dropped = self._put_dropping(delivery, context)
        self._notify()
        if self._callbacks is None:
            self._host.nudge()
        if dropped:
            self._overflowed()

    @property
    def at_once(self) -> Callable[[Message], bool] | None:
        """Return what calls back for one message at once, if that is possible at all."""
        return None if self._express is None else self._express.run_one

    def close_from_node(self, reason: str) -> None:
        """End because the node or channel ends; what is queued can still be read."""
        self._close(reason, is_from_node=True)

    def forked(self) -> None:
        """Refuse everything in a forked child, where other threads and their locks are lost."""
        self._lock = threading.Lock()
        self._delivering = threading.Lock()
        self._waiters = Waiters()
        self._inbox.forked()
        self._inbox.discard()
        if self._callbacks is not None:
            self._callbacks.forked()
        self._is_broken = True
        self._closed_reason = "it belongs to the parent of this forked process"

    def add(self, pattern: str, context: Any = _INHERIT) -> Any:
        """Receive what matches this pattern as well; returns a handle for `remove`."""
        if self._closed_reason is not None:
            raise self._closed_error()
        context = self.context if context is _INHERIT else context
        handle = self._host.add_pattern(self, pattern, context)
        with self._lock:
            if self._closed_reason is None:
                self._handles[handle] = pattern
                return handle
        self._host.remove_pattern(handle)  # Closed by another thread since the look above.
        raise self._closed_error()

    def remove(self, handle: Any) -> None:
        """Receive no more for one pattern; what is queued already stays."""
        with self._lock:
            if self._closed_reason is not None:
                return
            if self._handles.pop(handle, None) is None:
                raise ConfigurationError(
                    f"{handle!r} is not (or no longer) a pattern of this subscription;"
                    " pass what add() returned, once"
                )
        self._host.remove_pattern(handle)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return the patterns in the order they were added."""
        with self._lock:
            return tuple(self._handles.values())

    @property
    def pending(self) -> int:
        """Return how many messages are not yet handed out."""
        return self._inbox.pending

    @property
    def dropped(self) -> int:
        """Return how many messages the overflow policy dropped."""
        return self._inbox.drops.total

    @property
    def received(self) -> int:
        """Return how many messages came, those that were dropped included."""
        return self._received + (0 if self._express is None else self._express.at_once)

    def publishers(self) -> tuple[RemotePublisher, ...]:
        """Return the other nodes that publish what this subscription wants, subject by subject."""
        return self._host.publishers_of(self)

    @property
    def is_connected(self) -> bool:
        """Tell whether another node publishes what this subscription wants."""
        return bool(self.publishers())

    @property
    def is_awaited(self) -> bool:
        """Tell whether a thread or coroutine waits for the next message."""
        return bool(self._waiters.waiting)

    @property
    def has_callback(self) -> bool:
        """Tell whether a callback gets every message."""
        return self._callbacks is not None

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing more will come."""
        return self._closed_reason is not None

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message, waiting at most `timeout` seconds for it; None: none came.

        A timeout of 0 only looks. Once closed, what is queued comes first, then `ClosedError`.
        """
        return self._wait_for(self._take_or_refuse, timeout)

    def receive_batch(self, timeout: float | None = None) -> Batch | None:
        """Return all that came of the next messages in one frame; otherwise as `receive`.

        Who only wants payloads saves the making of messages, 0.2 us each.
        """
        return self._wait_for(self._take_batch_or_refuse, timeout)

    def batches(self) -> Iterator[Batch]:
        """Yield batches as they come, until the subscription is closed."""
        while True:
            try:
                batch = self.receive_batch()
            except ClosedError:
                if self._is_broken:
                    raise
                return
            assert batch is not None, "without a timeout there is a batch or an error"
            yield batch
            del batch  # Large payloads must not live on while we wait for the next.

    async def receive_async(self) -> Message:
        """Await the next message; cancelling loses none. `ClosedError` once closed and empty."""
        if self._async_streak >= ASYNC_TURN_MESSAGES:
            # A full queue never makes this coroutine wait, and others of its loop want to run, too.
            import asyncio  # Here, because it costs 30 ms, and who gets here has it.

            self._async_streak = 0
            await asyncio.sleep(0)
        while (message := self._take_or_refuse()) is None:
            self._async_streak = 0
            await self._waiters.wait_async(self._is_ready)
        self._async_streak += 1
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages as they come, until the subscription is closed."""
        inbox = self._inbox
        has_plain_payloads = self._decoding is None and self._callbacks is None
        while True:
            if has_plain_payloads:
                yield from inbox.current  # At the speed of C: 35 ns a message.
            try:
                message = self.receive()
            except ClosedError:
                if self._is_broken:
                    raise
                return
            assert message is not None, "without a timeout there is a message or an error"
            yield message
            del message  # A large one must not live on while we wait for the next.

    def __aiter__(self) -> Self:
        """Iterate under asyncio; each event loop may have several readers."""
        return self

    async def __anext__(self) -> Message:
        """Await the next message; the iteration ends when the subscription is closed."""
        try:
            return await self.receive_async()
        except ClosedError:
            if self._is_broken:
                raise
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Receive no more. Callbacks end at once; readers still get what is queued, then end."""
        self._close("the application closed it")
        if self._callbacks is not None:
            self._callbacks.mute()

    def statistics(self) -> SubscriptionStatistics:
        """Return what became of every message that came."""
        pending, dropped, discarded = self.pending, self.dropped, self._inbox.discarded
        undecodable = 0 if self._decoding is None else self._decoding.rejects.total
        return SubscriptionStatistics(
            patterns=self.patterns,
            received=self.received,
            delivered=self.received - pending - dropped - discarded - undecodable,
            pending=pending,
            dropped=dropped,
            discarded=discarded,
            undecodable=undecodable,
            repeats=self.repeats,
            callbacks_failed=0 if self._callbacks is None else self._callbacks.failed,
            lost_event_loops=self._waiters.lost_loops,
        )

    def __repr__(self) -> str:
        state = "open" if self._closed_reason is None else f"closed: {self._closed_reason}"
        return f"<Subscription {self._name()} {state}, {self.pending} pending>"

    def _name(self) -> str:
        return ", ".join(self._handles.values()) or "(no pattern)"

    def _wait_for(self, take: Callable[[], _Taken | None], timeout: float | None) -> _Taken | None:
        """Return what can be taken, waiting at most `timeout` seconds for it."""
        deadline_ns = remaining_s = None
        if timeout is not None:
            deadline_ns = time.monotonic_ns() + int(min(timeout, threading.TIMEOUT_MAX) * SECOND)
        while (taken := take()) is None:
            if deadline_ns is not None:
                remaining_s = (deadline_ns - time.monotonic_ns()) / SECOND
                if remaining_s <= 0:
                    return None
            if not self._host.lead_until(self._is_ready, deadline_ns):
                self._waiters.wait(self._is_ready, remaining_s)
        return taken

    def _is_ready(self) -> bool:
        """Tell whether a reader about to wait need not."""
        return self._closed_reason is not None or self._inbox.pending > 0

    def _take_or_refuse(self) -> Message | None:
        """Return a message or None; raise when none will come."""
        return self._or_refuse(self._take)

    def _take_batch_or_refuse(self) -> Batch | None:
        """Return a batch or None; raise when none will come."""
        if self._decoding is not None:
            raise ConfigurationError(
                f"{self._name()} has a type: its messages are decoded one by one;"
                " subscribe without type= to read batches"
            )
        return self._or_refuse(self._inbox.take_batch)

    def _or_refuse(self, take: Callable[[], _Taken | None]) -> _Taken | None:
        if self._callbacks is not None:
            raise ConfigurationError(
                f"{self._name()} has a callback, which gets every message;"
                " subscribe without one to read from the subscription"
            )
        is_closed = self._closed_reason is not None  # Before the look: what came last counts.
        taken = take()
        if taken is None:
            if is_closed:
                raise self._closed_error()
        elif self._waiters.waiting and self._inbox.pending > 0:
            self._waiters.wake_one()
        return taken

    def _put_dropping(self, delivery: Delivery, context: Any) -> int:
        """Queue a run that does not fit, by the overflow policy; return how many were dropped."""
        if self._overflow == "drop_oldest":
            return self._inbox.put_dropping_oldest(delivery, context)
        return self._inbox.put_dropping_newest(delivery, context)

    def _overflowed(self) -> None:
        """Draw the consequences of having dropped messages."""
        if self._overflow == "disconnect":
            reason = f"it was too slow for its queue of {self._inbox.limit} messages"
            self._close(reason, is_broken=True)
        else:
            self._report_later()

    def _close(self, reason: str, *, is_from_node: bool = False, is_broken: bool = False) -> None:
        """Close once: leave the node, end the wait of readers, report what is left to report."""
        with self._lock:
            if self._closed_reason is not None:
                return
            self._is_broken = is_broken
            self._closed_reason = reason
            handles = list(self._handles)
        self._waiters.wake_all()
        self._report()  # Before the node forgets our listener...
        if not is_from_node:
            self._host.forget(self)  # ...which need not hear that matches end: who closes knows.
            for handle in handles:
                self._host.remove_pattern(handle)

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the subscription of {self._name()} is closed: {self._closed_reason}")

    def _callback_failed(self, message: Message, error: BaseException) -> None:
        """Report what a callback raised."""
        _log.error("callback of %s failed on %s", self._name(), message.subject, exc_info=error)
        self._emit(CallbackFailed(self._channel(), self._name(), message.subject, error))

    def _report_later(self) -> None:
        """Report the losses of the coming second together."""
        if self._is_report_due:
            return
        self._is_report_due = True
        try:
            self._host.call_at(time.monotonic_ns() + DROP_REPORT, self._report)
        except ClosedError:
            self._report()

    def _report(self) -> None:
        """Tell the application what was lost since the last report."""
        self._is_report_due = False
        loss = self._inbox.drops.take()
        if loss is not None:
            event = SlowConsumer(
                self._channel(), self._overflow, loss.messages, self._name(), loss.ranges
            )
            self._emit(event)
        decoding = self._decoding
        loss = None if decoding is None else decoding.rejects.take()
        if decoding is not None and loss is not None:
            error, decoding.error = decoding.error, ""
            self._emit(
                PayloadRejected(self._channel(), self._name(), loss.messages, loss.ranges, error)
            )

    def _emit(self, event: Event) -> None:
        self._host.emit(event, self)

    def _channel(self) -> str:
        return "" if self.channel is None else str(self.channel)
