"""A node: what `hubbub.open` returns, and where channels, publishers and subscriptions meet."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self

from hubbub.channel import Channel
from hubbub.connection import Connection, Sink
from hubbub.errors import ClosedError, ConfigurationError
from hubbub.events import Event
from hubbub.limits import (
    QUEUE_MESSAGES,
)
from hubbub.links.faults import Faults
from hubbub.protocol.endpoint import Identity
from hubbub.protocol.settings import Settings
from hubbub.publisher import Publisher
from hubbub.runtime.logs import logger_of
from hubbub.runtime.loop import shared
from hubbub.runtime.pool import Pool
from hubbub.schema import schema_of
from hubbub.statistics import NodeStatistics
from hubbub.subjects import check_pattern, check_subject, matches
from hubbub.subscription import Subscription

Listener = Callable[[Event], object]
_log = logger_of("subscription")
_events_log = logging.getLogger("hubbub.events")


class PatternHandle(NamedTuple):
    """A pattern of a subscription on the channels it applies to."""

    subscription: Subscription
    pattern: str
    places: dict[Connection, object]
    context: Any

    def __hash__(self) -> int:
        return id(self.places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatternHandle) and other.places is self.places


class Node:
    """One node of the bus. Every method may be called from any thread; open one with `hubbub.open`.

    with hubbub.open("lidar-7") as node:
        node.publish("/plant/line1/temp", b"21.5")
    """

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        *,
        interface: str | None,
        loopback: bool,
        faults: Faults | None,
        link_options: dict[str, Any],
        delivery_threads_max: int,
        switch_interval_ms: float | None,
    ) -> None:
        self.name = identity.name
        self.id = identity.id
        self.domain = identity.domain
        self.identity = identity
        self.settings = settings
        self.loopback = loopback
        self._interface = interface
        self._faults = faults
        self._link_options = link_options
        self._switch_interval_ms = switch_interval_ms
        self._loop = shared()
        self._pool = Pool(self._call_at, delivery_threads_max)
        self._event_lane = self._pool.lane(self._run_listeners)
        self._event_queue: deque[tuple[Listener, Event]] = deque()
        self._connections: dict[str, Connection] = {}
        self._subscriptions: dict[Subscription, list[PatternHandle]] = {}
        self._publishers: list[Publisher] = []
        self._shortcuts: dict[str, Publisher] = {}
        self._listeners: list[Listener] = []
        self._is_closed = False

    # Channels.

    def connect(self, channel: Channel, *, on_event: Listener | None = None) -> Connection:
        """Join a channel; what subscribes to all channels hears it from now on."""
        self._refuse_closed()
        if channel.name in self._connections:
            raise ConfigurationError(f"this node is on channel {channel.name} already")
        connection = Connection(self, channel, on_event)
        self._connections[channel.name] = connection
        connection.start(self._switch_interval_ms)
        for handles in list(self._subscriptions.values()):
            for handle in handles:
                if self._applies(handle.subscription, connection):
                    handle.places[connection] = self._place(handle, connection)
        return connection

    @property
    def channels(self) -> tuple[Connection, ...]:
        """Return the channels that this node is on."""
        return tuple(self._connections.values())

    def _connection_of(
        self, channel: Connection | Channel | str | None, subject: str
    ) -> Connection:
        if channel is None:
            for connection in self._connections.values():
                if matches(connection.channel.subjects, subject):
                    return connection
            raise ConfigurationError(
                f"no channel takes {subject}: there are "
                + (", ".join(f"{c.name} for {c.channel.subjects}" for c in self.channels) or "none")
            )
        return self._named(channel)

    def _named(self, channel: Connection | Channel | str) -> Connection:
        name = channel if isinstance(channel, str) else channel.name
        connection = self._connections.get(name)
        if connection is None:
            there = ", ".join(self._connections) or "none"
            raise ConfigurationError(f"this node is not on channel {name}; it is on {there}")
        return connection

    # Publishing.

    def publisher(
        self,
        subject: str,
        *,
        reliable: bool = True,
        type: Any = None,
        channel: Connection | Channel | str | None = None,
        on_event: Listener | None = None,
    ) -> Publisher:
        """Return a publisher of a subject; several of one subject share its sequence."""
        self._refuse_closed()
        check_subject(subject)
        connection = self._connection_of(channel, subject)
        publisher = Publisher(
            self, connection.driver, subject, is_reliable=reliable, kind=type, on_event=on_event
        )
        connection.refresh_own_topics()
        self._publishers.append(publisher)
        return publisher

    def publish(self, subject: str, payload: Any) -> int:
        """Publish one message: a shortcut that keeps a reliable publisher per subject."""
        publisher = self._shortcuts.get(subject)
        if publisher is None:
            publisher = self._shortcuts.setdefault(subject, self.publisher(subject))
        return publisher.publish(payload)

    def _forget_publisher(self, publisher: Publisher) -> None:
        if publisher in self._publishers:
            self._publishers.remove(publisher)
        if self._shortcuts.get(publisher.subject) is publisher:
            del self._shortcuts[publisher.subject]

    # Subscribing.

    def subscribe(
        self,
        pattern: str | Iterable[str],
        callback: Callable[[Any], object] | None = None,
        *,
        context: Any = None,
        queue: int = QUEUE_MESSAGES,
        overflow: str = "drop_oldest",
        inline: bool = False,
        no_local: bool = False,
        channel: Connection | Channel | str | None = None,
        type: Any = None,
        on_event: Listener | None = None,
    ) -> Subscription:
        """Receive what matches a pattern (or several): iterate over the result, or give a callback.

        for message in node.subscribe("/plant/*/temp"): ...
        node.subscribe("/plant/...", print)
        """
        self._refuse_closed()
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        for each in patterns:
            check_pattern(each)
        subscription = Subscription(
            self, callback=callback, context=context, queue=queue, overflow=overflow,
            inline=inline, no_local=no_local, type=type, on_event=on_event,
            channel=None if channel is None else self._named(channel),
        )  # fmt: skip
        self._subscriptions[subscription] = []
        for each in patterns:
            subscription.add(each, context)
        return subscription

    def _add_pattern(self, subscription: Subscription, pattern: str, context: Any) -> PatternHandle:
        self._refuse_closed()
        check_pattern(pattern)
        handle = PatternHandle(subscription, pattern, {}, context)
        for connection in list(self._connections.values()):
            if self._applies(subscription, connection):
                handle.places[connection] = self._place(handle, connection)
        self._subscriptions.setdefault(subscription, []).append(handle)
        _log.debug("subscribed to %s", pattern)
        return handle

    def _place(self, handle: PatternHandle, connection: Connection) -> object:
        schema = schema_of(handle.subscription.type)
        return connection.add(handle.pattern, Sink(handle.subscription, handle.context, schema))

    @staticmethod
    def _applies(subscription: Subscription, connection: Connection) -> bool:
        return subscription.channel is None or subscription.channel is connection

    def _remove_pattern(self, handle: PatternHandle) -> None:
        for connection, place in handle.places.items():
            connection.remove(handle.pattern, place)
        handle.places.clear()
        handles = self._subscriptions.get(handle.subscription)
        if handles is not None and handle in handles:
            handles.remove(handle)
        _log.debug("unsubscribed from %s", handle.pattern)

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)

    # Events.

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event, first with the peers that are here.

        Returns a function that ends it.
        """
        self._listeners.append(listener)
        for connection in self.channels:
            for event in connection.joined_peers():
                self._event_queue.append((listener, event))
        self._event_lane.notify()

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def _emit(self, event: Event, subscription: Subscription | None = None) -> None:
        """Report an event of one subscription, or of a whole channel."""
        listeners = list(self._listeners)
        if subscription is not None:
            listeners += [subscription.on_event] if subscription.on_event else []
        else:
            listeners += self._listeners_of(event.channel)
        self._event_queue.extend((listener, event) for listener in listeners)
        if listeners:
            self._event_lane.notify()

    def _listeners_of(self, channel: str) -> list[Listener]:
        connection = self._connections.get(channel)
        found = [connection.on_event] if connection is not None else []
        found += [p.on_event for p in self._publishers if p._driver.link.channel == channel]
        found += [s.on_event for s in list(self._subscriptions) if s.channel in (None, connection)]
        return [listener for listener in found if listener is not None]

    def _run_listeners(self) -> bool:
        """Call listeners, one event after the other; what one raises hurts nobody."""
        for _ in range(64):
            try:
                listener, event = self._event_queue.popleft()
            except IndexError:
                return False
            try:
                listener(event)
            except Exception:
                _events_log.exception("a listener failed on: %s", event)
        return True

    # The end, and what is known.

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything published is with all receivers; False: not within the timeout."""
        deadline = None if timeout is None else monotonic() + timeout
        for connection in self.channels:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if not connection.flush(left):
                return False
        return True

    def close(self, linger_ms: float | None = None) -> None:
        """Leave: send what is pending, say goodbye, serve repairs for at most `linger_ms`."""
        if self._is_closed:
            return
        self._is_closed = True
        linger_s = (self.settings.linger_ms if linger_ms is None else linger_ms) / 1000
        for publisher in list(self._publishers):
            publisher.close()
        for connection in self.channels:
            connection.close_at(monotonic() + linger_s)
        for subscription in list(self._subscriptions):
            subscription.close_from_node("the node is closed")
        self._subscriptions.clear()
        self._pool.close(0.2)

    def _connection_closed(self, connection: Connection) -> None:
        for handles in self._subscriptions.values():
            for handle in handles:
                handle.places.pop(connection, None)
        self._connections.pop(connection.name, None)

    @property
    def is_closed(self) -> bool:
        """Tell whether the node is closed."""
        return self._is_closed

    def statistics(self) -> NodeStatistics:
        """Return everything the tools show, as a frozen snapshot."""
        return NodeStatistics(
            name=self.name,
            id=self.id.hex(),
            incarnation=self.identity.incarnation,
            domain=self.domain,
            channels=tuple(connection.statistics() for connection in self.channels),
            subscriptions=tuple(s.statistics() for s in list(self._subscriptions)),
            loop=self._loop.statistics(),
            pool=self._pool.statistics(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"on {', '.join(self._connections)}"
        return f"<Node {self.name} {state}>"

    def _call_at(self, deadline_ns: int, function: Callable[[], object]) -> None:
        self._loop.call_at(deadline_ns, function)

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise ClosedError(f"node {self.name} is closed")
