"""Publishers and subscriptions that insist on links: nothing goes by another, and nothing is lost.

Hosts have pipes, connections by TCP and a lossy group, which come and go in the midst of streams.
"""

from itertools import permutations, product

from hubbub.events import NoCommonLink
from hubbub.limits import LINKLESS_PATIENCE, MS, SECOND
from hubbub.protocol.delivery import LOCAL, MULTICAST, TCP
from hubbub.protocol.settings import Settings
from hubbub.simulation.checkers import Publication, place_of
from hubbub.simulation.insistent import Insistent
from hubbub.simulation.latecomer import Latecomer
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage
from hubbub.wire.wishes import Links, combine

_WISHES: tuple[Links, ...] = tuple(
    links for count in (1, 2, 3) for links in permutations((LOCAL, MULTICAST, TCP), count)
)
_PAUSES_MS = (0, 0, 1, 10, 60)
_WHOLE_NS = 6 * SECOND
_KNOWN_NS = 50 * MS  # Both ends of a connection know each other when it has been there for so long.
Subscriber = SimulatedNode | Insistent | Latecomer


def _gather(stage: Stage) -> tuple[list[SimulatedNode], list[Subscriber]]:
    """Open publishers and subscribers, each of which insists on links it draws, or on none."""
    random = stage.random
    host = stage.host(settings=Settings(reference_bytes=random.choice([0, 50, 500])))
    publishing = stage.nodes(random.randint(1, 2), host)
    subscribers: list[Subscriber] = []
    for node in stage.nodes(random.randint(1, 4), host):
        for _ in range(random.randint(1, 3)):
            wish = random.choice(((), *_WISHES))
            if wish:
                subscribers.append(node.insist("/t/...", wish))
            elif node not in subscribers:
                node.subscribe("/t/...")
                subscribers.append(node)
    for node, place in product(publishing, range(random.randint(1, 3))):
        wish = random.choice(((), (), *_WISHES))
        is_reliable = stage.world.chance(0.85)
        node.publish_on(f"/t/{place}", is_reliable=is_reliable, links=wish)
    return publishing, subscribers


def _open_some(
    stage: Stage, publishing: list[SimulatedNode], subscribers: list[Subscriber]
) -> set[tuple[SimulatedNode, SimulatedNode, str]]:
    """Open pipes of both kinds between some of them; return which."""
    nodes = list(dict.fromkeys(_node_of(one) for one in subscribers))
    places = list(product(publishing, nodes, (LOCAL, TCP)))
    chosen = {place for place in places if stage.world.chance(0.6)}
    for one, other, link in sorted(chosen, key=str):
        stage.network.pipes.open(one, other, link)
    return chosen


def _node_of(subscriber: Subscriber) -> SimulatedNode:
    return subscriber if isinstance(subscriber, SimulatedNode) else subscriber.node


def _links_of(subscriber: Subscriber) -> Links:
    return () if isinstance(subscriber, SimulatedNode) else subscriber.links


def _is_reached(
    stage: Stage, publication: Publication, subscriber: Subscriber, *, has_group: bool = True
) -> bool:
    """Tell whether a link that both allow leads from a publisher to a subscriber."""
    published, wanted = publication.topic.links, _links_of(subscriber)
    if not (published or wanted):
        return True
    pipes, ends = stage.network.pipes, (publication.node, _node_of(subscriber))
    return any(
        has_group if link == MULTICAST else pipes.is_open(*ends, link)
        for link in combine(published, wanted)
    )


def _was_reached(stage: Stage, publication: Publication, subscriber: Subscriber) -> bool:
    """Tell whether a subscriber had been reached before the last message was published.

    One that a link led to only later, or not for long enough to be noticed, is owed nothing of it,
    unless it has asked for history.
    """
    published, wanted = publication.topic.links, _links_of(subscriber)
    links = combine(published, wanted)
    if MULTICAST in links or not (published or wanted) or subscriber.has_history:
        return True
    ends, by_ns = (publication.node, _node_of(subscriber)), publication.times_ns[-1]
    pipes = stage.network.pipes
    return any(pipes.was_open(*ends, link, for_ns=_KNOWN_NS, by_ns=by_ns) for link in links)


def _lacking(stage: Stage, subscribers: list[Subscriber]) -> str:
    """Say who lacks what it should have; empty when all have it."""
    for publication, subscriber in product(stage.ledger.publications.values(), subscribers):
        if not _is_reached(stage, publication, subscriber) or not publication.topic.is_reliable:
            continue
        reception = stage.ledger.reception(publication, subscriber)
        if reception.start is None and not _was_reached(stage, publication, subscriber):
            continue
        if reception.next != publication.next:
            subject, node = publication.topic.subject, publication.node
            return (
                f"{subscriber.name} has {reception.next - 1} of {publication.next - 1} of {subject}"
                f" by {node.name}, published over {publication.topic.links}"
            )
    return ""


def _settle(stage: Stage, subscribers: list[Subscriber]) -> None:
    """Let everything arrive: everybody who can be reached must have all."""
    stage.world.run_while(lambda: bool(_lacking(stage, subscribers)), _WHOLE_NS, 5 * MS)
    stage.world.check(not (lacking := _lacking(stage, subscribers)), lacking)


