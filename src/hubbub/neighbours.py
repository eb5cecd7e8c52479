"""The `inproc` link: nodes of one process hand messages over, without any frame.

Nodes that are on the same channel of the same domain find each other here at once. Their
subscriptions are noted on each other's topics beside a node's own, so a message goes from `publish`
straight to their queues. Peers they are as ever, by the other links; only that nothing is owed by
them (`Endpoint.nearby`).
"""

from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from hubbub.connection import Connection

Place = tuple[str, str]  # Domain and channel.


class Neighbourhood:
    """Who of this process is at one place, or one that keeps to itself."""

    def __init__(self) -> None:
        self.generation = 0  # Grows with every subscription that comes or goes.
        self._members: tuple[Connection, ...] = ()
        self._lock = RLock()  # A signal handler may subscribe.

    def join(self, connection: "Connection") -> None:
        """Add a connection."""
        self._change(lambda members: (*members, connection))

    def leave(self, connection: "Connection") -> None:
        """Remove a connection; more than once does no harm."""
        self._change(lambda members: tuple(one for one in members if one is not connection))

    def others(self, connection: "Connection") -> tuple["Connection", ...]:
        """Return the other members."""
        return tuple(one for one in self._members if one is not connection)

    def changed(self) -> None:
        """Say that a subscription came or went: what was noted before holds no more."""
        with self._lock:
            self.generation += 1

    def look_again(self) -> None:
        """Let everybody note anew who wants what it publishes."""
        for member in self._members:
            member.refresh_own_topics()

    def _change(
        self, change: Callable[[tuple["Connection", ...]], tuple["Connection", ...]]
    ) -> None:
        with self._lock:
            self._members = change(self._members)
            self.generation += 1
        for member in self._members:
            member.meet_neighbours()
        self.look_again()


class Neighbourhoods:
    """All places of this process."""

    def __init__(self) -> None:
        self._places = WeakValueDictionary[Place, Neighbourhood]()

    def at(self, domain: str, channel: str) -> Neighbourhood:
        """Return the neighbourhood of a place."""
        return self._places.setdefault((domain, channel), Neighbourhood())

    def forked(self) -> None:
        """Begin afresh: the nodes of the parent are not ours."""
        self._places = WeakValueDictionary()


shared: Final = Neighbourhoods()
