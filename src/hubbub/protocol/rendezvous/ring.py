"""Keys in their order, of which those closest to another by XOR are found without looking at all.

Among keys whose first bits are the same, those with the next bit of the key that is asked for are
closer than all others. In their order they lie together, so each step of the way down is a search
by halves: at 5,000 keys some microseconds, where to measure each takes milliseconds.
"""

from bisect import bisect_left
from typing import Final

_FEW: Final = 8  # So many are measured one by one.


class Ring:
    """Some keys, as numbers."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: int) -> None:
        """Enter a key; twice it is there once."""
        at = bisect_left(self._numbers, number)
        if self._numbers[at : at + 1] != [number]:
            self._numbers.insert(at, number)

    def discard(self, number: int) -> None:
        """Take a key out, if it is there."""
        at = bisect_left(self._numbers, number)
        if self._numbers[at : at + 1] == [number]:
            del self._numbers[at]

    def nearest(self, key: int, count: int) -> list[int]:
        """Return the closest keys by XOR, the closest first."""
        numbers, found = self._numbers, list[int]()
        parts = [(0, len(numbers))]  # What is left to look at, the closest last.
        while parts and len(found) < count:
            low, high = parts.pop()
            if high - low <= _FEW:
                found += sorted(numbers[low:high], key=key.__xor__)
                continue
            bit = (numbers[low] ^ numbers[high - 1]).bit_length() - 1
            middle = bisect_left(numbers, numbers[high - 1] >> bit << bit, low, high)
            halves = [(low, middle), (middle, high)]
            parts += halves if key >> bit & 1 else reversed(halves)
        return found[:count]
