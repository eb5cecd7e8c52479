"""When the ticks of a producer are, given the periods that its consumers ask for.

All plans lie on multiples of whole periods since a common epoch, so consumers whose periods have a
common multiple share ticks, producers that were started at different times agree, and a change of
the plan moves no boundary of a period that stays. Three schedules:

- `strict`: a tick at every multiple of the greatest common divisor G, as the source of this design
  has it. Periods that share nothing make it tiny: 33,333 us and 50 ms have 1 us.
- `due`: only where some period begins. Every consumer gets what it would get from `strict`, and no
  more is sent than the sum of what they ask for.
- `harmonised`: at every multiple of the shortest period. Each longer one contains at least one.

No two ticks are closer than `spacing`. A period below that is served at `spacing`; where G is below
it, boundaries are moved up to the next multiple of it (`due`) or periods down (`strict`). A slot is
never shorter than `spacing`, so each still has a tick inside.
"""

from collections.abc import Iterable
from itertools import combinations
from math import gcd, lcm
from typing import Final

from hubbub.limits import PERIODS_PLANNED_MAX, SECOND, US

STRICT: Final = "strict"
DUE: Final = "due"
HARMONISED: Final = "harmonised"
_EXACT_PERIODS: Final = 8  # The load of more is only bounded: it takes 2 ** n terms.


class Plan:
    """The ticks for a set of periods; immutable."""

    def __init__(self, schedule: str, periods_us: Iterable[int], spacing_us: int) -> None:
        asked = {period for period in periods_us if period}
        spacing_ns = spacing_us * US
        periods = sorted({max(period * US, spacing_ns) for period in asked})
        if schedule == DUE and len(periods) > PERIODS_PLANNED_MAX:
            schedule = HARMONISED
        self.schedule = schedule
        self.spacing_ns = spacing_ns
        self.granted_us = periods[0] // US if periods else 0  # The shortest that is served.
        self.is_limited = bool(asked) and min(asked) * US < spacing_ns  # Some ask for more.
        common = gcd(*periods)
        self._is_moved = common < spacing_ns  # Boundaries are not where periods begin.
        if schedule == STRICT and self._is_moved:
            common = gcd(*(period // spacing_ns * spacing_ns for period in periods))
        elif schedule == HARMONISED:
            periods = periods[:1]
            common = periods[0] if periods else 0
        self.periods = tuple(periods)
        self.tick_ns = max(common, spacing_ns) if periods else 0  # All ticks are multiples of it.

    def __bool__(self) -> bool:
        """Tell whether there are ticks at all."""
        return bool(self.periods)

    def next_after(self, slot_ns: int) -> int:
        """Return the first tick behind this time of the slot clock."""
        assert self.periods, "nobody wants anything"
        if self.schedule != DUE:
            return (slot_ns // self.tick_ns + 1) * self.tick_ns
        if not self._is_moved:
            return min((slot_ns // period + 1) * period for period in self.periods)
        spacing = self.spacing_ns
        begin = slot_ns // spacing * spacing
        boundary = min((begin // period + 1) * period for period in self.periods)
        return -(-boundary // spacing) * spacing

    def last_at(self, slot_ns: int) -> int:
        """Return the last tick that is not behind this time of the slot clock."""
        assert self.periods, "nobody wants anything"
        if self.schedule != DUE:
            return slot_ns // self.tick_ns * self.tick_ns
        if not self._is_moved:
            return max(slot_ns // period * period for period in self.periods)
        spacing = self.spacing_ns
        end = slot_ns // spacing * spacing
        boundary = max(end // period * period for period in self.periods)
        return -(-boundary // spacing) * spacing

    @property
    def is_shifted(self) -> bool:
        """Tell whether slots begin where there is no tick, and have one later."""
        return bool(self.periods) and (self._is_moved or self.schedule == HARMONISED)

    @property
    def millihertz(self) -> int:
        """Return how many ticks there are in a thousand seconds, or a bound of that."""
        if not self.periods:
            return 0
        per_tick = 1000 * SECOND // self.tick_ns
        if self.schedule != DUE:
            return per_tick
        if len(self.periods) > _EXACT_PERIODS:
            return min(per_tick, sum(1000 * SECOND // period for period in self.periods))
        return min(per_tick, round(1000 * SECOND * self._density()))

    def _density(self) -> float:
        """Return the share of nanoseconds that begin a period, by inclusion and exclusion."""
        density = 0.0
        for count in range(1, len(self.periods) + 1):
            for chosen in combinations(self.periods, count):
                density += (1 if count % 2 else -1) / lcm(*chosen)
        return density
