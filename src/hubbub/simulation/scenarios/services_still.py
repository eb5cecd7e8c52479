"""Managers that stand still, are taken for dead, and go on as if nothing had happened."""

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.client import FIFO, NO_ORDER, TOTAL
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.scenarios.services import check_total, feed
from hubbub.simulation.services import Town
from hubbub.simulation.stage import Stage

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
