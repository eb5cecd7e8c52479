"""Which messages have come already: at most once is a promise, so what cannot be told is not new.

Each publisher counts its messages of a service, those of each subject apart. Of each a window of
bits below the highest number is kept, not a set that grows; what lies below the window counts as
seen. Messages that follow each other are noted together, however many they are.
"""

from typing import Final

from hubbub.limits import SEEN_PUBLISHERS_MAX, SEEN_WINDOW

_MASK: Final = (1 << SEEN_WINDOW) - 1
_BELOW: Final = -1 << SEEN_WINDOW
Origin = tuple[bytes, int] | tuple[bytes, int, str]  # Node and life, also the subject.


class Seen:
    """The messages of one service that came here."""

    def __init__(self) -> None:
        # The highest number, and the bits below it; who was heard last is last.
        self._windows: dict[Origin, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def is_new(self, origin: Origin, sequence: int) -> bool:
        """Tell whether a message comes for the first time, and note it."""
        return bool(self.take(origin, sequence, 1))

    def take(self, origin: Origin, first: int, count: int) -> int:
        """Note messages; return which are new, a bit each: that of the last is the lowest."""
        last = first + count - 1
        highest, bits = self._windows.pop(origin, (first - 1, 0))
        if last > highest:
            bits <<= min(last - highest, SEEN_WINDOW)
            new_from, highest = highest + 1, last
        else:
            new_from = last + 1
        behind = highest - last
        new = (1 << count) - 1
        if first < new_from:
            new &= ~((bits | _BELOW) >> behind)
        self._windows[origin] = (highest, (bits | new << behind) & _MASK)
        if len(self._windows) > SEEN_PUBLISHERS_MAX:
            del self._windows[next(iter(self._windows))]
        return new


def is_all_new(new: int, count: int) -> bool:
    """Tell whether none of some messages had come."""
    return new == (1 << count) - 1
