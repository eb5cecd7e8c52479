"""Who is at the other end: the subscribers of a publisher, and the publishers of a subscription."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubbub.limits import MS
from hubbub.message import Source
from hubbub.protocol.delivery import INPROC, LOCAL, MULTICAST
from hubbub.protocol.peers import Peer
from hubbub.protocol.topics import OutgoingTopic
from hubbub.subjects import matches

if TYPE_CHECKING:
    from hubbub.runtime.driver import Driver


@dataclass(frozen=True, slots=True)
class RemoteSubscriber:
    """Another node that a publisher's messages are for."""

    node: Source
    host: str
    pid: int
    link: str
    """How messages get there if nobody else wants them: `inproc`, `local` or `multicast`."""
    channel: str
    since_ns: int
    """When it was met, by our wall clock."""
    heard_ms_ago: float
    is_slow: bool


@dataclass(frozen=True, slots=True)
class RemotePublisher:
    """Another node that publishes a subject which a subscription wants."""

    node: Source
    host: str
    pid: int
    link: str
    channel: str
    subject: str
    schema: str
    is_reliable: bool
    since_ns: int
    heard_ms_ago: float
    sequence: int
    """Of the newest message that came; 0: none."""


def list_subscribers(driver: "Driver", topic: OutgoingTopic) -> tuple[RemoteSubscriber, ...]:
    """Return who is owed a topic of ours."""
    with driver.lock:
        core = driver.core
        receivers = core.outgoing.flow.receivers
        return tuple(
            RemoteSubscriber(
                node=peer.source,
                host=peer.host,
                pid=peer.pid,
                link=_link(peer),
                channel=driver.link.channel,
                since_ns=peer.met_ns + core.endpoint.wall_offset_ns,
                heard_ms_ago=max(core.endpoint.now - peer.heard_ns, 0) / MS,
                is_slow=peer.key in receivers and receivers[peer.key].is_slow,
            )
            for peer in core.peers.values()
            if peer.is_present and _is_for(topic, peer)
        )


def list_publishers(driver: "Driver", patterns: tuple[str, ...]) -> tuple[RemotePublisher, ...]:
    """Return who publishes what matches any of these patterns, as far as peers have told."""
    with driver.lock:
        core = driver.core
        return tuple(
            RemotePublisher(
                node=peer.source,
                host=peer.host,
                pid=peer.pid,
                link=_link(peer),
                channel=driver.link.channel,
                subject=topic.subject,
                schema=topic.schema_name,
                is_reliable=topic.is_reliable,
                since_ns=peer.met_ns + core.endpoint.wall_offset_ns,
                heard_ms_ago=max(core.endpoint.now - peer.heard_ns, 0) / MS,
                sequence=(topic.expected or 1) - 1,
            )
            for peer in core.peers.values()
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


def _link(peer: Peer) -> str:
    if peer.is_nearby:
        return INPROC
    return MULTICAST if peer.pipe is None else LOCAL
