"""Who has its turn next, of hundreds: a heap in which old entries are passed over."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

from hubbub.protocol.timetrigger.interests import NEVER

_STALE_SHARE: Final = 4  # So many entries an item, and
_STALE_MIN: Final = 64  # so many more, before old ones are thrown away.


class Timed(Protocol):
    """Something that is due at a time, which may change."""

    due_ns: int


class Agenda:
    """Hold each item under the time when it is due, or earlier."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._planned: dict[Any, int] = {}
        self._order = 0

    @property
    def due_ns(self) -> int:
        """Return when somebody is due, at the latest."""
        return self._heap[0][0] if self._heap else NEVER

    def plan(self, item: Timed) -> None:
        """Look at an item when it is due; call it whenever that may be sooner than before."""
        due_ns = item.due_ns
        if due_ns < self._planned.get(item, NEVER):
            self._planned[item] = due_ns
            self._order += 1
            heappush(self._heap, (due_ns, self._order, item))
            if len(self._heap) > _STALE_SHARE * len(self._planned) + _STALE_MIN:
                self._tidy()

    def remove(self, item: Timed) -> None:
        """Look at it no more."""
        self._planned.pop(item, None)

    def _tidy(self) -> None:
        """Throw away what was planned for later, and then for sooner."""
        self._heap = [
            (due_ns, order, item)
            for order, (item, due_ns) in enumerate(self._planned.items(), self._order)
        ]
        self._order += len(self._heap)
        heapify(self._heap)

    def take(self, now: int) -> Iterator[Any]:
        """Name those that are due, each once; what they are due for next is planned afterwards."""
        done = []
        while self._heap and self._heap[0][0] <= now:
            planned_ns, _, item = heappop(self._heap)
            if self._planned.get(item) != planned_ns:
                continue
            del self._planned[item]
            if item.due_ns <= now:
                yield item
            done.append(item)
        for item in done:
            self.plan(item)
