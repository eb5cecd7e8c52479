"""The report for a terminal: the same findings and tables as on the page, traffic as small bars."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from hubbub.cli.screen import Column, table
from hubbub.cli.terminal import escape
from hubbub.report.figures import Figures, Series
from hubbub.report.findings import Finding, Level, find, summarise
from hubbub.report.listings import Listing, list_tables
from hubbub.report.words import moment, short, size

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_BARS_MAX: Final = 48
_ROWS_MAX: Final = 20  # A terminal is for a look; the page has more.
_WIDTH: Final = 100  # Of sentences, where nobody says how wide a line may be.
_MARKS: Final = {Level.BAD: "!!", Level.WARNING: "! ", Level.NOTE: "- ", Level.GOOD: "ok"}


def write_text(figures: Figures, width: int | None) -> Iterator[str]:
    """Write the report as lines."""
    yield f"Hubbub report: {escape(figures.path)}"
    clock = figures.clock
    if clock.columns:
        first_us, last_us = figures.span_us or (clock.first_us, clock.last_us)
        yield f"{moment(first_us, has_date=True)} to {moment(last_us, has_date=True)} UTC"
    yield ""
    yield from textwrap.wrap(summarise(figures), width or _WIDTH)
    yield ""
    for finding in find(figures):
        yield from _finding(finding, width or _WIDTH)
    for title, series, write in (
        ("Messages a second", figures.message_rates, short),
        ("Bytes a second", figures.byte_rates, size),
    ):
        if series and clock.columns:
            rows = [
                _bars(one, write(max(one.values)), write(_mean(one, figures))) for one in series
            ]
            columns = (Column("subject", is_number=False), Column("over time", is_number=False))
            yield from _titled(
                title, table((*columns, Column("mean"), Column("most")), rows, width)
            )
    for listing in list_tables(figures).values():
        if listing.rows:
            shown = listing.shortened(_ROWS_MAX)
            yield from _titled(f"{shown.title} ({shown.note})", _listing(shown, width))


def _finding(finding: Finding, width: int) -> Iterator[str]:
    text = escape(finding.text)
    if finding.evidence:
        text += f" [{escape('; '.join(finding.evidence))}]"
    first = f"{_MARKS[finding.level]} "
    yield from textwrap.wrap(text, max(width, 20), initial_indent=first, subsequent_indent="   ")


def _bars(series: Series, most: str, mean: str) -> tuple[str, ...]:
    values = _squeeze(series.values)
    highest = max(values) or 1.0
    steps = len(_BLOCKS) - 1
    bars = "".join(_BLOCKS[max(round(steps * one / highest), one > 0)] for one in values)
    return series.label, f"|{bars}|", mean, most


def _squeeze(values: Sequence[float]) -> list[float]:
    """Draw neighbours as one, their highest, until there are few enough."""
    merged = -(-len(values) // _BARS_MAX)
    return [max(values[at : at + merged]) for at in range(0, len(values), merged)]


def _mean(series: Series, figures: Figures) -> float:
    """Return the mean over the time that was recorded."""
    clock = figures.clock
    whole = sum(value * clock.counted_us(place) for place, value in enumerate(series.values))
    first_us, last_us = figures.span_us or (clock.first_us, clock.last_us)
    return whole / max(last_us - first_us, 1)


def _titled(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield ""
    yield title
    yield from lines


def _listing(listing: Listing, width: int | None) -> list[str]:
    columns = [Column(one.title, one.is_number, one.is_optional) for one in listing.columns]
    return table(columns, listing.rows, width)
