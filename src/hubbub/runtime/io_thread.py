"""HOT. One life of the I/O thread: from the first attachment to the last.

What is called a turn (wait, serve what is ready, serve what is due) is done by whoever leads
(lead.py): this thread, or a reader in its own.

Invariants:
- No method of an attachment runs after it was detached and `wait_until_out` returned. The thread
  names the attachment it is about to call, then looks whether it is still attached; who detaches
  removes it, then looks whether it is named. Either sees the other, so detaching takes no round
  trip.
- Work left before `wake()` is seen: the thread lowers the flag that says "woken" before it looks
  for work, and looks at the flag after saying that it is about to wait.
- A deadline moves only while its attachment is served, or one that is not apart, or before
  `wake()`. So between a message of services and the next only their own is asked for.
"""

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from hubbub.limits import LEAD_PATIENCE, SECOND
from hubbub.runtime.attachment import Attachment
from hubbub.runtime.failures import Failures
from hubbub.runtime.lateness import Lateness
from hubbub.runtime.lead import Lead
from hubbub.runtime.ownership import owns
from hubbub.runtime.poller import READABLE, WRITABLE, open_poller
from hubbub.runtime.spin import Ready, Spin

_NEVER: Final = 1 << 63
_NO_EVENT: Final = (-1, 0)


class Counters:
    """What I/O threads count, kept from one to the next."""

    def __init__(self) -> None:
        self.polls = 0
        self.wakeups = 0
        self.starved = 0
        self.late_ns_max = 0


