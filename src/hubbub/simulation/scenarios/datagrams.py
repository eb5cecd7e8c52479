"""Best effort by datagrams: in order, nothing twice, holes counted, and nobody asks for anything.

Some nodes hear a lossy group, others know each other by TCP alone; each takes datagrams.
"""

from itertools import permutations, product

from hubbub.limits import MS, SECOND
from hubbub.protocol.delivery import DATAGRAM, LOCAL, MULTICAST, TCP
from hubbub.protocol.topics import IncomingTopic
from hubbub.simulation.checkers import Publication
from hubbub.simulation.insistent import Insistent
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage
from hubbub.wire.wishes import Links, combine

_NAMES = (LOCAL, MULTICAST, TCP, DATAGRAM)
_WISHES: tuple[Links, ...] = tuple(
    links
    for count in (1, 2, 3, 4)
    for links in permutations(_NAMES, count)
    if DATAGRAM in links
)  # fmt: skip
_PAUSES_MS = (0, 1, 10, 60)
_MEETING_NS = 400 * MS
_LAST = 5  # Messages after everything is healed.
Subscriber = SimulatedNode | Insistent


def _node_of(subscriber: Subscriber) -> SimulatedNode:
    return subscriber if isinstance(subscriber, SimulatedNode) else subscriber.node


def _wish_of(subscriber: Subscriber) -> Links:
    return () if isinstance(subscriber, SimulatedNode) else subscriber.links


class _Plant:
    """Publishers of best effort that name datagram, and those who want what they publish."""

    def __init__(self, stage: Stage, *, has_group: bool) -> None:
        random = stage.random
        self.stage = stage
        self.has_group = has_group
        host = stage.host(has_group=has_group, has_datagram=True)
        self.publishing = stage.nodes(random.randint(1, 2), host)
        self.nodes = stage.nodes(random.randint(1, 4), host)
        self.subscribers: list[Subscriber] = []
        for node in self.nodes:
            node.subscribe("/t/...")
            self.subscribers.append(node)
            for wish in random.sample(_WISHES, random.randint(0, 2)):
                self.subscribers.append(node.insist("/t/...", wish))
        for node, place in product(self.publishing, range(random.randint(1, 3))):
            links = random.choice(_WISHES)
            node.publish_on(f"/t/{place}", is_reliable=False, links=links)

    def connect(self) -> list[tuple[SimulatedNode, SimulatedNode, str]]:
        """Open connections; where there is no group, nodes find each other by these."""
        places = [
            (one, other, link)
            for one, other, link in product(self.publishing, self.nodes, (TCP, LOCAL))
            if (link == TCP and not self.has_group) or self.stage.world.chance(0.4)
        ]
        for place in places:
            self.stage.network.pipes.open(*place)
        return places

    def check_by_datagram(self) -> None:
        """Check that datagrams lead to everybody, whatever else does."""
        for node, other in product(self.publishing, self.nodes):
            link = node.core.outgoing.grants.link_to(node.core.peers[other.key], (DATAGRAM,))
            self.stage.world.check(link == DATAGRAM, f"no datagram leads from {node} to {other}")

    def receptions(self) -> list[tuple[Publication, Subscriber]]:
        """Name who is to get what."""
        publications = self.stage.ledger.publications.values()
        return [
            (publication, subscriber)
            for publication, subscriber in product(publications, self.subscribers)
            if combine(publication.topic.links, _wish_of(subscriber))
        ]

    def check_end(self) -> None:
        """Check that everybody has the last messages, and that each hole before was counted."""
        world, ledger = self.stage.world, self.stage.ledger
        for publication, subscriber in self.receptions():
            reception = ledger.reception(publication, subscriber)
            who = f"{subscriber.name} of {publication.topic.subject} by {publication.node.name}"
            world.check(
                reception.next == publication.next,
                f"{who} has {reception.next - 1} of {publication.next - 1}, over"
                f" {publication.topic.links}",
            )
            topic = self._topic(publication, subscriber)
            missing = reception.next - self._owed_from(publication, subscriber) - reception.count
            world.check(topic.lost == missing, f"{who} counts {topic.lost} lost, not {missing}")
            world.counts["holes"] += missing
        for kind in ("nak", "repair"):
            world.check(not self.stage.network.counts[kind], f"somebody sent a {kind}")

    @staticmethod
    def _topic(publication: Publication, subscriber: Subscriber) -> IncomingTopic:
        """Find how a subscriber sees what is published."""
        peer = _node_of(subscriber).core.peers[publication.node.key]
        [found] = [
            topic
            for receiver in peer.incoming.values()
            for topic in receiver.topics.values()
            if topic.subject == publication.topic.subject and topic.wish == _wish_of(subscriber)
        ]
        return found

    @staticmethod
    def _owed_from(publication: Publication, subscriber: Subscriber) -> int:
        topic, wish = publication.topic, _wish_of(subscriber)
        number = topic.branches[wish].number if wish else topic.number
        return publication.node.core.peers[_node_of(subscriber).key].debt.owed[number]


