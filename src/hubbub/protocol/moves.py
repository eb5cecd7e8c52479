"""Receivers that go on by the other stream of a class: what must be framed, known and received.

A class has one stream for all receivers as long as they are all on this host, or all elsewhere.
Where there are both, those elsewhere have a stream of their own beside it, with its own frames,
window and way (decision 0027). Who moves gets everything by both streams until it has said that it
knows of the move, and has all that only the old one had. So no timer decides order, and nothing is
lost; what comes twice is dropped by its sequence.
"""

from collections.abc import Iterable

from hubbub.protocol.framing import Framer
from hubbub.protocol.topics import OutgoingTopic, Sides
from hubbub.wire.header import BESIDE

_BESIDE = frozenset(BESIDE.values())


def sides_of(streams: Iterable[int]) -> Sides:
    """Say of each stream whether it is the one beside the other."""
    return tuple(stream in _BESIDE for stream in streams)


class Move:
    """One receiver on its way from one stream of a class to the other."""

    __slots__ = ("marks", "serial", "source", "target", "until")

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        # What the old stream must still frame, by topic: as it is framed there, and before which
        # message. What comes later is on both.
        self.marks: dict[int, tuple[OutgoingTopic, int]] = {}
        self.until: int | None = None  # All of that is in the frames before this one,
        self.serial = 0  # as the grant of this number says.

    def is_framed(self, framer: Framer) -> bool:
        """Tell whether the old stream has framed all that only it carries."""
        return all(framer.has_framed(*mark) for mark in self.marks.values())

    def is_over(self, contiguous: int, serial: int) -> bool:
        """Tell whether a receiver that has so much, and knows this grant, needs it no more."""
        return self.until is not None and 0 < self.serial <= serial and contiguous >= self.until