class IoThread:
    """Wait, and call attachments one at a time."""

    def __init__(
        self,
        counters: Counters,
        failures: Failures,
        is_awaited: Callable[[], bool],
        gets_on: Callable[[], bool],
    ) -> None:
        self.attachments: dict[Attachment, list[int]] = {}
        self._counters = counters
        self._failures = failures
        self._is_awaited = is_awaited
        self._owners: dict[int, Attachment] = {}
        self._poller = open_poller()
        self._poller_lock = threading.Lock()  # A wake-up must not hit a descriptor given back.
        self._is_polling = False
        self._is_woken = False
        self._spin = Spin(self._poller, lambda: self._is_woken)
        self._is_ending = False
        self._lead = Lead(gets_on)
        self._lateness = Lateness(time.monotonic_ns())
        self._led_by: int | None = None
        self._hot: Attachment | None = None  # Who had something to read last,
        self._hot_event = _NO_EVENT  # and where, if it is apart.
        self._may_stay = False  # Nothing was moved since the last wait, and its time is to come.
        self._poll_again = self._poller.poll_again
        self._deadlines: dict[Attachment, int] = {}  # As they were told last.
        self._is_any_moved = True  # Since then,
        self._moved: Attachment | None = None  # or that of this one.
        self._nearest_ns = _NEVER
        self._has_advanced = False  # Something was due in this turn.
        self._serving: Attachment | None = None
        self._leavers: list[threading.Event] = []
        self._calls: deque[tuple[int, Callable[[], object]]] = deque()
        self._timers: list[tuple[int, int, Callable[[], object]]] = []
        self._timer_order = itertools.count()
        self._thread = threading.Thread(target=self._run, name="hubbub-io", daemon=True)

    def start(self) -> None:
        """Begin to run."""
        self._thread.start()

    def attach(self, attachment: Attachment) -> None:
        """Serve this attachment; under the loop's lock."""
        assert attachment not in self.attachments, "an attachment is attached once"
        filenos = attachment.filenos()
        # The thread walks over the mapping without a lock, so it is replaced and never changed.
        self.attachments = {**self.attachments, attachment: filenos}
        try:
            for fileno in filenos:
                self._poller.add(fileno)
                self._owners[fileno] = attachment
        except BaseException:
            self.detach(attachment)
            raise

    def detach(self, attachment: Attachment) -> bool:
        """Serve it no longer; False if it was not attached; under the loop's lock."""
        filenos = self.attachments.get(attachment)
        if filenos is None:
            return False
        for fileno in filenos:
            if self._owners.get(fileno) is attachment:
                del self._owners[fileno]
                self._poller.discard(fileno)
        self.attachments = {a: f for a, f in self.attachments.items() if a is not attachment}
        self._is_any_moved = True
        return True

    def watch_writable(self, attachment: Attachment, fileno: int, on: bool) -> None:
        """Change what a descriptor is waited for; under the loop's lock."""
        if self._owners.get(fileno) is attachment:
            self._poller.watch_writable(fileno, on)

    def wait_until_out(self, attachment: Attachment, timeout_s: float) -> bool:
        """Wait until the thread is in no method of this attachment."""
        if self._serving is not attachment:
            return True
        is_out = threading.Event()
        self._leavers.append(is_out)
        return self._serving is not attachment or is_out.wait(timeout_s)

    def spin(self, spin_ns: int) -> None:
        """Look for so long before sleeping, while that pays; the longest that anybody asks for."""
        self._spin.spin_ns = max(self._spin.spin_ns, spin_ns)

    def wake(self) -> None:
        """Make the thread look for work; one that runs will look before it waits."""
        self._is_any_moved = True
        if self._is_woken:
            return
        self._is_woken = True
        if self._is_polling:
            with self._poller_lock:
                self._poller.wake()
        elif self._lead.is_vacant:
            self._lead.need()

    def wake_by(self, deadline_ns: int) -> None:
        """Have deadlines looked at again before one; where nobody waits, somebody soon will.

        A reader that publishes in between its messages is back in microseconds: to have the thread
        take the lead meanwhile would cost two switches each time.
        """
        self._is_any_moved = True
        is_far = deadline_ns - time.monotonic_ns() > LEAD_PATIENCE
        if self._is_polling or not is_far:
            self.wake()

    def call_at(self, deadline_ns: int, function: Callable[[], object]) -> None:
        """Run a function on this thread at the deadline."""
        self._calls.append((deadline_ns, function))
        self.wake()

    def end(self) -> None:
        """Leave the thread to its end; it has no attachments any more."""
        self._is_ending = True
        with self._poller_lock:
            self._poller.wake()
        self._lead.end()

    def abandon(self) -> None:
        """Give the descriptors back where no thread runs: never started, or a forked child."""
        self._is_ending = True
        self._poller.close()
        self._lead.abandon()

    def join(self, timeout_s: float) -> None:
        """Wait for the end."""
        self._thread.join(timeout_s)

    def is_current(self) -> bool:
        """Tell whether the caller runs the loop just now."""
        return self._lead.is_mine()

    def lead_until(
        self, is_ready: Callable[[], bool], deadline_ns: int | None, may_lead: Callable[[], bool]
    ) -> bool:
        """Run the loop in the caller's thread until something is so, or until the deadline.

        Also until `may_lead` says no. False: another thread does, so this one has to be woken.
        """
        lead = self._lead
        if lead.is_mine() or not lead.ask():
            return False
        is_interrupted = True
        try:
            if not lead.is_free:
                self.wake()
            if lead.lock.acquire(timeout=_seconds_until(deadline_ns)):
                self._lead_while(lambda: not is_ready() and may_lead(), deadline_ns)
            is_interrupted = False
        finally:
            lead.is_wanted = False
            self._give_back(is_interrupted)
        return True

    def _lead_while(self, is_waiting: Callable[[], bool], deadline_ns: int | None) -> None:
        """Do turns, at least one: who comes often and waits for nothing must not stop the loop."""
        self._begin()
        while is_waiting() and not self._is_ending:
            self._turn(deadline_ns)
            if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
                break
        self._lead.set_alarm()

    def _give_back(self, is_interrupted: bool) -> None:
        """Let go of the lead if this thread has it; after an interrupt the I/O thread takes it."""
        lead = self._lead
        if owns(lead.lock):
            lead.leader = None
            lead.lock.release()
        if is_interrupted:
            self._is_any_moved = True  # Who was about to be asked was not, perhaps.
            lead.need()

    def take_turn(self) -> None:
        """Serve what is ready in the caller's thread: it publishes, and will soon come again.

        Beside a thread that publishes at full speed the I/O thread waits for the interpreter at
        each system call: a request for a repair was read after 3 ms, now after 0.3 ms.
        """
        lead = self._lead
        if lead.is_mine():
            return
        is_interrupted = True
        try:
            if lead.is_wanted or not lead.lock.acquire(blocking=False):
                if lead.expect():
                    self.wake()
            else:
                self._lead_while(lambda: True, 0)
            is_interrupted = False
        finally:
            self._give_back(is_interrupted)

    def nudge(self) -> None:
        """Wake who leads in the place of this thread: it may wait for what the caller brought."""
        if self._lead.is_wanted and not self._lead.is_mine():
            self.wake()

    def need(self) -> None:
        """See to it that somebody runs the loop: the caller is about to wait for what it does."""
        if self._lead.is_vacant:
            self._lead.need()

    def _run(self) -> None:
        lead = self._lead
        while not self._is_ending:
            lead.take()
            self._begin()
            while not (self._is_ending or lead.is_to_be_given):
                self._turn(None)
            lead.give()
            lead.stand_aside()
        lead.take()
        self._run_calls(time.monotonic_ns())
        with self._poller_lock:
            self._poller.close()
        lead.close()
        lead.give()

    def _begin(self) -> None:
        """Note that this thread leads from now on."""
        self._lead.leader = ident = threading.get_ident()
        if self._led_by != ident:
            self._led_by = ident
            self._lateness.changed_threads(time.monotonic_ns())

    def _turn(self, limit_ns: int | None) -> None:
        """Serve what is due, wait, at most until the limit, and serve what is ready then.

        In this order, because a reader leaves the lead once it has its message: what is due can
        wait until it is back, the message cannot.
        """
        if self._may_stay and limit_ns is None and self._stay():
            return
        self._has_advanced = False
        deadline = self._serve_due(time.monotonic_ns())
        if self._has_advanced and self._lead.leader != self._thread.ident:
            deadline = 0  # That may have brought what a reader that leads is waiting for.
        if limit_ns is not None and limit_ns < deadline:
            deadline = limit_ns
        now, ready = self._wait(deadline)
        if not now:
            return
        late_ms = self._lateness.observe(now)
        if late_ms is not None:
            self._tell_starved(late_ms)
        for fileno, mask in ready:
            self._serve_ready(fileno, mask, now)

    def _stay(self) -> bool:
        """Wait as the last time, and serve who was served then; False: there is more to do.

        So a message of services that comes by itself is read at once. What was found otherwise is
        found again: the timer and wake-ups, which are told once, leave their traces elsewhere.
        """
        self._may_stay = False
        self._is_polling = True
        if self._is_woken or self._is_any_moved or self._calls:
            self._is_polling = False
            return False
        ready = self._spin.look_again() or self._poll_again()
        self._is_polling = False
        self._counters.polls += 1
        if len(ready) != 1 or ready[0] != self._hot_event:
            return False
        self._may_stay = True
        return self._look(0)

    def _wait(self, deadline: int) -> tuple[int, Ready]:
        """Wait until something is ready or due; return the time and what is ready.

        The time is 0 where a look found something and served it.
        """
        self._is_polling = True
        before = time.monotonic_ns()
        due = self._lateness.expect(deadline, before)
        if due > before and not self._is_woken:
            ready: Ready = []
            is_early = True
            self._may_stay = False
            if self._spin.is_worth_it and self._is_in_a_hurry():
                ready = self._spin.look(before, due, self._look)
                if self._spin.has_served:
                    # Not late, nothing else ready, and a reader may wait for what was served.
                    self._is_polling = False
                    return 0, ready
                # A look may have taken the timer's only sign that the deadline has come.
                is_early = not self._is_woken and time.monotonic_ns() < due
            is_waited = is_early and not ready
            if not ready:
                ready = self._poller.poll(due, is_waiting=is_early)
            now = time.monotonic_ns()
            self._spin.waited(now - before, is_ready=bool(ready))
            # Before that time the timer, which tells it once, has not done so.
            self._may_stay = is_waited and now < due
        else:
            self._may_stay = False
            ready = self._poller.poll(due, is_waiting=False)
            now = time.monotonic_ns()
        self._is_polling = False
        counters = self._counters
        counters.polls += 1
        if self._is_woken:
            self._is_woken = False
            counters.wakeups += 1
        if self._may_stay and len(ready) == 1 and ready[0] == self._hot_event and self._look(now):
            return 0, []
        return now, ready

    def _is_in_a_hurry(self) -> bool:
        """Tell whether to look again instead of sleeping may help anybody.

        A reader that leads waits. But beside one that is busy with what it has, this thread would
        only take the interpreter away from it: 10 % of the messages a second. What comes by
        services one by one is looked for elsewhere (`_stay`); for batches of them nobody waits.
        """
        if self._lead.leader != self._thread.ident:
            return True
        return self._hot_event is _NO_EVENT and self._is_awaited()

    def _look(self, now: int) -> bool:
        """Let who had something to read last look for more; True: there was something."""
        hot = self._hot
        is_served = False
        self._serving = hot
        try:
            if hot in self.attachments:
                is_served = hot.look(now)
                if hot.has_moved:
                    self._note_moved(hot)
        except BaseException as error:
            self._is_any_moved = True
            self._failed("look", error)
        self._serving = None
        if self._leavers:
            self._release_leavers()
        return is_served

    def _tell_starved(self, late_ms: float) -> None:
        """Tell every attachment that the thread was kept from running."""
        self._counters.starved += 1
        late_ns_max = max(self._counters.late_ns_max, self._lateness.late_ns_max)
        self._counters.late_ns_max = late_ns_max
        for attachment in self.attachments:
            self._serve(attachment, attachment.starved, late_ms)

    def _serve_ready(self, fileno: int, mask: int, now: int) -> None:
        """Tell the owner of a descriptor what it can do."""
        owner = self._owners.get(fileno)
        if owner is None:
            return
        if mask & WRITABLE:
            self._serve(owner, owner.writable, now)
        if mask & ~WRITABLE:  # Errors and hang-ups, too, are found by reading.
            self._hot = owner
            self._hot_event = (fileno, READABLE) if owner.is_apart else _NO_EVENT
            self._serve(owner, owner.readable, now)

    def _serve_due(self, now: int) -> int:
        """Advance whoever is due, and return the nearest deadline of all."""
        called_ns = self._run_calls(now)
        moved, self._moved = self._moved, None
        if self._is_any_moved or now >= self._nearest_ns:
            self._is_any_moved = False  # Before they are asked: who moves one is asked again.
            self._deadlines = {}
            for attachment in self.attachments:
                self._serve_one_due(attachment, now)
        elif moved is not None:
            self._serve_one_due(moved, now)
        self._nearest_ns = nearest_ns = min(self._deadlines.values(), default=_NEVER)
        return nearest_ns if nearest_ns < called_ns else called_ns

    def _serve_one_due(self, attachment: Attachment, now: int) -> None:
        """Advance an attachment if it is due, and note its deadline."""
        deadline = self._deadline(attachment)
        if deadline is not None and deadline <= now:
            self._has_advanced = True
            self._serve(attachment, attachment.advance, now)
            deadline = self._deadline(attachment)
        self._deadlines[attachment] = _NEVER if deadline is None else deadline

    def _deadline(self, attachment: Attachment) -> int | None:
        """Ask one attachment for its deadline; one that fails has none."""
        deadline = None
        self._serving = attachment
        try:
            if attachment in self.attachments:
                deadline = attachment.deadline()
        except BaseException as error:
            self._failed("deadline", error)
        self._serving = None
        if self._leavers:
            self._release_leavers()
        return deadline

    def _serve(self, attachment: Attachment, method: Callable[[Any], None], argument: Any) -> None:
        """Call one method of an attachment, unless it has left."""
        if not attachment.is_apart or self._moved is not attachment:
            self._note_moved(attachment)
        self._serving = attachment
        try:
            if attachment in self.attachments:
                method(argument)
        except BaseException as error:
            self._failed(method.__qualname__, error)
        self._serving = None
        if self._leavers:
            self._release_leavers()

    def _note_moved(self, attachment: Attachment) -> None:
        """Ask an attachment for its deadline again; unless it keeps to itself, all."""
        if not attachment.is_apart or self._moved not in (None, attachment):
            self._is_any_moved = True
        self._moved = attachment
        self._may_stay = False

    def _failed(self, what: str, error: BaseException) -> None:
        """Report what was raised, unless it was meant for the thread that leads."""
        is_meant = not isinstance(error, Exception)  # Ctrl-C, or `sys.exit` in a signal handler.
        if is_meant and threading.current_thread() is not self._thread:
            self._serving = None
            self._release_leavers()
            raise error
        self._failures.report(what, error)

    def _release_leavers(self) -> None:
        """Tell those who detached an attachment that it is not being called any more."""
        while self._leavers:
            self._leavers.pop().set()

    def _run_calls(self, now: int) -> int:
        """Run the functions that are due, and return when the next one is."""
        timers = self._timers
        while self._calls:
            deadline_ns, function = self._calls.popleft()
            heapq.heappush(timers, (deadline_ns, next(self._timer_order), function))
        while timers and timers[0][0] <= now:
            function = heapq.heappop(timers)[2]
            self._is_any_moved = self._has_advanced = True
            try:
                function()
            except BaseException as error:
                self._failed(getattr(function, "__qualname__", repr(function)), error)
        return timers[0][0] if timers else _NEVER


def _seconds_until(deadline_ns: int | None) -> float:
    """Return what is left until a deadline as locks want it: -1 means for ever."""
    if deadline_ns is None:
        return -1
    return min(max(deadline_ns - time.monotonic_ns(), 0) / SECOND, threading.TIMEOUT_MAX)
