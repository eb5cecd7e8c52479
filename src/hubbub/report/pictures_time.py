"""Pictures of traffic and latency over time, and of the latency of each topic."""

from collections.abc import Callable, Sequence
from typing import Final

from hubbub.limits import REPORT_TOPICS_MAX
from hubbub.report.drawing import (
    AXIS_PX,
    Sheet,
    box,
    fit,
    line,
    path,
    picture,
    spread,
    time_axis,
    times_of,
    value_axis,
    write,
)
from hubbub.report.figures import Clock, Latency, Series, Topic
from hubbub.report.markup import Child, Markup, element
from hubbub.report.scale import Scale, Tick, count_ticks, log_ticks
from hubbub.report.words import latency, moment, three_digits

PERCENTILES: Final = (("p50", "p50_us"), ("p95", "p95_us"), ("p99", "p99_us"), ("max", "max_us"))
_LEFT_PX: Final = 58
_TOP_PX: Final = 10
_DOTS_MAX: Final = 48  # A line through more points needs no dots to be seen.
_FEW: Final = 8
_FLOOR_US: Final = 1.0  # Below that a clock tells nothing, and a logarithm even less.


def draw_layers(
    series: Sequence[Series], clock: Clock, sheet: Sheet, unit: str, say: Callable[[float], str]
) -> Markup:
    """Draw what flowed, one subject above the other, a step a column."""
    height = 210.0 if sheet.is_narrow else 250.0
    bottom = height - AXIS_PX
    sums = [sum(column) for column in zip(*(one.values for one in series), strict=True)]
    ticks = count_ticks(max(sums, default=0), 4, say)
    values = Scale(0, ticks[-1].value, bottom, _TOP_PX)
    times = times_of(clock, _LEFT_PX, sheet.width - 4)
    parts: list[Child] = [
        value_axis(values, ticks, _LEFT_PX, sheet.width - 4),
        time_axis(times, bottom, _TOP_PX),
    ]
    floor = [0.0] * clock.columns
    for place, one in enumerate(series):
        top = [below + value for below, value in zip(floor, one.values, strict=True)]
        parts.append(_layer(floor, top, clock, times, values, _layer_class(place, one)))
        floor = top
    parts.append(line(_LEFT_PX, bottom, sheet.width - 4, bottom, "axis"))
    if not sheet.is_narrow:
        parts += _columns(series, clock, times, sheet, bottom, unit, say)
    return picture(sheet, height, f"{unit} over time, by subject", *parts)


def _layer_class(place: int, series: Series) -> str:
    return "layer rest" if series.is_rest else f"layer s{place}"


def _layer(
    floor: Sequence[float],
    top: Sequence[float],
    clock: Clock,
    times: Scale,
    values: Scale,
    class_: str,
) -> Markup:
    points = [point for edge in (top, floor) for point in _steps(edge, clock, times, values)]
    half = len(points) // 2
    return path([*points[:half], *reversed(points[half:])], class_, is_closed=True)


def _steps(
    edge: Sequence[float], clock: Clock, times: Scale, values: Scale
) -> list[tuple[float, float]]:
    points = []
    for column, value in enumerate(edge):
        y = values(value)
        points += [(times(clock.begin_us(column)), y), (times(clock.begin_us(column + 1)), y)]
    return points


def _columns(
    series: Sequence[Series],
    clock: Clock,
    times: Scale,
    sheet: Sheet,
    bottom: float,
    unit: str,
    say: Callable[[float], str],
) -> list[Child]:
    """Lay a pane over each column that tells its values to whoever points at it."""
    panes: list[Child] = []
    for column in range(clock.columns):
        begin, end = clock.begin_us(column), clock.begin_us(column + 1)
        values = [f"{one.label}: {say(one.values[column])}" for one in reversed(series)]
        tip = sheet.tip(f"{moment(begin)}, {unit}: {'; '.join(values)}")
        width = times(end) - times(begin)
        panes.append(box(times(begin), _TOP_PX, width, bottom - _TOP_PX, "pane", tip))
    return panes


def draw_latencies(latencies: Sequence[Latency], clock: Clock, sheet: Sheet) -> Markup:
    """Draw percentiles over time; a column without messages is a hole in the lines."""
    height = 230.0 if sheet.is_narrow else 270.0
    bottom, right = height - AXIS_PX, sheet.width - (34 if sheet.is_narrow else 110)
    values, ticks = _latency_scale([one for one in latencies if one.max_us is not None])
    values = Scale(values.low, values.high, bottom, _TOP_PX, is_log=True)
    times = times_of(clock, _LEFT_PX, right)
    halves_us = [clock.length_us(column) / 2 for column in range(clock.columns)]
    parts: list[Child] = [
        value_axis(values, ticks, _LEFT_PX, right),
        time_axis(times, bottom, _TOP_PX),
    ]
    ends: list[tuple[str, float, str]] = []
    for name, field in reversed(PERCENTILES):  # The highest label first, also among equals.
        points = [
            None
            if (value := getattr(one, field)) is None
            else (times(clock.begin_us(column) + halves_us[column]), values(value), value)
            for column, one in enumerate(latencies)
        ]
        known = [one for one in points if one is not None]
        if known:
            parts += _curve(points, name, clock, sheet)
            ends.append((name, known[-1][1], latency(known[-1][2])))
    parts += _end_labels(ends, right + 8, bottom, sheet)
    return picture(sheet, height, "latency percentiles over time", *parts)


