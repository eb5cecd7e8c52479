"""What arrives in a service: a bounded queue to read from, or a callback."""

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from hubbub.closing import Closing
from hubbub.errors import ClosedError, ConfigurationError
from hubbub.message import Message
from hubbub.runtime.logs import logger_of
from hubbub.runtime.waiters import Waiters

if TYPE_CHECKING:
    from hubbub.service import Service

_log = logger_of("subscription")


class ServiceSubscription(Closing):
    """A subscription to a service: iterate over it, `receive`, or give a callback.

    for message in node.service("hype-news").subscribe(): ...
    """

    def __init__(
        self, service: "Service", callback: Callable[[Message], object] | None, context: Any,
        queue: int,
    ) -> None:  # fmt: skip
        if callback is not None and inspect.iscoroutinefunction(callback):
            raise ConfigurationError("an async function would never be awaited: give a plain one")
        if not isinstance(queue, int) or isinstance(queue, bool) or queue < 1:
            raise ConfigurationError(f"queue={queue!r} must be a number from 1 on")
        self.service = service
        self.context = context
        self.dropped = 0  # Oldest messages, for which there was no room.
        self.received = 0
        self._callback = callback
        self._queue: deque[Message] = deque()
        self._queue_max = queue
        self._waiters = Waiters()
        self._is_closed = False
        self._lane = None if callback is None else service._node._pool.lane(self._call_next)

    @property
    def pending(self) -> int:
        """Return how many messages wait to be taken."""
        return len(self._queue)

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing more will come."""
        return self._is_closed

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message, waiting at most `timeout` seconds for it; None: none came.

        Once closed, what is queued comes first, then `ClosedError`.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            message = self._take_or_refuse()
            if message is not None:
                return message
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return None
            self._waiters.wait(self._is_ready, left)

    async def receive_async(self) -> Message:
        """Await the next message. `ClosedError` once closed and empty."""
        while (message := self._take_or_refuse()) is None:
            await self._waiters.wait_async(self._is_ready)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages as they come, until the subscription is closed."""
        while True:
            try:
                message = self.receive()
            except ClosedError:
                return
            assert message is not None
            yield message

    def __aiter__(self) -> Self:
        """Iterate under asyncio."""
        return self

    async def __anext__(self) -> Message:
        """Await the next message; the iteration ends when the subscription is closed."""
        try:
            return await self.receive_async()
        except ClosedError:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Receive no more; with the last subscription of a node it leaves the service."""
        if not self._is_closed:
            self._end()
            self.service._closed(self)

    def _end(self) -> None:
        self._is_closed = True
        self._waiters.wake_all()

    def _is_ready(self) -> bool:
        return bool(self._queue) or self._is_closed

    def _take_or_refuse(self) -> Message | None:
        try:
            return self._queue.popleft()
        except IndexError:
            if self._is_closed:
                raise ClosedError(f"this subscription to {self.service.name} is closed") from None
            return None

    def _put(self, message: Message) -> None:
        """Take a message from the I/O thread."""
        if self._is_closed:
            return
        self.received += 1
        self._queue.append(message)
        if len(self._queue) > self._queue_max:
            self._queue.popleft()
            self.dropped += 1
        if self._lane is not None:
            self._lane.notify()
        else:
            self._waiters.wake_one()

    def _call_next(self) -> bool:
        """Call back with one message, on a delivery thread; True: there are more."""
        try:
            message = self._queue.popleft()
        except IndexError:
            return False
        assert self._callback is not None
        if not self._is_closed:
            try:
                self._callback(message)
            except Exception:
                _log.exception("the callback of service %s raised", self.service.name)
        return bool(self._queue)
