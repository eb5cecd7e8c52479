"""The I/O thread of this process, as nodes see it: shared by all, there while any is open.

More threads would only queue for the interpreter lock, so every channel of every node is an
`Attachment` of the one `Loop` that `shared()` returns. It calls an attachment's methods one at a
time: when a descriptor is ready, and when its deadline has come. Whoever changes a deadline from
another thread, or leaves work behind, calls `wake()`.

The last detaching ends the thread, and a later attaching starts another. Neither waits for the
other, so an inline callback that never returns keeps its own thread and nothing else. A forked
child has no thread: its nodes are poisoned, and `shared()` is a new loop there.
"""

import atexit
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hubbub.errors import ClosedError
from hubbub.limits import DETACH_TIMEOUT_S, MS, SWITCH_INTERVAL_MS, US
from hubbub.runtime.attachment import Attachment
from hubbub.runtime.failures import Failures
from hubbub.runtime.io_thread import Counters, IoThread

__all__ = ["Attachment", "Loop", "LoopStatistics", "shared"]


@dataclass(frozen=True, slots=True)
class LoopStatistics:
    """What the loop counted since the process began."""

    attachments: int
    polls: int
    wakeups: int
    failures: int
    starved: int
    late_ms_max: float


class Reader(Protocol):
    """A subscription, as the loop sees it."""

    @property
    def is_awaited(self) -> bool:
        """Tell whether somebody waits for its next message."""

    @property
    def pending(self) -> int:
        """Return how many messages are not yet handed out."""


