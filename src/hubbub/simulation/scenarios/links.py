"""Nodes of one host have pipes between them: frames go the shorter way, and all else is as ever."""

from itertools import combinations

from hubbub.limits import MS
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
