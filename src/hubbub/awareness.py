"""Who is at the other end: the subscribers of a publisher, and the publishers of a subscription."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubbub.limits import MS
from hubbub.message import Source
from hubbub.protocol.peers import Peer
from hubbub.protocol.topics import OutgoingTopic
from hubbub.subjects import matches

if TYPE_CHECKING:
    from hubbub.runtime.driver import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteNode:
    """Another node, as a publisher or a subscription sees it."""

    node: Source
    host: str
    pid: int
    link: str
    """How messages get there if nobody else wants them: `inproc`, `local` or `multicast`."""
    channel: str
    since_ns: int
    """When it was met, by our wall clock."""
    heard_ms_ago: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSubscriber(RemoteNode):
    """Another node that a publisher's messages are for."""

    is_slow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePublisher(RemoteNode):
    """Another node that publishes a subject which a subscription wants."""

    subject: str
    schema: str
    is_reliable: bool
    sequence: int
    """Of the newest message that came; 0: none."""


def list_subscribers(driver: "Driver", topic: OutgoingTopic) -> tuple[RemoteSubscriber, ...]:
    """Return who is owed a topic of ours."""
    with driver.lock:
        core = driver.core
        return tuple(
            RemoteSubscriber(**_describe(driver, peer), is_slow=core.outgoing.is_slow(peer.key))
            for peer in core.peers.values()
            if peer.is_present and _is_for(topic, peer)
        )


def list_publishers(driver: "Driver", patterns: tuple[str, ...]) -> tuple[RemotePublisher, ...]:
    """Return who publishes what matches any of these patterns, as far as peers have told."""
    with driver.lock:
        return tuple(
            RemotePublisher(
                **_describe(driver, peer),
                subject=topic.subject,
                schema=topic.schema_name,
                is_reliable=topic.is_reliable,
                sequence=(topic.expected or 1) - 1,
            )
            for peer in driver.core.peers.values()
            for receiver in peer.incoming.values()
            for topic in receiver.topics.values()
            if peer.is_present
            and topic.is_wanted
            and any(matches(pattern, topic.subject) for pattern in patterns)
        )


def _is_for(topic: OutgoingTopic, peer: Peer) -> bool:
    if peer.is_nearby:
        return bool(peer.interest.match(topic.subject))
    return topic.number in peer.debt.owed


def _describe(driver: "Driver", peer: Peer) -> dict[str, Any]:
    """Say of a peer what both sides want to know."""
    endpoint = driver.core.endpoint
    return {
        "node": peer.source,
        "host": peer.host,
        "pid": peer.pid,
        "link": peer.link,
        "channel": driver.link.channel,
        "since_ns": peer.met_ns + endpoint.wall_offset_ns,
        "heard_ms_ago": max(endpoint.now - peer.heard_ns, 0) / MS,
    }
