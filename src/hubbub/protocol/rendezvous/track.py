"""What is for one node: frames on their way, as many as it has room for, and those that wait.

How many bytes may be on their way is found out: fewer after each frame that had to be repeated,
slowly more with each that was acknowledged. What one node does not take costs no other anything.

How long an answer takes is found out, too (RFC 6298). Where a machine has too much to do, answers
are late, and to repeat what arrived would be still more to do: with a fixed time twenty processes
on two cores repeated three of four frames, and took each other for dead. An answer to a frame that
was repeated tells nothing by itself, as it may be to either. When both are answered, none was lost,
and the first answer was to the first.
"""

from collections import deque
from typing import Final, Generic, TypeVar

from hubbub.limits import (
    HOP_BACKLOG,
    HOP_BACKLOG_BYTES,
    HOP_CROWDED,
    HOP_CROWDED_BYTES,
    HOP_STUCK,
    HOP_TIMEOUT,
    HOP_TIMEOUT_MAX,
    HOP_WINDOW,
    HOP_WINDOW_BYTES_MAX,
    HOP_WINDOW_BYTES_MIN,
)
from hubbub.protocol.rendezvous.seat import NEVER

Frame = TypeVar("Frame")
_QUICK: Final = HOP_TIMEOUT // 4  # Who answers within this need not be measured.
_DOUBTED_MAX: Final = 256


class Track(Generic[Frame]):
    """The frames for one node."""

    def __init__(self, now: int) -> None:
        self.sent: dict[int, Frame] = {}  # On their way, by their numbers.
        self.size_bytes = 0
        self.window_bytes = HOP_WINDOW_BYTES_MAX
        self.waiting: deque[tuple[Frame, int]] = deque()
        self.waiting_bytes = 0
        self.progress_ns = now
        self.due_ns = NEVER  # When the first of those on their way is to be repeated.
        self.timeout_ns = HOP_TIMEOUT
        self._trip_ns = 0
        self._spread_ns = 0
        self._doubted: dict[int, int] = {}  # Repeated and answered once: when, after the first.

    @property
    def open(self) -> list[Frame]:
        """Return all that is not acknowledged, the oldest first."""
        return [*self.sent.values(), *(frame for frame, _ in self.waiting)]

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether a frame of this size may go out."""
        if self.waiting or len(self.sent) >= HOP_WINDOW:
            return False
        return not self.sent or self.size_bytes + size_bytes <= self.window_bytes

    def begin(self, hop: int, frame: Frame, size_bytes: int) -> None:
        """Note that a frame goes out."""
        self.sent[hop] = frame
        self.size_bytes += size_bytes

    def end(self, now: int, size_bytes: int, *, is_acknowledged: bool) -> None:
        """Note that a frame of this size has come to its end."""
        self.size_bytes -= size_bytes
        if is_acknowledged:
            self.progress_ns = now
            self.window_bytes = min(HOP_WINDOW_BYTES_MAX, self.window_bytes + size_bytes // 4)

    def repeat(self) -> None:
        """Note that a frame seems to be lost: there may be too many on their way."""
        self.window_bytes = max(HOP_WINDOW_BYTES_MIN, self.window_bytes // 2)

    def answered(self, hop: int, trip_ns: int, tries: int) -> None:
        """Note how long it took from the first sending of a frame to its first answer."""
        if tries > 1:
            if len(self._doubted) >= _DOUBTED_MAX:
                self._doubted.clear()
            self._doubted[hop] = trip_ns
        elif trip_ns > _QUICK or self.timeout_ns > HOP_TIMEOUT:
            self._measure(trip_ns)

    def answered_again(self, hop: int) -> None:
        """Note that a frame was answered that is gone: if it was repeated, then for nothing."""
        trip_ns = self._doubted.pop(hop, None)
        if trip_ns is not None:
            self._measure(trip_ns)

    def _measure(self, trip_ns: int) -> None:
        if self._trip_ns:
            self._spread_ns += (abs(trip_ns - self._trip_ns) - self._spread_ns) // 4
            self._trip_ns += (trip_ns - self._trip_ns) // 8
        else:
            self._trip_ns, self._spread_ns = trip_ns, trip_ns // 2
        timeout_ns = self._trip_ns + 4 * self._spread_ns
        self.timeout_ns = min(max(timeout_ns, HOP_TIMEOUT), HOP_TIMEOUT_MAX)
        if self.timeout_ns == HOP_TIMEOUT:
            self._trip_ns = 0  # Quick again: the next late answer counts in full.

    def wait(self, now: int, frame: Frame, size_bytes: int) -> None:
        """Let a frame wait for room."""
        if not self.waiting and not self.sent:
            self.progress_ns = now
        self.waiting.append((frame, size_bytes))
        self.waiting_bytes += size_bytes

    @property
    def is_overfull(self) -> bool:
        """Tell whether more waits than may."""
        return len(self.waiting) > HOP_BACKLOG or self.waiting_bytes > HOP_BACKLOG_BYTES

    @property
    def has_room_behind(self) -> bool:
        """Tell whether less waits than half of what may."""
        is_short = len(self.waiting) < HOP_BACKLOG // 2
        return is_short and self.waiting_bytes < HOP_BACKLOG_BYTES // 2

    def pop(self) -> tuple[Frame, int]:
        """Take out what has waited longest."""
        frame, size_bytes = self.waiting.popleft()
        self.waiting_bytes -= size_bytes
        return frame, size_bytes

    def pop_next(self) -> tuple[Frame, int] | None:
        """Take out what has waited longest, if there is room for it; None: nothing may go."""
        if not self.waiting or len(self.sent) >= HOP_WINDOW:
            return None
        if self.sent and self.size_bytes + self.waiting[0][1] > self.window_bytes:
            return None
        return self.pop()

    def is_crowded(self, now: int) -> bool:
        """Tell whether much waits for a node that gets on, so that it is worth waiting for it."""
        is_much = self.waiting_bytes > HOP_CROWDED_BYTES or len(self.waiting) > HOP_CROWDED
        return is_much and now - self.progress_ns < HOP_STUCK
