"""What a gateway has done, as a frozen snapshot: tools print this and nothing else."""

from dataclasses import dataclass

from hubbub.limits import SECOND
from hubbub.message import Source
from hubbub.protocol.gateway.port import Passed, Port


@dataclass(frozen=True, slots=True)
class PassedTopic:
    """A topic of an origin elsewhere that is passed on to a side."""

    origin: Source
    subject: str
    hops: int
    messages: int
    bytes: int
    receivers: int
    age_s: float


@dataclass(frozen=True, slots=True)
class PortStatistics:
    """One side of a gateway: what its nodes want, what is asked of it, what went out there."""

    name: str
    is_open: bool
    nodes: int
    wanted: tuple[str, ...]
    asked: tuple[str, ...]
    messages: int
    bytes: int
    queued_bytes: int
    drops: dict[str, int]
    topics: tuple[PassedTopic, ...]


@dataclass(frozen=True, slots=True)
class GatewayStatistics:
    """All sides of a gateway."""

    name: str
    ports: tuple[PortStatistics, ...]
    root: str
    """The id of the gateway that is the root of the tree of gateways, ours or another."""
    is_standby: bool
    """Another gateway joins the same networks; this one takes over when it fails."""


def describe_port(now: int, port: Port) -> PortStatistics:
    """Say what a port did; under its lock."""
    return PortStatistics(
        name=port.name,
        is_open=port.is_open,
        nodes=sum(peer.is_present for peer in port.core.peers.values()),
        wanted=tuple(sorted(port.patterns)),
        asked=tuple(sorted(port.asked)),
        messages=port.messages,
        bytes=port.bytes,
        queued_bytes=port.queued_bytes,
        drops=dict(port.drops),
        topics=tuple(_describe_topic(now, passed) for passed in port.passed.values()),
    )


def _describe_topic(now: int, passed: Passed) -> PassedTopic:
    topic = passed.topic
    return PassedTopic(
        topic.source, topic.subject, topic.hops, passed.messages, passed.bytes, topic.receivers,
        (now - passed.since_ns) / SECOND,
    )  # fmt: skip
