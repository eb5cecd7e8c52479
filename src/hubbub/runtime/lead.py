"""HOT. Who runs the loop: its own thread, or a reader that would only wait for it.

To hand a message from the I/O thread to a reader costs a wake-up, as much as all the rest of its
way. So a reader that has nothing to read runs the loop itself until it has. It gives the lead back
without waking anybody: the loop's own thread looks a millisecond later whether the reader has come
back for more, and takes over if not. So a reader that answers quickly keeps the lead, one that is
slow has its I/O thread, and nothing waits longer than that millisecond. Measured: a blocking round
trip of 64 B takes 370 us with a hand-over on each side, 120 us without.
"""

import threading
import time
from typing import Final

from hubbub.limits import LEAD_PATIENCE, MS, SECOND

_PAUSE_MAX: Final = 100 * MS
_PAUSE_GROWTH: Final = 4


class Lead:
    """One thread at a time leads; the loop's own stands aside for one reader."""

    def __init__(self) -> None:
        # By a reader, from before it leads until it gives back. Two that ask at the same moment may
        # both be let in: then one leads after the other, and nothing but time is lost.
        self.is_wanted = False
        self.is_ending = False
        self._leader: int | None = None
        self._held = threading.Lock()
        self._is_needed = False
        self._given_back_ns = 0
        self._pausing_until_ns = 0
        self._pause = threading.Lock()
        self._pause.acquire()

    def is_mine(self) -> bool:
        """Tell whether the caller leads."""
        return self._leader == threading.get_ident()

    @property
    def is_free(self) -> bool:
        """Tell whether nobody leads."""
        return self._leader is None

    @property
    def is_vacant(self) -> bool:
        """Tell whether nobody leads and no reader is about to."""
        return self._leader is None and not self.is_wanted

    # The loop's own thread.

    def take(self) -> None:
        """Lead, once a reader that does is done."""
        self._held.acquire()
        self._leader = threading.get_ident()
        self._is_needed = False

    def give(self) -> None:
        """Lead no more."""
        self._leader = None
        self._held.release()

    def stand_aside(self) -> None:
        """Return when the lead is needed: no reader has had it for a while, or somebody asks."""
        pause_ns = LEAD_PATIENCE
        while not (self.is_ending or self._is_needed):
            given_back_ns = self._given_back_ns
            self._pausing_until_ns = time.monotonic_ns() + pause_ns
            self._pause.acquire(timeout=pause_ns / SECOND)
            self._pausing_until_ns = 0
            if self.is_wanted:
                has_moved = self._given_back_ns != given_back_ns
                pause_ns = LEAD_PATIENCE if has_moved else min(_PAUSE_GROWTH * pause_ns, _PAUSE_MAX)
                continue
            pause_ns = self._given_back_ns + LEAD_PATIENCE - time.monotonic_ns()
            if pause_ns <= 0:
                return

    # A reader.

    def ask(self) -> bool:
        """Ask for the lead; False: another reader has it, or has asked before."""
        if self.is_wanted or self.is_ending:
            return False
        self.is_wanted = True
        return True

    def borrow(self, timeout_s: float) -> bool:
        """Take the lead asked for; False: it was not free in time."""
        if not self._held.acquire(timeout=timeout_s):
            self.is_wanted = False
            return False
        self._leader = threading.get_ident()
        return True

    def give_back(self) -> None:
        """Lead no more; the loop's own thread will see to it that somebody does."""
        self._given_back_ns = now = time.monotonic_ns()
        self._leader = None
        self.is_wanted = False
        self._held.release()
        if self._pausing_until_ns > now + LEAD_PATIENCE or self.is_ending:
            self._end_pause()

    # Anybody.

    def need(self) -> None:
        """Have the loop's own thread lead now, though it stands aside."""
        self._is_needed = True
        self._end_pause()

    def end(self) -> None:
        """Let the loop's own thread come to its end."""
        self.is_ending = True
        self._end_pause()

    def _end_pause(self) -> None:
        try:
            self._pause.release()
        except RuntimeError:  # It has been ended already.
            return
