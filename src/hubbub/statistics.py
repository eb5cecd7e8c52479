"""What nodes and channels count, as frozen snapshots: the tools print these and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from hubbub.consumer import ConsumerStatistics
from hubbub.limits import MS, SECOND
from hubbub.links.depot import DepotStatistics
from hubbub.links.pipes import PipeStatistics
from hubbub.links.statistics import LinkStatistics
from hubbub.links.tcp import TcpStatistics
from hubbub.producer import ProducerStatistics
from hubbub.protocol.core import Core
from hubbub.protocol.peers import Peer
from hubbub.runtime.loop import LoopStatistics
from hubbub.runtime.pool import PoolStatistics
from hubbub.service_statistics import ServicesStatistics
from hubbub.subscription import SubscriptionStatistics
from hubbub.wire.header import NO_INDEX

if TYPE_CHECKING:
    from hubbub.runtime.driver import Driver


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """A subject that this node publishes, or receives from one peer."""

    subject: str
    source: str
    is_own: bool
    is_reliable: bool
    schema: str
    sequence: int
    receivers: int
    lost: int
    late: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class PeerStatistics:
    """Another node, as seen from here."""

    name: str
    id: str
    host: str
    pid: int
    index: int | None
    """Its bit in the bitmaps of receivers; None: it has not said yet."""
    address: str
    link: str
    """How what is for this peer alone goes: `local` or `multicast` (and its unicast)."""
    version: str
    """Of Hubbub; empty: it has not said, or is older than this."""
    uptime_s: float
    is_present: bool
    heard_ms_ago: float
    missing_frames: int
    repaired_frames: int
    is_slow: bool
    rtt_ms: float


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """One channel of a node.

    `frames_sent` counts repairs, too; `drops` is what peers sent and this node did not take, by
    reason; `counters` holds the rarer facts.
    """

    name: str
    index: int | None
    """Our own bit in the bitmaps of receivers; None: none yet."""
    messages_sent: int
    messages_handed_out: int
    frames_sent: int
    repairs_sent: int
    naks_sent: int
    naks_received: int
    naks_suppressed: int
    gaps: int
    messages_lost: int
    cache_bytes: int
    cache_frames: int
    window_bytes: int
    grtt_ms: float
    starvations: int
    unserved: int
    """So many subjects go to or come from a peer by no link that both sides allow."""
    drops: Mapping[str, int]
    counters: Mapping[str, int]
    peers: tuple[PeerStatistics, ...]
    topics: tuple[TopicStatistics, ...]
    link: LinkStatistics
    tcp: TcpStatistics | None
    local: PipeStatistics | None
    shared: DepotStatistics | None


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Everything a node knows of itself."""

    name: str
    id: str
    incarnation: int
    domain: str
    channels: tuple[ChannelStatistics, ...]
    subscriptions: tuple[SubscriptionStatistics, ...]
    loop: LoopStatistics
    pool: PoolStatistics
    producers: tuple[ProducerStatistics, ...] = ()
    consumers: tuple[ConsumerStatistics, ...] = ()
    services: ServicesStatistics | None = None


def known_index(index: int) -> int | None:
    """Return an index of the register as people see it."""
    return None if index == NO_INDEX else index


def describe_channel(driver: "Driver") -> ChannelStatistics:
    """Take the snapshot of a channel; under its lock."""
    core, pipes = driver.core, driver.pipes
    outgoing, counters = core.outgoing, core.endpoint.counters
    peers = list(core.peers.values())
    receivers = [receiver for peer in peers for receiver in peer.incoming.values()]
    return ChannelStatistics(
        name=driver.link.channel,
        index=known_index(core.register.index),
        messages_sent=outgoing.messages_sent,
        messages_handed_out=driver.dispatcher.messages,
        frames_sent=sum(sender.frames_sent for sender in outgoing.senders.values()),
        repairs_sent=sum(sender.repairs_sent for sender in outgoing.reliables),
        naks_sent=counters["naks_sent"],
        naks_received=counters["naks_received"],
        naks_suppressed=sum(receiver.requester.suppressed for receiver in receivers),
        gaps=counters["gaps"],
        messages_lost=counters["messages_lost"],
        cache_bytes=sum(cache.size_bytes for cache in outgoing.caches),
        cache_frames=sum(len(cache) for cache in outgoing.caches),
        window_bytes=core.incoming.window_bytes,
        grtt_ms=outgoing.grants.grtt_ns / MS,
        starvations=driver.starvations,
        unserved=len(core.linkless.cases),
        drops=MappingProxyType(dict(core.endpoint.drops)),
        counters=MappingProxyType(dict(counters)),
        peers=tuple(_describe_peer(core, peer) for peer in peers if peer.is_known),
        topics=_describe_topics(core, peers),
        link=driver.link.statistics(),
        tcp=None if driver.tcp is None else driver.tcp.link.statistics(),
        local=None if pipes is None else pipes.link.statistics(),
        shared=None if pipes is None or pipes.depot is None else pipes.depot.statistics(),
    )


def _describe_peer(core: Core, peer: Peer) -> PeerStatistics:
    states = core.outgoing.states_of(peer.key)
    return PeerStatistics(
        name=peer.source.name,
        id=peer.source.id.hex(),
        host=peer.host,
        pid=peer.pid,
        index=known_index(peer.index),
        address=peer.place,
        link=peer.link,
        version=peer.release,
        uptime_s=max(core.endpoint.now - peer.opened_ns, 0) / SECOND,
        is_present=peer.is_present,
        heard_ms_ago=max(core.endpoint.now - peer.heard_ns, 0) / MS,
        missing_frames=sum(len(r.requester.missing) for r in peer.incoming.values()),
        repaired_frames=sum(r.repaired for r in peer.incoming.values()),
        is_slow=core.outgoing.is_slow(peer.key),
        rtt_ms=max((state.rtt_ns for state in states), default=0) / MS,
    )


def _describe_topics(core: Core, peers: list[Peer]) -> tuple[TopicStatistics, ...]:
    own = [
        TopicStatistics(
            topic.subject,
            str(topic.source),
            True,
            topic.is_reliable,
            topic.schema_name,
            topic.next_sequence - 1,
            topic.receivers,
            0,
            0,
            0,
        )
        for topic in core.outgoing.topics.values()
    ]
    heard = [
        TopicStatistics(
            topic.subject,
            str(topic.source),
            False,
            topic.is_reliable,
            topic.schema_name,
            (topic.expected or 1) - 1,
            0,
            topic.lost,
            topic.late,
            topic.duplicates,
        )
        for peer in peers
        for receiver in peer.incoming.values()
        for topic in receiver.own_topics()
        if topic.is_wanted and not topic.request
    ]
    return (*own, *heard)
