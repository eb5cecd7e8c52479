"""HOT. The shell of one channel: a core, a link, one lock, and nobody waits long for it.

All calls into the core are made under the lock, with `now` passed in, so every real run is one that
the simulator could have made. A publisher appends to the pending messages without a lock and then
tries the lock: who gets it sends; who does not leaves the sending to the holder, who looks again
after letting go. Nobody sends more than a few bursts for others; the I/O thread does the rest.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from hubbub.errors import Backpressure, ClosedError, HubbubError
from hubbub.events import Event, LinkDown, LinkUp, Starved
from hubbub.limits import (
    ANSWERS_WITHIN,
    FLUSH_BURSTS_MAX,
    HAND_OUT_S,
    MS,
    PUBLISHER_SENDS,
    PUBLISHER_TURN,
    SECOND,
)
from hubbub.links.host import HostLink
from hubbub.links.inlet import Received
from hubbub.links.local import LocalLink
from hubbub.links.multicast import MulticastLink
from hubbub.links.pipe_set import PipeSet
from hubbub.links.tcp import TcpLink
from hubbub.links.unicast import UnicastLink
from hubbub.protocol.burst import Burst, ChosenPipes, Pipes
from hubbub.protocol.core import Core
from hubbub.protocol.framing import Framer, Payload
from hubbub.protocol.receipts import Receipt
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic
from hubbub.runtime.dispatcher import Dispatcher
from hubbub.runtime.journal import Journal
from hubbub.runtime.kernel_clock import is_synchronised
from hubbub.runtime.loop import Loop
from hubbub.runtime.ownership import make_lock, owns
from hubbub.runtime.pipe_driver import LocalDriver, PipeDriver, TcpDriver
from hubbub.runtime.waiters import Waiters

_BURSTS_ON_IO_THREAD = 64


class Driver:
    """Drives one core over one link; an attachment of the I/O thread."""

    is_apart = False  # What it takes in moves the deadlines of its pipes.
    has_moved = True

    def __init__(
        self,
        core: Core,
        link: MulticastLink | UnicastLink | HostLink,
        loop: Loop,
        dispatcher: Dispatcher,
        on_fork: Callable[[str], None],
        local: LocalLink | None = None,
        tcp: TcpLink | None = None,
    ) -> None:
        self.core = core
        self.link = link
        self.loop = loop
        self.dispatcher = dispatcher
        self._on_fork = on_fork
        self.lock = make_lock()
        self.changes = Waiters()  # Whoever waits for room, receivers, or the end.
        self.closed = threading.Event()
        self.closed_reason: str | None = None
        self.starvations = 0
        self._stuck: Burst | None = None
        self._published_ns = 0  # When somebody last published and sent,
        self._publisher = 0  # in which thread,
        self._noted_ns = 0  # also if it waits for room meanwhile,
        self._turn_ns = 0  # and did a turn of the loop beside it.
        self._has_called_back = False  # And whether a callback did, on the I/O thread.
        self._armed_ns: int | None = None  # The deadline that the I/O thread knows.
        self._poll_ns = 0
        self._senders = core.outgoing.in_use
        self.pipes = None if local is None else LocalDriver(self, local)
        self.tcp = None if tcp is None else TcpDriver(self, tcp)
        drivers = (self.pipes, self.tcp)
        self.pipe_drivers: list[PipeDriver] = [one for one in drivers if one is not None]
        self._pipe_set = PipeSet([one.link for one in self.pipe_drivers])
        if isinstance(link, HostLink | UnicastLink):
            link.use(self._pipe_set)
            core.endpoint.ways.has_group = False
        self.journal = Journal(core, link)
        core.endpoint.wall_offset_ns = _wall_offset_ns()
        core.timed.time.is_wall_synchronised = is_synchronised()

    # Called by the I/O thread.

    def filenos(self) -> list[int]:
        """Name the descriptors to wait for."""
        return self.link.filenos()

    def readable(self, now: int) -> None:
        """Take in what has come."""
        self.take_in(now, self.link.receive())

    def look(self, now: int) -> bool:
        """Take in what may have come; False: nothing had."""
        received = self.link.look()
        if not received:
            return False
        self.take_in(now, received)
        return True

    def take_in(self, now: int, received: list[Received]) -> None:
        """Take in what came, by whichever link."""
        if self.journal.is_tracing_in:
            self.journal.trace_in(received)
        # Not the time when the turn began: what came since would be older than it is.
        now = max(now, time.monotonic_ns())
        with self.lock:
            core = self.core
            for buffer, segment_bytes, source in received:
                core.receive(now, buffer, segment_bytes, source)
            if self._stuck is None and core.is_idle:
                self.dispatcher.put(core.deliveries, core.events)
            else:
                self.serve(now)
        self.after()

    def writable(self, now: int) -> None:
        """Go on sending."""
        with self.lock:
            self.loop.watch_writable(self, self.link.writable_fileno(), False)
            self.serve(now)
        self.after()

    def advance(self, now: int) -> None:
        """Do what is due; while somebody publishes, a frame held back is not: it fills up."""
        core = self.core
        if self._is_published_on(now) and now < min(core.due_ns, core.timed.due_ns, self._poll_ns):
            return
        if core.outgoing.reliable.is_held or now >= core.timed.due_ns:
            # Who was kept from running must not take what waits to be read for none: neither
            # answers, nor samples whose slots would be given up.
            self.take_in(now, self.link.receive())
            for pipes in self.pipe_drivers:
                pipes.readable(now)
        now = max(now, time.monotonic_ns())  # What was just taken in must not lie ahead.
        with self.lock:
            for buffer, segment_bytes, source in self.link.advance(now):
                self.core.receive(now, buffer, segment_bytes, source)
            self.core.advance(now)
            self.serve(now)
            if now >= self._poll_ns:
                self._poll(now)
            is_over = self.core.is_closed and self._stuck is None
        self.after()
        if is_over:
            self.finish("closed")

    def deadline(self) -> int | None:
        """Say when `advance` is to be called; a lock is not worth an exact answer."""
        now = time.monotonic_ns()
        if not self._is_published_on(now) and self._has_ready():
            return 0
        armed_ns = min(self._due_ns(), self._poll_ns)
        injected_ns = self.link.deadline()
        if injected_ns is not None and injected_ns < armed_ns:
            armed_ns = injected_ns
        if self._stuck is not None:
            # What is due may be due only to be sent; `writable` comes when that is possible.
            armed_ns = max(armed_ns, now + MS)
        self._armed_ns = armed_ns
        return armed_ns

    def _due_ns(self) -> int:
        """Say when the core has something to do that is not left to who publishes."""
        due_ns, held_ns = self.core.due_ns, self.core.outgoing.hold_deadline()
        due_ns = min(due_ns, self.core.timed.due_ns)
        if held_ns is None:
            return due_ns
        return min(due_ns, max(held_ns, self._published_ns + PUBLISHER_SENDS + 1))

    def starved(self, late_ms: float) -> None:
        """Report that this thread was kept from running."""
        self.starvations += 1
        events: list[Event] = [Starved(self.link.channel, late_ms)]
        self.dispatcher.put([], events)
        self.dispatcher.run()

    def forked(self) -> None:
        """Refuse everything: this is a forked child."""
        self._refuse("it belongs to the parent of this forked process")
        self.closed.set()
        self.lock = make_lock()
        self.changes = Waiters()
        self.dispatcher.forked()
        self.link.close()
        for pipes in self.pipe_drivers:
            pipes.link.abandon()
        self._on_fork("it belongs to the parent of this forked process")

    def exiting(self) -> None:
        """Close in bounded time: the interpreter ends."""
        self.close(self.core.settings.linger_ms * 1e-3)

    # Called by anybody.

    def flush(self, now: int) -> None:
        """Send what is ready, unless somebody else is at it."""
        if self.closed_reason is not None:
            return
        self._note_publishing(now)
        while self._has_ready():
            if owns(self.lock):
                break  # A signal handler: what it interrupted looks again.
            try:
                if not self.lock.acquire(blocking=False):
                    break  # Who holds it looks again after letting go.
                self._pump(now, FLUSH_BURSTS_MAX)
            finally:
                if owns(self.lock):
                    self.lock.release()
            if self._has_ready():
                self.loop.wake()
                break
        for sender in self._senders:
            sender.framer.defer_flush(time.time_ns())
        self.dispatcher.run()
        self._rearm()
        self._take_turn(now)

    def flush_all(self, framer: Framer) -> None:
        """Send what is held back of a stream, too."""
        framer.hold_until_ns = 0
        self.flush(time.monotonic_ns())

    def hand_out(self) -> None:
        """Let our own subscriptions have what is framed, also what another thread is at just now.

        Else who flushed and then closed a subscription could find that it had missed messages.
        """
        if owns(self.lock):
            return  # A signal handler: what it interrupted goes on after it.
        with self.lock:
            pass  # Who holds it may have taken messages, and not put them into the dispatcher yet.
        self.dispatcher.run(HAND_OUT_S)

    def flush_held(self) -> None:
        """Send what is held back now: who published it last is about to wait.

        Who runs the loop would leave that to the publisher for a while: a round trip of 1 MiB by
        multicast took 20 ms instead of 5.
        """
        now = time.monotonic_ns()
        if self._publisher != threading.get_ident() and now - self._noted_ns <= ANSWERS_WITHIN:
            return
        self.publishing_paused()
        self._pause(now)
        if self._has_ready():
            self.loop.wake()

    def _pause(self, now: int) -> None:
        """Hold nothing back: who publishes waits now, for something else than room."""
        for sender in self._senders:
            if sender.framer.may_pause:
                sender.framer.pause(now)

    def send_single(
        self, sender: Sender, topic: OutgoingTopic, payload: Payload, published_ns: int
    ) -> bool:
        """Send one message of a quiet stream straight away; False: it must take its turn."""
        if self._stuck is not None or owns(self.lock):
            return False
        try:
            if not self.lock.acquire(blocking=False):
                return False
            now = time.monotonic_ns()
            frame = self.core.single(now, sender, topic, payload, published_ns)
            if frame is None:
                return False
            burst = Burst(sender.framer.destination, [frame], 0)
            self._stuck = self._send(burst)
            if self._stuck is not None:
                self.loop.watch_writable(self, self.link.writable_fileno(), True)
            if self.journal.is_tracing_out:
                self.journal.trace_out(burst)
        finally:
            if owns(self.lock):
                self.lock.release()
        framer = sender.framer
        if framer.cells:
            self.flush(now)  # Published by others while we held the lock.
            return True
        if framer.is_busy or self._armed_ns is None or self.core.due_ns < self._armed_ns:
            self._rearm()
        if framer.is_busy:
            self._note_publishing(now)
            self._take_turn(now)
        self._has_called_back |= framer.may_pause and self.loop.is_loop_thread()
        return True

    def _note_publishing(self, now: int) -> None:
        """Remember who publishes, and so sends: the I/O thread leaves that to it."""
        if not self.loop.is_loop_thread():
            self._published_ns = self._noted_ns = now
            self._publisher = threading.get_ident()

    def _take_turn(self, now: int) -> None:
        """Serve the loop beside publishing, now and then."""
        if now - self._turn_ns >= PUBLISHER_TURN:
            self._turn_ns = now
            self.loop.take_turn()

    def publish_acknowledged(
        self, topic: OutgoingTopic, payload: Payload, published_ns: int
    ) -> Receipt:
        """Publish a message at once, and open the receipt for it."""
        now = time.monotonic_ns()
        with self.lock:
            receipt = self.core.outgoing.receipts.publish(topic, payload, published_ns)
            self._pump(now, FLUSH_BURSTS_MAX)
            self.core.outgoing.receipts.look()
        self.publishing_paused()
        self.after()
        self._rearm()
        return receipt

    def call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call a method of the core under the lock, then send what it made."""
        if self.closed_reason is not None:
            raise ClosedError(f"the channel {self.link.channel} is closed: {self.closed_reason}")
        if owns(self.lock):
            raise HubbubError(
                "this signal handler has interrupted the bus, which cannot be changed now:"
                " set a flag or start a thread in the handler instead"
            )
        now = time.monotonic_ns()
        with self.lock:
            result = function(now, *arguments, **options)
            self._pump(now, FLUSH_BURSTS_MAX)
        self.after()
        self.loop.wake()
        return result

    def wait(self, is_ready: Any, timeout_s: float | None) -> bool:
        """Wait until something is so; whatever the I/O thread does may make it so."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s

        def is_over() -> bool:
            return self.closed_reason is not None or is_ready()

        while not is_ready():
            if self.loop.is_loop_thread() or self.closed_reason is not None:
                return False  # Waiting would be for itself, or for ever.
            remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
            if remaining_s is not None and remaining_s <= 0:
                return False
            deadline_ns = None if deadline_s is None else int(deadline_s * SECOND)
            if not self.loop.lead_until(is_over, deadline_ns):
                self.loop.need()
                self.changes.wait(is_over, remaining_s)
        return True

    def wait_for_room(self, framer: Framer) -> None:
        """Wait until the receivers took enough of what is pending; raise if they do not."""
        self.publishing_paused()
        timeout_s = self.core.settings.send_timeout
        if not self.wait(lambda: self.has_room(framer), timeout_s):
            raise Backpressure(
                f"{framer.pending_count} messages wait on {self.link.channel}: receivers did not"
                f" make room within send_timeout={timeout_s} s; this message was not sent"
            )
        if self.closed_reason is not None:
            raise ClosedError(f"the channel {self.link.channel} is closed: {self.closed_reason}")

    def publishing_paused(self) -> None:
        """Leave the sending to the I/O thread: who publishes is about to wait."""
        self._published_ns = 0

    def has_room(self, framer: Framer) -> bool:
        """Tell whether more may be published; half empty, so that waiting pays."""
        return self.closed_reason is not None or (
            2 * len(framer.cells) <= framer.backlog_cells
            and 2 * framer.large_bytes <= framer.backlog_bytes
        )

    def close(self, linger_s: float) -> None:
        """Leave the channel: send what is pending, say goodbye, and wait for the end of it."""
        if self.closed_reason is None:
            now = time.monotonic_ns()
            with self.lock:
                self.core.close(now, int(linger_s * SECOND))
            self.loop.wake()
        if not self.loop.is_loop_thread() and not self.closed.wait(linger_s + 2):
            self.finish("closed, though the I/O thread did not answer")

    def finish(self, reason: str) -> None:
        """End: no thread, no socket is left."""
        if self.closed_reason is not None:
            return
        self._refuse(reason)
        self.loop.detach(self)
        self.link.close()
        for pipes in self.pipe_drivers:
            self.loop.detach(pipes)
            pipes.close()
        self.dispatcher.run()
        self.closed.set()
        self.changes.wake_all()

    def _refuse(self, reason: str) -> None:
        """Send every publish the slow way, where it is refused; the fast one need not look."""
        self.closed_reason = reason
        for sender in self._senders:
            sender.framer.backlog_cells = sender.framer.free_cells = 0

    # Under the lock.

    def serve(self, now: int) -> None:
        """Send on the I/O thread, but leave what is new to who is publishing just now.

        Two threads that both want the interpreter lose it to each other at each system call: with
        the I/O thread sending, too, a busy publisher got 0.5 M messages/s out, without it 0.9 M.
        """
        self._pump(now, _BURSTS_ON_IO_THREAD, is_fresh=not self._is_published_on(now))

    def _pump(self, now: int, bursts_max: int, *, is_fresh: bool = True) -> None:
        """Send bursts until there are none, the link is full, or it is enough for one caller."""
        core = self.core
        for _ in range(bursts_max):
            if self._stuck is None and core.is_idle:
                break
            burst = self._stuck or core.next_burst(now, is_fresh=is_fresh)
            if burst is None:
                break
            self._stuck = self._send(burst)
            if self._stuck is not None:
                self.loop.watch_writable(self, self.link.writable_fileno(), True)
                break
            if self.journal.is_tracing_out:
                self.journal.trace_out(burst)
        if core.deliveries or core.events:
            self.dispatcher.put(core.deliveries, core.events)

    def _send(self, burst: Burst) -> Burst | None:
        """Hand a burst to its link; return what is to be offered again when there is room."""
        destination = burst.destination
        if not isinstance(destination, Pipes):
            return None if self.link.send(burst) else burst
        if destination.is_near and self.pipes is not None:
            self.pipes.link.send(destination, burst.buffers, burst.segment_bytes)
            return None
        if destination.has_group and not self.link.send(burst._replace(destination=None)):
            return burst
        if isinstance(destination, ChosenPipes):
            return self._send_chosen(destination, burst)
        self._pipe_set.send(destination, burst.buffers, burst.segment_bytes)
        return None

    def _send_chosen(self, destination: ChosenPipes, burst: Burst) -> Burst | None:
        """Send by just those pipes that were chosen, and to those who get a datagram each."""
        for pipes, chosen in ((self.pipes, destination.near), (self.tcp, destination.far)):
            if pipes is not None and chosen:
                pipes.link.send(chosen, burst.buffers, burst.segment_bytes)
        for place, address in enumerate(destination.addresses):
            if not self.link.send(burst._replace(destination=address)):
                left = ChosenPipes(addresses=destination.addresses[place:])
                return burst._replace(destination=left)
        return None

    def _poll(self, now: int) -> None:
        """Once a second: look after the interface, the wall clock and the logs."""
        self._poll_ns = now + SECOND
        self.core.endpoint.wall_offset_ns = _wall_offset_ns()
        self.core.timed.time.is_wall_synchronised = is_synchronised()
        for pipes in self.pipe_drivers:
            pipes.poll()
        before = self.link.filenos()
        events: list[Event] = self.link.poll_events(now)
        if events:
            self._note_down(events)
            self.dispatcher.put([], events)
        if self.link.filenos() != before:
            self.loop.call_soon(self._reattach)
        self.journal.tick(now)

    def _note_down(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, LinkDown):
                self.core.down.add(event.interface)
            elif isinstance(event, LinkUp):
                self.core.down.discard(event.interface)

    # Without the lock.

    def _reattach(self) -> None:
        """Wait for other descriptors: the link has opened new sockets."""
        if self.closed_reason is None:
            self.loop.detach(self)
            self.loop.attach(self)

    def after(self) -> None:
        """Hand out what came, wake who waits, and send what became ready meanwhile."""
        self.dispatcher.run()
        if self.changes.waiting:
            self.changes.wake_all()
        now = time.monotonic_ns()
        if self._is_published_on(now):
            return
        if self._has_called_back:
            self._has_called_back = False
            self._pause(now)
        for sender in self._senders:
            if sender.framer.cells:
                sender.framer.hold_until_ns = 0  # Of a callback that has returned.
        if self._has_ready():
            self.flush(now)

    def _is_published_on(self, now: int) -> bool:
        """Tell whether somebody publishes just now, and so sends."""
        return now - self._published_ns <= PUBLISHER_SENDS

    def _has_ready(self) -> bool:
        """Tell whether something can be sent now; read without the lock, so only a hint."""
        if self._stuck is not None or self.closed_reason is not None:
            return False
        now = time.monotonic_ns()
        if now < self.core.outgoing.allowed_ns:
            return False
        for sender in self._senders:
            framer = sender.framer
            if (framer.cells or framer.large) and _is_ready(sender, now):
                return True
        return False

    def _rearm(self) -> None:
        due_ns, armed_ns = self._due_ns(), self._armed_ns
        if armed_ns is None or due_ns < armed_ns:
            self._armed_ns = due_ns
            self.loop.wake()


def _is_ready(sender: Sender, now: int) -> bool:
    if sender.is_held or not sender.framer.is_ready(now):
        return False
    return not sender.is_waiting()


def _wall_offset_ns() -> int:
    """Compare the clocks, by the quickest of three looks: another thread may come between."""
    looks = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(3)]
    before, wall_ns, after = min(looks, key=lambda look: look[2] - look[0])
    return wall_ns - (before + after) // 2
