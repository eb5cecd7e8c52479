"""HOT. Who runs the loop: its own thread, or one that would only wait for it.

To hand a message from the I/O thread to a reader costs a wake-up, as much as all the rest of its
way. So a reader that has nothing to read runs the loop itself until it has, and a publisher that
has no room until it has room; a busy publisher does a turn after each frame. They give the lead
back without waking anybody: a timer wakes the loop's own thread 4 ms later, unless it was set again
meanwhile, and it takes over if nobody leads. So who comes back quickly keeps the lead, and who is
slow has its I/O thread. A reader that gets on with what it has may be away for longer, 30 ms: two
threads that fight for the interpreter are slower than one, and while it does not read, the window
holds the sender back, where the I/O thread would fill its queue until that drops. Measured: a
blocking round trip of 64 B takes 370 us with a hand-over on each side, 100 us without.
"""

import threading
import time
from collections.abc import Callable

from hubbub.limits import LEAD_PATIENCE, LEAD_PATIENCE_MAX, SECOND
from hubbub.runtime.ownership import make_lock
from hubbub.runtime.poller import open_poller


class Lead:
    """One thread at a time leads; the loop's own stands aside for others."""

    def __init__(self, gets_on: Callable[[], bool]) -> None:
        self._gets_on = gets_on
        # By who waits, from before it leads until it gives back. Two that ask at the same moment
        # may both be let in: then one leads after the other, and nothing but time is lost.
        self.is_wanted = False
        self.is_ending = False
        self._is_expected = False  # A publisher is on its way.
        self._is_needed = False
        self.lock = make_lock()  # The one who holds it leads.
        self.leader: int | None = None
        self._given_back_ns = 0
        self._parking = open_poller()
        self._parking_lock = threading.Lock()  # A wake-up must not hit a descriptor given back.
        self._is_parking_closed = False
        self._alarm_ns = 0

    def is_mine(self) -> bool:
        """Tell whether the caller leads."""
        return self.leader == threading.get_ident()

    @property
    def is_free(self) -> bool:
        """Tell whether nobody leads."""
        return self.leader is None

    @property
    def is_vacant(self) -> bool:
        """Tell whether nobody leads and nobody is about to."""
        return self.leader is None and not self.is_wanted

    @property
    def is_to_be_given(self) -> bool:
        """Tell whether the loop's own thread shall stand aside."""
        return self.is_wanted or self._is_expected

    # The loop's own thread.

    def take(self) -> None:
        """Lead, once who does is done."""
        self.lock.acquire()
        self.leader = threading.get_ident()
        self._is_needed = False

    def give(self) -> None:
        """Lead no more."""
        self.leader = None
        self.lock.release()

    def stand_aside(self) -> None:
        """Return when the lead is needed: nobody has had it for a while, or somebody says so."""
        self._is_expected = False
        while not (self.is_ending or self._is_needed):
            if self.is_wanted:
                # Not for a time: who leads sets one when it gives back, also before we wait.
                self._parking.wait_armed()
                continue
            now = time.monotonic_ns()
            takeover_ns = self._given_back_ns + LEAD_PATIENCE
            if now >= takeover_ns:
                if now - self._given_back_ns >= LEAD_PATIENCE_MAX or not self._gets_on():
                    return
                takeover_ns = now + LEAD_PATIENCE
            # Not by the timer: who leads sets that, and nobody else may.
            self._parking.wait_armed((takeover_ns - now) / SECOND)

    def close(self) -> None:
        """Give the descriptors back; by who leads, so that nobody sets the alarm any more."""
        with self._parking_lock:
            self.abandon()

    def abandon(self) -> None:
        """Give them back where no thread runs: in a forked child, whose locks may be held."""
        if not self._is_parking_closed:
            self._is_parking_closed = True
            self._parking.close()

    # Who borrows the lead: a reader, a publisher without room, one that is on its way.

    def ask(self) -> bool:
        """Ask for the lead; False: another has it, or has asked before."""
        if self.is_wanted or self.is_ending:
            return False
        self.is_wanted = True
        return True

    def set_alarm(self) -> None:
        """Before the lead is given back: see to it that somebody takes it later."""
        self._is_expected = False
        self._given_back_ns = now = time.monotonic_ns()
        if self._alarm_ns < now + LEAD_PATIENCE // 2 and not self._is_parking_closed:
            self._alarm_ns = now + LEAD_PATIENCE
            self._parking.arm(self._alarm_ns)

    def expect(self) -> bool:
        """Let the loop's own thread stand aside for who is coming; False: it does already."""
        if self._is_expected or self.is_wanted:
            return False
        self._given_back_ns = time.monotonic_ns()
        self._is_expected = True
        return True

    # Anybody.

    def need(self) -> None:
        """Have the loop's own thread lead now, though it stands aside."""
        self._is_needed = True
        self._end_parking()

    def end(self) -> None:
        """Let the loop's own thread come to its end."""
        self.is_ending = True
        self._end_parking()

    def _end_parking(self) -> None:
        with self._parking_lock:
            if not self._is_parking_closed:
                self._parking.wake()
