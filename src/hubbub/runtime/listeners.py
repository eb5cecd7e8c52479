"""Who hears which events of a node: one event after the other, on one lane of the delivery pool.

A listener hears a channel or all of them, and belongs to the node or to one of the objects that the
application holds. What happens to one subscription is heard by its own listener and by those of the
node; what happens on a channel by all that are on it. A new listener is first told of the peers
that are here. Who is here is kept from the events themselves, under the lock that also queues them,
so a peer that joins at that moment is told once, neither twice nor never.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from hubbub.errors import ConfigurationError
from hubbub.events import Closed, Event, PeerJoined, PeerLeft
from hubbub.message import Source
from hubbub.runtime.pool import Pool

Listener = Callable[[Event], object]

_EVENTS_PER_TURN = 64
_log = logging.getLogger("hubbub.events")


class _Entry(NamedTuple):
    listener: Listener
    channel: str | None  # None: every channel.
    owner: object | None  # None: the node.


class Listeners:
    """The listeners of one node."""

    def __init__(self, pool: Pool) -> None:
        self._lane = pool.lane(self._run)
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []
        self._present: dict[tuple[str, Source], PeerJoined] = {}
        self._queue: deque[tuple[Listener, Event]] = deque()

    def add(
        self, listener: Listener | None, *, channel: str | None = None, owner: object = None
    ) -> Callable[[], None]:
        """Let somebody hear; returns what ends it. None hears nothing."""
        if listener is None:
            return lambda: None
        if not callable(listener):
            raise ConfigurationError(f"on_event={listener!r}: give something that can be called")
        entry = _Entry(listener, channel, owner)
        with self._lock:
            self._entries.append(entry)
            for event in self._present.values():
                if channel in (None, event.channel):
                    self._queue.append((listener, event))
        self._lane.notify()
        return lambda: self._remove(entry)

    def emit(self, event: Event, owner: object = None) -> None:
        """Report what happened to one subscription, or on a whole channel."""
        with self._lock:
            self._note(event)
            for listener, channel, whose in self._entries:
                is_meant = whose in (None, owner) if owner else channel in (None, event.channel)
                if is_meant:
                    self._queue.append((listener, event))
            if isinstance(event, Closed):
                self._entries = [one for one in self._entries if one.channel != event.channel]
            has_work = bool(self._queue)
        if has_work:
            self._lane.notify()

    def forked(self) -> None:
        """Start afresh in a forked child, where the thread that held the lock may not exist."""
        self._lock = threading.Lock()
        self._entries = []
        self._queue.clear()

    def _note(self, event: Event) -> None:
        if isinstance(event, PeerJoined):
            self._present[event.channel, event.peer] = event
        elif isinstance(event, PeerLeft):
            self._present.pop((event.channel, event.peer), None)
        elif isinstance(event, Closed):
            gone = [key for key in self._present if key[0] == event.channel]
            for key in gone:
                del self._present[key]

    def _remove(self, entry: _Entry) -> None:
        with self._lock:
            self._entries = [one for one in self._entries if one is not entry]

    def _run(self) -> bool:
        """Call listeners; what one raises hurts nobody."""
        for _ in range(_EVENTS_PER_TURN):
            try:
                listener, event = self._queue.popleft()
            except IndexError:
                return False
            try:
                listener(event)
            except Exception:
                _log.exception("a listener failed on: %s", event)
        return True