class Loop:
    """Serve attachments on one thread. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: IoThread | None = None
        self._is_poisoned = False
        self._switch_interval = SwitchInterval()
        self._pending = 0  # Messages, when it was last asked whether the reader gets on.
        self._counters = Counters()
        self._failures = Failures()
        self.subscriptions: set[Reader] = set()  # Open ones, of all nodes,
        self.callbacks: set[Reader] = set()  # and those of them that have a callback.

    def attach(
        self,
        attachment: Attachment,
        switch_interval_ms: float | None = SWITCH_INTERVAL_MS,
        spin_us: float = 0,
    ) -> None:
        """Serve this attachment from now on; the first one starts the thread.

        While waits are shorter than `spin_us`, the thread looks for so long before it sleeps. At
        rest, and where frames come more seldom, it sleeps at once.
        """
        self._refuse_in_child()
        with self._lock:
            thread = self._thread
            if thread is None:
                thread = self._start_with(attachment)
            else:
                thread.attach(attachment)
            self._switch_interval.lower(switch_interval_ms)
            thread.spin(int(spin_us * US))
        thread.wake()

    def detach(self, attachment: Attachment, timeout_s: float = DETACH_TIMEOUT_S) -> bool:
        """Stop serving it, and return when none of its methods runs any more.

        Hold no lock that its methods take. On the I/O thread itself it returns at once, and the
        method that called it is the last. False: a method (an inline callback) did not return in
        time; it will be the last. Detaching what is not attached does nothing.
        """
        if self._is_poisoned:
            return True
        with self._lock:
            thread = self._thread
            if thread is None or not thread.detach(attachment):
                return True
            is_last = not thread.attachments
            if is_last:
                self._thread = None
                self._switch_interval.restore()
                thread.end()
        if thread.is_current():
            return True
        is_out = thread.wait_until_out(attachment, timeout_s)
        if is_last and is_out:
            thread.join(timeout_s)
        return is_out

    def watch_writable(self, attachment: Attachment, fileno: int, on: bool) -> None:
        """Call `writable` when this descriptor takes data again, or stop doing so."""
        self._refuse_in_child()
        with self._lock:
            if self._thread is not None:
                self._thread.watch_writable(attachment, fileno, on)

    def wake(self) -> None:
        """Have every deadline looked at again; costs nothing if a wake-up is under way already."""
        thread = self._thread
        if thread is not None:
            thread.wake()

    def wake_by(self, deadline_ns: int) -> None:
        """Have every deadline looked at again before this one."""
        thread = self._thread
        if thread is not None:
            thread.wake_by(deadline_ns)

    def need(self) -> None:
        """See to it that somebody runs the loop: the caller is about to wait for what it does."""
        thread = self._thread
        if thread is not None:
            thread.need()

    def lead_until(self, is_ready: Callable[[], bool], deadline_ns: int | None) -> bool:
        """Run the loop in the caller's thread until something is so, or until the deadline.

        For one that would only wait for the I/O thread, where nobody else does: between two calls
        nobody runs the loop for 4 ms. False: the caller has to wait to be woken.
        """
        thread = self._thread
        return (
            thread is not None
            and self._may_be_led()
            and thread.lead_until(is_ready, deadline_ns, self._may_be_led)
        )

    def take_turn(self) -> None:
        """Serve what is ready in the caller's thread: it publishes, and will soon come again."""
        thread = self._thread
        if thread is not None and self._may_be_led():
            thread.take_turn()

    def nudge(self) -> None:
        """Wake a reader that runs the loop: another thread has brought it something."""
        thread = self._thread
        if thread is not None:
            thread.nudge()

    def _may_be_led(self) -> bool:
        """Tell whether the loop does nothing for others but the caller, or one reader beside it.

        An inline callback must not run in a thread of the application, which may hold locks.
        """
        return len(self.subscriptions) <= 1 and not self.callbacks

    def _is_awaited(self) -> bool:
        """Tell whether somebody waits for what the I/O thread will bring, and cannot lead."""
        return bool(self.callbacks) or any(one.is_awaited for one in tuple(self.subscriptions))

    def _reader_gets_on(self) -> bool:
        """Tell whether the reader has taken messages since the last question, and has more."""
        before, self._pending = self._pending, sum(one.pending for one in tuple(self.subscriptions))
        return 0 < self._pending != before

    def is_loop_thread(self) -> bool:
        """Tell whether the caller runs the loop just now: a callback on the I/O thread."""
        thread = self._thread
        return thread is not None and thread.is_current()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Run a function on the I/O thread, in the order of the calls."""
        self.call_at(0, function)

    def call_at(self, deadline_ns: int, function: Callable[[], object]) -> None:
        """Run a function on the I/O thread when the monotonic clock reaches the deadline.

        What is not due when the last attachment leaves is never run.
        """
        self._refuse_in_child()
        thread = self._thread
        if thread is None:
            raise ClosedError("no node is open in this process: there is no I/O thread to call on")
        thread.call_at(deadline_ns, function)

    def statistics(self) -> LoopStatistics:
        """Return what was counted since the process began."""
        counters = self._counters
        return LoopStatistics(
            attachments=len(self._attachments()),
            polls=counters.polls,
            wakeups=counters.wakeups,
            failures=self._failures.count,
            starved=counters.starved,
            late_ms_max=counters.late_ns_max / MS,
        )

    def poison(self) -> None:
        """Refuse everything: this is the child of a fork, and the thread did not come along.

        Takes no lock, for the thread that holds it may not exist here. Nothing is unregistered: the
        epoll set is still the parent's, too.
        """
        self._is_poisoned = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._switch_interval.restore()
        thread.abandon()
        for attachment in thread.attachments:
            self._failures.guard(attachment.forked)

    def close_at_exit(self) -> None:
        """Let every node close itself while threads still work, then end the thread."""
        for attachment in self._attachments():
            self._failures.guard(attachment.exiting)
        for attachment in self._attachments():
            self.detach(attachment)

    def _attachments(self) -> list[Attachment]:
        thread = self._thread
        return [] if thread is None else list(thread.attachments)

    def _start_with(self, attachment: Attachment) -> IoThread:
        """Start a thread with its first attachment; leave nothing behind if that fails."""
        thread = IoThread(self._counters, self._failures, self._is_awaited, self._reader_gets_on)
        try:
            thread.attach(attachment)
            thread.start()
        except BaseException:
            thread.abandon()
            raise
        self._thread = thread
        return thread

    def _refuse_in_child(self) -> None:
        if self._is_poisoned:
            raise ClosedError(
                "this was opened before a fork and belongs to the parent process;"
                " open a node of its own in the child"
            )


class SwitchInterval:
    """Lower the interpreter's switch interval, and put it back.

    Beside a busy thread the I/O thread waits one interval per system call: 5.2 ms by default, 0.65
    ms at 0.5 ms, which costs the busy thread 7 %. A lower value of the application's is left alone.
    """

    def __init__(self) -> None:
        self._before_s: float | None = None
        self._ours_s = 0.0

    def lower(self, interval_ms: float | None) -> None:
        """Lower it to this many milliseconds; None leaves it alone."""
        if interval_ms is None or sys.getswitchinterval() <= interval_ms / 1000:
            return
        if self._before_s is None:
            self._before_s = sys.getswitchinterval()
        sys.setswitchinterval(interval_ms / 1000)
        self._ours_s = sys.getswitchinterval()

    def restore(self) -> None:
        """Put it back, unless the application has set its own since."""
        before_s, self._before_s = self._before_s, None
        if before_s is not None and sys.getswitchinterval() == self._ours_s:
            sys.setswitchinterval(before_s)


_shared = Loop()


def shared() -> Loop:
    """Return the loop of this process; in a forked child, the child's own."""
    return _shared


def _after_fork_in_child() -> None:
    global _shared
    inherited, _shared = _shared, Loop()
    inherited.poison()


def _at_exit() -> None:
    _shared.close_at_exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
