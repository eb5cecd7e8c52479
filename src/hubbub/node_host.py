"""What subscriptions need of their node: patterns that hear all its channels, and a way to wait.

A node keeps here which subscriptions are open and where each of their patterns was placed. A
service has a host of its own (`service_host.py`), which has no patterns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from hubbub.awareness import RemotePublisher, list_publishers
from hubbub.connection import Connection
from hubbub.events import PublisherMatched
from hubbub.runtime.logs import logger_of
from hubbub.runtime.matched import Match
from hubbub.sinks import Sink
from hubbub.subjects import Handle, check_pattern, matches
from hubbub.subscription import Subscription

if TYPE_CHECKING:
    from hubbub.node import Node

_log = logger_of("subscription")


@dataclass(frozen=True, slots=True, eq=False)
class PatternHandle:
    """A pattern of a subscription, and its place on each channel it applies to."""

    subscription: Subscription
    pattern: str
    context: Any
    places: dict[Connection, Handle[Sink]]


class NodeHost:
    """Stands between a node and its subscriptions."""

    def __init__(self, node: "Node") -> None:
        self.pool = node._pool
        self.call_at = node._call_at
        self.emit = node._emit
        self.nudge = node._loop.nudge
        self._node = node
        self._loop = node._loop
        self._listeners = node._listeners
        self._handles: dict[Subscription, list[PatternHandle]] = {}  # Of those that are open.
        self._deafen = node._deafen
        self._placing = Lock()

    @property
    def subscriptions(self) -> list[Subscription]:
        """Return those that are open."""
        return list(self._handles)

    def open(self, subscription: Subscription, patterns: list[tuple[str, Any]]) -> None:
        """Let a subscription hear its patterns, each with its context."""
        if subscription.on_event is not None:
            where = None if subscription.channel is None else subscription.channel.name
            self._deafen[subscription] = self._listeners.add(
                subscription.on_event, channel=where, owner=subscription,
                concerns=lambda match: self._is_published(match, subscription),
            )  # fmt: skip
        self.enter(subscription)
        try:
            for pattern, context in patterns:
                subscription.add(pattern, context)
        except BaseException:
            subscription.close()
            raise

    def enter(self, subscription: Subscription) -> None:
        """Look after a subscription until it is closed."""
        self._handles[subscription] = []
        self._loop.subscriptions.add(subscription)
        if subscription.has_callback:
            self._loop.callbacks.add(subscription)

    # What a subscription calls.

    def add_pattern(self, subscription: Subscription, pattern: str, context: Any) -> PatternHandle:
        """Let a subscription hear a pattern on all channels that it is for."""
        self._node._refuse_closed()
        check_pattern(pattern)
        for connection in self._node.channels:
            connection.check_room(pattern, subscription.links)
        handle = PatternHandle(subscription, pattern, context, {})
        self._handles.setdefault(subscription, []).append(handle)
        for connection in self._node.channels:
            self._place(handle, connection)
        if self._node._subjects is not None:
            self._node._subjects.add(pattern)
        if subscription in self._deafen:
            self._listeners.refresh(subscription)
        _log.debug("subscribed to %s", pattern)
        return handle

    def remove_pattern(self, handle: PatternHandle) -> None:
        """Let it hear that pattern no longer."""
        subscription = handle.subscription
        with self._placing:
            places = dict(handle.places)
            handle.places.clear()
            handles = self._handles.get(subscription, [])
            if handle in handles:
                handles.remove(handle)
        for connection, place in places.items():
            connection.remove(place)
        if places and self._node._subjects is not None:
            self._node._subjects.remove(handle.pattern)
        if subscription in self._deafen and not subscription.is_closed:
            self._listeners.refresh(subscription)
        _log.debug("unsubscribed from %s", handle.pattern)

    def forget(self, subscription: Subscription) -> None:
        """Look after it no longer: it is closed."""
        self._handles.pop(subscription, None)
        self._loop.subscriptions.discard(subscription)
        self._loop.callbacks.discard(subscription)
        end_listener = self._deafen.pop(subscription, None)
        if end_listener is not None:
            end_listener()

    def lead_until(self, is_ready: Callable[[], bool], deadline_ns: int | None) -> bool:
        """Run the loop in the caller's thread while it waits; False: it has to be woken."""
        for connection in self._node.channels:
            connection.driver.flush_held()
        return self._loop.lead_until(is_ready, deadline_ns)

    def publishers_of(self, subscription: Subscription) -> tuple[RemotePublisher, ...]:
        """Return the other nodes that publish what it wants."""
        patterns = subscription.patterns
        return tuple(
            publisher
            for connection in self._node.channels
            if subscription.channel in (None, connection)
            for publisher in list_publishers(connection.driver, patterns)
        )

    # What the node calls.

    def connect(self, connection: Connection) -> None:
        """Let every subscription of all channels hear one that was joined."""
        for handles in list(self._handles.values()):
            for handle in list(handles):
                self._place(handle, connection)
                if self._node._subjects is not None:
                    self._node._subjects.add(handle.pattern)

    def disconnect(self, connection: Connection) -> None:
        """Let go of a channel that is closed: what was only for it ends, too."""
        for subscription, handles in list(self._handles.items()):
            for handle in list(handles):
                handle.places.pop(connection, None)
            if subscription.channel is connection:
                subscription.close_from_node(f"the channel {connection.name} is closed")
                self.forget(subscription)

    def close(self) -> None:
        """End every subscription."""
        for subscription in self.subscriptions:
            subscription.close_from_node("the node is closed")
        self._loop.subscriptions.difference_update(self._handles)
        self._loop.callbacks.difference_update(self._handles)
        self._handles.clear()

    def forked(self) -> None:
        """Refuse everything in a forked child."""
        for subscription in self.subscriptions:
            subscription.forked()

    def _place(self, handle: PatternHandle, connection: Connection) -> None:
        """Let a pattern hear a channel: once, though a thread that connects may want it, too."""
        subscription = handle.subscription
        if subscription.channel not in (None, connection):
            return
        with self._placing:
            is_removed = handle not in self._handles.get(subscription, ())
            if is_removed or connection in handle.places:
                return
            place = connection.place(handle.pattern, subscription, handle.context)
            handle.places[connection] = place
        connection.subscribe(place)

    def _is_published(self, match: Match, subscription: Subscription) -> bool:
        """Tell whether a match is with a publisher of what a subscription wants."""
        return isinstance(match, PublisherMatched) and any(
            matches(handle.pattern, match.subject)
            for handle in list(self._handles.get(subscription, ()))
        )
