"""Publishers and subscriptions that insist on links: nothing goes by another, and nothing is lost.

Hosts have pipes, connections by TCP and a lossy group, which come and go in the midst of streams.
"""

from itertools import permutations, product

from hubbub.events import NoCommonLink
from hubbub.limits import LINKLESS_PATIENCE, MS, SECOND
from hubbub.protocol.delivery import LOCAL, MULTICAST, TCP
from hubbub.protocol.settings import Settings
from hubbub.simulation.checkers import Publication
from hubbub.simulation.insistent import Insistent
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage
from hubbub.wire.wishes import Links, combine

_WISHES: tuple[Links, ...] = tuple(
    links for count in (1, 2, 3) for links in permutations((LOCAL, MULTICAST, TCP), count)
)
_PAUSES_MS = (0, 0, 1, 10, 60)
_WHOLE_NS = 6 * SECOND
Subscriber = SimulatedNode | Insistent


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


def _lacking(stage: Stage, subscribers: list[Subscriber]) -> str:
    """Say who lacks what it should have; empty when all have it."""
    for publication, subscriber in product(stage.ledger.publications.values(), subscribers):
        if not _is_reached(stage, publication, subscriber) or not publication.topic.is_reliable:
            continue
        reception = stage.ledger.reception(publication, subscriber)
        if reception.next != publication.next:
            subject, node = publication.topic.subject, publication.node
            return (
                f"{subscriber.name} has {reception.next - 1} of {publication.next - 1} of {subject}"
                f" by {node.name}, published over {publication.topic.links}"
            )
    return ""


def _finish(stage: Stage, publishing: list[SimulatedNode], subscribers: list[Subscriber]) -> None:
    """Check that in the end everybody who can be reached has all, and others nothing at all."""
    world, ledger = stage.world, stage.ledger
    world.run_while(lambda: bool(_lacking(stage, subscribers)), _WHOLE_NS, 5 * MS)
    world.check(not (lacking := _lacking(stage, subscribers)), lacking)
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
    _finish(stage, publishing, subscribers)


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
    _finish(stage, publishing, subscribers)


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
    world.run_while(lambda: bool(_lacking(stage, subscribers)), _WHOLE_NS, 5 * MS)
    world.check(not (lacking := _lacking(stage, subscribers)), lacking)
    stage.heal()
    _finish(stage, [publisher], subscribers)
