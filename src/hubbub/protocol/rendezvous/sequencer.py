"""Order where it is asked for: what comes early waits for what comes before it, but not for ever.

Numbers come from the publisher (FIFO) or from the manager (one order for all). The first is 1, or
told, or the lowest that comes within a while: what was sent before it may still be on its way. An
item may have several numbers, which follow each other.
"""

from typing import Generic, TypeVar

from hubbub.limits import (
    HOP_TIMEOUT,
    ORDER_LEAP,
    ORDER_LEAP_PATIENCE,
    ORDER_PATIENCE,
    ORDER_WAITING_MAX,
)
from hubbub.protocol.rendezvous.seat import NEVER

Item = TypeVar("Item")


class Sequencer(Generic[Item]):
    """One sequence of numbered items."""

    def __init__(self) -> None:
        self.late = 0  # Numbers that came after a higher one had been handed out.
        self.due_ns = NEVER
        self._expected: int | None = None
        self._waiting: dict[int, tuple[Item, int]] = {}
        self._passed_over: dict[int, int] = {}  # Under so many numbers from these nothing comes.

    def begin(self, expected: int) -> None:
        """Learn which number is the first, if none was handed out yet."""
        if self._expected is None:
            self._expected = expected

    def push(self, now: int, number: int, item: Item, count: int = 1) -> list[Item]:
        """Take an item; return those that are next, in order."""
        if self._expected is None and number == 1:
            self._expected = 1
        if self._expected is not None and number < self._expected:
            self.late += count
            return []
        self._waiting[number] = (item, count)
        if len(self._waiting) > ORDER_WAITING_MAX:
            self._expected = min(self._waiting)
        ready = self._take()
        if self._waiting and self.due_ns == NEVER:
            self.due_ns = now + self._patience_ns()
        return ready

    def pass_over(self, now: int, number: int, count: int = 1) -> list[Item]:
        """Learn that what has a number came under another one; return what need not wait for it.

        Two managers give one message two numbers, if the first left before it was known that it
        had sent it. Subscribers would wait for the second as for something that is lost.
        """
        is_open = self._expected is not None and number >= self._expected
        if not is_open or len(self._passed_over) >= ORDER_WAITING_MAX:
            return []
        self._passed_over[number] = count
        ready = self._take()
        if self._waiting and self.due_ns == NEVER:
            self.due_ns = now + self._patience_ns()
        return ready

    def _patience_ns(self) -> int:
        if self._expected is None:
            return 4 * HOP_TIMEOUT
        # Between two managers nobody counts; but the last of the old one may still be on its way.
        is_leap = min(self._waiting) - self._expected >= ORDER_LEAP
        return ORDER_LEAP_PATIENCE if is_leap else ORDER_PATIENCE

    def _take(self) -> list[Item]:
        ready: list[Item] = []
        before = self._expected
        if self._passed_over and before is not None:  # What was gone on without is over.
            self._passed_over = {at: n for at, n in self._passed_over.items() if at >= before}
        while self._expected is not None:
            if self._expected in self._waiting:
                item, count = self._waiting.pop(self._expected)
                ready.append(item)
            elif self._expected in self._passed_over:
                count = self._passed_over.pop(self._expected)
            else:
                break
            self._expected += count
        if self._expected != before or not self._waiting:
            self.due_ns = NEVER
        return ready

    def advance(self, now: int) -> list[Item]:
        """Go on without what does not come."""
        if now < self.due_ns or not self._waiting:
            return []
        self._expected = min(self._waiting)
        ready = self._take()
        if self._waiting:
            self.due_ns = now + self._patience_ns()
        return ready

    def end(self) -> tuple[list[Item], int | None]:
        """Wait for nothing any more; return what is left, in order, and which number is next."""
        left = sorted(self._waiting.items())
        if left:
            number, (_, count) = left[-1]
            self._expected = number + count
        self._waiting, self._passed_over, self.due_ns = {}, {}, NEVER
        return [item for _, (item, _) in left], self._expected
