"""One consumer: a type, a period, and its part of the sieve that has what it wants."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from hubbub.limits import US
from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.sieve import Sieve, Wish
from hubbub.protocol.timetrigger.slots import Stream
from hubbub.wire.timed import OBSERVE, Tag, mark_subject


class Consumer:
    """What a component wants, and has had."""

    def __init__(
        self, port: int, type: int, subject: str, clock: SlotClock, *, period_us: int,
        mode: int = 0, scope: int = 0, age_ns_max: int = 0, within: bytes = b"",
        is_inside: bool = False,
    ) -> None:  # fmt: skip
        self.port = port
        self.type = type
        self.subject = subject
        self.mode = mode
        self.scope = scope
        self.within = within  # With what the origin of samples must begin: a node, or all of it.
        self.is_inside = is_inside  # Nobody else is asked.
        self.is_open = True
        self.taker: Callable[[Any], None] = lambda sample: None  # Set by the shell.
        self.grants: dict[bytes, int] = {}  # Of producers that serve us no faster, by origin.
        self.period_us = period_us
        self.sieve = Sieve(self._wish(), clock, period_us, mode, age_ns_max)
        # What is ours beside what the sieve counts; less than nothing if it began before us.
        self._served = 0
        self._missed = 0
        self._counts: Counter[str] = Counter()
        self._vacant = 0  # Slots without a producer, but for those
        self._vacant_since_ns: int | None = None  # of a time that has not ended.
        self.is_vacancy_told = False

    @classmethod
    def observer(cls, type: int, subject: str, clock: SlotClock) -> Self:
        """Make one that gets a copy of every sample of a type, or of all types (0)."""
        return cls(0, type, subject, clock, period_us=0, mode=OBSERVE)

    @property
    def served(self) -> int:
        """Return how many slots have had a sample."""
        return self._served + self.sieve.served

    @property
    def missed(self) -> int:
        """Return how many slots have had none."""
        return self._missed + self.sieve.missed

    def vacant(self, now: int) -> int:
        """Return how many slots have gone by in which there was no producer."""
        since_ns = self._vacant_since_ns
        if since_ns is None or not self.period_us:  # Who wants one sample has no slots.
            return self._vacant
        return self._vacant + (now - since_ns) // (self.period_us * US)

    def begin_vacancy(self, now: int) -> None:
        """Count slots for which there is no producer."""
        if self._vacant_since_ns is None:
            self._vacant_since_ns = now

    def end_vacancy(self, now: int) -> None:
        """Count them no more: there is one."""
        self._vacant = self.vacant(now)
        self._vacant_since_ns = None
        self.is_vacancy_told = False

    @property
    def granted_us(self) -> int:
        """Return the longest period at which a producer serves us instead of ours; 0: none does."""
        return max((us for origin, us in self.grants.items() if origin in self.streams), default=0)

    @property
    def counts(self) -> Counter[str]:
        """Return how many samples were not taken, by what they were."""
        counts = self._counts.copy()
        counts.update(self.sieve.counts)
        return counts

    @property
    def streams(self) -> dict[bytes, Stream]:
        """Return what there was of each producer."""
        return self.sieve.streams

    def move(self, sieve: Sieve) -> None:
        """Take samples by another sieve from now on; what was counted stays so."""
        before = self.sieve
        self._served += before.served - sieve.served
        self._missed += before.missed - sieve.missed
        self._counts.update(before.counts)
        self._counts.subtract(sieve.counts)
        before.leave(self)
        sieve.enter(self)
        self.sieve = sieve

    def set_period(self, now: int, period_us: int) -> None:
        """Want samples at another period from now on."""
        self._vacant = self.vacant(now)
        self._vacant_since_ns = now if self._vacant_since_ns is not None else None
        self.period_us = period_us
        self.grants.clear()
        self.move(self.sieve.split(now, self._wish(), period_us))

    def rename(self, now: int, type: int) -> None:
        """Want samples of the type that others know our subject by."""
        self.type = type
        self.move(self.sieve.split(now, self._wish(), self.period_us))

    def stop(self, now: int) -> None:
        """Want nothing any more."""
        self.is_open = False
        self.end_vacancy(now)
        sieve = self.sieve
        self.move(Sieve(sieve.wish, sieve.clock, sieve.period_us, sieve.mode, sieve.age_ns_max))

    def _wish(self) -> Wish:
        tag = Tag(self.scope, mark_subject(self.type, self.subject))
        return Wish(self.type, tag, self.within)
