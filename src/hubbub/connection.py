"""A channel that a node has joined: its driver, its subscriptions, its end."""

from contextlib import suppress
from functools import cache
from itertools import count
from random import Random, SystemRandom
from time import monotonic, monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from hubbub import neighbours
from hubbub.channel import Channel
from hubbub.closing import Closing, read_linger
from hubbub.errors import ClosedError, ConfigurationError, LinkError
from hubbub.events import Event, SchemaMismatch
from hubbub.limits import PATTERNS_MAX
from hubbub.links.dialling import HostAndPort
from hubbub.links.host import HostLink
from hubbub.links.listening import open_listener
from hubbub.links.local import LocalLink
from hubbub.links.meeting import is_supported, runtime_directory
from hubbub.links.multicast import MulticastLink
from hubbub.links.tcp import TcpLink
from hubbub.links.unicast import UnicastLink
from hubbub.neighbours import Neighbourhood
from hubbub.protocol.core import Core
from hubbub.protocol.delivery import SERVICES, DeliveredTopic
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.topics import IncomingTopic, OutgoingTopic, ReplayedTopic
from hubbub.repeats import Repeats, is_repeatable
from hubbub.runtime.dispatcher import Dispatcher
from hubbub.runtime.driver import Driver
from hubbub.runtime.logs import logger_of
from hubbub.runtime.loop import Attachment, shared
from hubbub.runtime.ownership import owns
from hubbub.schema import schema_of
from hubbub.sinks import Latecomer, Sink
from hubbub.statistics import ChannelStatistics, describe_channel, known_index
from hubbub.subjects import Handle, Matcher
from hubbub.subscription import Subscription
from hubbub.wire.wishes import may_hand_over, name_by

if TYPE_CHECKING:
    from hubbub.node import Node

_log = logger_of("connection")


@cache
def _notice_loopback() -> None:
    """Say once a process that nobody else will be heard."""
    _log.warning(
        "no LAN interface is up: using the loopback, so only nodes of this host are heard;"
        " name one with interface= or HUBBUB_INTERFACE"
    )


