"""Pictures of the nodes: when each was there, and who talked to whom."""

import math
from collections.abc import Sequence
from typing import Final

from hubbub.limits import REPORT_NODES_MAX, REPORT_TOPICS_MAX
from hubbub.report.drawing import (
    AXIS_PX,
    LETTER_PX,
    Sheet,
    box,
    fit,
    line,
    path,
    picture,
    time_axis,
    times_of,
    write,
)
from hubbub.report.figures import Clock, Flow, Lane, Mark, Stay
from hubbub.report.markup import Child, Markup, element
from hubbub.report.scale import Scale
from hubbub.report.words import moment, plural, short, size

SHADES: Final = 5
SHAPES: Final = {
    **dict.fromkeys(("SlowConsumer", "ConsumerDropped"), "slow"),
    **dict.fromkeys(("GapAbandoned", "RecorderLost", "MessagesLost"), "gap"),
}
ABRUPT: Final = frozenset({"died", "timeout", "restarted"})
_TOP_PX: Final = 4
_LABEL_PX: Final = 190
_CELL_PX: Final = 44
_SLOPE: Final = 0.57  # The sine of 35 degrees.


def draw_timeline(lanes: Sequence[Lane], clock: Clock, sheet: Sheet) -> Markup:
    """Draw when each node was there, how it ended, and what happened to it."""
    shown = lanes[:REPORT_TOPICS_MAX]
    row = 40.0 if sheet.is_narrow else 28.0
    left = 8.0 if sheet.is_narrow else float(_LABEL_PX)
    right = sheet.width - 12
    bottom = _TOP_PX + row * len(shown)
    times = times_of(_widened(clock, shown), left, right)
    parts: list[Child] = [time_axis(times, bottom, _TOP_PX)]
    for place, lane in enumerate(shown):
        top = _TOP_PX + row * place
        y = top + row - 12 if sheet.is_narrow else top + row / 2
        if sheet.is_narrow:
            parts.append(write(left, top + 14, fit(lane.node, right - left)))
        else:
            parts.append(write(left - 12, y + 4, fit(lane.node, left - 16), "label", "end"))
        parts += [_stay(lane, stay, times, y, sheet) for stay in lane.stays]
        parts += [_mark(mark, times, y, sheet) for mark in lane.marks]
    return picture(sheet, bottom + AXIS_PX, "when each node was there", *parts)


def _widened(clock: Clock, lanes: Sequence[Lane]) -> Clock:
    """Take in what happened to the nodes before the first message and after the last."""
    times = [clock.first_us, clock.last_us] if clock.columns else []
    times += [mark.time_us for lane in lanes for mark in lane.marks]
    for stay in (stay for lane in lanes for stay in lane.stays):
        times += [time for time in (stay.first_us, stay.last_us) if time is not None]
    first_us, last_us = min(times, default=0), max(times, default=1)
    return Clock(first_us, max(last_us, first_us + 1))


def _stay(lane: Lane, stay: Stay, times: Scale, y: float, sheet: Sheet) -> Markup:
    first_us = None if stay.was_there else stay.first_us
    begin = times(times.low if first_us is None else first_us)
    end = times(times.high if stay.last_us is None else stay.last_us)
    since = "before the recording" if first_us is None else moment(first_us)
    until = "its end" if stay.last_us is None else f"{moment(stay.last_us)}: {stay.ended}"
    tip = sheet.tip(f"{lane.node}, from {since} to {until}")
    return element("g", tip, box(begin, y - 4, end - begin, 8, "stay"), *_ends(stay, begin, end, y))


def _ends(stay: Stay, begin: float, end: float, y: float) -> list[Child]:
    parts: list[Child] = []
    if stay.first_us is not None and not stay.was_there:
        parts.append(line(begin, y - 7, begin, y + 7, "joined"))
    if stay.ended in ABRUPT:
        parts += [
            line(end - 5, y - 5, end + 5, y + 5, "died"),
            line(end - 5, y + 5, end + 5, y - 5, "died"),
        ]
    elif stay.ended is not None:
        parts.append(element("circle", cx=end, cy=y, r=4, class_="left"))
    return parts