def _finish(stage: Stage, subscribers: list[Subscriber]) -> None:
    """Check that in the end everybody who can be reached has all, and others nothing at all."""
    world, ledger = stage.world, stage.ledger
    _settle(stage, subscribers)
    world.run_for(LINKLESS_PATIENCE + 500 * MS)
    ledger._check_holes()
    told = {
        (node.source, event.peer, event.subject, event.published, event.wanted)
        for _, node, event in ledger.events
        if isinstance(event, NoCommonLink)
    }
    for publication, subscriber in product(ledger.publications.values(), subscribers):
        published, wanted = publication.topic.links, _links_of(subscriber)
        if not published or not wanted or combine(published, wanted):
            continue
        who = f"{subscriber.name} of {publication.topic.subject} by {publication.node.name}"
        start = ledger.reception(publication, subscriber).start
        world.check(start is None, f"{who}: got {start} without a common link")
        ends = publication.node.source, _node_of(subscriber).source
        for one, other in (ends, ends[::-1]):
            case = one, other, publication.topic.subject, published, wanted
            world.check(case in told, f"{who}: {one} was not told that there is no common link")
            world.counts["told"] += 1
    _check_counts(stage, subscribers)


def _check_counts(stage: Stage, subscribers: list[Subscriber]) -> None:
    """Check that each node that gets a topic in whatever way is counted once."""
    for publication in stage.ledger.publications.values():
        nodes = {
            _node_of(one) for one in subscribers if _is_reached(stage, publication, one)
        }  # fmt: skip
        found = publication.topic.receivers
        stage.world.check(
            found == len(nodes),
            f"{publication.node.name} counts {found} receivers of {publication.topic.subject},"
            f" not {sorted(node.name for node in nodes)}",
        )


@scenario
def wishes(stage: Stage) -> None:
    """Insist on links that come and go: what may go is whole, and nothing goes another way."""
    random, world, pipes = stage.random, stage.world, stage.network.pipes
    publishing, subscribers = _gather(stage)
    opened = _open_some(stage, publishing, subscribers)
    world.run_for(random.choice([0, 100, 300]) * MS)
    stage.faults(
        loss=random.choice([0, random.uniform(0, 0.2)]), reorder=random.choice([0, 0.02]),
        duplicate=random.choice([0, 0.05]),
    )  # fmt: skip
    stage.feed_all(publishing, 200)
    places = sorted(opened, key=str)
    for _ in range(random.randint(0, 25) if places else 0):
        world.run_for(random.choice(_PAUSES_MS) * MS)
        one, other, link = random.choice(places)
        (pipes.cut if pipes.is_open(one, other, link) else pipes.open)(one, other, link)
    if world.chance(0.5):  # What was published while no link led there is in the caches.
        stage.play()
        world.run_for(random.choice([0, 200]) * MS)
    for place in places:
        if not pipes.is_open(*place):
            pipes.open(*place)
    stage.play()
    stage.heal()
    _settle(stage, subscribers)
    world.run_for(2 * _KNOWN_NS)  # Whom a link led to only after all of that gets what is next.
    stage.feed_all(publishing, 5)
    stage.play()
    _finish(stage, subscribers)


@scenario
def wishes_change(stage: Stage) -> None:
    """Let subscriptions that insist on links come and go beside others of the same node."""
    random, world = stage.random, stage.world
    publishing, subscribers = _gather(stage)
    _open_some(stage, publishing, subscribers)
    stage.faults(loss=random.choice([0, random.uniform(0, 0.1)]))
    stage.feed_all(publishing, 200)
    for _ in range(random.randint(2, 20)):
        world.run_for(random.choice(_PAUSES_MS) * MS)
        node = _node_of(random.choice(subscribers))
        if node.insistent and world.chance(0.5):
            gone = random.choice(node.insistent)
            node.insist_no_more(gone)
            if gone in subscribers and len(subscribers) > 1:
                subscribers.remove(gone)
            else:
                subscribers[:] = [one for one in subscribers if one is not gone] or [
                    node.insist("/t/...", random.choice(_WISHES))
                ]
        else:
            wish = random.choice(_WISHES)
            if all(one.links != wish for one in node.insistent):
                subscribers.append(node.insist("/t/*", wish))
    stage.play()
    world.run_for(500 * MS)  # Who came last is owed something, too.
    stage.feed_all(publishing, 5)
    stage.play()
    stage.heal()
    _finish(stage, subscribers)


@scenario
def group_falls_silent(stage: Stage) -> None:
    """Prefer a group that falls silent for good: connections go on where it stopped."""
    random, world, network = stage.random, stage.world, stage.network
    publisher, *nodes = stage.nodes(random.randint(2, 4))
    wish = random.choice([(MULTICAST, TCP), (MULTICAST, TCP, LOCAL), (MULTICAST, LOCAL, TCP)])
    subscribers: list[Subscriber] = [
        node.insist("/t/...", wish) if world.chance(0.5) else node for node in nodes
    ]
    for node in nodes:
        network.pipes.open(publisher, node, random.choice(wish[1:]))
        if node in subscribers:
            node.subscribe("/t/...")
    topic = publisher.publish_on("/t/0", links=wish)
    stage.meet([topic], len(nodes), 1000 * MS)
    stage.feed(publisher, topic, count=300, pause_ns=(10 * MS, 50 * MS))
    world.run_for(random.randint(0, 3000) * MS)
    network.block([publisher.index], [node.index for node in nodes])
    stage.play()
    _settle(stage, subscribers)
    stage.heal()
    _finish(stage, subscribers)


