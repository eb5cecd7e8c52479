"""The shell of a node's services: the machine, a socket, one lock; an attachment of the loop.

All calls into the machine are made under the lock, with `now` passed in. What it hands out is given
to the node without the lock, in order, by whichever thread finds it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from hubbub.errors import ClosedError, HubbubError
from hubbub.limits import LEAVE_PATIENCE, MS, SECOND
from hubbub.links.datagram import DatagramLink, Place
from hubbub.protocol.rendezvous.publishing import Lane
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.protocol.rendezvous.seat import (
    NEVER,
    Delivered,
    GivenUp,
    ManagerNamed,
    MemberNews,
    Settled,
)
from hubbub.runtime.group_listener import GroupListener
from hubbub.runtime.loop import Loop
from hubbub.runtime.ownership import make_lock, owns
from hubbub.runtime.waiters import Waiters
from hubbub.wire.services import TAKEN

Found = Delivered | Settled | GivenUp | ManagerNamed | MemberNews
Take = Callable[[Found], None]
_WALL_LOOK_NS = SECOND


class ServiceDriver:
    """Drives the services of one node."""

    is_apart = True

    def __init__(self, machine: Rendezvous, link: DatagramLink, loop: Loop, take: Take) -> None:
        self.machine = machine
        self.link = link
        self.loop = loop
        self.lock = make_lock()
        self.changes = Waiters()  # Whoever waits for room, an end, or others.
        self.closed = threading.Event()
        self.closed_reason: str | None = None
        self._take = take
        self._handing_out = threading.Lock()
        self._found: deque[Found] = deque()
        self.awaited = 0  # How many calls wait for what becomes of a message.
        self._wall_ns = 0
        self._armed_ns = 0
        self._out = machine.out
        self._is_watching = False  # For room in the socket.
        self.listener: GroupListener | None = None  # To the group, once something is subscribed.
        self.has_moved = True

    # Called by the I/O thread.

    def filenos(self) -> list[int]:
        """Name the socket."""
        return [self.link.fileno()]

    def readable(self, now: int) -> None:
        """Take in what has come."""
        self._take_in(self.link.receive_some())

    def look(self, now: int) -> bool:
        """Take in what may have come; False: nothing had."""
        received = self.link.receive_some()
        if len(received) == 1:
            self.has_moved = not self._take_one(*received[0])
        elif received:
            self.has_moved = True
            self._take_in(received)
        return bool(received)

    def _take_in(self, received: list[tuple[bytes, Place]]) -> None:
        if len(received) == 1:
            self._take_one(*received[0])
            return
        now, machine = time.monotonic_ns(), self.machine
        with self.lock:
            for data, place in received:
                machine.receive(now, data, place)
            self._send()
        if self._found or self.changes.waiting:
            self._after()

    def _take_one(self, data: bytes, place: Place) -> bool:
        """Take in a datagram that came by itself; True: a message, and no deadline has moved."""
        machine, out, found = self.machine, self._out, self._found
        now = time.monotonic_ns()
        with self.lock:
            is_single = machine.receive(now, data, place)
            if not is_single:
                self._send()
            elif out:
                self._send_at_once()
            deliveries = machine.seat.deliveries
            if deliveries:
                found.extend(deliveries)
                deliveries.clear()
        if found or self.changes.waiting:
            self._after()
        with self.lock:  # Another thread may be answering them.
            return is_single and len(machine.passed) > 1 and machine.held_until(now) > now

    def take_group(self, received: list[tuple[bytes, Place]]) -> None:
        """Take in what has come by the group."""
        now, machine = time.monotonic_ns(), self.machine
        with self.lock:
            may_wait = [machine.receive_group(now, data, place) for data, place in received]
            if not all(may_wait):
                self._send()
            self._found.extend(machine.seat.deliveries)
            machine.seat.deliveries.clear()
        if self._found or self.changes.waiting:
            self._after()

    def writable(self, now: int) -> None:
        """Go on sending."""
        with self.lock:
            self.link.send_waiting()
            self._watch()

    def advance(self, now: int) -> None:
        """Do what is due; what waits to be read comes first, lest silence be seen in it."""
        self._take_in(self.link.receive())
        now = max(now, time.monotonic_ns())
        with self.lock:
            if now >= self._wall_ns:
                self._wall_ns = now + _WALL_LOOK_NS
                self.machine.seat.wall_offset_ns = time.time_ns() - time.monotonic_ns()
            self.machine.advance(now)
            self._send()
            is_over = self.machine.is_closed
        self._after()
        if is_over:
            self.finish("closed")

    def deadline(self) -> int | None:
        """Say when `advance` is to be called; what is left of single messages is done before.

        Not at once: made one by one, their answers take as long as to hand the messages on.
        """
        machine = self.machine
        with self.lock:
            held_ns = NEVER - 1
            if machine.passed:
                now = time.monotonic_ns()
                held_ns = machine.held_until(now)
                if held_ns <= now:
                    machine.seat.now, held_ns = now, NEVER - 1
                    self._send()
            self._armed_ns = min(machine.deadline(), held_ns)
        return self._armed_ns

    def starved(self, late_ms: float) -> None:
        """Leave it: the machine looks at its own lateness."""

    def forked(self) -> None:
        """Refuse everything: this is a forked child."""
        self.closed_reason = "it belongs to the parent of this forked process"
        self.lock = make_lock()
        self.changes = Waiters()
        self.link.close()
        self.closed.set()

    def exiting(self) -> None:
        """Leave in bounded time: the interpreter ends."""
        self.close()

    # Called by anybody.

    def call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call a method of the machine under the lock, then send what it made."""
        if self.closed_reason is not None:
            raise ClosedError(f"the services of this node cannot be used: {self.closed_reason}")
        if owns(self.lock):
            raise HubbubError(
                "this signal handler has interrupted the services of this node, which cannot be"
                " changed now: set a flag or start a thread in the handler instead"
            )
        with self.lock:
            result = function(time.monotonic_ns(), *arguments, **options)
            self._send()
            due_ns = self.machine.deadline()
        self._after_call(due_ns)
        return result

    def publish(self, lane: Lane, payload: bytes) -> bool:
        """Publish a message; where others wait already, it goes with them. False: no room."""
        if self.closed_reason is not None or owns(self.lock):
            return self.call(self.machine.publish_in, lane, payload) is not None  # It says why not.
        with self.lock:
            if lane.waiting and self.machine.publishing.add(lane, payload):
                return True
            now = time.monotonic_ns()
            if self.machine.single.publish(now, lane, payload):
                self._send_at_once()
                return True
            number = self.machine.publish_in(now, lane, payload)
            self._send()
            due_ns = self.machine.deadline()
        self._after_call(due_ns)
        return number is not None

    def wait(self, is_ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until something is so: asked under the lock, as the I/O thread may make it so."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_so(is_ready):
            if self.loop.is_loop_thread() or self.closed_reason is not None:
                return False
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            self.loop.need()
            self.changes.wait(lambda: self._is_over(is_ready), left_s)
        return True

    async def wait_async(self, is_ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait as a coroutine until something is so."""
        import asyncio  # Here, because it costs 30 ms, and who gets here has it.

        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_over(is_ready):
                    self.loop.need()
                    await self.changes.wait_async(lambda: self._is_over(is_ready))
        except TimeoutError:
            return False
        return self._is_so(is_ready)

    def _is_so(self, is_ready: Callable[[], bool]) -> bool:
        with self.lock:
            return is_ready()

    def _is_over(self, is_ready: Callable[[], bool]) -> bool:
        return self.closed_reason is not None or self._is_so(is_ready)

    def close(self) -> None:
        """Leave: hand all services over, and say so."""
        if self.closed_reason is not None:
            return
        with self.lock:
            self.machine.close(time.monotonic_ns())
            self._send()
        self.loop.wake()
        patience_s = (LEAVE_PATIENCE + 500 * MS) / SECOND
        if not self.loop.is_loop_thread() and not self.closed.wait(patience_s):
            self.finish("closed, though the I/O thread did not answer")

    def finish(self, reason: str) -> None:
        """End: no socket is left."""
        if self.closed_reason is not None:
            return
        self.closed_reason = reason
        self.loop.detach(self)
        if self.listener is not None:
            self.listener.close()
        self.link.close()
        self.closed.set()
        self.changes.wake_all()

    # Under the lock.

    def _send_at_once(self) -> None:
        """Send a single message; that it was taken is noted later, by `deadline`."""
        out, link = self._out, self.link
        while out:
            link.send(*out.popleft())
        if link.waiting:
            self._watch()

    def _send(self) -> None:
        """Send what the machine made, and take what it hands out."""
        machine, out, send = self.machine, self._out, self.link.send
        while out:  # Messages go before the answers to those who sent them.
            send(*out.popleft())
        machine.flush()
        while out:
            send(*out.popleft())
        if self.link.is_full:
            self._watch()
        seat = machine.seat
        if seat.deliveries:
            self._found.extend(seat.deliveries)
            seat.deliveries.clear()
        if seat.settled:
            # That a message was taken is what everybody expects: only who asked is told.
            is_asked = self.awaited > 0
            self._found.extend(one for one in seat.settled if is_asked or one.status != TAKEN)
            seat.settled.clear()
        if seat.events:
            self._found.extend(seat.events)
            seat.events.clear()

    def _watch(self) -> None:
        """Go on sending when the socket has room, as long as something waits for it."""
        if self.link.is_full is not self._is_watching:
            self._is_watching = self.link.is_full
            self.loop.watch_writable(self, self.link.fileno(), self._is_watching)

    # Without the lock.

    def _after_call(self, due_ns: int) -> None:
        """Hand out what came, and wake the I/O thread if it would be late for what is due now."""
        self._after()
        if due_ns < self._armed_ns:
            self._armed_ns = due_ns
            self.loop.wake_by(due_ns)

    def _after(self) -> None:
        """Hand out what came, one thread at a time, and wake who waits."""
        while self._found and self._handing_out.acquire(blocking=False):
            try:
                while self._found:
                    self._take(self._found.popleft())
            finally:
                self._handing_out.release()
        if self.changes.waiting:
            self.changes.wake_all()