class Connection(Closing):
    """One channel of one node; `node.connect` makes it, `close` leaves the channel."""

    def __init__(self, node: "Node", channel: Channel) -> None:
        self.channel = channel
        self.name = channel.name
        self._node = node
        self._matcher: Matcher[Sink] = Matcher()
        self._requests = count(1)
        settings = channel.settings or node.settings
        identity = node._identity_on(channel)
        link = self._open_link(node, channel)
        core = Core(
            monotonic_ns(), identity, settings,
            channel=link.channel, random=Random(SystemRandom().getrandbits(64)),
            frame_bytes_max=link.frame_bytes_max, burst_bytes_max=link.burst_bytes_max,
            window_bytes=link.window_bytes,
        )  # fmt: skip
        self.name = link.channel
        core.endpoint.links = node.links
        if self._wants_probes(node) and not isinstance(link, HostLink):
            core.endpoint.datagram_port = link.address[1]
        dispatcher = Dispatcher(self._match, self._emit)
        try:
            tcp = self._open_tcp(node, channel, core.endpoint) if "tcp" in node.links else None
        except BaseException:
            link.close()
            raise
        local = self._open_local(node, core) if "local" in node.links else None
        self.driver = Driver(core, link, shared(), dispatcher, node._forked, local, tcp)
        self.neighbours = Neighbourhood()
        if "inproc" in node.links:
            self.neighbours = neighbours.shared.at(identity.domain, self.name)

    @staticmethod
    def _open_link(node: "Node", channel: Channel) -> MulticastLink | UnicastLink | HostLink:
        has_group = "multicast" in node.links
        if not has_group and "datagram" not in node.links:
            is_alone = SERVICES in node.links
            return HostLink(channel.group, channel.port, may_be_alone=is_alone)
        return (MulticastLink if has_group else UnicastLink)(
            channel.group, channel.port,
            interface=channel.interface or node._options.interface, ttl=channel.ttl,
            faults=node._options.faults, **node._options.link_options,
        )  # fmt: skip

    @staticmethod
    def _wants_probes(node: "Node") -> bool:
        """Tell whether datagrams shall go where the group does not: who only has them is spared."""
        return "tcp" in node.links and bool(node._options.best_effort_links)

    @staticmethod
    def _open_tcp(node: "Node", channel: Channel, endpoint: Endpoint) -> TcpLink:
        options = node._options
        interface = channel.interface or options.interface
        listener = open_listener(interface, options.listen, channel.port)
        peers = [HostAndPort(host, port or channel.port) for host, port in options.peers]
        return TcpLink(
            endpoint.key, endpoint.domain, endpoint.channel, listener.socket, peers,
            endpoint.random, monotonic_ns, listener.scope, options.tcp,
        )  # fmt: skip

    @staticmethod
    def _open_local(node: "Node", core: Core) -> LocalLink | None:
        """Open the pipes of a channel; without them everything goes the longer way."""
        if not is_supported():
            return None
        endpoint, is_anybody = core.endpoint, node._options.registration != "network"

        def may_meet(key: bytes) -> bool:
            return is_anybody or (key in core.peers and core.peers[key].is_known)

        try:
            return LocalLink(
                endpoint.key, endpoint.domain, endpoint.channel, runtime_directory(), may_meet
            )
        except LinkError as error:
            _log.warning("no local link: %s", error)
            return None

    def start(self) -> None:
        """Begin to send and receive."""
        options = self._node._options
        self.neighbours.join(self)
        attachments: list[Attachment] = [self.driver, *self.driver.pipe_drivers]
        for attachment in attachments:
            self.driver.loop.attach(attachment, options.switch_interval_ms, options.spin_us)
        link = self.driver.link
        names = ", ".join(interface.name for interface in link.interfaces) or link.name
        _log.info("joined %s on %s as %s", self.name, names, link.address_text)
        if not (self.channel.interface or options.interface) and self._is_alone():
            _notice_loopback()

    def check_room(self, pattern: str, links: tuple[str, ...] = ()) -> None:
        """Refuse a pattern that no peer would keep, rather than be served without it."""
        patterns = self.driver.core.state.interest.patterns
        room = PATTERNS_MAX - len(patterns)
        if room < 1 + 2 * bool(links) and name_by(pattern, links) not in patterns:
            raise ConfigurationError(
                f"{pattern} would be pattern {PATTERNS_MAX + 1} of this node: use wildcards"
            )

    def _is_alone(self) -> bool:
        """Tell whether we meant to hear others and can only hear this host."""
        link, tcp = self.driver.link, self.driver.tcp
        if tcp is not None and not tcp.link.is_on_loopback:
            return False
        is_meant = bool(link.interfaces) or (
            tcp is not None and not self._node._options.listen.host
        )
        return is_meant and all(interface.is_loopback for interface in link.interfaces)

    def place(self, pattern: str, subscription: Subscription, context: Any) -> Handle[Sink]:
        """Hand out what matches a pattern to a subscription; returns a handle for `remove`."""
        schema = schema_of(subscription.type)
        if subscription.history is None:
            sink = Sink(subscription, context, schema, False, subscription, Repeats())
        else:
            latecomer = Latecomer(subscription, context, self._report_unjoined)
            request = next(self._requests)
            sink = Sink(latecomer, context, schema, False, subscription, Repeats(), request)
        handle = self._matcher.add(pattern, sink)
        self.neighbours.changed()
        return handle

    def subscribe(self, handle: Handle[Sink]) -> None:
        """Tell the others that a pattern is wanted, and its history if the subscription asks.

        A channel that another thread is closing is none of those a subscription of all hears.
        """
        core, pattern, sink = self.driver.core, handle.pattern, handle.value
        try:
            if sink.request:
                count = sink.subscription.history or 0
                self.driver.call(core.join, pattern, sink.request, count, sink.wish)
            else:
                self.driver.call(core.subscribe, pattern, sink.wish)
        except ClosedError:
            if sink.subscription.channel is self:
                raise
        self.neighbours.look_again()

    def remove(self, handle: Handle[Sink]) -> None:
        """Receive it no longer."""
        self._matcher.remove(handle)
        self.neighbours.changed()
        core, pattern, sink = self.driver.core, handle.pattern, handle.value
        with suppress(ClosedError):
            if sink.request:
                self.driver.call(core.leave, pattern, sink.request, sink.wish)
            else:
                self.driver.call(core.unsubscribe, pattern, sink.wish)
            self.neighbours.look_again()

    def _report_unjoined(self, topic: DeliveredTopic, first: int, last: int) -> None:
        """Report history for which there was no room to wait."""
        endpoint = self.driver.core.endpoint
        with self.driver.lock:
            endpoint.counters["messages_lost"] += last - first + 1
            endpoint.report_gap(topic.source, topic.subject, first, last, "no_memory")

    def refresh_own_topics(self) -> None:
        """Look again which of our own topics subscriptions of this process want."""
        if owns(self.driver.lock):
            self.driver.loop.call_soon(self.refresh_own_topics)  # A signal handler.
            return
        with self.driver.lock:
            generation = self.neighbours.generation
            for topic in self.driver.core.outgoing.topics.values():
                if topic.generation != generation:
                    self._match_own(topic)
                    topic.generation = generation
            self.driver.dispatcher.put(self.driver.core.deliveries, [])
        self.driver.dispatcher.run()
        self.driver.changes.wake_all()

    def meet_neighbours(self) -> None:
        """Look again which peers are in this process."""
        others = self.neighbours.others(self)
        with self.driver.lock:
            endpoint = self.driver.core.endpoint
            endpoint.nearby = frozenset(one.driver.core.endpoint.key for one in others)

    def _match(self, topic: DeliveredTopic) -> None:
        """Note on a topic of a peer who gets it; our own are looked after at each change."""
        generation = self.neighbours.generation
        if topic.generation != generation and not _is_own(topic):
            topic.sinks = _once(topic, self._sinks_of(topic))
            topic.generation = generation

    def _match_own(self, topic: OutgoingTopic) -> None:
        own = self._sinks_of(topic) if self._node.loopback else ()
        nearby = [one._nearby_sinks_of(topic) for one in self.neighbours.others(self)]
        topic.nearby = sum(map(bool, nearby))
        topic.listeners = topic.nearby + bool(own)
        passed = (sink._replace(is_nearby=True) for sinks in nearby for sink in sinks)
        topic.sinks = (*own, *passed)
        for sink in topic.sinks:
            replayed = sink.replay(topic, time_ns())
            if replayed is not None:
                self.driver.core.deliveries.append(replayed)
        topic.sinks = _once(topic, topic.sinks)

    def _sinks_of(self, topic: DeliveredTopic) -> tuple[Sink, ...]:
        """Return the subscriptions that get a topic; one of another type does not."""
        sinks = self._matcher.match(topic.subject)
        if isinstance(topic, IncomingTopic) and topic.wish is not None:
            sinks = tuple(sink for sink in sinks if sink.wish == topic.wish)
        if topic.request:
            sinks = tuple(sink for sink in sinks if sink.request == topic.request)
        for sink in sinks if not topic.request else ():
            if self._is_mismatch(topic, sink):
                self._report_mismatch(topic, sink)
        return tuple(sink for sink in sinks if not self._is_mismatch(topic, sink))

    def _nearby_sinks_of(self, topic: OutgoingTopic) -> tuple[Sink, ...]:
        """Return the subscriptions that another node of this process hands a topic over to."""
        links = topic.links
        return tuple(one for one in self._sinks_of(topic) if may_hand_over(links, one.wish))

    def _report_mismatch(self, topic: DeliveredTopic, sink: Sink) -> None:
        """Report a subscription of another type, once."""
        mismatches = sink.subscription.mismatches
        if (topic.source, topic.subject) not in mismatches:
            mismatches.add((topic.source, topic.subject))
            event = SchemaMismatch(
                self.name, topic.source, topic.subject, sink.schema.name, topic.schema_name
            )
            self._node._emit(event, sink.subscription)

    def _emit(self, event: Event, owner: object = None) -> None:
        """Log and report an event; no lock is held, for a log may end in code of the user's."""
        self.driver.journal.note(event)
        self._node._emit(event, owner)

    @staticmethod
    def _is_mismatch(topic: DeliveredTopic, sink: Sink) -> bool:
        is_typed = bool(sink.schema.hash and topic.schema_hash)
        return is_typed and sink.schema.hash != topic.schema_hash

    def flush(self, timeout: float | None) -> bool:
        """Wait until all receivers have everything; False: not in time, or one was lost before."""
        outgoing = self.driver.core.outgoing
        for sender in outgoing.senders.values():
            sender.framer.hold_until_ns = 0
        self.driver.flush(monotonic_ns())
        is_settled = self.driver.wait(outgoing.is_settled, timeout)
        self.driver.hand_out()
        return is_settled and outgoing.is_delivered()

    def close(self, linger_ms: float | None = None) -> None:
        """Leave the channel; what is pending is sent, repairs are served for a while."""
        self.close_at(monotonic() + read_linger(linger_ms, self._node.settings.linger_ms))

    def close_at(self, deadline: float) -> None:
        """Leave the channel by then."""
        if self.driver.closed_reason is None:
            self.driver.close(max(0.0, deadline - monotonic()))
        self.neighbours.leave(self)
        self._node._connection_closed(self)

    @property
    def index(self) -> int | None:
        """Return our bit in the bitmaps of receivers on this channel; None: none yet."""
        return known_index(self.driver.core.register.index)

    def statistics(self) -> ChannelStatistics:
        """Return what this channel did."""
        with self.driver.lock:
            return describe_channel(self.driver)

    def __repr__(self) -> str:
        return f"<Connection {self.name}>"


def _is_own(topic: DeliveredTopic) -> bool:
    """Tell whether a topic, or what it is the history of, is published here."""
    return isinstance(topic.live if isinstance(topic, ReplayedTopic) else topic, OutgoingTopic)


def _once(topic: DeliveredTopic, sinks: tuple[Sink, ...]) -> tuple[Sink, ...]:
    """Let subscriptions take once what a task may publish again; its history ends all the same."""
    is_plain = topic.request or not is_repeatable(topic.source.id)
    return sinks if is_plain else tuple(sink.once() for sink in sinks)
