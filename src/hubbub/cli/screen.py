"""Tables that are shown again and again: in place on a terminal, one below the other elsewhere."""

import os
import select
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hubbub.cli.session import EXIT_BROKEN_PIPE, EXIT_FAILED
from hubbub.cli.terminal import cells, cut, escape, note, shorten
from hubbub.limits import MS, SECOND, US

UNKNOWN = "-"
_GAP = "  "
_TEXT_COLUMNS_MIN = 8  # A name is not made shorter than this; the line is cut instead.


class Column(NamedTuple):
    """A column of a table: text stands on the left and may be shortened, numbers on the right.

    One that can be done without is left out where there is no room for all.
    """

    title: str
    is_number: bool = True
    is_optional: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lay out cells as lines, the titles first, as wide as they are or to fit into `width`.

    What can be done without is left out before any name is shortened.
    """
    titles = [column.title for column in columns]
    rows = [titles, *([escape(cell) for cell in row] for row in rows)]
    while width is not None and _width_of(_widest(rows)) > width:
        places = [place for place, column in enumerate(columns) if column.is_optional]
        if not places:
            break
        columns, *rows = (_without(line, places[-1]) for line in (columns, *rows))
    widths = fit_widths(columns, rows, width)
    return [_line(columns, row, widths, width) for row in rows]


def _without(line: Sequence[Any], place: int) -> list[Any]:
    return [*line[:place], *line[place + 1 :]]


def _width_of(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def fit_widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None
) -> list[int]:
    """Return how wide each column is to be, all of them and what is between them in `width`."""
    widths = _widest(rows)
    if width is not None:
        _shrink(widths, columns, width)
    return widths


def _widest(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cells, texts)) for texts in zip(*rows, strict=True)]


def _shrink(widths: list[int], columns: Sequence[Column], width: int) -> None:
    """Make the widest text narrower, then the next, until everything fits or all are short."""
    texts = [place for place, column in enumerate(columns) if not column.is_number]
    excess = _width_of(widths) - width
    while excess > 0:
        widest = max(texts, key=lambda place: widths[place])
        if widths[widest] <= _TEXT_COLUMNS_MIN:
            return
        widths[widest] -= 1
        excess -= 1


def _line(
    columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], width: int | None
) -> str:
    laid_out = []
    for column, text, room in zip(columns, row, widths, strict=True):
        shown = shorten(text, room)
        blank = " " * (room - cells(shown))
        laid_out.append(blank + shown if column.is_number else shown + blank)
    line = _GAP.join(laid_out).rstrip()
    return line if width is None else cut(line, width)


def wrapped(head: str, text: str, width: int | None) -> list[str]:
    """Write a text behind its head, below each other what does not fit into `width`."""
    if width is None or width <= 2 * len(head):
        return [head + text]
    return textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=" " * len(head),
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def duration(time_ns: float | None) -> str:
    """Write a time in a unit that suits it; None is unknown."""
    if time_ns is None:
        return UNKNOWN
    for unit_ns, unit in ((SECOND, "s"), (MS, "ms"), (US, "us")):
        if abs(time_ns) >= unit_ns:
            return f"{time_ns / unit_ns:,.1f} {unit}"
    return f"{time_ns:.0f} ns"


class Screen:
    """Where a table is shown again and again."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._lines = 0  # How many of ours are above the cursor.
        self._is_begun = False

    @property
    def width(self) -> int | None:
        """Return how many columns there are; None: a pipe, unless COLUMNS says how wide it is."""
        is_known = self.is_terminal or os.environ.get("COLUMNS", "").isdecimal()
        return shutil.get_terminal_size().columns if is_known else None

    def show(self, lines: Sequence[str]) -> None:
        """Show these lines: instead of those before, or below them."""
        if self.is_terminal:
            lines = _fit(lines, shutil.get_terminal_size().lines - 1)
            above = f"\x1b[{self._lines}F" if self._lines else ""
            start = f"{above}\x1b[J"  # To the first line of ours, and away with what is below it.
        else:
            start = "\n" if self._is_begun else ""
        sys.stdout.write(start + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._lines = len(lines)
        self._is_begun = True

    def note(self, text: str) -> None:
        """Tell something on stderr; what was shown stays above it."""
        note(text)
        self._lines = 0


def _fit(lines: Sequence[str], height: int) -> Sequence[str]:
    """Leave out the last lines of a table that is higher than the terminal, and say so."""
    if len(lines) <= height:
        return lines
    kept = max(1, height - 1)
    return [*lines[:kept], f"... and {len(lines) - kept:,} more (a pipe gets them all)"]


def write_until_the_end(work: Callable[[], int]) -> int:
    """Run what writes to stdout, and return its exit code, or that of an output that is gone."""
    try:
        return work()
    except BrokenPipeError:
        _discard_output()  # Whoever read us has enough.
        return EXIT_BROKEN_PIPE
    except OSError as error:
        _discard_output()
        note(f"cannot write: {error.strerror}")
        return EXIT_FAILED


def refuse_if_nobody_reads() -> None:
    """Raise BrokenPipeError if whoever read our output is gone, though nothing is to be written."""
    look = select.poll()
    look.register(sys.stdout.fileno(), 0)
    if any(what & select.POLLERR for _, what in look.poll(0)):
        raise BrokenPipeError


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that the interpreter ends quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
