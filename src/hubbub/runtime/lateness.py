"""How late the I/O thread runs, measured by itself.

When a datagram came cannot be known, but when the timer was to end the wait can: whatever passes
from then until the thread runs again is time in which others had the processor or the interpreter.
A tick keeps the timer set also when nothing is due, so starvation shows without traffic.

If the time had come before the wait began, the thread was late because of its own work, or because
it lost the interpreter in the middle of it, at one of its system calls. Its processor time tells
the two apart and is taken off: a long computation in an inline callback is not starvation. An
inline callback that sleeps counts as starvation: it, too, keeps the thread from running.
"""

import time
from collections.abc import Callable
from typing import Final

from hubbub.limits import LATENESS_REPORT, LATENESS_TICK, MS, STARVED_MS

# The clock of processor time costs 0.7 us, so it is not read at every turn; what the thread worked
# since the last reading may be taken off in excess.
_READING_INTERVAL: Final = 5 * MS
assert _READING_INTERVAL < STARVED_MS * MS


class Lateness:
    """Compare when the thread was to run with when it ran."""

    def __init__(self, now: int, thread_clock_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self.late_ns_max = 0
        self._thread_clock_ns = thread_clock_ns
        self._tick_ns = now + LATENESS_TICK
        self._due_ns = self._tick_ns
        self._observed_ns = now
        self._own_work_ns = 0
        self._worked_ns = thread_clock_ns()
        self._read_ns = now
        self._quiet_until_ns = 0
        self._unreported_ns = 0

    def changed_threads(self, now: int) -> None:
        """Measure another thread from now on."""
        self._observed_ns = self._read_ns = now
        self._own_work_ns = 0
        self._worked_ns = self._thread_clock_ns()

    def expect(self, deadline_ns: int | None, now: int) -> int:
        """Note, before a wait, when the thread is to run next, and return it."""
        due = self._tick_ns
        if deadline_ns is not None and deadline_ns < due:
            due = deadline_ns
        # Who was served since and wants to be served again at once has waited only since then.
        self._due_ns = max(due, self._observed_ns)
        self._own_work_ns = 0
        if now - self._read_ns > _READING_INTERVAL:
            worked_ns = self._thread_clock_ns()
            if due <= now:
                self._own_work_ns = worked_ns - self._worked_ns
            self._worked_ns, self._read_ns = worked_ns, now
        return due

    def observe(self, now: int) -> float | None:
        """Look at the clock after a wait; return the milliseconds to be reported now, if any."""
        self._observed_ns = now
        late_ns = now - self._due_ns - self._own_work_ns
        if now >= self._tick_ns:
            self._tick_ns = now + LATENESS_TICK
        if late_ns > STARVED_MS * MS:
            self.late_ns_max = max(self.late_ns_max, late_ns)
            self._unreported_ns = max(self._unreported_ns, late_ns)
        if self._unreported_ns == 0 or now < self._quiet_until_ns:
            return None
        self._quiet_until_ns = now + LATENESS_REPORT
        late_ms, self._unreported_ns = self._unreported_ns / MS, 0
        return late_ms
