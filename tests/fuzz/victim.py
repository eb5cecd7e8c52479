"""A node in the middle of a conversation, and what may never become of it."""

from functools import cache
from random import Random

from hubbub.limits import (
    DEPARTED_MAX,
    HELD_BYTES_MAX,
    INTERESTS_MAX,
    LOST_RUNS_MAX,
    MISSING_FRAMES_MAX,
    MS,
    NODE_NAME_BYTES_MAX,
    PATTERNS_MAX,
    PEERS_MAX,
    PRODUCERS_HEARD_MAX,
    PUBLICATIONS_MAX,
    REASSEMBLIES_PER_PEER_MAX,
    TOPICS_MAX,
)
from hubbub.protocol.core import Core
from hubbub.protocol.incoming import EARLY_HEADER_BYTES
from hubbub.protocol.peers import Peer
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.producer import Producer, ProducerOptions
from hubbub.subjects import is_subject
from hubbub.wire.header import GOODBYE, STREAMS
from hubbub.wire.timed import ALL, OBSERVE, ONE
from tests.fuzz.malformed import Target
from tests.harness import Datagram, Lan, Node, lose_share

REASSEMBLY_BYTES = 8 << 20
FRAME_BYTES = 1400


def converse(lan: Lan, random: Random) -> None:
    """Let three nodes publish to each other with loss, so that frames of every kind flow."""
    topics = []
    for node, subject in zip(lan.nodes, ("/victim/x", "/a/b", "/a/large"), strict=True):
        topics.append((node, node.core.publish_on(lan.now, subject)))
    lan.run(60 * MS)
    lan.lose = lose_share(random, 0.2)
    for number in range(20):
        for node, topic in topics:
            is_large = topic.subject == "/a/large" and number % 8 == 0
            lan.publish(node, topic, bytes(5000) if is_large else b"%d" % number)
        lan.run(2 * MS)
    lan.run(50 * MS)


def converse_on(lan: Lan, now: int) -> int:
    """Let the honest go on between the lies, so that what these left behind is met."""
    lan.now = now
    for node in lan.nodes:
        for topic in node.core.outgoing.topics.values():
            lan.publish(node, topic, b"honest", bytes(2000))
    lan.run(2 * MS)
    return lan.now


def open_victim(seed: int, reassembly_bytes: int = REASSEMBLY_BYTES) -> tuple[Lan, Node]:
    """Return a node that publishes and subscribes among two others."""
    lan = Lan(3, reassembly_bytes=reassembly_bytes, cache_bytes=20_000, seed=seed)
    for node in lan.nodes:
        node.core.subscribe(lan.now, "/a/..." if node is lan.nodes[0] else "/...")
        beat(lan, node)
    converse(lan, Random(seed))
    return lan, lan.nodes[0]


def beat(lan: Lan, node: Node) -> None:
    """Let a node make a type that the others want, and want what they make."""
    gateway = node.core.timed
    gateway.produce(lan.now, 1, "/vehicle/speed", ProducerOptions(), lambda due: None)
    for type, mode in ((1, ALL), (2, ONE), (0, OBSERVE)):
        consumer = Consumer(0, type, "/x", gateway.clock, period_us=1000 * type, mode=mode)
        gateway.consume(lan.now, consumer, lambda sample: None)


@cache
def farewells() -> list[Datagram]:
    """Return how the victim's peers leave, from a life of their own."""
    lan, _ = open_victim(0)
    for node in lan.nodes[1:]:
        node.core.close(lan.now, 100 * MS)
    lan.run(200 * MS)
    return [each for each in lan.sent if each.kind == GOODBYE]


def target_of(lan: Lan, victim: Node) -> Target:
    """Tell an attacker what there is to know."""
    frames: dict[int, list[bytes]] = {}
    for each in [*lan.sent, *farewells()]:
        if each.sender.core.endpoint.identity.id != victim.core.endpoint.identity.id:
            frames.setdefault(each.kind, []).append(each.data)
    peers = [node for node in lan.nodes if node is not victim]
    return Target(
        victim.key,
        victim.core.endpoint.domain,
        [node.key for node in peers],
        frames,
        peers[0].core.outgoing.reliable.next_sequence,
        victim.core.interest.version,
    )


