"""Virtual time: one queue of things to happen, one source of randomness, one trace of it all.

Everything that happens in a run follows from the seed. The trace hash covers every datagram sent,
every message delivered and every event reported with its time, so two runs that differ anywhere
differ in it.
"""

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Any

from hubbub.limits import MS, SECOND

Call = Callable[..., None]


class Violation(AssertionError):
    """The machines broke a promise; the text says which, where and when."""


class World:
    """The clock of a simulated network, and all that will happen in it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0
        self.counts: Counter[str] = Counter()
        self._queue: list[tuple[int, int, Call, tuple[Any, ...]]] = []
        self._order = 0
        self._hash = blake2b(digest_size=16)

    def at(self, time_ns: int, call: Call, *arguments: Any) -> None:
        """Let something happen at this time; what was asked for first happens first."""
        self._order += 1
        heappush(self._queue, (max(time_ns, self.now), self._order, call, arguments))

    def after(self, delay_ns: int, call: Call, *arguments: Any) -> None:
        """Let something happen after this time."""
        self.at(self.now + delay_ns, call, *arguments)

    def run(self, until_ns: int) -> None:
        """Let everything happen that is due until then."""
        queue = self._queue
        while queue and queue[0][0] <= until_ns:
            self.now, _, call, arguments = heappop(queue)
            call(*arguments)
        self.now = max(self.now, until_ns)

    def run_for(self, time_ns: int) -> None:
        """Let time pass."""
        self.run(self.now + time_ns)

    def run_while(self, is_going_on: Callable[[], bool], limit_ns: int, step_ns: int = MS) -> bool:
        """Let time pass while something holds; False if it still does after `limit_ns`."""
        end = self.now + limit_ns
        while is_going_on():
            if self.now >= end:
                return False
            self.run(min(self.now + step_ns, end))
        return True

    def note(self, *facts: object) -> None:
        """Put something that happened into the trace."""
        self._hash.update(f"({self.now}, {facts!r})".encode())

    @property
    def trace_hash(self) -> str:
        """Return what tells this run from every other."""
        return self._hash.hexdigest()

    def fail(self, text: str) -> None:
        """Report a broken promise, with the time."""
        raise Violation(f"at {self.now / SECOND:.6f} s: {text}")

    def check(self, is_kept: bool, text: str) -> None:
        """Fail unless a promise is kept."""
        if not is_kept:
            self.fail(text)

    # Draws, in the units that faults are stated in.

    def chance(self, probability: float) -> bool:
        """Toss a coin; one that cannot fall on its head is not tossed."""
        return probability > 0 and self.random.random() < probability

    def draw_ns(self, low_ns: int, high_ns: int) -> int:
        """Draw a time."""
        return low_ns if high_ns <= low_ns else self.random.randrange(low_ns, high_ns)
