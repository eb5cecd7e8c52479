"""Who hears which events of a node: one event after the other, on one lane of the delivery pool.

A listener hears a channel or all of them, and belongs to the node or to one of the objects that the
application holds. What happens to one subscription is heard by its own listener and by those of the
node; what happens on a channel by all that are on it, matches by whom they concern. A new listener
is first told of the peers that are here and of the matches that go on. Both are kept from the
events themselves, under the lock that also queues them, so one that begins at that moment is told
once, neither twice nor never.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from hubbub.errors import ConfigurationError
from hubbub.events import Closed, Event, PeerJoined, PeerLeft
from hubbub.message import Source
from hubbub.runtime.matched import Match, Matched, Told
from hubbub.runtime.pool import Pool

Listener = Callable[[Event], object]

_EVENTS_PER_TURN = 64
_log = logging.getLogger("hubbub.events")


def check_listener(listener: object) -> None:
    """Refuse what can hear nothing."""
    if listener is not None and not callable(listener):
        raise ConfigurationError(f"on_event={listener!r}: give something that can be called")


class _Entry(NamedTuple):
    listener: Listener
    channel: str | None  # None: every channel.
    owner: object | None  # None: the node.
    told: Told


class Listeners:
    """The listeners of one node."""

    def __init__(self, pool: Pool) -> None:
        self._lane = pool.lane(self._run)
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []
        self._present: dict[tuple[str, Source], PeerJoined] = {}
        self._matched = Matched()
        self._queue: deque[tuple[Listener, Event]] = deque()

    def add(
        self,
        listener: Listener | None,
        *,
        channel: str | None = None,
        owner: object = None,
        concerns: Callable[[Match], bool] | None = None,
    ) -> Callable[[], None]:
        """Let somebody hear; returns what ends it. None hears nothing.

        `concerns` tells which matches are to be heard of; without it all are.
        """
        if listener is None:
            return lambda: None
        check_listener(listener)
        entry = _Entry(listener, channel, owner, Told(channel, concerns))
        with self._lock:
            self._entries.append(entry)
            for event in self._present.values():
                if channel in (None, event.channel):
                    self._queue.append((listener, event))
            self._catch_up(entry)
        self._lane.notify()
        return lambda: self._remove(entry)

    def refresh(self, owner: object) -> None:
        """Tell of matches that concern an owner now, and did not before; or the other way round."""
        with self._lock:
            for entry in self._entries:
                if entry.owner is owner:
                    self._catch_up(entry)
            has_work = bool(self._queue)
        if has_work:
            self._lane.notify()

    def emit(self, event: Event, owner: object = None) -> None:
        """Report what happened to one subscription, or on a whole channel."""
        with self._lock:
            self._note(event)
            for listener, channel, whose, told in self._entries:
                if isinstance(event, Match):
                    is_meant = told.takes(event)
                elif owner:
                    is_meant = whose in (None, owner)
                else:
                    is_meant = channel in (None, event.channel)
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

    def _catch_up(self, entry: _Entry) -> None:
        self._queue.extend((entry.listener, event) for event in entry.told.catch_up(self._matched))

    def _note(self, event: Event) -> None:
        self._matched.note(event)
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
            except BaseException:  # Also `sys.exit()`: the others wait for their turn.
                _log.exception("a listener failed on: %s", event)
        return True