class _Archive:
    """Publishers that keep history over links, and those who come later and ask by some."""

    def __init__(self, stage: Stage) -> None:
        random = stage.random
        self.stage = stage
        self.kept = random.choice([1, 7, 40, 400])
        host = stage.host(settings=Settings(reference_bytes=random.choice([0, 50, 500])))
        self.publishing = stage.nodes(random.randint(1, 2), host)
        self.nodes = stage.nodes(random.randint(1, 3), host)
        self.subscribers: list[Subscriber] = []
        self.counts: dict[Latecomer, int] = {}  # How many messages it has asked for, at most.
        for node, place in product(self.publishing, range(random.randint(1, 3))):
            links = random.choice(((), (), *_WISHES))
            node.publish_on(f"/t/{place}", history=self.kept, links=links)

    def come(self) -> None:
        """Want everything by links that are drawn, with its history or without."""
        random = self.stage.random
        node, wish = random.choice(self.nodes), random.choice(((), *_WISHES))
        if wish and random.random() < 0.3:
            if all(one.links != wish for one in node.insistent):
                self.subscribers.append(node.insist("/t/...", wish))
            return
        count = random.choice([0, 0, 3])
        latecomer = node.join(random.choice(["/t/...", "/t/*"]), count, wish)
        self.counts[latecomer] = min(count or self.kept, self.kept)
        self.subscribers.append(latecomer)

    def go(self) -> None:
        """Let one of those who asked for history leave, and not wait for it."""
        latecomer = self.stage.random.choice(list(self.counts))
        del self.counts[latecomer]
        self.subscribers.remove(latecomer)
        latecomer.node.leave(latecomer)

    def check_starts(self) -> None:
        """Check that the history that was kept came, and no more than was asked for."""
        ledger, world = self.stage.ledger, self.stage.world
        for publication, latecomer in product(ledger.publications.values(), self.counts):
            if not _is_reached(self.stage, publication, latecomer):
                continue
            first = ledger.reception(publication, latecomer).first
            at = latecomer.asked_at[place_of(publication.node.source, publication.topic.subject)]
            count, who = self.counts[latecomer], f"{latecomer.name} of {publication.topic.subject}"
            world.check(
                first is not None and first >= at - count,
                f"{who} began with {first}, asked at {at} for {count}",
            )
            served_at = max(self._owed_from(publication, latecomer), at)
            world.check(
                first is None or first <= max(served_at - count, publication.first)
                or not self._is_first(latecomer),
                f"{who} began with {first}, served at {served_at} with {count}",
            )  # fmt: skip
            world.counts["histories"] += 1

    def _is_first(self, latecomer: Latecomer) -> bool:
        """Tell whether it is alone with its wish in its node: it is served when that is owed."""
        node, links = latecomer.node, latecomer.links
        others: list[Insistent | Latecomer] = [*node.insistent, *node.latecomers]
        return latecomer.request == 1 and not any(
            one.links == links for one in others if one is not latecomer
        )

    @staticmethod
    def _owed_from(publication: Publication, latecomer: Latecomer) -> int:
        topic = publication.topic
        branch = topic.branches[latecomer.links] if latecomer.links else topic
        return publication.node.core.peers[latecomer.node.key].debt.owed[branch.number]


@scenario
def wishes_history(stage: Stage) -> None:
    """Ask for history by links that come and go: it comes by these alone, before what is new."""
    random, world, pipes = stage.random, stage.world, stage.network.pipes
    archive = _Archive(stage)
    every = list(product(archive.publishing, archive.nodes, (LOCAL, TCP)))
    places = random.sample(every, random.randint(1, len(every)))
    stage.faults(loss=random.choice([0, random.uniform(0, 0.15)]))
    stage.feed_all(archive.publishing, random.choice([20, 200]))
    for _ in range(random.randint(3, 25)):
        world.run_for(random.choice(_PAUSES_MS) * MS)
        one, other, link = random.choice(places)
        if world.chance(0.5):
            (pipes.cut if pipes.is_open(one, other, link) else pipes.open)(one, other, link)
        elif archive.counts and world.chance(0.15):
            archive.go()
        else:
            archive.come()
    stage.play()
    world.run_for(random.choice([0, 200]) * MS)
    for place in places:
        if not pipes.is_open(*place):
            pipes.open(*place)
    stage.heal()
    _settle(stage, list(archive.counts))  # Others may have come behind the last message.
    archive.check_starts()
    world.run_for(2 * _KNOWN_NS)
    stage.feed_all(archive.publishing, 5)
    stage.play()
    _finish(stage, archive.subscribers)
    archive.check_starts()
