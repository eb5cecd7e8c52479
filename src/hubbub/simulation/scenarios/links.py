"""Nodes of one host have pipes between them: frames go the shorter way, and all else is as ever."""

from itertools import combinations, product

from hubbub.events import PeerLeft
from hubbub.limits import MS, SECOND
from hubbub.protocol.delivery import LOCAL, TCP
from hubbub.protocol.settings import Settings
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.scenarios.membership import await_left
from hubbub.simulation.scenarios.registry import chatter, gather, scenario, start
from hubbub.simulation.stage import Stage

_KNOWN_NS = 50 * MS


def _host(stage: Stage) -> Host:
    """Draw a host where large payloads go by reference, or all as they are."""
    return stage.host(settings=Settings(reference_bytes=stage.random.choice([0, 50, 500])))


@scenario
def pipes(stage: Stage) -> None:
    """Have a pipe between any two nodes: the network may lose as it likes, no data goes there."""
    random = stage.random
    publishing, subscribing = gather(stage, host=_host(stage))
    for one, other in combinations(publishing + subscribing, 2):
        stage.network.pipes.open(one, other)
    stage.world.run_for(10 * MS)
    stage.faults(loss=random.uniform(0, 0.3), duplicate=random.choice([0, 0.1]))
    before = stage.network.counts["data"]
    start(stage, publishing, messages=500)
    stage.play()
    stage.finish()
    stage.check_first()
    stage.world.check(
        stage.network.counts["data"] == before, "frames went to the group beside pipes to all"
    )


@scenario
def pipe_changes(stage: Stage) -> None:
    """Open and cut pipes in the midst of streams, some nodes being elsewhere: nothing is lost."""
    random, world = stage.random, stage.world
    stage.faults(loss=random.choice([0, random.uniform(0, 0.1)]), reorder=random.choice([0, 0.02]))
    publishing, subscribing = chatter(stage, messages=600, host=_host(stage))
    nodes = publishing + subscribing
    near = random.sample(nodes, random.randint(2, len(nodes)))
    for _ in range(random.randint(5, 60)):
        one, other = random.sample(near, 2)
        if stage.network.pipes.is_open(one, other):
            stage.network.pipes.cut(one, other)
        else:
            stage.network.pipes.open(one, other)
        world.run_for(random.choice([0, 100_000, 1 * MS, 10 * MS]))
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def pulled_cable(stage: Stage) -> None:
    """Lose the group for good beside pipes: nobody is missed, and what changes is still heard."""
    random, world = stage.random, stage.world
    publisher, *nodes = stage.nodes(random.randint(2, 4), _host(stage))
    for one, other in combinations([publisher, *nodes], 2):
        stage.network.pipes.open(one, other)
    early = nodes[: random.randint(0, len(nodes))]
    for node in early:
        node.subscribe("/t/...")
    topic = publisher.publish_on("/t/0")
    stage.meet([topic], len(early))
    world.run_for(random.randint(0, 3000) * MS)
    numbers = [node.index for node in (publisher, *nodes)]
    if random.random() < 0.5:
        stage.network.block(numbers, numbers)
    else:  # Its interface has lost its address: it hears the group, but is not heard.
        dumb = random.choice([publisher, *nodes])
        dumb.core.down.add("cable")
        stage.network.block([dumb.index], numbers, both=False)
    world.run_for(random.randint(0, 8000) * MS)
    for node in nodes[len(early) :]:
        node.subscribe("/t/...")
    stage.meet([topic], len(nodes), 3 * SECOND)  # The next heartbeats go by pipes, too.
    stage.feed(publisher, topic, count=100, pause_ns=(1 * MS, 100 * MS))
    stage.play()
    left = [event for _, _, event in stage.ledger.events if isinstance(event, PeerLeft)]
    world.check(not left, f"who is here was missed: {left[:1]}")
    stage.finish()
    stage.check_first()


@scenario
def pipe_death(stage: Stage) -> None:
    """Kill nodes that have pipes: who had one to them knows within 50 ms, the others go on."""
    random, world = stage.random, stage.world
    publishing, subscribing = chatter(stage, subscribers=4, pause_ns=1 * MS, host=_host(stage))
    nodes = publishing + subscribing
    for one, other in combinations(nodes, 2):
        stage.network.pipes.open(one, other)
    victims: list[SimulatedNode] = random.sample(subscribing, random.randint(1, 3))
    for node in victims:
        world.run_for(random.randint(5, 100) * MS)
        node.crash()
        limit_ns = world.now + _KNOWN_NS
        for publisher in publishing:
            await_left(stage, publisher, node.source, limit_ns - world.now)
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def tcp_alone(stage: Stage) -> None:
    """Have TCP alone, without any group: connections break and come back, and nothing is lost."""
    random, world, network = stage.random, stage.world, stage.network.pipes
    host = stage.host(has_group=False)
    publishing, subscribing = stage.group(random.randint(1, 3), random.randint(1, 4), host=host)
    pairs = list(combinations(publishing + subscribing, 2))
    for one, other in pairs:
        world.run_for(random.choice([0, 1 * MS]))
        network.open(one, other, TCP)
    stage.meet(stage.topics(publishing, random.randint(1, 3)), len(subscribing), 1000 * MS)
    start(stage, publishing, messages=500)
    for _ in range(random.randint(0, 10)):
        one, other = random.choice(pairs)
        network.cut(one, other, TCP)
        world.run_for(random.choice([100_000, 10 * MS, 300 * MS]))
        network.open(one, other, TCP)
        world.run_for(random.choice([0, 1 * MS, 10 * MS]))
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def tcp_changes(stage: Stage) -> None:
    """Open and cut pipes of both kinds beside a lossy group: nothing is lost or comes twice."""
    random, world, network = stage.random, stage.world, stage.network.pipes
    stage.faults(loss=random.choice([0, random.uniform(0, 0.1)]), reorder=random.choice([0, 0.02]))
    publishing, subscribing = chatter(stage, messages=600, host=_host(stage))
    nodes = publishing + subscribing
    for _ in range(random.randint(5, 60)):
        one, other = random.sample(nodes, 2)
        link = random.choice([LOCAL, TCP, TCP])
        (network.cut if network.is_open(one, other, link) else network.open)(one, other, link)
        world.run_for(random.choice([0, 100_000, 1 * MS, 10 * MS]))
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def beyond_the_group(stage: Stage) -> None:
    """Have some who hear no group but a connection, and others who hear the group and no more."""
    random, network = stage.random, stage.network
    publishing, near = stage.group(random.randint(1, 2), random.randint(1, 3))
    far = stage.nodes(random.randint(1, 3))
    network.block([node.index for node in far], [node.index for node in publishing + near])
    network.block([node.index for node in far], [node.index for node in far])
    for node in far:
        node.subscribe("/t/...")
    # Whom the group reaches may be connected, too.
    connected = far + random.sample(near, random.randint(0, len(near)))
    for one, other in product(publishing, connected):
        network.pipes.open(one, other, TCP)
    stage.meet(stage.topics(publishing), len(near + far), 1000 * MS)
    start(stage, publishing, messages=300)
    stage.play()
    stage.settle(5 * SECOND)
    stage.finish()
    stage.check_first()
