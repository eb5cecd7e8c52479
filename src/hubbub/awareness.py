"""Who is at the other end: the subscribers of a publisher, and the publishers of a subscription."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubbub.limits import MS
from hubbub.message import Source
from hubbub.protocol.core import Core
from hubbub.protocol.peers import Peer
from hubbub.protocol.topics import OutgoingTopic
from hubbub.subjects import matches
from hubbub.wire.control import Publication
from hubbub.wire.header import RELIABLE
from hubbub.wire.wishes import decode_links

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
    links: tuple[str, ...] = ()
    """What it insists on for all its subscriptions to the subject, together; none: any link."""
    is_skipped: bool
    """It did not acknowledge a message in time, and is not waited for until it is heard again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePublisher(RemoteNode):
    """Another node that publishes a subject which a subscription wants."""

    subject: str
    schema: str
    is_reliable: bool
    sequence: int
    """Of the newest message that came; 0: none. In this process, and where nothing is subscribed,
    of the newest one when the node declared the subject."""
    links: tuple[str, ...] = ()
    """What the publisher insists on, the preferred one first; none: any link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePeer(RemoteNode):
    """Another node, and what it declares: what it wants and what it publishes."""

    patterns: tuple[str, ...]
    publications: tuple[RemotePublisher, ...]
    wishes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Of its patterns, those that are wanted by these links alone by some subscription."""


def list_subscribers(driver: "Driver", topic: OutgoingTopic) -> tuple[RemoteSubscriber, ...]:
    """Return who is owed a topic of ours."""
    with driver.lock:
        core = driver.core
        return tuple(
            RemoteSubscriber(
                **{**_describe(driver, peer), "link": _link_for(core, peer, topic)},
                links=_wish_of(peer, topic.subject),
                is_slow=core.outgoing.is_slow(peer.key),
                is_skipped=peer.key in core.outgoing.receipts.skipped,
            )
            for peer in core.peers.values()
            if peer.is_present and peer.gets(topic)
        )


def list_publishers(driver: "Driver", patterns: tuple[str, ...]) -> tuple[RemotePublisher, ...]:
    """Return who publishes what matches any of these patterns, subject by subject."""
    with driver.lock:
        found = [
            (peer, peer.declared.publications[subject])
            for subject, peers in driver.core.matches.publishing.items()
            if any(matches(pattern, subject) for pattern in patterns)
            for peer in peers.values()
        ]
        received = {peer.key: _sequences(peer) for peer, _ in found}
    return tuple(
        _describe_publisher(
            driver, peer, one, received[peer.key].get(one.subject, one.sequence if peer.is_nearby
            else 0),
        )
        for peer, one in found
    )  # fmt: skip


def list_peers(driver: "Driver") -> tuple[RemotePeer, ...]:
    """Return the other nodes that are here."""
    with driver.lock:
        # Only copied here: to describe a hundred thousand publications takes long.
        found = [
            (peer, _sequences(peer), peer.declared.sound_patterns(),
             tuple(peer.declared.publications.values()), peer.declared.insisting())
            for peer in driver.core.peers.values()
            if peer.is_present
        ]  # fmt: skip
    return tuple(
        RemotePeer(
            **_describe(driver, peer),
            patterns=patterns,
            wishes=wishes,
            publications=tuple(
                _describe_publisher(
                    driver, peer, one, max(one.sequence, received.get(one.subject, 0))
                )
                for one in publications
            ),
        )
        for peer, received, patterns, publications, wishes in found
    )


def _describe_publisher(
    driver: "Driver", peer: Peer, publication: Publication, sequence: int
) -> RemotePublisher:
    return RemotePublisher(
        **_describe(driver, peer),
        subject=publication.subject,
        schema=publication.schema_name,
        is_reliable=publication.stream == RELIABLE,
        sequence=sequence,
        links=decode_links(publication.links),
    )


def _link_for(core: Core, peer: Peer, topic: OutgoingTopic) -> str:
    """Name the link by which a topic gets to a peer if nobody else wants it."""
    owed = [one for one in (topic, *topic.branches.values()) if one.number in peer.debt.owed]
    chosen = [core.outgoing.grants.link_to(peer, one.ways) for one in owed if one.links]
    return next(filter(None, chosen), "none" if chosen else peer.link)


def _wish_of(peer: Peer, subject: str) -> tuple[str, ...]:
    """Return the links that all subscriptions of a peer to a subject insist on, together."""
    wishes = peer.declared.wishes_for(subject)
    return () if () in wishes else tuple(dict.fromkeys(link for one in wishes for link in one))


def _sequences(peer: Peer) -> dict[str, int]:
    """Return of each subject that came from a peer the sequence of its newest message."""
    return {
        topic.subject: (topic.expected or 1) - 1
        for receiver in peer.incoming.values()
        for topic in receiver.topics.values()
        if topic.is_wanted and not topic.request
    }


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
