"""How long slots rest before they are written again: as long as makes copies quick.

What a reader has just read lies in the cache of its core. To write there again at once, the writer
takes each line away from it: 1 MiB into one slot in turn takes 157 us so, into two 68, into three
to eight 36 (two processes that do nothing else, 1 MiB of second cache each). So a slot rests until
some others were used, long enough for that cache to have lost it, and short enough for the shared
one still to have it.

On a virtual machine the same takes 500 us for minutes on end, as if its cores were far from each
other: each line comes out of the other's cache. Memory that no cache has is quicker then (157 us
after 32 MiB of others, 110 after 64). Nothing tells which it is, and it changes while we run. So
copies are timed, and where they are slow the long rest is tried, kept while it is the quicker one,
and doubted now and then. Messages of 1 MiB, each line read, went at 6 GB/s so instead of 2.
"""

from collections.abc import Callable
from enum import Enum
from statistics import median
from typing import Final

from hubbub.limits import SECOND

TIMED_BYTES_MIN: Final = 64 << 10  # Smaller copies tell little.
SLOW_PS: Final = 100  # A byte, in picoseconds: 10 GB/s.
_GAIN: Final = 0.75  # The long rest takes much memory: it must be quicker by this.
_TRIAL_BYTES: Final = 32 << 20
_TRIAL_NS: Final = SECOND  # Who copies less than that meanwhile has nothing to gain.
_DOUBTS: Final = 128  # So many trials long what was found is believed.


class Rest(Enum):
    """How much is written elsewhere before a slot is written again."""

    SHORT = 2 << 20
    LONG = 32 << 20


class Rotation:
    """Time copies, and choose between a short and a long rest."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.rest = Rest.SHORT
        self._clock = clock
        self._begun_ns = 0
        self._copied_bytes = 0
        self._times_ps: list[int] = []  # A byte, of each copy of this trial.
        self._short_ps = 0.0  # What a byte took with a short rest.
        self._is_filling = False  # The memory for the long rest is used for the first time.
        self._believed = 0  # For so many more trials.

    @property
    def rest_bytes(self) -> int:
        """Return how much is to be written elsewhere before a slot is written again."""
        return self.rest.value

    def copied(self, size_bytes: int, took_ns: int) -> None:
        """Learn how long a copy took."""
        if size_bytes < TIMED_BYTES_MIN:
            return
        self._times_ps.append(1000 * took_ns // size_bytes)
        self._copied_bytes += size_bytes
        if self._copied_bytes < _TRIAL_BYTES:
            return
        now = self._clock()
        # The median: beside other work some copies are interrupted.
        taken_ps = median(self._times_ps)
        is_busy = now - self._begun_ns <= _TRIAL_NS
        self._begun_ns, self._copied_bytes = now, 0
        self._times_ps.clear()
        if not is_busy:
            self._choose(Rest.SHORT)
        elif self._is_filling:
            self._is_filling = False
        elif self.rest is Rest.SHORT:
            self._judge_short(taken_ps)
        else:
            self._judge_long(taken_ps)

    def _judge_short(self, taken_ps: float) -> None:
        self._short_ps = taken_ps
        self._believed -= 1
        if taken_ps > SLOW_PS and self._believed <= 0:
            self._choose(Rest.LONG)
            self._is_filling = True

    def _judge_long(self, taken_ps: float) -> None:
        if taken_ps > self._short_ps * _GAIN:
            self._choose(Rest.SHORT)
            self._believed = _DOUBTS
            return
        self._believed -= 1
        if self._believed <= 0:
            self._choose(Rest.SHORT)

    def _choose(self, rest: Rest) -> None:
        self.rest = rest
        self._believed = _DOUBTS if rest is Rest.LONG else 0