def _mark(mark: Mark, times: Scale, y: float, sheet: Sheet) -> Markup:
    x = times(mark.time_us)
    shape = SHAPES.get(mark.kind, "other")
    points = {
        "slow": [(x - 5, y + 4), (x + 5, y + 4), (x, y - 6)],
        "gap": [(x - 5, y), (x, y - 5), (x + 5, y), (x, y + 5)],
        "other": [(x - 1.5, y - 6), (x + 1.5, y - 6), (x + 1.5, y + 6), (x - 1.5, y + 6)],
    }[shape]
    often = "" if mark.count == 1 else f", {mark.count:,} times"
    tip = sheet.tip(f"{moment(mark.time_us)}: {mark.kind}{often}")
    return element("g", tip, path(points, f"mark {shape}", is_closed=True))


def draw_matrix(flows: Sequence[Flow], sheet: Sheet) -> Markup:
    """Draw who sent how much to whom: a table of shades, on a phone a list of bars."""
    return _bars(flows, sheet) if sheet.is_narrow else _matrix(flows, sheet)


def _busiest(flows: Sequence[Flow], side: str) -> list[str]:
    sums: dict[str, int] = {}
    for flow in flows:
        sums[getattr(flow, side)] = sums.get(getattr(flow, side), 0) + flow.messages
    return sorted(sums, key=lambda name: -sums[name])[:REPORT_NODES_MAX]


def _matrix(flows: Sequence[Flow], sheet: Sheet) -> Markup:
    sources, receivers = _busiest(flows, "source"), _busiest(flows, "receiver")
    most = max((flow.messages for flow in flows), default=1)
    cell = min(_CELL_PX * 2.0, (sheet.width - _LABEL_PX - 130) / max(len(receivers), 1))
    height = 30.0
    # Names of receivers are turned to be read, so the longest tells how high they reach.
    top = 30 + min(max(map(len, receivers), default=0) * LETTER_PX, 150) * _SLOPE
    parts: list[Child] = []
    for place, name in enumerate(receivers):
        x = _LABEL_PX + cell * (place + 0.5)
        turn = f"rotate(-35 {x:.1f} {top - 10:.1f})"
        label = fit(name, 150)
        parts.append(element("text", label, x=x, y=top - 10, class_="label", transform=turn))
    for place, name in enumerate(sources):
        y = top + height * place
        parts.append(write(_LABEL_PX - 10, y + 19, fit(name, _LABEL_PX - 16), "label", "end"))
        parts += [
            box(_LABEL_PX + cell * at, y, cell - 2, height - 2, "shade h0")
            for at in range(len(receivers))
        ]
    for flow in flows:
        if flow.source in sources and flow.receiver in receivers:
            x = _LABEL_PX + cell * receivers.index(flow.receiver)
            y = top + height * sources.index(flow.source)
            parts.append(_square(flow, most, x, y, cell - 2, height - 2, sheet))
    return picture(sheet, top + height * len(sources) + 6, "who talks to whom", *parts)


def _square(
    flow: Flow, most: int, x: float, y: float, width: float, height: float, sheet: Sheet
) -> Markup:
    shade = _shade(flow.messages, most)
    subjects = ", ".join(flow.subjects)
    more = flow.subjects_in_all - len(flow.subjects)
    tip = sheet.tip(
        f"{flow.source} to {flow.receiver}: {plural(flow.messages, 'message')}, "
        f"{size(flow.bytes)}, on {subjects}{f' and {more:,} more' if more else ''}"
    )
    text = write(x + width / 2, y + height / 2 + 4, short(flow.messages), f"on h{shade}", "middle")
    return element("g", tip, box(x, y, width, height, f"shade h{shade}"), text)


def _shade(messages: int, most: int) -> int:
    """Choose a shade by the square root: a camera must not make all others look silent."""
    if messages <= 0:
        return 0
    return 1 + min(int(SHADES * math.sqrt(messages / most)), SHADES - 1)


def _bars(flows: Sequence[Flow], sheet: Sheet) -> Markup:
    shown = flows[:REPORT_NODES_MAX]
    most = max((flow.messages for flow in shown), default=1) or 1
    row, width = 36.0, sheet.width - 8
    parts: list[Child] = []
    for place, flow in enumerate(shown):
        top = row * place
        label = fit(f"{flow.source} → {flow.receiver}", width - 60)
        parts += [
            write(4, top + 14, label),
            write(4 + width, top + 14, short(flow.messages), "value", "end"),
            box(4, top + 20, width, 8, "shade h0"),
            box(4, top + 20, width * flow.messages / most, 8, "shade h4"),
        ]
    return picture(sheet, row * len(shown) + 4, "who talks to whom", *parts)
