"""Asking for what is missing: one request cycle a stream, as NORM does it, not a machine a gap.

Purpose: in a group of any size about one receiver asks for a lost frame, soon, and asks again if
nothing comes. Each missing frame knows from when on it may be asked for; one timer a stream covers
them all:

- a new gap arms the timer with a random back-off (RFC 5401 section 4.1: weighted towards the end,
  so that the first to ask silences the others); with one receiver a fixed reorder tolerance;
- when the timer fires, one NAK names every frame that may be asked for, and holds them off for
  (K + 2) GRTT, doubled after five cycles without an answer;
- hearing another's NAK holds off the frames it names, as if we had asked;
- a lone receiver asks again as soon as its sender has been silent for 2 ms, doubled each time: what
  is not queued behind other frames and did not come is lost. A window that is full of frames behind
  the missing one is such a silence, and would last as long as the hold-off.

Why not a hold-off for the whole stream: frames lost while an earlier request is under way would
wait for its end, and at high rates that wait, not the loss, would limit the goodput.
"""

from math import exp, log
from random import Random
from typing import Final

from hubbub.limits import (
    BACKOFF_FACTOR,
    GRTT_FLOOR,
    GRTT_START,
    HOLDOFF_CEILING,
    UNANSWERED_CYCLES,
)
from hubbub.wire.control import Range

_NEVER: Final = 1 << 62


def draw_backoff_ns(random: Random, window_ns: int, receivers: int) -> int:
    """Draw a back-off within the window for a group of this size (RFC 5401, section 4.1)."""
    scale = log(receivers) + 1
    rate = scale / window_ns
    base = rate / (exp(scale) - 1)
    x = random.uniform(0, rate) + base
    delay = log(x * (exp(scale) - 1) * (window_ns / scale)) / rate
    return int(min(max(delay, 0), window_ns))


class Missing:
    """One frame that has not come."""

    __slots__ = ("due_ns", "rounds", "since_ns")

    def __init__(self, now: int) -> None:
        self.since_ns = now
        self.due_ns = now  # From when on it may be asked for.
        self.rounds = 0


class Requester:
    """Decides when this receiver asks its sender for which frames."""

    __slots__ = (
        "_ask_ns", "grtt_ns", "missing", "random", "receivers", "requests", "suppressed",
        "timer_ns", "tolerance_ns", "unanswered",
    )  # fmt: skip

    def __init__(self, random: Random, tolerance_ns: int) -> None:
        self.random = random
        self.tolerance_ns = tolerance_ns
        self.missing: dict[int, Missing] = {}  # Frame sequence -> state, in increasing order.
        self.grtt_ns = GRTT_START
        self.receivers = 1
        self.timer_ns: int | None = None  # When to look whether to ask,
        self._ask_ns: int | None = None  # and when to ask also without a silence.
        self.unanswered = 0
        self.requests = 0
        self.suppressed = 0

    def miss(self, now: int, first: int, end: int) -> None:
        """Note that the frames `first..end-1` did not come."""
        for sequence in range(first, end):
            self.missing[sequence] = Missing(now)
        self._arm(now + self._backoff_ns())

    def found(self, sequence: int) -> bool:
        """Take a frame off the list; False if it was not missing."""
        if self.missing.pop(sequence, None) is None:
            return False
        self.unanswered = 0
        if not self.missing:
            self.timer_ns = self._ask_ns = None
        return True

    def answered(self, now: int) -> None:
        """Hear the sender again: what was held off ever longer may be asked for soon."""
        if self.unanswered > UNANSWERED_CYCLES:
            self.unanswered = 0
            latest_ns = now + self._holdoff_ns()
            for missing in self.missing.values():
                missing.due_ns = min(missing.due_ns, latest_ns)
            self._arm(latest_ns + self._backoff_ns())

    def heard(self, now: int, ranges: list[Range]) -> None:
        """Hold off what another receiver has just asked for."""
        due = now + self._holdoff_ns()
        for sequence in self.within(ranges):
            missing = self.missing[sequence]
            if missing.due_ns <= now:
                missing.due_ns = due
                self.suppressed += 1

    def within(self, ranges: list[Range]) -> list[int]:
        """Return which of these frames are missing; long ranges of others cost little."""
        missing = self.missing
        found: list[int] = []
        for first, count in ranges:
            end = first + count
            if count > len(missing):
                found += [sequence for sequence in missing if first <= sequence < end]
            else:
                found += [sequence for sequence in range(first, end) if sequence in missing]
        return found

    def due(self, now: int, heard_ns: int) -> list[int]:
        """Return the frames to ask for now, sorted; the sender was last heard at `heard_ns`."""
        if self.timer_ns is None or now < self.timer_ns:
            return []
        assert self._ask_ns is not None
        is_silent = now - heard_ns >= self._silence_ns()
        if now < self._ask_ns and not is_silent:
            self.timer_ns = min(self._ask_ns, heard_ns + self._silence_ns())
            return []
        frames = sorted(
            sequence
            for sequence, missing in self.missing.items()
            if is_silent or missing.due_ns <= now
        )
        if frames:
            self._asked(now, frames)
        self.timer_ns = self._ask_ns = None
        if self.missing:
            soonest = min(missing.due_ns for missing in self.missing.values())
            self._arm(max(soonest, now) + self._backoff_ns())
            self.timer_ns = min(self._ask_ns or _NEVER, now + self._silence_ns())
        return frames

    def _asked(self, now: int, frames: list[int]) -> None:
        self.requests += 1
        self.unanswered += 1
        due = now + self._holdoff_ns()
        for sequence in frames:
            missing = self.missing[sequence]
            missing.due_ns = due
            missing.rounds += 1

    def given_up(self, now: int, rounds: int, time_ns: int) -> list[int]:
        """Return the frames that were asked for too often or for too long."""
        return [
            sequence
            for sequence, missing in self.missing.items()
            if missing.rounds > rounds or now - missing.since_ns > time_ns
        ]

    def _arm(self, at_ns: int) -> None:
        if self._ask_ns is None or at_ns < self._ask_ns:
            self._ask_ns = at_ns
        if self.timer_ns is None or at_ns < self.timer_ns:
            self.timer_ns = at_ns

    def _silence_ns(self) -> int:
        """Return the silence after which what was asked for did not come."""
        if self.receivers > 1 or not self.unanswered:
            return _NEVER
        return GRTT_FLOOR << min(self.unanswered - 1, 8)

    def _backoff_ns(self) -> int:
        if self.receivers <= 1:
            return self.tolerance_ns
        window_ns = BACKOFF_FACTOR * self.grtt_ns
        drawn = draw_backoff_ns(self.random, window_ns, self.receivers)
        return max(drawn, self.tolerance_ns)

    def _holdoff_ns(self) -> int:
        # A lone receiver has nobody to wait for but the sender.
        factor = 2 if self.receivers <= 1 else BACKOFF_FACTOR + 2
        doublings = max(0, self.unanswered - UNANSWERED_CYCLES)
        return min(factor * self.grtt_ns << min(doublings, 10), HOLDOFF_CEILING)
