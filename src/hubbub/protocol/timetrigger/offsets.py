"""How far the clock of another node is from ours, by two-way exchanges.

We ask at t1 (our monotonic clock); it hears that at t2 and answers at t3 (its slot clock); we hear
the answer at t4. If both ways took equally long, its clock is ahead by ((t2 - t1) + (t3 - t4)) / 2,
and however they differed that is off by at most half the round trip. Of the last eight exchanges
the quickest counts: waiting for an interpreter or a queue only makes one longer. The error we claim
is half its round trip, what the other claims of itself, and what clocks drift apart meanwhile.

Whom to follow: of the nodes that follow nobody the one of the best rank, then of the lowest key.
Everybody on a channel hears everybody, so there are no chains: who follows is no reference. Without
one that is better than ourselves, our own clock runs freely, from where it is.
"""

from typing import Final, NamedTuple

from hubbub.limits import (
    CLOCK_DRIFT_PPM,
    CLOCK_INTERVAL,
    CLOCK_INTERVAL_FAST,
    CLOCK_SAMPLES,
    CLOCK_SILENCE,
    US,
)
from hubbub.wire.timed import ANSWERS, ASKS, ClockExchange

# How good a clock is.
SYNCHRONISED_SYSTEM: Final = 0  # The operating system knows it to be synchronised.
SYSTEM: Final = 1
FREE: Final = 2
FOLLOWS: Final = 255

_MILLION: Final = 1_000_000


class Reading(NamedTuple):
    """One exchange: when, how far the other clock is ahead, and by how much that may be wrong."""

    at_ns: int
    offset_ns: int
    error_ns: int


class Reference:
    """A node whose clock we may follow."""

    def __init__(self) -> None:
        self.rank = FOLLOWS
        self.asked_ns = -1  # The question that was answered last,
        self.heard_ns = 0  # and when.
        self.readings: list[Reading] = []

    def add(self, now: int, exchange: ClockExchange) -> None:
        """Take the end of an exchange."""
        held_ns = exchange.t3_ns - exchange.t2_ns
        round_trip_ns = max(0, now - exchange.t1_ns - held_ns)
        offset_ns = (exchange.t2_ns - exchange.t1_ns + exchange.t3_ns - now) // 2
        error_ns = round_trip_ns // 2 + exchange.error_us * US
        self.rank = exchange.rank
        self.asked_ns = exchange.t1_ns
        self.heard_ns = now
        self.readings = [*self.readings, Reading(now, offset_ns, error_ns)][-CLOCK_SAMPLES:]

    def best(self, now: int) -> Reading:
        """Return the reading that is least wrong by now."""
        aged = (
            reading._replace(
                error_ns=reading.error_ns + (now - reading.at_ns) * CLOCK_DRIFT_PPM // _MILLION
            )
            for reading in self.readings
        )
        return min(aged, key=lambda reading: reading.error_ns)


class Offsets:
    """The clocks of other nodes, and which of them we follow."""

    def __init__(self, key: bytes, rank: int) -> None:
        self.key = key
        self.own_rank = rank
        self.following: bytes | None = None
        self.references: dict[bytes, Reference] = {}
        self.due_ns = 0
        self._asked = 0

    @property
    def rank(self) -> int:
        """Return how good our clock is to others."""
        return self.own_rank if self.following is None else FOLLOWS

    def ask(self, now: int) -> ClockExchange | None:
        """Return what to ask everybody, if it is time to."""
        if now < self.due_ns:
            return None
        self._asked += 1
        is_new = self._asked <= CLOCK_SAMPLES
        self.due_ns = now + (CLOCK_INTERVAL_FAST if is_new else CLOCK_INTERVAL)
        return ClockExchange(ASKS, bytes(len(self.key)), self.rank, now, 0, 0, 0)

    def answer(
        self, asked: ClockExchange, by: bytes, slot_ns: int, error_ns: int | None
    ) -> ClockExchange | None:
        """Return what to tell a node that asks; None: we are no reference."""
        if self.rank == FOLLOWS or slot_ns < 0:
            return None
        error_us = 0 if error_ns is None else min(error_ns // US, 0xFFFF_FFFF)
        return ClockExchange(ANSWERS, by, self.rank, asked.t1_ns, slot_ns, slot_ns, error_us)

    def hear(self, now: int, key: bytes, exchange: ClockExchange) -> Reading | None:
        """Take an answer; return the reading of whom we follow, if that is the one."""
        if exchange.t1_ns > now or now - exchange.t1_ns > CLOCK_SILENCE:
            return None  # Not to a question of ours.
        reference = self.references.setdefault(key, Reference())
        if exchange.t1_ns <= reference.asked_ns:
            return None  # Heard before: the later it comes again, the more it would be wrong.
        reference.add(now, exchange)
        return self.choose(now) if self._best(now) == key else None

    def choose(self, now: int) -> Reading | None:
        """Follow the best; None: that is ourselves."""
        for key in [k for k, one in self.references.items() if now - one.heard_ns > CLOCK_SILENCE]:
            del self.references[key]
        self.following = self._best(now)
        return None if self.following is None else self.references[self.following].best(now)

    def _best(self, now: int) -> bytes | None:
        known = [
            (one.rank, key)
            for key, one in self.references.items()
            if one.rank != FOLLOWS and now - one.heard_ns <= CLOCK_SILENCE
        ]
        best = min(known, default=None)
        return best[1] if best is not None and best < (self.own_rank, self.key) else None
