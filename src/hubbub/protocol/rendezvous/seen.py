"""HOT. Which messages have come already: at most once is a promise, so what cannot be told is old.

Each publisher counts its messages of a service, those of each subject apart. Of each a window of
bits below the highest number is kept, not a set that grows; what lies below the window counts as
seen. Messages that follow each other are noted together, however many they are.

As long as nothing is missing between the first number and the last, these two say it all: bits are
4 KiB, and to write them anew for each message took a sixth of its whole way through a manager.

Publishers are kept in two generations. Where there are too many, the older one is forgotten, and
the younger grows old; but not sooner than anything may come again of who was heard last then.
"""

from typing import Final

from hubbub.limits import (
    SEEN_KEPT,
    SEEN_PUBLISHERS_CEILING,
    SEEN_PUBLISHERS_MAX,
    SEEN_WINDOW,
)

_MASK: Final = (1 << SEEN_WINDOW) - 1
_BELOW: Final = -1 << SEEN_WINDOW
Origin = tuple[bytes, int] | tuple[bytes, int, str]  # Node and life, also the subject.


class Seen:
    """The messages of one service that came here."""

    def __init__(self) -> None:
        # The first number of a run, the highest, and bits below it; 0: all of the run has come.
        self._heard: dict[Origin, tuple[int, int, int]] = {}
        self._heard_before: dict[Origin, tuple[int, int, int]] = {}
        self._turned_ns = 0  # When those became old.

    def __len__(self) -> int:
        return len(self._heard) + len(self._heard_before)

    def is_new(self, origin: Origin, sequence: int, now: int = 0) -> bool:
        """Tell whether a message comes for the first time, and note it."""
        return bool(self.take(origin, sequence, 1, now))

    def take(self, origin: Origin, first: int, count: int, now: int = 0) -> int:
        """Note messages; return which are new, a bit each: that of the last is the lowest."""
        known = self._heard.get(origin)
        if known is None:
            known = self._enter(origin, first, now)
        begin, highest, bits = known
        if not bits and first == highest + 1:
            self._heard[origin] = (begin, first + count - 1, 0)
            return (1 << count) - 1
        if not bits:
            bits = (1 << min(highest - begin + 1, SEEN_WINDOW)) - 1
        return self._take(origin, first, count, highest, bits)

    def _enter(self, origin: Origin, first: int, now: int) -> tuple[int, int, int]:
        """Return what is known of one who was not heard lately, and make room for it."""
        count = len(self._heard)
        is_over = now - self._turned_ns >= SEEN_KEPT or count >= SEEN_PUBLISHERS_CEILING
        if count >= SEEN_PUBLISHERS_MAX and is_over:
            self._heard_before, self._heard, self._turned_ns = self._heard, {}, now
        return self._heard_before.pop(origin, (first, first - 1, 0))

    def _take(self, origin: Origin, first: int, count: int, highest: int, bits: int) -> int:
        """Note messages of one of whom some are missing, or came twice."""
        last = first + count - 1
        if last > highest:
            bits <<= min(last - highest, SEEN_WINDOW)
            new_from, highest = highest + 1, last
        else:
            new_from = last + 1
        behind = highest - last
        new = (1 << count) - 1
        if first < new_from:
            new &= ~((bits | _BELOW) >> behind)
        bits = (bits | new << behind) & _MASK
        is_run = not bits & bits + 1
        begin = highest - bits.bit_length() + 1
        self._heard[origin] = (begin, highest, 0 if is_run else bits)
        return new


def is_all_new(new: int, count: int) -> bool:
    """Tell whether none of some messages had come."""
    return new == (1 << count) - 1
