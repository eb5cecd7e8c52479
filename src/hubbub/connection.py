"""A channel that a node has joined: its driver, its subscriptions, its end."""

from functools import cache
from random import Random, SystemRandom
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from hubbub.channel import Channel
from hubbub.events import Event, SchemaMismatch
from hubbub.links.host import HostLink
from hubbub.links.multicast import MulticastLink
from hubbub.protocol.core import Core
from hubbub.protocol.delivery import DeliveredTopic
from hubbub.runtime.dispatcher import Dispatcher
from hubbub.runtime.driver import Driver
from hubbub.runtime.logs import logger_of
from hubbub.runtime.loop import shared
from hubbub.schema import Schema
from hubbub.statistics import ChannelStatistics, describe_channel
from hubbub.subjects import Matcher
from hubbub.subscription import Subscription

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


class Sink(NamedTuple):
    """A subscription as the matcher of a channel knows it."""

    subscription: Subscription
    context: Any
    schema: Schema


class Connection:
    """One channel of one node; `node.connect` makes it, `close` leaves the channel."""

    def __init__(self, node: "Node", channel: Channel) -> None:
        self.channel = channel
        self.name = channel.name
        self._node = node
        self._matcher: Matcher[Sink] = Matcher()
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
        dispatcher = Dispatcher(self._match, self._emit)
        local = node._open_local(core.endpoint) if "local" in node.links else None
        if isinstance(link, HostLink):
            link.use(local)
        self.driver = Driver(core, link, shared(), dispatcher, node._forked, local)

    @staticmethod
    def _open_link(node: "Node", channel: Channel) -> MulticastLink | HostLink:
        if "multicast" not in node.links:
            return HostLink(channel.group, channel.port)
        return MulticastLink(
            channel.group, channel.port,
            interface=channel.interface or node._interface, ttl=channel.ttl,
            faults=node._faults, **node._link_options,
        )  # fmt: skip

    def start(self, switch_interval_ms: float | None, spin_us: float) -> None:
        """Begin to send and receive."""
        self.driver.loop.attach(self.driver, switch_interval_ms, spin_us)
        if self.driver.pipes is not None:
            self.driver.loop.attach(self.driver.pipes, switch_interval_ms, spin_us)
        link = self.driver.link
        names = ", ".join(interface.name for interface in link.interfaces)
        _log.info("joined %s on %s as %s", self.name, names, link.address_text)
        is_chosen = self.channel.interface or self._node._interface
        if not is_chosen and all(interface.is_loopback for interface in link.interfaces):
            _notice_loopback()

    def place(self, pattern: str, sink: Sink) -> object:
        """Hand out what matches a pattern to a subscription; returns a handle for `remove`."""
        return self._matcher.add(pattern, sink)

    def subscribe(self, pattern: str) -> None:
        """Tell the others that this pattern is wanted."""
        self.driver.call(self.driver.core.subscribe, pattern)
        self.refresh_own_topics()

    def remove(self, pattern: str, handle: Any) -> None:
        """Receive it no longer."""
        self._matcher.remove(handle)
        if self.driver.closed_reason is None:
            self.driver.call(self.driver.core.unsubscribe, pattern)
            self.refresh_own_topics()

    def refresh_own_topics(self) -> None:
        """Look again which of our own topics our own subscriptions want."""
        if not self._node.loopback:
            return
        with self.driver.lock:
            for topic in self.driver.core.outgoing.topics.values():
                self._match(topic)

    def _match(self, topic: DeliveredTopic) -> None:
        """Note on a topic who gets it; a subscription of another type does not."""
        generation = self._matcher.generation
        if topic.generation == generation:
            return
        sinks = self._matcher.match(topic.subject)
        for sink in sinks:
            if self._is_mismatch(topic, sink):
                self._node._emit(
                    SchemaMismatch(
                        self.name, topic.source, topic.subject, sink.schema.name, topic.schema_name
                    ),
                    sink.subscription,
                )
        topic.sinks = tuple(sink for sink in sinks if not self._is_mismatch(topic, sink))
        topic.generation = generation

    def _emit(self, event: Event) -> None:
        """Log and report an event; no lock is held, for a log may end in code of the user's."""
        self.driver.journal.note(event)
        self._node._emit(event)

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
        return self.driver.wait(outgoing.is_settled, timeout) and outgoing.is_delivered()

    def close(self, linger_ms: float | None = None) -> None:
        """Leave the channel; what is pending is sent, repairs are served for a while."""
        linger = self._node.settings.linger_ms if linger_ms is None else linger_ms
        self.close_at(monotonic() + linger / 1000)

    def close_at(self, deadline: float) -> None:
        """Leave the channel by then."""
        if self.driver.closed_reason is None:
            self.driver.close(max(0.0, deadline - monotonic()))
        self._node._connection_closed(self)

    def statistics(self) -> ChannelStatistics:
        """Return what this channel did."""
        with self.driver.lock:
            return describe_channel(self.driver)

    def __repr__(self) -> str:
        return f"<Connection {self.name}>"
