"""What was lost within one reporting period, as merged ranges of sequence numbers.

The count is always exact, from whatever thread a loss is noted. The ranges are bounded: what does
not fit is counted and not listed.
"""

import threading
from typing import NamedTuple

from hubbub.limits import DROP_RANGES_MAX
from hubbub.message import Source

Range = tuple[str, Source, int, int]


class Loss(NamedTuple):
    """The messages lost in a period: how many, and which (subject, source, first, last)."""

    messages: int
    ranges: tuple[Range, ...]


class Tally:
    """Collect lost messages until somebody takes the sum."""

    def __init__(self, ranges_max: int = DROP_RANGES_MAX) -> None:
        self.total = 0
        self._ranges_max = ranges_max
        self._count = 0
        self._listed = 0
        self._ranges: dict[tuple[str, Source], list[list[int]]] = {}
        self._lock = threading.Lock()

    def add(self, subject: str, source: Source, first: int, count: int) -> None:
        """Note `count` lost messages, the first of which has this sequence number."""
        with self._lock:
            self.total += count
            self._count += count
            self._merge((subject, source), first, first + count - 1)

    def take(self) -> Loss | None:
        """Return what was lost since the last call; None if nothing was."""
        with self._lock:
            count, ranges = self._count, self._ranges
            self._count = self._listed = 0
            self._ranges = {}
        if count == 0:
            return None
        return Loss(
            count,
            tuple(
                (*topic, first, last) for topic, spans in ranges.items() for first, last in spans
            ),
        )

    def forked(self) -> None:
        """Replace the lock: the thread that held it may not exist in this process."""
        self._lock = threading.Lock()

    def _merge(self, topic: tuple[str, Source], first: int, last: int) -> None:
        """Lengthen the topic's last range, or begin another while the bound allows."""
        ranges = self._ranges.get(topic)
        if ranges is not None and ranges[-1][1] + 1 == first:
            ranges[-1][1] = last
            return
        if self._listed >= self._ranges_max:
            return
        self._listed += 1
        self._ranges.setdefault(topic, []).append([first, last])
