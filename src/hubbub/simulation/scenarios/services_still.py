"""Managers of whom it is not known yet that they are dead, or that they are not."""

from collections.abc import Iterator

from hubbub.limits import COPIES, MS, SECOND
from hubbub.protocol.rendezvous.client import FIFO, NO_ORDER, TOTAL
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.scenarios.services import check_total, feed
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import distance, node_key, service_key

_NAME = "news"
_ORDERS = (TOTAL, FIFO, TOTAL, NO_ORDER)


@scenario
def services_manager_still(stage: Stage) -> None:
    """Stop a manager until another has its place: all comes, once, and in one order for all."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_many(random.randint(6, 10))
    for place, node in enumerate(nodes):
        node.subscribe(_NAME, order=_ORDERS[place % len(_ORDERS)])
    town.settle([_NAME])
    manager = town.closest(_NAME)
    others = [node for node in nodes if node is not manager]
    sent = [feed(town, node, _NAME, 400, 20 * MS) for node in random.sample(others, 2)]
    world.run_for(random.randrange(500 * MS))
    manager.stop_for(random.randrange(1 * SECOND, 7 * SECOND), random.choice([0, 20, None]))
    world.run_for(20 * SECOND)
    town.calm_down([_NAME])
    for payloads in sent:
        town.check_complete(payloads, others)
    town.check_fifo(_NAME, [node for node in nodes[1::4] if node is not manager])
    check_total(town, [node for node in nodes[::2] if node is not manager])
    town.note_counts()


def _closer_than(town: Town, node: ServiceNode) -> Iterator[int]:
    """Go through the numbers of nodes that would be closer to the service than this one."""
    key, closest = service_key(_NAME), distance(node_key(node.id), service_key(_NAME))
    for index in range(10_000, 1_000_000):
        if distance(node_key(town.id_of(index)), key) < closest:
            yield index


@scenario
def services_newcomer_beside_the_dead(stage: Stage) -> None:
    """Kill a manager beside a newcomer that is closer and asks for its list: nothing is lost."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(5, 10), _NAME)
    manager, publisher = town.closest(_NAME), town.ranked(_NAME)[-1]
    index = next(_closer_than(town, manager))
    early = feed(town, publisher, _NAME, 20, 50 * MS)
    world.run_for(1100 * MS)  # What it took just then may die with it.
    newcomer = town.open(index)
    if random.random() < 0.5:
        newcomer.subscribe(_NAME)
    world.run_for(random.randrange(2600 * MS))
    manager.crash()
    late = feed(town, publisher, _NAME, 200, 50 * MS)
    world.run_for(14 * SECOND)
    for payloads in (early, late):
        town.check_complete(payloads, [node for node in nodes if node is not manager])
    town.calm_down([_NAME])
    town.note_counts()


@scenario
def services_newcomer_and_lists_lost(stage: Stage) -> None:
    """Kill all who have a list beside a newcomer that is closer: what is published waits."""
    random, world = stage.random, stage.world
    town = Town(stage)
    town.open_subscribed(random.randint(7, 12), _NAME)
    ranked = town.ranked(_NAME)
    victims, others = ranked[: COPIES + 1], ranked[COPIES + 1 :]
    world.run_for(1 * SECOND)
    newcomer = town.open(next(_closer_than(town, victims[0])))
    if random.random() < 0.5:
        newcomer.subscribe(_NAME)
    world.run_for(random.randrange(2600 * MS))
    for victim in victims:
        victim.crash()
        world.run_for(random.choice([0, random.randrange(300 * MS)]))
    sent = feed(town, others[-1], _NAME, 200, 50 * MS)
    world.run_for(16 * SECOND)
    town.check_complete(sent, others)
    town.calm_down([_NAME])
    town.note_counts()


@scenario
def services_newcomers_among_the_dead(stage: Stage) -> None:
    """Kill a manager and some newcomers, closer than those with copies: the last finds the list."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(5, 10), _NAME)
    manager, copy, *_, publisher = town.ranked(_NAME)
    early = feed(town, publisher, _NAME, 20, 50 * MS)
    world.run_for(1100 * MS)  # What it took just then may die with it.
    between = _closer_than(town, copy)
    dying = [town.open(next(between)) for _ in range(random.randint(1, 4))]
    world.run_for(random.randrange(1 * SECOND, 1900 * MS))  # They do not count yet.
    for node in (manager, *dying):
        node.crash()
    late = feed(town, publisher, _NAME, 200, 50 * MS)
    for _ in range(random.randint(1, 3)):
        town.open(next(between)).subscribe(_NAME)
        world.run_for(random.randrange(600 * MS))
    world.run_for(14 * SECOND)
    for payloads in (early, late):
        town.check_complete(payloads, [node for node in nodes if node is not manager])
    town.calm_down([_NAME])
    town.note_counts()


@scenario
def services_list_in_doubt(stage: Stage) -> None:
    """Kill three that were closer than one with a copy, which then doubts it: all come by it."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(6, 10), _NAME)
    manager, first, second, *_, publisher = town.ranked(_NAME)
    between = _closer_than(town, second)
    world.run_for(1 * SECOND)
    manager.crash()
    newcomer = town.open(next(between))
    world.run_for(random.randrange(500 * MS, 1500 * MS))
    first.crash()
    world.run_for(random.randrange(500 * MS, 2500 * MS))
    newcomer.crash()
    sent = feed(town, publisher, _NAME, 200, 50 * MS)
    for _ in range(random.randint(1, 3)):
        world.run_for(random.randrange(1 * SECOND))
        town.open(next(between)).subscribe(_NAME)
    world.run_for(14 * SECOND)
    town.check_complete(sent, [node for node in nodes if node not in (manager, first)])
    town.calm_down([_NAME])
    town.note_counts()
