"""Send messages of a service that something is asked of, and wait for what becomes of them.

A thread and a coroutine wait for the same: for room, then for the end.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from hubbub.errors import Backpressure, HubbubError
from hubbub.limits import REQUEST_PATIENCE_S_MAX, SECOND
from hubbub.protocol.rendezvous.publishing import Lane
from hubbub.protocol.rendezvous.seat import Settled
from hubbub.runtime.service_driver import ServiceDriver
from hubbub.wire.services import ANYCAST, REFUSED


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message, what is asked of it, and what became of it."""

    lane: Lane
    payload: bytes
    flags: int
    credentials: bytes
    deadline: float | None  # When whoever sends it stops waiting; None: it waits for room alone.
    sequence: int | None = None
    settled: Settled | None = None

    @property
    def left_s(self) -> float:
        """Return how long its end is waited for."""
        return 0.0 if self.deadline is None else max(0.0, self.deadline - monotonic())

    @property
    def is_settled(self) -> bool:
        """Tell whether its manager said what became of it."""
        return self.settled is not None


class Sending:
    """The messages of one service that somebody waits for."""

    def __init__(self, driver: ServiceDriver, name: str, send_timeout: float | None) -> None:
        self._driver = driver
        self._machine = driver.machine
        self._name = name
        self._send_timeout = send_timeout
        self._waiting: dict[tuple[str, int], Outgoing] = {}  # By subject and number.

    def send(self, one: Outgoing) -> Settled | None:
        """Send a message, and return what became of it; None: that was not said in time."""
        with self._awaiting(one):
            while not self._driver.call(self._try, one):
                self.wait_for_room(one.lane)
            if one.deadline is not None:
                self._driver.wait(lambda: one.is_settled, one.left_s)
        return self._check_taken(one)

    async def send_async(self, one: Outgoing) -> Settled | None:
        """Send a message as `send` does, without blocking the event loop."""
        with self._awaiting(one):
            while not self._driver.call(self._try, one):
                await self.wait_for_room_async(one.lane)
            if one.deadline is not None:
                await self._driver.wait_async(lambda: one.is_settled, one.left_s)
        return self._check_taken(one)

    def wait_for_room(self, lane: Lane) -> None:
        """Wait until a message can be published, at most `send_timeout`."""
        has_room = self._machine.has_room_in
        self._check_room(self._driver.wait(lambda: has_room(lane), self._send_timeout))

    async def wait_for_room_async(self, lane: Lane) -> None:
        """Wait until a message can be published, without blocking the event loop."""
        has_room = self._machine.has_room_in
        self._check_room(await self._driver.wait_async(lambda: has_room(lane), self._send_timeout))

    def settle(self, settled: Settled) -> bool:
        """Hear what became of messages; False: nobody waits for them."""
        end = settled.sequence + settled.messages
        awaited = [
            one
            for (subject, sequence), one in list(self._waiting.items())
            if subject == settled.subject and settled.sequence <= sequence < end
        ]
        for one in awaited:
            one.settled = settled
        return bool(awaited)

    @contextmanager
    def _awaiting(self, one: Outgoing) -> Iterator[None]:
        """Let the driver tell what became of messages, as long as somebody waits for this one."""
        is_awaited, driver = one.deadline is not None, self._driver
        with driver.lock:
            driver.awaited += is_awaited
        try:
            yield
        finally:
            with driver.lock:
                driver.awaited -= is_awaited
                if one.sequence is not None:
                    self._waiting.pop((one.lane.subject, one.sequence), None)

    def _try(self, now: int, one: Outgoing) -> bool:
        """Publish a message if there is room, under the lock."""
        is_request, is_awaited = bool(one.flags & ANYCAST), one.deadline is not None
        # A request lasts as long as who asks waits; its reply is waited for, not its end.
        patience_s = min(one.left_s, REQUEST_PATIENCE_S_MAX) if is_request else 0
        one.sequence = self._machine.publish_in(
            now, one.lane, one.payload, flags=one.flags, credentials=one.credentials,
            is_urgent=is_awaited and not is_request, patience_ns=int(patience_s * SECOND),
        )  # fmt: skip
        if one.sequence is not None and is_awaited:
            self._waiting[one.lane.subject, one.sequence] = one
        return one.sequence is not None

    def _check_taken(self, one: Outgoing) -> Settled | None:
        if one.settled is not None and one.settled.status == REFUSED:
            raise HubbubError(f"the manager of service {self._name} refused the message")
        return one.settled

    def _check_room(self, has_room: bool) -> None:
        if not has_room:
            raise Backpressure(
                f"no manager of service {self._name} took a message within"
                f" send_timeout={self._send_timeout} s; this message was not sent"
            )
