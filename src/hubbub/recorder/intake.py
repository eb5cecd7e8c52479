"""HOT. What waits to be written: whole deliveries, bounded in bytes, never in the way of the bus.

Who delivers pays one append for a run, whatever the disk does. What does not fit is lost to the
recording and told as ranges. Large payloads of this host are views of memory that their publisher
wants back: only few of them wait as they are, the others are copied.

Before it is triggered an intake with `pre_ns` is a ring: it keeps what came last, and nothing of it
is taken.
"""

import threading
from collections import deque
from time import time_ns
from typing import Any, Final, NamedTuple

from hubbub.limits import (
    RECORDER_LOST_RANGES_MAX,
    RECORDER_PINNED_BYTES_MAX,
    RECORDER_ROWS_BYTES,
    REFERENCE_BYTES_MIN,
)
from hubbub.protocol.delivery import Delivery
from hubbub.runtime.tally import Loss, Tally

MESSAGE_COST_BYTES: Final = 120  # What a message takes in memory beside its payload.
_ROW_BYTES: Final = 1000


class NewRow(NamedTuple):
    """A row of events, announcements or counters that has no number yet."""

    table: str
    values: dict[str, Any]


class Batch(NamedTuple):
    """What is to be written next."""

    items: list[Delivery | NewRow]
    size_bytes: int
    pinned_bytes: int
    loss: Loss | None
    lost_rows: int
    last: int  # Counts everything that was ever put in, up to here.


class _Item(NamedTuple):
    size_bytes: int
    pinned_bytes: int
    time_ns: int
    content: Delivery | NewRow


class Intake:
    """The queue between the bus and the thread that writes."""

    def __init__(self, bytes_max: int, pre_ns: int = 0) -> None:
        self.bytes_max = bytes_max
        self.is_triggered = not pre_ns
        self.bytes = 0
        self.put = 0  # How many items were ever accepted.
        self.lost = Tally(RECORDER_LOST_RANGES_MAX)
        self._lost_rows = 0
        self._pre_ns = pre_ns
        self._pinned_bytes = 0
        self._items: deque[_Item] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._is_waiting = False

    def put_run(self, delivery: Delivery) -> None:
        """Take a run, or count it as lost."""
        payloads = delivery.payloads
        count = len(payloads)
        size = sum(map(len, payloads))
        pinned = 0
        if size >= count * REFERENCE_BYTES_MIN and any(type(one) is not bytes for one in payloads):
            pinned = size
            if self._pinned_bytes + size > RECORDER_PINNED_BYTES_MAX and self._has_room(size):
                delivery = delivery._replace(payloads=[bytes(one) for one in payloads])
                pinned = 0
        item = _Item(size + count * MESSAGE_COST_BYTES, pinned, delivery.received_ns, delivery)
        if not self._append(item, self.bytes_max):
            topic = delivery.topic
            self.lost.add(topic.subject, topic.source, delivery.first, count)

    def put_row(self, table: str, values: dict[str, Any]) -> None:
        """Take a row; rows are few and have room of their own, and none is left out uncounted."""
        size = _ROW_BYTES + len(values.get("detail") or "")
        item = _Item(size, 0, time_ns(), NewRow(table, values))
        if not self._append(item, self.bytes_max + RECORDER_ROWS_BYTES):
            with self._lock:
                self._lost_rows += 1

    def take(self, bytes_max: int) -> Batch:
        """Return what has waited longest, at most so many bytes or one item."""
        items: list[Delivery | NewRow] = []
        size = pinned = 0
        with self._lock:
            queue = self._items if self.is_triggered else ()
            while queue and (not items or size + queue[0].size_bytes <= bytes_max):
                item = self._items.popleft()
                items.append(item.content)
                size += item.size_bytes
                pinned += item.pinned_bytes
            last = self.put - len(self._items)
            lost_rows = self._lost_rows if self.is_triggered else 0
            self._lost_rows -= lost_rows
        loss = self.lost.take() if self.is_triggered else None
        return Batch(items, size, pinned, loss, lost_rows, last)

    def done(self, batch: Batch) -> None:
        """Make room: what was taken is written, and held by nobody any more."""
        with self._lock:
            self.bytes -= batch.size_bytes
            self._pinned_bytes -= batch.pinned_bytes

    def trigger(self) -> None:
        """Write what the ring holds, and everything from now on."""
        self.is_triggered = True
        self.wake()

    def wait(self, timeout_s: float) -> None:
        """Wait until something may be taken; the one that writes alone calls this."""
        self._is_waiting = True
        if not (self._items and self.is_triggered):
            self._wake.acquire(timeout=timeout_s)
        self._is_waiting = False

    def wake(self) -> None:
        """End a wait, or the next one."""
        if self._is_waiting and self._wake.locked():
            try:
                self._wake.release()
            except RuntimeError:  # Another thread was quicker.
                return

    def _has_room(self, size_bytes: int) -> bool:
        return not self.is_triggered or self.bytes + size_bytes <= self.bytes_max

    def _append(self, item: _Item, bytes_max: int) -> bool:
        with self._lock:
            if not self.is_triggered:
                self._evict(item)
            elif self.bytes + item.size_bytes > bytes_max:
                return False
            self._items.append(item)
            self.put += 1
            self.bytes += item.size_bytes
            self._pinned_bytes += item.pinned_bytes
        if self.is_triggered:
            self.wake()
        return True

    def _evict(self, newest: _Item) -> None:
        """Let go of what is too old for the ring, or too much for it."""
        oldest_ns = newest.time_ns - self._pre_ns
        room = self.bytes_max - newest.size_bytes
        while self._items and (self._items[0].time_ns < oldest_ns or self.bytes > room):
            item = self._items.popleft()
            self.bytes -= item.size_bytes
            self._pinned_bytes -= item.pinned_bytes
