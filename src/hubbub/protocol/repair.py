"""Asking for what is missing: one request cycle a stream, as NORM does it, not a machine a gap.

Purpose: in a group of any size about one receiver asks for a lost frame, soon, and asks again if
nothing comes. Each missing frame knows from when on it may be asked for; one timer a stream covers
them all:

- a new gap arms the timer with a random back-off (RFC 5401 section 4.1: weighted towards the end,
  so that the first to ask silences the others); with one receiver a fixed reorder tolerance;
- when the timer fires, one NAK names every frame that may be asked for, and holds them off for
  (K + 2) GRTT, doubled after five cycles without an answer;
- hearing another's NAK holds off the frames it names, as if we had asked;
- a lone receiver need not wait for the hold-off, which covers frames queued on their way. Its
  repairs come in the order it asked for them, so one that comes shows that those asked for before
  it are lost: they are asked for again after the reorder tolerance. And when the sender is silent
  for two round trips of a repair, doubled each time, whatever was asked for and did not come is
  lost. A window that is full of frames behind the missing one is such a silence.

Why not a hold-off for the whole stream: frames lost while an earlier request is under way would
wait for its end, and at high rates that wait, not the loss, would limit the goodput.
"""

from collections import deque
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

    __slots__ = ("asked_ns", "due_ns", "request", "rounds", "since_ns")

    def __init__(self, now: int) -> None:
        self.since_ns = now
        self.due_ns = now  # From when on it may be asked for.
        self.request = 0  # The number of the last request that named it,
        self.asked_ns = 0  # and when the first one did.
        self.rounds = 0


class Requester:
    """Decides when this receiver asks its sender for which frames."""

    __slots__ = (
        "_ask_ns", "_under_way", "grtt_ns", "missing", "random", "receivers", "repair_ns",
        "requests", "suppressed", "timer_ns", "tolerance_ns", "unanswered",
    )  # fmt: skip

    def __init__(self, random: Random, tolerance_ns: int) -> None:
        self.random = random
        self.tolerance_ns = tolerance_ns
        self.missing: dict[int, Missing] = {}  # Frame sequence -> state, in increasing order.
        self.grtt_ns = GRTT_START
        self.receivers = 1
        self.timer_ns: int | None = None  # When to look whether to ask,
        self._ask_ns: int | None = None  # and when to ask also without a silence.
        # What a lone receiver asked for, in that order: request, frame. Repairs come in it, too.
        self._under_way: deque[tuple[int, int]] = deque()
        self.repair_ns = GRTT_FLOOR // 2  # How long a repair takes, of late.
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
            self._under_way.clear()
        return True

    def deferred(self, now: int, sequence: int) -> None:
        """Do not give up a frame that came, though it could not be kept: its sender answers."""
        missing = self.missing.get(sequence)
        if missing is not None:
            missing.since_ns, missing.rounds = now, 0

    def repaired(self, now: int, sequence: int) -> None:
        """Take a missing frame that came, and learn from it what of the others is lost."""
        missing = self.missing[sequence]
        self._answered(now)
        if missing.request and self.receivers <= 1:
            self.repair_ns += (now - missing.asked_ns - self.repair_ns) // 4
            self._ask_for_overtaken(now, (missing.request, sequence))
        self.found(sequence)

    def _ask_for_overtaken(self, now: int, came: tuple[int, int]) -> None:
        """Ask again for what was asked for before the repair that has just come."""
        overtaken = self._under_way
        while overtaken and overtaken[0] <= came:
            request, sequence = overtaken.popleft()
            missing = self.missing.get(sequence)
            if missing is not None and missing.request == request and sequence != came[1]:
                missing.due_ns = now + self.tolerance_ns
                self._arm(missing.due_ns)

    def _answered(self, now: int) -> None:
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
            missing.request = self.requests
            missing.asked_ns = missing.asked_ns or now
            missing.rounds += 1
        if self.receivers <= 1:
            self._under_way.extend((self.requests, sequence) for sequence in frames)
            if len(self._under_way) > 2 * len(self.missing):
                self._forget_superseded()

    def _forget_superseded(self) -> None:
        """Keep of what is under way only the last request of each frame that is still missing."""
        missing = self.missing
        self._under_way = deque(
            (request, sequence)
            for request, sequence in self._under_way
            if sequence in missing and missing[sequence].request == request
        )

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
        if self.receivers > 1 or not self._under_way:
            return _NEVER
        return max(GRTT_FLOOR, 2 * self.repair_ns) << min(max(self.unanswered - 1, 0), 8)

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
