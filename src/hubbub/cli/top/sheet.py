"""A table that can be filtered and sorted, whatever shows it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from hubbub.cli.screen import UNKNOWN, Column
from hubbub.cli.terminal import escape

PLAIN, GOOD, BAD, FAINT, COURSE = "plain", "good", "bad", "faint", "course"


class Cell(NamedTuple):
    """What is written in a table, what it is sorted by, and whether it is to strike the eye."""

    text: str
    rank: Any = None
    tone: str = PLAIN


class Row(NamedTuple):
    """A line of a table; by its key it is found again when the table is made anew."""

    key: str
    cells: tuple[Cell, ...]


class Sheet(NamedTuple):
    """A table with its name, and what is said when it is empty."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    nothing: str


class Order(NamedTuple):
    """By which column a table is sorted; None: as it comes."""

    column: int | None = None
    is_descending: bool = False

    def next(self, columns: Sequence[Column]) -> "Order":
        """Sort by the column to the right; numbers begin with the largest."""
        place = 0 if self.column is None else self.column + 1
        if place >= len(columns):
            return Order()
        return Order(place, columns[place].is_number)


def text(value: str, tone: str = PLAIN) -> Cell:
    """Write text, which may have come over the network."""
    value = escape(value)
    return Cell(value or UNKNOWN, value.casefold(), tone)


def count(value: int, *, is_bad: bool = False) -> Cell:
    """Write a number; one that should be zero and is not strikes the eye."""
    return Cell(f"{value:,}", value, BAD if is_bad and value else PLAIN if value else FAINT)


def arrange(rows: Sequence[Row], wanted: str, order: Order) -> list[Row]:
    """Keep the rows that contain all the words that are wanted, in the order asked for."""
    words = wanted.casefold().split()
    kept = [row for row in rows if all(word in _text_of(row) for word in words)]
    place = order.column
    if place is None:
        return kept
    known = [row for row in kept if row.cells[place].rank is not None]
    unknown = [row for row in kept if row.cells[place].rank is None]
    known.sort(key=lambda row: row.cells[place].rank, reverse=order.is_descending)
    return known + unknown


def _text_of(row: Row) -> str:
    return " ".join(cell.text for cell in row.cells).casefold()
