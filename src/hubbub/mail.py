"""Direct messages: from a component of one vehicle to a port of another, once and unrepaired."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from hubbub.addresses import VehicleAddress, check_port
from hubbub.closing import Closing
from hubbub.errors import ClosedError, ConfigurationError, PayloadError
from hubbub.events import CallbackFailed
from hubbub.limits import DIRECT_BYTES_MAX, QUEUE_MESSAGES
from hubbub.message import Source
from hubbub.protocol.timetrigger.passing import Letter
from hubbub.runtime.waiters import Waiters
from hubbub.subscription_options import check_callback

if TYPE_CHECKING:
    from hubbub.node import Node


class DirectMessage(NamedTuple):
    """A message for one port of one vehicle."""

    source: Source
    origin: VehicleAddress
    payload: bytes
    received_ns: int


class Mail(Closing):
    """The direct messages for one port: for a callback, or for who reads them, in any thread.

    for message in vehicle.listen(9): ...
    async for message in mail: ...
    message = mail.receive(timeout=1.0)

    What nobody reads waits, the newest QUEUE_MESSAGES of it. It ends with `close`, with the
    component that has the port, and with the vehicle.
    """

    def __init__(
        self, node: "Node", port: int, callback: Callable[[DirectMessage], object] | None
    ) -> None:
        check_port(port)
        check_callback(callback)
        self.port = port
        self.dropped = 0
        self._node = node
        self._connection = node._first_channel()
        self._driver = self._connection.driver
        self._post = self._driver.core.timed.post
        self._callback = callback
        self._is_closed = False
        self._queue: deque[DirectMessage] = deque()
        self._waiters = Waiters()
        self._lane = node._pool.lane(self._run)
        self._driver.call(lambda now: self._post.listen(self._take, port))
        node._components.add(self)

    def take(self) -> DirectMessage | None:
        """Return the oldest message that waits; None: there is none."""
        try:
            return self._queue.popleft()
        except IndexError:
            return None

    def receive(self, timeout: float | None = None) -> DirectMessage | None:
        """Return the next message, waiting at most `timeout` seconds for it; None: none came.

        Once closed, what waits comes first, then `ClosedError`.
        """
        end_s = None if timeout is None else time.monotonic() + min(timeout, threading.TIMEOUT_MAX)
        while (message := self._take_or_refuse()) is None:
            left_s = None if end_s is None else end_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            self._waiters.wait(self._is_ready, left_s)
        return message

    async def receive_async(self) -> DirectMessage:
        """Await the next message; cancelling loses none. `ClosedError` once closed and empty."""
        while (message := self._take_or_refuse()) is None:
            await self._waiters.wait_async(self._is_ready)
        return message

    def __iter__(self) -> Iterator[DirectMessage]:
        """Yield messages as they come, until it is closed."""
        try:
            while (message := self.receive()) is not None:
                yield message
        except ClosedError:
            return

    def __aiter__(self) -> Self:
        """Iterate under asyncio."""
        return self

    async def __anext__(self) -> DirectMessage:
        """Await the next message; the iteration ends when it is closed."""
        try:
            return await self.receive_async()
        except ClosedError:
            raise StopAsyncIteration from None

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing more will come."""
        return self._is_closed

    def close(self) -> None:
        """Hear no more; the port is free for another listener."""
        if not self._is_closed:
            with suppress(ClosedError):
                self._driver.call(lambda now: self._post.deafen(self.port, self._take))
        self._end()

    stop = close

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._queue)} waiting"
        return f"<Mail of port {self.port}, {state}>"

    def _end(self) -> None:
        self._is_closed = True
        self._node._components.discard(self)
        self._waiters.wake_all()

    def _is_ready(self) -> bool:
        return self._is_closed or bool(self._queue)

    def _take_or_refuse(self) -> DirectMessage | None:
        """Return a message or None; raise when none will come."""
        if self._callback is not None:
            raise ConfigurationError(f"port {self.port} has a callback, which gets every message")
        is_closed = self._is_closed  # Before the look: what came last counts.
        message = self.take()
        if message is None and is_closed:
            raise ClosedError(f"nobody listens to port {self.port} any more")
        if message is not None and self._queue:
            self._waiters.wake_one()
        return message

    def _take(self, letter: Letter | None) -> None:
        """Take a message from the gateway, or hear that none will come; no lock is held."""
        if letter is None:
            self._end()
            return
        origin = VehicleAddress(letter.source.id, letter.port)
        if len(self._queue) >= QUEUE_MESSAGES and self.take() is not None:
            self.dropped += 1
        self._queue.append(DirectMessage(letter.source, origin, letter.payload, letter.received_ns))
        if self._callback is not None:
            self._lane.notify()
        else:
            self._waiters.wake_one()

    def _run(self) -> bool:
        """Call back for one message; what that raises is reported, and the next one follows."""
        message = None if self._is_closed else self.take()
        if message is None or self._callback is None:
            return False
        try:
            self._callback(message)
        except KeyboardInterrupt:  # Ctrl-C is meant for the program, wherever it hits.
            raise
        except BaseException as error:
            name = f"port {self.port}"
            event = CallbackFailed(self._connection.name, name, str(message.origin), error)
            self._connection._emit(event, self)
        return bool(self._queue)


def read_letter(payload: Any) -> bytes:
    """Return the bytes of a direct message."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise PayloadError(f"{payload!r} is no bytes: a direct message has no type")
    data = bytes(payload)
    if len(data) > DIRECT_BYTES_MAX:
        raise PayloadError(f"{len(data)} bytes: a direct message has at most {DIRECT_BYTES_MAX}")
    return data
