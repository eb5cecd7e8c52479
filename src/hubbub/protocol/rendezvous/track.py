"""What is for one node: frames on their way, as many as it has room for, and those that wait.

How many bytes may be on their way is found out: fewer after each frame that had to be repeated,
slowly more with each that was acknowledged. What one node does not take costs no other anything.
"""

from collections import deque
from typing import Generic, TypeVar

from hubbub.limits import (
    HOP_BACKLOG,
    HOP_BACKLOG_BYTES,
    HOP_CROWDED_BYTES,
    HOP_STUCK,
    HOP_WINDOW,
    HOP_WINDOW_BYTES_MAX,
    HOP_WINDOW_BYTES_MIN,
)
from hubbub.protocol.rendezvous.seat import NEVER

Frame = TypeVar("Frame")


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
        return self.waiting_bytes > HOP_CROWDED_BYTES and now - self.progress_ns < HOP_STUCK
