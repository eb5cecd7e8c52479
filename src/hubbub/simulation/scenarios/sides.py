"""Receivers of this host and others elsewhere: two streams, and who moves between them."""

from itertools import product

from hubbub.limits import MS, SECOND, STRAIGHT_CALM
from hubbub.protocol.delivery import LOCAL, TCP
from hubbub.protocol.settings import Settings
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage

_PAUSES_MS = (0, 1, 10, 60, 120, 250)
_BEST_EFFORT = "/t/best"


def _gather(stage: Stage) -> tuple[list[SimulatedNode], list[SimulatedNode]]:
    """Open publishers, and subscribers of which some have pipes to them."""
    random = stage.random
    host = stage.host(settings=Settings(reference_bytes=random.choice([0, 50, 500])))
    publishing, subscribing = stage.group(random.randint(1, 2), random.randint(2, 5), host=host)
    near = random.sample(subscribing, random.randint(1, len(subscribing) - 1))
    topics = []
    for node, place in product(publishing, range(random.randint(1, 3))):
        topics.append(node.publish_on(f"/t/{place}", history=random.choice([0, 20])))
    if stage.world.chance(0.5):
        topics.append(publishing[0].publish_on(_BEST_EFFORT, is_reliable=False))
    stage.meet(topics, len(subscribing), 1000 * MS)
    for one, other in product(publishing, near):
        stage.network.pipes.open(one, other)
    return publishing, subscribing


def _toggle_pipes(
    stage: Stage, publishing: list[SimulatedNode], subscribing: list[SimulatedNode]
) -> None:
    """Open and cut pipes, and let subscribers come that want history, too."""
    random, world, pipes = stage.random, stage.world, stage.network.pipes
    for _ in range(random.randint(2, 15)):
        world.run_for(random.choice(_PAUSES_MS) * MS)
        one, other = random.choice(publishing), random.choice(subscribing)
        link = random.choice([LOCAL, LOCAL, LOCAL, TCP])
        (pipes.cut if pipes.is_open(one, other, link) else pipes.open)(one, other, link)
        if world.chance(0.1):
            random.choice(subscribing).join("/t/...", random.choice([0, 5]))


def _check_sorted(stage: Stage, publishing: list[SimulatedNode]) -> None:
    """Check that in the end nobody is on the way from one stream to the other."""
    stage.world.run_for(STRAIGHT_CALM + 1 * SECOND)
    for node in publishing:
        grants = node.core.outgoing.grants
        stage.world.check(not grants.moving, f"{len(grants.moving)} still move at {node.name}")
        leaving = sum(sender.leaving for sender in node.core.outgoing.senders.values())
        stage.world.check(not leaving, f"{leaving} still leave a stream of {node.name}")
        for peer in node.core.peers.values():
            streams = set(peer.debt.placed.values())
            stage.world.check(
                all(len(one) == 1 for one in streams) and len(streams) <= 2,
                f"{peer.source} gets the topics of {node.name} by {streams}",
            )


@scenario
def near_and_far(stage: Stage) -> None:
    """Open and cut pipes of some receivers beside a lossy group: nothing is lost or comes twice."""
    random, world, pipes = stage.random, stage.world, stage.network.pipes
    publishing, subscribing = _gather(stage)
    world.run_for(random.choice([0, 150, 300]) * MS)
    stage.faults(
        loss=random.choice([0, random.uniform(0, 0.2)]), reorder=random.choice([0, 0.02]),
        duplicate=random.choice([0, 0.05]),
    )  # fmt: skip
    stage.feed_all(publishing, 250)
    _toggle_pipes(stage, publishing, subscribing)
    stage.play()
    if world.chance(0.2):  # One side is empty for so long that the streams become one again.
        for one, other in product(publishing, subscribing):
            pipes.cut(one, other)
        stage.feed_all(publishing, 20)
        stage.play()
        world.run_for(STRAIGHT_CALM + 1 * SECOND)
        stage.feed_all(publishing, 20)
        stage.play()
    stage.finish()
    for topic in publishing[0].topics:
        if not topic.is_reliable:
            publishing[0].publish(topic, b"last")
    _check_sorted(stage, publishing)
    for publication, node, _ in stage.ledger.debts():
        reception = stage.ledger.reception(publication, node)
        world.check(reception.next == publication.next, f"{node.name} lacks the last message")
        is_whole = reception.start == 1 or not publication.topic.is_reliable
        world.check(is_whole, f"{node.name} began with {reception.start}")
    world.counts["moves"] = sum(node.core.endpoint.counters["moves"] for node in publishing)
