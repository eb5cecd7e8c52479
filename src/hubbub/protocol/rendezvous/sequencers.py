"""The order of many at once: a sequence for each publisher and subject of one service.

Invariants: sequences are bounded, and none of them takes along what waits in it. The one that was
silent longest makes room, by handing that out, in order; how far it was is remembered for longer,
a number each, so that who goes on later neither waits for what has been nor overtakes it.
"""

from collections import Counter
from typing import Generic

from hubbub.limits import ORDERED_PUBLISHERS_MAX, ORDERS_LEFT_MAX
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.protocol.rendezvous.seen import Origin
from hubbub.protocol.rendezvous.sequencer import Item, Sequencer


class Sequencers(Generic[Item]):
    """The sequences of one service, each by whose it is."""

    def __init__(self, counters: Counter[str]) -> None:
        self.due_ns = NEVER  # Not later than that of each.
        self._counters = counters
        self._kept: dict[Origin, Sequencer[Item]] = {}  # Who was heard last is last.
        self._waiting: dict[Origin, Sequencer[Item]] = {}  # Those of them that wait for something.
        self._left: dict[Origin, int] = {}  # Which number is next in those that made room.

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def waiting(self) -> int:
        """Return how many items the fullest sequence holds."""
        return max(map(len, self._waiting.values()), default=0) if self._waiting else 0

    def begin(self, origin: Origin, expected: int) -> list[Item]:
        """Learn which number is the first of a sequence; return what made room for it."""
        sequencer, left = self._take(origin)
        sequencer.begin(expected)
        return left

    def push(self, now: int, origin: Origin, number: int, item: Item, count: int) -> list[Item]:
        """Take an item; return what is next, in order."""
        sequencer, ready = self._take(origin)
        late = sequencer.late
        ready += sequencer.push(now, number, item, count)
        self._note(origin, sequencer)
        if sequencer.late != late:
            self._counters["order_late"] += count
        return ready

    def pass_over(self, now: int, origin: Origin, number: int, count: int) -> list[Item]:
        """Learn that what has a number came under another one; return what need not wait for it."""
        sequencer, ready = self._take(origin)
        ready += sequencer.pass_over(now, number, count)
        self._note(origin, sequencer)
        return ready

    def advance(self, now: int) -> list[Item]:
        """Go on without what does not come."""
        ready: list[Item] = []
        self.due_ns = NEVER
        for origin, sequencer in list(self._waiting.items()):
            ready += sequencer.advance(now)
            self._note(origin, sequencer)
        return ready

    def end(self) -> list[Item]:
        """Wait for nothing any more; return what is left, each sequence in order."""
        return [item for one in self._waiting.values() for item in one.end()[0]]

    def _take(self, origin: Origin) -> tuple[Sequencer[Item], list[Item]]:
        """Return a sequence, and what waited in the one that made room for it."""
        sequencer = self._kept.pop(origin, None)
        if sequencer is not None:
            self._kept[origin] = sequencer
            return sequencer, []
        sequencer = self._kept[origin] = Sequencer()
        expected = self._left.pop(origin, None)
        if expected is not None:
            sequencer.begin(expected)
        is_full = len(self._kept) > ORDERED_PUBLISHERS_MAX
        return sequencer, self._make_room() if is_full else []

    def _make_room(self) -> list[Item]:
        silent = next(iter(self._kept))
        items, expected = self._kept.pop(silent).end()
        self._waiting.pop(silent, None)
        self._counters["order_forgotten"] += 1
        if expected is not None:
            self._left[silent] = expected
            if len(self._left) > ORDERS_LEFT_MAX:
                del self._left[next(iter(self._left))]
        return items

    def _note(self, origin: Origin, sequencer: Sequencer[Item]) -> None:
        if sequencer.due_ns != NEVER:
            self._waiting[origin] = sequencer
            self.due_ns = min(self.due_ns, sequencer.due_ns)
        elif origin in self._waiting:
            del self._waiting[origin]
