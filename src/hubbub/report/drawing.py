"""What all pictures are made of: sheets, axes, labels that fit. Colours are classes of the page.

Each picture is drawn twice, for a wide screen and for a phone, because a drawing that is merely
shrunk has letters that nobody can read.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import east_asian_width

from hubbub.report.figures import Clock
from hubbub.report.markup import Child, Markup, element, join, number
from hubbub.report.scale import Scale, Tick, time_ticks
from hubbub.report.words import cut

LETTER_PX: Final = 6.6  # Of a letter of 12 px, on average.
AXIS_PX: Final = 24
WIDE_PX: Final = 920
NARROW_PX: Final = 360


@dataclass(frozen=True, slots=True)
class Sheet:
    """How wide a picture is, and whether it is one for a phone."""

    width: float

    @property
    def is_narrow(self) -> bool:
        """Tell whether there is no room beside a picture for its labels."""
        return self.width < 600

    @property
    def class_(self) -> str:
        """Name the class by which the page shows the one or the other."""
        return "narrow" if self.is_narrow else "wide"

    def tip(self, text: str) -> Markup | None:
        """Say something about a part to whoever points at it; nobody points on a phone."""
        return None if self.is_narrow else element("title", cut(text))


WIDE: Final = Sheet(WIDE_PX)
NARROW: Final = Sheet(NARROW_PX)


def picture(sheet: Sheet, height: float, label: str, *children: Child) -> Markup:
    """Put parts on a sheet; `label` is what is read to somebody who cannot see it."""
    box = f"0 0 {number(sheet.width)} {number(height)}"
    return element(
        "svg",
        *children,
        class_=sheet.class_,
        viewBox=box,
        width=sheet.width,
        height=height,
        role="img",
        aria_label=label,
    )


def write(
    x: float, y: float, text: str, class_: str = "label", anchor: str | None = None
) -> Markup:
    """Write a line of text; `anchor` is where it has its x: `middle`, `end`, else its start."""
    return element("text", text, x=x, y=y, class_=class_, text_anchor=anchor)


def fit(text: str, room_px: float, letter_px: float = LETTER_PX) -> str:
    """Leave out the middle of a text that is too long: subjects differ at both ends."""
    if _cells(text) * letter_px <= room_px:
        return text
    letters = max(int(room_px / letter_px) - 1, 2)
    head, tail = "", ""
    while _cells(head) + _cells(tail) < letters:
        if _cells(head) <= _cells(tail):
            head += text[len(head)]
        else:
            tail = text[-len(tail) - 1] + tail
    return f"{head}…{tail}"


def _cells(text: str) -> int:
    return len(text) + sum(east_asian_width(one) in "WF" for one in text if ord(one) > 0x10FF)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Draw a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def box(x: float, y: float, width: float, height: float, class_: str, *children: Child) -> Markup:
    """Draw a rectangle, however thin, so that it is seen."""
    width = max(width, 1.0)
    return element("rect", *children, x=x, y=y, width=width, height=height, class_=class_)


def path(points: Iterable[tuple[float, float]], class_: str, *, is_closed: bool = False) -> Markup:
    """Draw a line through points, or an area between them."""
    steps = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if is_closed else ''}", class_=class_)


def times_of(clock: Clock, start: float, end: float) -> Scale:
    """Map the time of the report to pixels."""
    return Scale(clock.first_us, clock.last_us, start, end)


def time_axis(times: Scale, y: float, top: float, room_px: float = 74) -> Markup:
    """Draw marks of the clock below a picture, and thin lines up through it."""
    wanted = int((times.end - times.start) / room_px)
    ticks = time_ticks(int(times.low), int(times.high), max(wanted, 2))
    parts: list[Child] = [
        line(times(tick.value), top, times(tick.value), y, "grid") for tick in ticks
    ]
    parts += [write(x, y + 16, text, "tick", "middle") for x, text in _time_labels(times, ticks)]
    return join(*parts, line(times.start, y, times.end, y, "axis"))


def _time_labels(times: Scale, ticks: Sequence[Tick]) -> list[tuple[float, str]]:
    """Place the words below the marks: those at the ends stay inside, or go where none lies."""
    placed: list[tuple[float, str]] = []
    for tick in ticks:
        wide = len(tick.label) * LETTER_PX
        at = times(tick.value)
        x = min(max(at, times.start + wide / 2), times.end - wide / 2)
        if placed and x - placed[-1][0] < wide + LETTER_PX:
            if x == at:  # The first had to step aside, and is in the way now.
                placed[-1] = (x, tick.label)
            continue
        placed.append((x, tick.label))
    return placed


def value_axis(values: Scale, ticks: Sequence[Tick], left: float, right: float) -> Markup:
    """Draw marks of a value on the left of a picture, and thin lines across it."""
    return join(
        *(
            join(
                line(left, values(tick.value), right, values(tick.value), "grid"),
                write(left - 6, values(tick.value) + 4, tick.label, "tick", "end"),
            )
            for tick in ticks
        )
    )


def spread(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Move labels as little as needed so that none lies on another, and all stay inside."""
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    placed = [0.0] * len(wanted)
    at = -math.inf
    for place in order:
        at = placed[place] = max(wanted[place], at + apart, low)
    at = high
    for place in reversed(order):
        placed[place] = min(placed[place], at)
        at = placed[place] - apart
    return placed