@scenario
def datagrams(stage: Stage) -> None:
    """Lose, repeat and shuffle datagrams: what comes is in order and once, holes are counted."""
    random, world, pipes = stage.random, stage.world, stage.network.pipes
    plant = _Plant(stage, has_group=world.chance(0.5))
    places = plant.connect()
    world.run_for(_MEETING_NS)
    plant.check_by_datagram()
    stage.faults(
        loss=random.choice([0, random.uniform(0, 0.3)]), reorder=random.choice([0, 0.05]),
        duplicate=random.choice([0, 0.05]),
    )  # fmt: skip
    stage.feed_all(plant.publishing, 80)
    local = [place for place in places if place[2] == LOCAL]
    for _ in range(random.randint(0, 10) if local else 0):
        world.run_for(random.choice(_PAUSES_MS) * MS)
        place = random.choice(local)
        (pipes.cut if pipes.is_open(*place) else pipes.open)(*place)
    stage.play()
    stage.heal()
    world.run_for(2 * SECOND)
    stage.feed_all(plant.publishing, _LAST)
    stage.play()
    world.run_for(200 * MS)
    plant.check_end()


@scenario
def datagrams_fall_silent(stage: Stage) -> None:
    """Lose all datagrams for good, or for a while: best effort goes on by TCP where it may."""
    random, world, network = stage.random, stage.world, stage.network
    host = stage.host(has_group=False, has_datagram=True)
    publisher, *nodes = stage.nodes(random.randint(2, 4), host)
    for node in nodes:
        node.subscribe("/t/...")
        network.pipes.open(publisher, node, TCP)
    topic = publisher.publish_on("/t/0", is_reliable=False, links=(DATAGRAM, TCP))
    only = publisher.publish_on("/t/1", is_reliable=False, links=(DATAGRAM,))
    stage.meet([topic, only], len(nodes), SECOND)
    publication = stage.ledger.publications[
        publisher.source.id, publisher.source.incarnation, "/t/0"
    ]
    stage.feed(publisher, topic, count=1000, pause_ns=(10 * MS, 20 * MS))
    stage.feed(publisher, only, count=1000, pause_ns=(10 * MS, 20 * MS))
    world.run_for(random.randint(0, 2000) * MS)
    network.block([publisher.index], [node.index for node in nodes])
    world.run_for(5 * SECOND)  # More than a timeout, and a look.
    silent = {node: stage.ledger.reception(publication, node).next for node in nodes}
    for node in nodes:
        world.check(silent[node] > 1, f"{node} got nothing")
        behind = publication.next - silent[node]
        world.check(behind < 20, f"{node} is {behind} messages behind, though TCP leads there")
        link = publisher.core.outgoing.grants.link_to(publisher.core.peers[node.key], topic.ways)
        world.check(link == TCP, f"{link} is taken to lead to {node}")
    network.unblock()
    world.run_for(2 * SECOND)
    for node in nodes:
        link = publisher.core.outgoing.grants.link_to(publisher.core.peers[node.key], topic.ways)
        world.check(link == DATAGRAM, f"not datagram but {link} leads to {node} again")
    stage.play()
    world.run_for(200 * MS)
    for node, one in product(nodes, stage.ledger.publications.values()):
        reception = stage.ledger.reception(one, node)
        who = f"{node} of {one.topic.subject}"
        world.check(reception.next == one.next, f"{who} has {reception.next} of {one.next}")
    world.check(not network.counts["nak"], "somebody asked for what was lost")