def faults(core: Core) -> list[str]:
    """Name the bounds that are broken."""
    found = {
        "peers": len(core.peers) > PEERS_MAX,
        "departed": len(core.discovery.departed) > DEPARTED_MAX,
        "foreign": len(core._foreign) > 256,
        "replies": len(core.discovery.replies) > PEERS_MAX,
        "cache": core.outgoing.cache.size_bytes > core.settings.cache_bytes + FRAME_BYTES,
        "repairs": len(core.outgoing.reliable.repairs) > MISSING_FRAMES_MAX,
        "owed": len(core.outgoing.grants.from_frames) > len(core.peers),
        "flow": len(core.outgoing.flow.receivers) > len(core.peers),
        "receivers": any(topic.receivers < 0 for topic in core.outgoing.topics.values()),
        "budget": not 0 <= core.incoming.budget.claimed_bytes <= REASSEMBLY_BYTES,
        "deadline": core.deadline() is None,
    }
    found["claimed"] = core.incoming.budget.claimed_bytes != sum(
        partial.total
        for peer in core.peers.values()
        for receiver in peer.incoming.values()
        for partial in receiver.reassembly.partials.values()
    )
    names = [name for name, is_broken in found.items() if is_broken]
    for peer in core.peers.values():
        names += _peer_faults(peer)
    return names + _timed_faults(core)


def _timed_faults(core: Core) -> list[str]:
    gateway, found = core.timed, {}
    found["offers"] = len(gateway.wants.offers) > PRODUCERS_HEARD_MAX
    found["routes"] = len(gateway.relay.routes) > PRODUCERS_HEARD_MAX
    found["agenda"] = len(gateway.office.agenda._heap) > 1000
    for component in gateway.components.values():
        if isinstance(component, Producer):
            interests = component.interests
            found["leases"] = len(interests.leases) > INTERESTS_MAX
            found["ended"] = len(interests._ended) > INTERESTS_MAX
            found["counts"] = min(interests.periods.values(), default=1) < 1
        else:
            found["streams"] = len(component.streams) > PRODUCERS_HEARD_MAX
    return [name for name, is_broken in found.items() if is_broken]


def _peer_faults(peer: Peer) -> list[str]:
    declared = peer.declared
    subjects = declared.publications
    found = {
        "early": peer.early_bytes > 1 << 20,
        "early sum": peer.early_bytes
        != sum(len(frame) or EARLY_HEADER_BYTES for _, frame, _ in peer.early),
        "name": len(peer.source.name) > NODE_NAME_BYTES_MAX,
        "control characters": any(ord(character) < 32 for character in peer.source.name),
        "patterns": len(declared.patterns) > PATTERNS_MAX,
        "parts": declared._snapshot._patterns > PATTERNS_MAX,
        "publications": len(subjects) > PUBLICATIONS_MAX,
        "published": not all(map(is_subject, subjects)),
        "size": declared._size_bytes
        != sum(len(name) + len(one.schema_name) for name, one in subjects.items()),
        "streams": not set(peer.incoming) <= set(STREAMS),
        "ends": len(peer.ends or ()) > len(STREAMS),
    }
    names = [name for name, is_broken in found.items() if is_broken]
    for receiver in peer.incoming.values():
        names += _receiver_faults(receiver)
    return names


def _receiver_faults(receiver: Receiver) -> list[str]:
    found = {
        "missing": len(receiver.requester.missing) > MISSING_FRAMES_MAX,
        "order": list(receiver.requester.missing) != sorted(receiver.requester.missing),
        "base": receiver.base > receiver.next,
        "topics": len(receiver.topics) > TOPICS_MAX,
        "held": receiver.held_bytes > HELD_BYTES_MAX + (1 << 16),
        "partials": len(receiver.reassembly.partials) > REASSEMBLIES_PER_PEER_MAX,
    }
    for topic in receiver.topics.values():
        found["subject"] = found.get("subject", False) or not is_subject(topic.subject)
        found["gone"] = found.get("gone", False) or len(topic.gone) > LOST_RUNS_MAX
    return [name for name, is_broken in found.items() if is_broken]
