"""What a batch reads and which tasks read it: arithmetic on offsets, and nothing else.

A position is the offset of the next row to read, by recorder. It names rows, not files: where they
lie is found out when they are read, because a journal segment becomes Parquet, and small files
become large ones, between the two.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from hubbub.errors import DataLoss

Position = dict[str, int]


class Extent(NamedTuple):
    """What there is of one recording: `first` up to, but without, `end`; files begin at `seams`."""

    first: int
    end: int
    seams: tuple[int, ...] = ()


class Span(NamedTuple):
    """Rows of one recording: `first` up to, but without, `end`."""

    recorder: str
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.first}..{self.end - 1} of recorder {self.recorder}"


def ordered(position: Mapping[str, int]) -> Position:
    """Write a position the one way that it is written: Spark compares the JSON text."""
    return {recorder: int(position[recorder]) for recorder in sorted(position)}


def admit(start: Position, available: Position, rows_max: int) -> Position:
    """Go on from `start` by at most so many rows (0: all), a fair share from each recording.

    What has the least left is served whole, and leaves the others more.
    """
    backlog = {
        recorder: end - start.get(recorder, 0)
        for recorder, end in available.items()
        if end > start.get(recorder, 0)
    }
    position = {**dict.fromkeys(available, 0), **start}
    left = rows_max if rows_max else sum(backlog.values())
    by_backlog = sorted(backlog.items(), key=lambda one: (one[1], one[0]))
    for count, (recorder, rows) in zip(range(len(by_backlog), 0, -1), by_backlog, strict=True):
        taken = min(rows, -(-left // count))
        position[recorder] += taken
        left -= taken
    return ordered(position)


def lost(span: Span, extent: Extent | None) -> Iterator[Span]:
    """Name what of a span is not there."""
    if extent is None or extent.first >= extent.end:
        yield span
        return
    if span.first < extent.first:
        yield span._replace(end=min(span.end, extent.first))
    if span.end > extent.end:
        yield span._replace(first=max(span.first, extent.end))


def spans_between(start: Position, end: Position) -> list[Span]:
    """Return what lies between two positions; a recording that begins in between is new."""
    spans = [Span(recorder, start.get(recorder, 0), end[recorder]) for recorder in sorted(end)]
    for span in spans:
        if span.end < span.first:
            raise DataLoss(
                f"the recording ends at {span.end}, before {span.first} of recorder"
                f" {span.recorder}, which was read already: it lost its end, or is another one"
            )
    return [span for span in spans if span.first < span.end]


def cut(span: Span, seams: Iterable[int], rows_max: int) -> Iterator[Span]:
    """Cut a span into what one task reads: small files together, large ones in parts."""
    first = filled = span.first
    for end in [*(seam for seam in seams if span.first < seam < span.end), span.end]:
        if end - first > rows_max and filled > first:
            yield Span(span.recorder, first, filled)
            first = filled
        while end - first > rows_max:
            yield Span(span.recorder, first, first + rows_max)
            first += rows_max
        filled = end
    if first < span.end:
        yield Span(span.recorder, first, span.end)