def _latency_scale(latencies: Sequence[Latency]) -> tuple[Scale, list[Tick]]:
    known = [
        value
        for one in latencies
        for _, field in PERCENTILES
        if (value := getattr(one, field)) is not None
    ]
    low, high = min(known, default=_FLOOR_US), max(known, default=10 * _FLOOR_US)
    low, high, ticks = log_ticks(max(low, _FLOOR_US), max(high, _FLOOR_US), latency)
    return Scale(low, high, 0, 1, is_log=True), ticks


def _curve(
    points: Sequence[tuple[float, float, float] | None], name: str, clock: Clock, sheet: Sheet
) -> list[Child]:
    parts: list[Child] = []
    run: list[tuple[float, float]] = []
    for point in [*points, None]:
        if point is not None:
            run.append(point[:2])
        elif run:
            if len(run) > 1:
                parts.append(path(run, f"curve {name}"))
            run = []
    is_dotted = len(points) <= _DOTS_MAX
    for column, point in enumerate(points):
        if point is None:
            continue
        neighbours = points[max(column - 1, 0) : column + 2]
        if is_dotted or sum(one is not None for one in neighbours) == 1:
            tip = sheet.tip(f"{moment(clock.begin_us(column))}, {name}: {latency(point[2])}")
            parts.append(
                element(
                    "circle",
                    tip,
                    cx=point[0],
                    cy=point[1],
                    r=4 if len(points) < _FEW else 3,
                    class_=f"dot {name}",
                )
            )
    return parts


def _end_labels(
    ends: Sequence[tuple[str, float, str]], x: float, bottom: float, sheet: Sheet
) -> list[Child]:
    heights = spread([y + 4 for _, y, _ in ends], 14, _TOP_PX + 6, bottom)
    return [
        write(x, y, name if sheet.is_narrow else f"{name} {value}", f"label end {name}")
        for (name, _, value), y in zip(ends, heights, strict=True)
    ]


def draw_ranges(topics: Sequence[Topic], sheet: Sheet) -> Markup:
    """Draw the latencies of each topic on a line: from p50 over p95 and p99 to the slowest."""
    shown = [one for one in topics if one.latency.max_us is not None][:REPORT_TOPICS_MAX]
    row = 40.0 if sheet.is_narrow else 24.0
    left = 12.0 if sheet.is_narrow else 300.0
    right = sheet.width - (12 if sheet.is_narrow else 78)
    bottom = _TOP_PX + row * len(shown) + 4
    scale, ticks = _latency_scale([one.latency for one in shown])
    values = Scale(scale.low, scale.high, left, right, is_log=True)
    parts: list[Child] = []
    for tick in ticks:
        x = values(tick.value)
        at = min(max(x, left + 16), right - 16)  # A label stays on the sheet.
        parts.append(line(x, _TOP_PX, x, bottom, "grid"))
        parts.append(write(at, bottom + 16, tick.label, "tick", "middle"))
    for place, topic in enumerate(shown):
        parts.append(_range(topic, values, _TOP_PX + row * place, row, sheet))
    return picture(sheet, bottom + AXIS_PX, "latency percentiles of each topic", *parts)


def _range(topic: Topic, values: Scale, top: float, row: float, sheet: Sheet) -> Markup:
    label = topic.label
    y = top + row - 11 if sheet.is_narrow else top + row / 2
    one = topic.latency
    known = [
        value for value in (one.p50_us, one.p95_us, one.p99_us, one.max_us) if value is not None
    ]
    low, high = values(min(known)), values(max(known))
    tip = sheet.tip(
        f"{topic.full_name}: "
        + ", ".join(f"{name} {latency(getattr(one, at))}" for name, at in PERCENTILES)
    )
    marks = [
        element(
            "circle", cx=values(value), cy=y, r=4 if name == "p50" else 3.5, class_=f"dot {name}"
        )
        for name, field in PERCENTILES
        if (value := getattr(one, field)) is not None
    ]
    if sheet.is_narrow:
        words = write(values.start, top + 14, fit(label, values.end - values.start - 60))
        figure = write(values.end, top + 14, latency(one.p99_us), "value", "end")
    else:
        words = write(values.start - 12, y + 4, fit(label, values.start - 16), "label", "end")
        figure = write(values.end + 70, y + 4, latency(one.p99_us), "value", "end")
    return element("g", tip, line(low, y, high, y, "whisker"), *marks, words, figure)


def say_rate(value: float) -> str:
    """Write messages a second at an axis."""
    return f"{value / 1000:,.0f} k" if value >= 10_000 else three_digits(value)
