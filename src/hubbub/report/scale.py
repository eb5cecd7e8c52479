"""Axes: where a value lies on a picture, and at which round values to put a mark."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hubbub.report.figures import SECOND_US
from hubbub.report.words import from_us

_TIME_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200),
    *(86_400, 172_800, 604_800, 2_592_000, 31_536_000),
)
_LOG_TICKS_MAX: Final = 7
_FINE_STEPS_US: Final = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000)


@dataclass(frozen=True, slots=True)
class Scale:
    """A map from values to pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Say where a value lies; one that is outside lies on the edge."""
        value = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (self.end - self.start) * (value - low) / ((high - low) or 1)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis."""

    value: float
    label: str


def count_ticks(high: float, wanted: int, write: Callable[[float], str]) -> list[Tick]:
    """Mark 0 and the multiples of 1, 2 or 5 times a power of ten, up to one at or above `high`."""
    high = high if high > 0 else 1.0
    rough = high / max(wanted, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in (1, 2, 5, 10) if power * one >= rough * 0.999)
    return [Tick(step * n, write(step * n)) for n in range(math.ceil(high / step * 0.999) + 1)]


def log_ticks(
    low: float, high: float, write: Callable[[float], str]
) -> tuple[float, float, list[Tick]]:
    """Return the bounds of a logarithmic axis and its marks.

    The bounds are 1, 2 or 5 times a power of ten, and so are the marks where there is room.
    """
    steps = [10.0**power * one for power in range(-3, 16) for one in (1, 2, 5)]
    bottom = max((one for one in steps if one <= low * 1.001), default=steps[0])
    top = min((one for one in steps if one >= high * 0.999 and one > bottom), default=steps[-1])
    marks = [one for one in steps if bottom <= one <= top]
    if len(marks) > _LOG_TICKS_MAX:
        marks = [one for one in marks if _is_power_of_ten(one)]
    return bottom, top, [Tick(one, write(one)) for one in marks]


def _is_power_of_ten(value: float) -> bool:
    power = math.log10(value)
    return abs(power - round(power)) < 1e-9


def time_ticks(low_us: int, high_us: int, wanted: int) -> list[Tick]:
    """Mark round times of the clock within a span."""
    rough_us = max(high_us - low_us, 1) / max(wanted, 1)
    steps = [*_FINE_STEPS_US, *(one * SECOND_US for one in _TIME_STEPS_S)]
    years_us = -(-int(rough_us) // steps[-1]) * steps[-1]
    step_us = next((one for one in steps if one >= rough_us), years_us)
    first = -(-low_us // step_us) * step_us
    marks = range(first, high_us + 1, step_us)
    return [Tick(at, _clock(at, step_us)) for at in marks]


def _clock(at_us: int, step_us: int) -> str:
    when = from_us(at_us)
    if step_us >= 86_400 * SECOND_US:
        return f"{when:%b %d}" if step_us < 31_536_000 * SECOND_US else f"{when:%Y}"
    if step_us >= 60 * SECOND_US:
        return f"{when:%H:%M}"
    if step_us >= SECOND_US:
        return f"{when:%H:%M:%S}"
    return f"{when:%S}.{when.microsecond // 1000:03d}"
