"""Which messages have come already: at most once is a promise, so what cannot be told is not new.

Each publisher counts its messages of a service. Of each a window of bits below the highest number
is kept, not a set that grows; what lies below the window counts as seen.
"""

from hubbub.limits import SEEN_PUBLISHERS_MAX, SEEN_WINDOW

_MASK = (1 << SEEN_WINDOW) - 1
Origin = tuple[bytes, int]


class Seen:
    """The messages of one service that came here."""

    def __init__(self) -> None:
        # The highest number, and the bits below it; who was heard last is last.
        self._windows: dict[Origin, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def is_new(self, origin: Origin, sequence: int) -> bool:
        """Tell whether a message comes for the first time, and note it."""
        highest, bits = self._windows.pop(origin, (sequence - 1, 0))
        if sequence > highest:
            shift = sequence - highest
            bits = (bits << shift | 1) & _MASK if shift < SEEN_WINDOW else 1
            self._enter(origin, sequence, bits)
            return True
        behind = highest - sequence
        is_new = behind < SEEN_WINDOW and not bits >> behind & 1
        self._enter(origin, highest, bits | 1 << behind if is_new else bits)
        return is_new

    def _enter(self, origin: Origin, highest: int, bits: int) -> None:
        self._windows[origin] = (highest, bits)
        if len(self._windows) > SEEN_PUBLISHERS_MAX:
            del self._windows[next(iter(self._windows))]
