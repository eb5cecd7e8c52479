"""Telling others what changed: at once, a burst of changes together, and each of them twice again.

A change soon after another waits a moment, so a thousand at once are a few frames. Each is repeated
at the next two ticks together with all others of its age. Who missed even that sees a version in a
heartbeat that it does not have, and asks for the whole state. A heartbeat therefore carries the
version that was told, which may be older than the newest.
"""

from collections.abc import Callable, Iterator

from hubbub.limits import ANNOUNCE_INTERVAL, ANNOUNCE_REPEATS, ANNOUNCE_SPACING
from hubbub.protocol.state import State
from hubbub.wire import control
from hubbub.wire.control import Change, Step

_CHANGE_OVERHEAD_BYTES = 16


class Announcer:
    """When to tell which steps of the declared state."""

    def __init__(
        self, state: State, send: Callable[[bytes], None], body_bytes_max: int, now: int
    ) -> None:
        self.state = state
        self.send = send
        self.body_bytes_max = body_bytes_max
        self.told = state.version  # Every step before this version was told once...
        self._repeated = [state.version] * ANNOUNCE_REPEATS  # ...twice, and three times.
        self._fresh_ns: int | None = None
        self._tick_ns: int | None = None
        self._last_ns = now - ANNOUNCE_SPACING

    def changed(self, now: int) -> None:
        """Plan to tell what has changed."""
        if self._fresh_ns is None:
            self._fresh_ns = max(now, self._last_ns + ANNOUNCE_SPACING)

    def advance(self, now: int) -> bool:
        """Tell what is due; False: there is so much that the whole state must be told instead."""
        if self.told < self.state.base:
            self._skip()
            return False
        if self._tick_ns is not None and now >= self._tick_ns:
            self._tell(self._repeated[-1], self.told)
            self._repeated = [self.told, *self._repeated[:-1]]
            self.state.forget(self._repeated[-1])
            is_over = self._repeated[-1] == self.told
            self._tick_ns = None if is_over else now + ANNOUNCE_INTERVAL
        if self._fresh_ns is not None and now >= self._fresh_ns:
            self._tell(self.told, self.state.version)
            self.told = self.state.version
            self._last_ns, self._fresh_ns = now, None
            self._tick_ns = self._tick_ns or now + ANNOUNCE_INTERVAL
        return True

    def deadline(self) -> int | None:
        """Return when `advance` has something to do."""
        times = [time for time in (self._fresh_ns, self._tick_ns) if time is not None]
        return min(times, default=None)

    def _skip(self) -> None:
        """Take all for told."""
        self.told = self.state.version
        self._repeated = [self.told] * ANNOUNCE_REPEATS
        self._fresh_ns = self._tick_ns = None
        self.state.forget(self.told)

    def _tell(self, base: int, version: int) -> None:
        # What is told for the third time may be gone from a list that ran over.
        base = max(base, self.state.base)
        for steps in self._split(self.state.between(base, version)):
            self.send(control.encode(Change(base, steps)))
            base += len(steps)

    def _split(self, steps: list[Step]) -> Iterator[list[Step]]:
        full = self.body_bytes_max - _CHANGE_OVERHEAD_BYTES
        part: list[Step] = []
        room = full
        for step in steps:
            size = len(control.encode(step))
            if size > room and part:
                yield part
                part, room = [], full
            room -= size
            part.append(step)
        if part:
            yield part
