"""A node: what `hubbub.open` returns, and where channels, publishers and subscriptions meet."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import SystemRandom
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from hubbub import neighbours
from hubbub.awareness import RemotePeer, list_peers
from hubbub.channel import Channel
from hubbub.closing import Closing, read_linger
from hubbub.connection import Connection
from hubbub.consumer import Consumer, read_period
from hubbub.data_types import find_data_type
from hubbub.errors import ClosedError, ConfigurationError, LinkError
from hubbub.events import Event, SubscriberMatched
from hubbub.limits import CAP_HZ, FLOOR_US, QUEUE_MESSAGES
from hubbub.links.choice import insist_on, refuse_unrepaired
from hubbub.mail import Mail
from hubbub.node_host import NodeHost
from hubbub.node_options import NodeOptions
from hubbub.producer import Producer, make_options
from hubbub.protocol.delivery import SERVICES
from hubbub.protocol.endpoint import Identity
from hubbub.protocol.settings import Settings
from hubbub.publisher import Publisher
from hubbub.publisher_options import check_by_services
from hubbub.runtime.listeners import Listener, Listeners, check_listener
from hubbub.runtime.logs import logger_of
from hubbub.runtime.loop import shared
from hubbub.runtime.matched import Match
from hubbub.runtime.pool import Pool
from hubbub.schedule import Schedule
from hubbub.statistics import NodeStatistics
from hubbub.subjects import check_patterns, check_subject, matches
from hubbub.subscription import Subscription
from hubbub.telling import Telling

if TYPE_CHECKING:
    from hubbub.service import Service
    from hubbub.services import Services
    from hubbub.subject_services import SubjectServices

_log = logger_of("connection")
_LAST_CALLBACKS_S = 0.2


class Node(Closing):
    """One node of the bus. Every method may be called from any thread; open one with `hubbub.open`.

    with hubbub.open("lidar-7") as node:
        node.publish("/plant/line1/temp", b"21.5")
    """

    def __init__(self, identity: Identity, settings: Settings, options: NodeOptions) -> None:
        self.name = identity.name
        self.id = identity.id
        self.domain = identity.domain
        self.identity = identity
        self.settings = settings
        self.loopback = options.loopback
        self.links = options.links
        self._options = options
        self._loop = shared()
        self._pool = Pool(self._call_at, options.delivery_threads_max)
        self._listeners = Listeners(self._pool)
        self._connections: dict[str, Connection] = {}
        self._left: set[str] = set()  # Channels that this node was on before.
        self._publishers: dict[Publisher, bool] = {}  # Those that are open.
        self._shortcuts: dict[str, Publisher] = {}
        self._deafen: dict[object, Callable[[], None]] = {}  # Ends the listener of an object.
        self._host = NodeHost(self)
        self._components: set[Producer | Consumer | Mail] = set()
        self._services: Services | None = None
        self._opening_services = Lock()
        self._closed_reason: str | None = None
        self._telling = Telling(self)

    # Channels.

    def connect(self, channel: Channel, *, on_event: Listener | None = None) -> Connection:
        """Join a channel; what subscribes to all channels hears it from now on."""
        self._refuse_closed()
        if not isinstance(channel, Channel):
            raise ConfigurationError(f"{channel!r}: give a hubbub.Channel(group, port)")
        check_listener(on_event)
        if channel.name in self._connections:
            raise ConfigurationError(f"this node is on channel {channel.name} already")
        if SERVICES in self.links and self._connections:
            raise ConfigurationError("links=['services'] has one channel: leave out the others")
        connection = Connection(self, channel)
        if self._connections.setdefault(channel.name, connection) is not connection:
            connection.driver.finish("never started")
            raise ConfigurationError(f"this node is on channel {channel.name} already")
        self._listeners.add(on_event, channel=connection.name, owner=connection)
        if self._options.is_finding:
            self._find_others()  # Before the channel looks around: those are there, too.
        connection.start()
        if self._options.services.is_open or SERVICES in self.links:
            self._open_services()
        self._host.connect(connection)
        return connection

    def _identity_on(self, channel: Channel) -> Identity:
        """Say who we are there: who comes back has said goodbye, so it is a new incarnation."""
        if channel.name in self._left:
            return replace(self.identity, incarnation=SystemRandom().getrandbits(64))
        return self.identity

    @property
    def channels(self) -> tuple[Connection, ...]:
        """Return the channels that this node is on."""
        return tuple(self._connections.values())

    def _connection_of(
        self, channel: Connection | Channel | str | None, subject: str
    ) -> Connection:
        if channel is None:
            for connection in self.channels:
                if matches(connection.channel.subjects, subject):
                    return connection
            raise ConfigurationError(
                f"no channel takes {subject}: there are "
                + (", ".join(f"{c.name} for {c.channel.subjects}" for c in self.channels) or "none")
            )
        return self._named(channel)

    def _first_channel(self) -> Connection:
        for connection in self.channels:
            return connection
        raise ConfigurationError(f"node {self.name} is on no channel: connect() it to one first")

    def _links_for(self, links: Iterable[str] | None, *, is_reliable: bool) -> tuple[str, ...]:
        """Return what a publisher keeps to: links of its own, else those of the node."""
        if links is None and not is_reliable:
            return self._options.best_effort_links
        chosen = insist_on(links, self.links)
        if is_reliable:
            refuse_unrepaired(chosen)
        return chosen

    def _named(self, channel: Connection | Channel | str) -> Connection:
        name = channel if isinstance(channel, str) else getattr(channel, "name", repr(channel))
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
        history: int = 0,
        acknowledge_ms: float | None = None,
        on_slow: str = "drop",
        replayed_ns: int | None = None,
        links: Iterable[str] | None = None,
        channel: Connection | Channel | str | None = None,
        on_event: Listener | None = None,
    ) -> Publisher:
        """Return a publisher of a subject; several of one subject share its sequence.

        The last `history` messages are kept for those who come later and ask for them, as
        `subscribe(history=True)` does; with 1 they get the last value. With `acknowledge_ms` each
        `publish` waits, at most so long, and returns how many receivers have taken the message.
        A receiver that cannot keep up is left behind after `slow_ms`, and may lose messages; with
        `on_slow="block"` this publisher then waits for it, at most `send_timeout`.

        With `links`, of those that this node has, it is sent over these alone, the first that leads
        to a receiver. Who insists on others gets nothing, and both hear `NoCommonLink`.

        Who plays a recording says by `replayed_ns` when that began, which marks the messages, and
        by `type=hubbub.Schema(name, hash)` which type its payloads are encoded as.
        """
        self._refuse_closed()
        check_subject(subject)
        check_listener(on_event)  # Others may hear of a publisher as soon as there is one.
        if self._subjects is not None:
            check_by_services(history, acknowledge_ms, on_slow, replayed_ns)
        connection = self._connection_of(channel, subject)
        publisher = Publisher(
            self, connection.driver, subject, is_reliable=reliable, kind=type, history=history,
            acknowledge_ms=acknowledge_ms, on_slow=on_slow, replayed_ns=replayed_ns,
            links=self._links_for(links, is_reliable=reliable),
        )  # fmt: skip
        self._publishers[publisher] = True
        if self._subjects is not None:
            publisher.publish = self._subjects.publishing(publisher)  # type: ignore[method-assign]
        if on_event is not None:
            self._deafen[publisher] = self._listeners.add(
                on_event, channel=connection.name, owner=publisher,
                concerns=lambda match: _is_subscribed(match, subject),
            )  # fmt: skip
        connection.refresh_own_topics()
        return publisher

    def publish(self, subject: str, payload: Any) -> int:
        """Publish one message: a shortcut that keeps a reliable publisher per subject."""
        publisher = self._shortcuts.get(subject)
        if publisher is None:
            publisher = self._shortcuts.setdefault(subject, self.publisher(subject))
        return publisher.publish(payload)

    def _forget_publisher(self, publisher: Publisher) -> bool:
        """Let go of a publisher; False: another thread, or an earlier call, did."""
        self._deafen.pop(publisher, _nothing)()
        if self._shortcuts.get(publisher.subject) is publisher:
            del self._shortcuts[publisher.subject]
        return self._publishers.pop(publisher, False)

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
        copy: bool = False,
        history: bool | int = False,
        links: Iterable[str] | None = None,
        channel: Connection | Channel | str | None = None,
        type: Any = None,
        on_event: Listener | None = None,
    ) -> Subscription:
        """Receive what matches a pattern (or several): iterate over the result, or give a callback.

        for message in node.subscribe("/plant/*/temp"): ...
        node.subscribe("/plant/...", print)

        `queue` messages may wait to be taken; `overflow` says what happens beyond: `drop_oldest`,
        `drop_newest` or `disconnect`. `inline` runs the callback on the I/O thread. A large payload
        of a publisher on this host is a read-only memoryview of shared memory, which lasts as long
        as anybody refers to it; with `copy` every payload is `bytes`. `type` decodes payloads.
        `history` asks publishers for what they kept, or the last so many messages of it, and those
        come first. With `links`, of those that this node has, other nodes serve it over these
        alone, the first that leads here if the publisher has no order of its own.
        """
        self._refuse_closed()
        patterns = check_patterns(pattern)
        if history is not False and self._subjects is not None:
            raise ConfigurationError("history: subjects have none by links=['services']")
        subscription = Subscription(
            self._host, callback=callback, context=context, queue=queue, overflow=overflow,
            inline=inline, no_local=no_local, copy=copy, type=type, on_event=on_event,
            channel=None if channel is None else self._named(channel), history=history,
            links=insist_on(links, self.links),
        )  # fmt: skip
        self._host.open(subscription, [(each, context) for each in patterns])
        return subscription

    # Time-triggered topics.

    def produce(
        self,
        what: str | int,
        read: Callable[[], Any],
        *,
        schedule: str = "due",
        floor_ms: float = FLOOR_US / 1000,
        cap_hz: int = CAP_HZ,
        stagger: bool = False,
        scope: int = 0,
        inside: bool = False,
        copies: int = 1,
        links: Iterable[str] | None = None,
        inline: bool = False,
        type: Any = None,
        port: int | None = None,
        channel: Connection | Channel | str | None = None,
    ) -> Producer:
        """Make samples of a subject (or data type) when consumers are due one: `read` returns each.

        node.produce("/vehicle/speed", lambda: b"13.9")

        Without consumers nothing is sampled. `schedule` is `due` (only when somebody is due),
        `strict` (at every multiple of the greatest common divisor of all periods) or `harmonised`
        (at the shortest). No two samples are closer than `floor_ms` and `cap_hz` allow; who asks
        for more is granted that. `stagger` spreads producers over half a tick. `read` runs on the
        delivery threads, `inline=True` on the I/O thread; None: there is no sample this time.
        `inside=True`: for consumers of this node alone, and nothing of it is sent. `copies=2` sends
        each sample twice, apart: for what must not wait for the next tick if a frame is lost. With
        `links` samples go to other nodes over these alone, the first that leads there.
        """
        self._refuse_closed()
        ways = self._links_for(links, is_reliable=False)
        options = make_options(schedule, floor_ms, cap_hz, stagger, scope, inside, copies, ways)
        connection = self._connection_of(channel, find_data_type(what)[1])
        producer = Producer(
            self, connection, what, read, options=options, inline=inline, type=type, port=port
        )
        self._components.add(producer)
        return producer

    def consume(
        self,
        what: str | int,
        *,
        period_ms: float | None = None,
        period_us: int | None = None,
        callback: Callable[[Any], object] | None = None,
        context: Any = None,
        mode: str = "all",
        scope: int = 0,
        of: Any = None,
        inside: bool = False,
        max_age_ms: float | None = None,
        queue: int = QUEUE_MESSAGES,
        overflow: str = "drop_oldest",
        inline: bool = False,
        type: Any = None,
        port: int | None = None,
        channel: Connection | Channel | str | None = None,
    ) -> Consumer:
        """Receive one sample a period of each producer of a subject (or data type).

        for message in node.consume("/vehicle/speed", period_ms=100): ...
        node.consume("/vehicle/speed", period_ms=100, callback=print)

        With period 0 one of each, and no more. With `mode="one"` only of one producer, and of
        another if it falls silent; with `mode="nearest"` of the nearest: in this node, process,
        host, LAN or beyond. Samples older than `max_age_ms` are dropped. A slot that stays empty
        is counted, and a `DeadlineMissed`. `of=` names whose samples are wanted: an address, a
        `Source` or an id. `inside=True`: those of this node, and nobody else is asked.
        """
        self._refuse_closed()
        connection = self._connection_of(channel, find_data_type(what)[1])
        consumer = Consumer(
            self, connection, what, period_us=read_period(period_ms, period_us, may_be_once=True),
            callback=callback, context=context, mode=mode, scope=scope, max_age_ms=max_age_ms,
            queue=queue, overflow=overflow, inline=inline, type=type, port=port, inside=inside,
            of=of,
        )  # fmt: skip
        self._components.add(consumer)
        self._telling.begin_counting()
        return consumer

    def observe(
        self,
        what: str | int | None = None,
        *,
        callback: Callable[[Any], object] | None = None,
        context: Any = None,
        queue: int = QUEUE_MESSAGES,
        overflow: str = "drop_oldest",
        inline: bool = False,
        channel: Connection | Channel | str | None = None,
    ) -> Consumer:
        """Receive a copy of every sample that is sent to consumers, of one type or of all.

        It makes nobody sample anything.
        """
        self._refuse_closed()
        subject = "/..." if what is None else find_data_type(what)[1]
        is_any = what is None and channel is None
        connection = self._first_channel() if is_any else self._connection_of(channel, subject)
        consumer = Consumer(
            self, connection, what, period_us=0, is_observer=True, callback=callback,
            context=context, queue=queue, overflow=overflow, inline=inline,
        )  # fmt: skip
        self._components.add(consumer)
        return consumer

    def schedule(self, channel: Connection | Channel | str | None = None) -> Schedule:
        """Look on who makes and wants what how often, on one channel (by default the first)."""
        self._refuse_closed()
        return Schedule(self, self._first_channel() if channel is None else self._named(channel))

    # Services.

    def service(self, name: str) -> "Service":
        """Return a service: managed by the node whose key is closest to that of its name.

        news = node.service("hype-news")
        news.subscribe(print)
        news.publish(b"21.5")
        """
        self._refuse_closed()
        return self._open_services().open(name)

    @property
    def services(self) -> "Services":
        """Return who shares services with this node, and the lists that it keeps."""
        self._refuse_closed()
        return self._open_services()

    @property
    def _subjects(self) -> "SubjectServices | None":
        """Return the subjects that travel by services, if they do."""
        return None if self._services is None else self._services.subjects

    @property
    def is_sharing_services(self) -> bool:
        """Tell whether this node takes part in services, or looks on."""
        return self._services is not None

    def _open_services(self) -> "Services":
        with self._opening_services:
            if self._services is None:
                if not set(self.links) & {"tcp", "multicast", SERVICES}:
                    raise ConfigurationError(
                        f"links={self.links!r}: services need the network; add tcp or multicast"
                    )
                from hubbub.services import Services  # A fifth of what `import hubbub` would take.

                self._services = Services(self, self._first_channel(), self._options.services)
            return self._services

    def _find_others(self) -> None:
        """Look for nodes that nobody named; where that cannot be, those that were are left."""
        try:
            self._open_services()
        except LinkError as error:
            _log.warning("only peers that are named are heard: %s", error)

    # Events.

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event, first with the peers and matches that are here.

        Returns a function that ends it.
        """
        return self._listeners.add(listener)

    def _emit(self, event: Event, owner: object = None) -> None:
        """Report an event of one subscription or producer, or of a whole channel."""
        self._listeners.emit(event, owner)
        self._telling.note(event)

    # The end, and what is known.

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything published is with all receivers.

        False: not within the timeout, or a receiver was lost before it had everything.
        """
        self._refuse_closed()
        deadline = None if timeout is None else monotonic() + timeout
        for connection in self.channels:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if not connection.flush(left):
                return False
        left = None if deadline is None else max(0.0, deadline - monotonic())
        return self._subjects is None or self._subjects.flush(left)

    def close(self, linger_ms: float | None = None) -> None:
        """Leave: send what is pending, say goodbye, serve repairs for at most `linger_ms`."""
        if self._closed_reason is not None:
            return
        linger_s = read_linger(linger_ms, self.settings.linger_ms)
        self._telling.finish()
        self._closed_reason = "closed"
        for component in list(self._components):
            component.stop()
        if self._services is not None:
            self._services.close()
        self._deafen.clear()  # Who listens hears of the end, and goes with the node.
        for publisher in list(self._publishers):
            publisher.close_from_node()
        connections, deadline = self.channels, monotonic() + linger_s
        for connection in connections:
            connection.close_at(deadline)
        self._host.close()
        if self._loop.is_loop_thread():
            # An inline callback closes the node: the channels end after it has returned.
            Thread(target=self._end, args=(connections, linger_s), daemon=True).start()
        else:
            self._end(connections, 0)

    def _end(self, connections: tuple[Connection, ...], linger_s: float) -> None:
        """Report the last events, then end the threads that report."""
        for connection in connections:
            connection.driver.closed.wait(linger_s)
        self._pool.close(_LAST_CALLBACKS_S)

    def _connection_closed(self, connection: Connection) -> None:
        """Let go of a channel: what was only for it ends, too."""
        self._connections.pop(connection.name, None)
        self._left.add(connection.name)
        self._host.disconnect(connection)
        for publisher in list(self._publishers):
            if publisher.channel == connection.name:
                publisher.close()

    def _forked(self, reason: str) -> None:
        """Refuse everything in a forked child; no lock of the parent's threads is touched."""
        self._closed_reason = reason
        self._pool.forked()
        self._listeners.forked()
        neighbours.shared.forked()
        self._host.forked()
        if self._services is not None:
            self._services.forked()

    @property
    def index(self) -> int | None:
        """Return our bit in the bitmaps of receivers on the first channel; None: none yet.

        A node takes the lowest that is free when it has looked around, 45 ms after it opened. It
        may have to take another when two networks meet.
        """
        for connection in self.channels:
            return connection.index
        return None

    @property
    def is_closed(self) -> bool:
        """Tell whether the node is closed."""
        return self._closed_reason is not None

    def statistics(self) -> NodeStatistics:
        """Return everything the tools show, as a frozen snapshot."""
        return NodeStatistics(
            name=self.name,
            id=self.id.hex(),
            incarnation=self.identity.incarnation,
            domain=self.domain,
            channels=tuple(connection.statistics() for connection in self.channels),
            subscriptions=tuple(one.statistics() for one in self._host.subscriptions),
            loop=self._loop.statistics(),
            pool=self._pool.statistics(),
            producers=tuple(
                one.statistics() for one in list(self._components) if isinstance(one, Producer)
            ),
            consumers=tuple(
                one.statistics() for one in list(self._components) if isinstance(one, Consumer)
            ),
            services=None if self._services is None else self._services.statistics(),
        )

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"on {', '.join(self._connections)}"
        return f"<Node {self.name} {state}>"

    def _call_at(self, deadline_ns: int, function: Callable[[], object]) -> None:
        self._loop.call_at(deadline_ns, function)

    def peers(self) -> tuple[RemotePeer, ...]:
        """Return the other nodes of all channels, and what they publish and want."""
        return tuple(one for connection in self.channels for one in list_peers(connection.driver))

    def _refuse_closed(self) -> None:
        if self._closed_reason is not None:
            raise ClosedError(f"node {self.name} cannot be used: {self._closed_reason}")


def _is_subscribed(match: Match, subject: str) -> bool:
    """Tell whether a match is with a subscriber of a subject."""
    return isinstance(match, SubscriberMatched) and match.subject == subject


def _nothing() -> None:
    """Stand in for a listener that is not there."""
