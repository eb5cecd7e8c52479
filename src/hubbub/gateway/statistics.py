"""What a gateway has done, as a frozen snapshot: tools print this, and gateways tell it each other.

Structs of msgspec, because they travel (`gateway/routes.py`).
"""

from msgspec import Struct

from hubbub.limits import SECOND
from hubbub.message import Source
from hubbub.protocol.gateway.port import Passed, Port
from hubbub.protocol.peers import Peer
from hubbub.subjects import OWN_SUBJECTS


class PassedTopic(Struct, frozen=True):
    """A topic of an origin elsewhere that is passed on to a side."""

    origin: Source
    subject: str
    hops: int
    messages: int
    bytes: int
    receivers: int
    age_s: float


class PresentNode(Struct, frozen=True):
    """A node that is there on a side, gateways among them, and what it declares."""

    source: Source
    host: str
    pid: int
    publishes: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()


class PortStatistics(Struct, frozen=True):
    """One side of a gateway: what its nodes want, what is asked of it, what went out there."""

    name: str
    source: Source
    """Who the gateway is on this side."""
    is_open: bool
    nodes: tuple[PresentNode, ...]
    wanted: tuple[str, ...]
    asked: tuple[str, ...]
    messages: int
    bytes: int
    queued_bytes: int
    drops: dict[str, int]
    topics: tuple[PassedTopic, ...]
    untold: int = 0
    """How many topics, nodes and names are left out, where this was told by a gateway elsewhere."""


class GatewayStatistics(Struct, frozen=True):
    """All sides of a gateway."""

    name: str
    id: str
    ports: tuple[PortStatistics, ...]
    root: str
    """The id of the gateway that is the root of the tree of gateways, ours or another."""
    is_standby: bool
    """Another gateway joins the same networks; this one takes over when it fails."""


def describe_port(now: int, port: Port) -> PortStatistics:
    """Say what a port did; under its lock."""
    core = port.core
    return PortStatistics(
        name=port.name,
        source=core.endpoint.source,
        is_open=port.is_open,
        nodes=tuple(_describe_node(peer) for peer in core.peers.values() if peer.is_present),
        wanted=tuple(sorted(port.patterns)),
        asked=tuple(sorted(port.asked)),
        messages=port.messages,
        bytes=port.bytes,
        queued_bytes=port.queued_bytes,
        drops=dict(port.drops),
        topics=tuple(_describe_topic(now, passed) for passed in port.passed.values()),
    )


def _describe_node(peer: Peer) -> PresentNode:
    publishes, wants = peer.declared.publications, peer.declared.sound_patterns()
    return PresentNode(
        peer.source, peer.host, peer.pid,
        tuple(name for name in publishes if not name.startswith(OWN_SUBJECTS)),
        tuple(name for name in wants if not name.startswith(OWN_SUBJECTS)),
    )  # fmt: skip


def _describe_topic(now: int, passed: Passed) -> PassedTopic:
    topic = passed.topic
    return PassedTopic(
        topic.source, topic.subject, topic.hops, passed.messages, passed.bytes, topic.receivers,
        (now - passed.since_ns) / SECOND,
    )  # fmt: skip
