"""HOT. Who a frame is for, as its header says it: the receiver field and the bitmap of RODOS.

An `Audience` never changes. A topic points at one, which is replaced when its receivers change, so
that a frame of one topic costs a look and no counting. Equal audiences are one object as far as a
bounded table remembers, so comparing them is comparing pointers; two objects of equal value do no
harm.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from hubbub.wire.header import BITMAP_BITS, MANY, NOBODY, OPEN_BITMAP

_AUDIENCES_MAX: Final = 4096


class Audience:
    """The receivers of a frame: the index of the only one, or a bit each.

    `flags` has OPEN_BITMAP where some of them have no bit: their index is beyond the bitmap, or not
    known.
    """

    __slots__ = ("bitmap", "flags", "receiver")

    def __init__(self, receiver: int, bitmap: int, flags: int) -> None:
        self.receiver = receiver
        self.bitmap = bitmap
        self.flags = flags

    def __repr__(self) -> str:
        return f"<Audience {self.receiver} {self.bitmap:#x}{' open' if self.flags else ''}>"


make_audience: Final = lru_cache(_AUDIENCES_MAX)(Audience)
ANYBODY: Final = make_audience(MANY, 0, OPEN_BITMAP)
NO_AUDIENCE: Final = make_audience(NOBODY, 0, 0)


def unite(audiences: Iterable[Audience]) -> Audience:
    """Return who a frame is for that holds something for each of these."""
    distinct = set(audiences)
    if len(distinct) == 1:
        return distinct.pop()
    bitmap = flags = 0
    for one in distinct:
        bitmap |= one.bitmap
        flags |= one.flags
    return make_audience(MANY if distinct else NOBODY, bitmap, flags)


class Roll:
    """The receivers of a topic, counted by index: two that claim the same one share its bit."""

    __slots__ = ("_bitmap", "_counts", "_unlisted", "count")

    def __init__(self) -> None:
        self.count = 0
        self._counts: dict[int, int] = {}
        self._bitmap = 0
        self._unlisted = 0  # Receivers that have no bit.

    def add(self, index: int) -> None:
        """Count a receiver in."""
        self.count += 1
        if 0 <= index < BITMAP_BITS:
            self._counts[index] = self._counts.get(index, 0) + 1
            self._bitmap |= 1 << index
        else:
            self._unlisted += 1

    def remove(self, index: int) -> None:
        """Count a receiver out; the bit stays only for another of the same index."""
        self.count -= 1
        if not 0 <= index < BITMAP_BITS:
            self._unlisted -= 1
        elif self._counts[index] > 1:
            self._counts[index] -= 1
        else:
            del self._counts[index]
            self._bitmap ^= 1 << index

    def audience(self) -> Audience:
        """Return who the topic is for now."""
        if not self.count:
            return NO_AUDIENCE
        is_one = self.count == 1 and not self._unlisted
        receiver = self._bitmap.bit_length() - 1 if is_one else MANY
        return make_audience(receiver, self._bitmap, OPEN_BITMAP if self._unlisted else 0)
