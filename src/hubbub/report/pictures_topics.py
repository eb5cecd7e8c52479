"""Pictures of what was lost and repaired, and of periods kept: a row for each topic."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from hubbub.limits import REPORT_TOPICS_MAX
from hubbub.report.drawing import AXIS_PX, Sheet, box, fit, picture, time_axis, times_of, write
from hubbub.report.figures import Cell, Clock, Period, Topic
from hubbub.report.markup import Child, Markup, element
from hubbub.report.scale import Scale
from hubbub.report.words import latency, moment, share

LEVELS: Final = 4  # 1, from 2, from 10, from 100.
_TOP_PX: Final = 4
_LABEL_PX: Final = 300
_GAP_PX: Final = 3


def draw_loss_map(topics: Sequence[Topic], clock: Clock, sheet: Sheet) -> Markup:
    """Draw topics over time: where messages flowed, were repaired, were lost."""
    shown = [one for one in topics if one.cells][:REPORT_TOPICS_MAX]
    row = 36.0 if sheet.is_narrow else 22.0
    left = 4.0 if sheet.is_narrow else float(_LABEL_PX)
    right = sheet.width - (4 if sheet.is_narrow else 70)
    bottom = _TOP_PX + row * len(shown)
    times = times_of(clock, left, right)
    parts: list[Child] = [time_axis(times, bottom, _TOP_PX)]
    for place, topic in enumerate(shown):
        parts += _map_row(topic, clock, times, _TOP_PX + row * place, row, sheet)
    label = "messages lost and repaired, by topic and time"
    return picture(sheet, bottom + AXIS_PX, label, *parts)


def _map_row(
    topic: Topic, clock: Clock, times: Scale, top: float, row: float, sheet: Sheet
) -> list[Child]:
    label = topic.label
    note = f"{topic.lost:,} lost" if topic.lost else ""
    y = top + 17 if sheet.is_narrow else top + 2
    height = top + row - y - _GAP_PX
    if sheet.is_narrow:
        parts: list[Child] = [
            write(times.start, top + 12, fit(label, times.end - times.start - 80)),
            write(times.end, top + 12, note, "value lost", "end"),
        ]
    else:
        parts = [
            write(times.start - 10, y + 13, fit(label, times.start - 14), "label", "end"),
            write(times.end + 6, y + 13, note, "value lost"),
        ]
    return parts + _cells(topic.cells, clock, times, y, height, sheet)


def _cells(
    cells: Sequence[Cell], clock: Clock, times: Scale, y: float, height: float, sheet: Sheet
) -> list[Child]:
    """Draw neighbours that look alike as one, unless there is something to tell of each."""
    parts: list[Child] = []
    column = 0
    for class_, group in groupby(cells, key=class_of):
        same = list(group)
        begin, column = column, column + len(same)
        if class_ == "cell none":
            continue
        if class_ == "cell fine":
            parts.append(_cell(clock, times, begin, column, y, height, class_))
            continue
        for place, cell in enumerate(same, begin):
            told = f"{cell.lost:,} lost, {cell.messages:,} came, {cell.repairs:,} frames repaired"
            tip = sheet.tip(f"{moment(clock.begin_us(place))}: {told}")
            parts.append(_cell(clock, times, place, place + 1, y, height, class_, tip))
    return parts


def _cell(
    clock: Clock,
    times: Scale,
    begin: int,
    end: int,
    y: float,
    height: float,
    class_: str,
    tip: Child = None,
) -> Markup:
    x = times(clock.begin_us(begin))
    return box(x, y, times(clock.begin_us(end)) - x, height, class_, tip)


def class_of(cell: Cell) -> str:
    """Name the colour of a cell: a loss hides a repair, and both hide plain traffic."""
    if cell.lost:
        return f"cell l{_level(cell.lost)}"
    if cell.repairs:
        return f"cell r{_level(cell.repairs)}"
    return "cell fine" if cell.messages else "cell none"


def _level(count: int) -> int:
    return 1 if count == 1 else min(int(math.log10(count)) + 2, LEVELS)


def draw_periods(periods: Sequence[Period], sheet: Sheet) -> Markup:
    """Draw how many slots of each time-triggered topic were met, late and missed."""
    shown = periods[:REPORT_TOPICS_MAX]
    row = 38.0 if sheet.is_narrow else 24.0
    left = 4.0 if sheet.is_narrow else float(_LABEL_PX)
    right = sheet.width - (4 if sheet.is_narrow else 80)
    parts: list[Child] = []
    for place, one in enumerate(shown):
        top = _TOP_PX + row * place
        label = f"{one.subject} · {one.source} · {latency(one.period_ns / 1000)}"
        met = share(one.met, one.slots)
        if sheet.is_narrow:
            parts += [
                write(left, top + 12, fit(label, right - left - 70)),
                write(right, top + 12, met, "value", "end"),
            ]
        else:
            parts += [
                write(left - 10, top + 16, fit(label, left - 14), "label", "end"),
                write(sheet.width - 4, top + 16, met, "value", "end"),
            ]
        parts.append(_period_bar(one, left, right, top + (17 if sheet.is_narrow else 4), sheet))
    return picture(sheet, _TOP_PX + row * len(shown) + 4, "slots met, late and missed", *parts)


def _period_bar(period: Period, left: float, right: float, y: float, sheet: Sheet) -> Markup:
    """Draw a bar of three parts, each wide enough to be seen if there is anything in it."""
    counts = (("met", period.met), ("late", period.late), ("missed", period.missed))
    whole = sum(count for _, count in counts) or 1
    widths = [max(3.0, (right - left) * count / whole) if count else 0.0 for _, count in counts]
    excess = sum(widths) - (right - left)
    widths[widths.index(max(widths))] -= max(excess, 0.0)
    parts: list[Child] = []
    x = left
    for (name, count), width in zip(counts, widths, strict=True):
        if count:
            parts.append(box(x, y, width - 1, 15, f"slot {name}"))
        x += width
    told = ", ".join(f"{count:,} {name}" for name, count in counts)
    return element("g", sheet.tip(f"{period.slots:,} slots: {told}"), *parts)
