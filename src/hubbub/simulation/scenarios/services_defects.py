"""What went wrong in the systems that services were first built in, each a race to be survived."""

from hubbub.limits import MS, SECOND
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.scenarios.services import feed, gather
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage

_NAME = "news"


def _open_closer(town: Town, than: ServiceNode) -> ServiceNode:
    """Open a node that is closer to the service than another."""
    index = 9000
    while True:
        index += 1
        node = town.open(index, seeds=[than.address])
        if town.closest(_NAME) is node:
            return node
        node.crash()


@scenario
def defect_subscription_lost_for_ever(stage: Stage) -> None:
    """Subscribe with the next manager before that knows of the death of the last."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_many(random.randint(4, 8))
    random.choice(nodes).subscribe(_NAME)
    town.settle([_NAME])
    manager = town.closest(_NAME)
    others = [node for node in nodes if node is not manager]
    manager.crash()
    for node in random.sample(others, 2):  # These know at once, the others do not.
        member = node.machine.view.members[manager.id]
        node.machine.swim.note_leaving(world.now, member.node)
        node.subscribe(_NAME)
    town.calm_down([_NAME])


@scenario
def defect_hole_at_hand_over(stage: Stage) -> None:
    """Publish by everybody, all the time, while a closer node takes over."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(4, 8), _NAME)
    sent = [feed(town, node, _NAME, 300, 15 * MS) for node in nodes[:3]]
    world.run_for(random.randrange(500 * MS))
    newcomer = _open_closer(town, town.closest(_NAME))
    world.run_for(6 * SECOND)
    world.check(town.managers(_NAME) == [newcomer], "the closer node did not take over (H1)")
    for payloads in sent:
        town.check_complete(payloads, nodes)


@scenario
def defect_two_half_lists(stage: Stage) -> None:
    """Let half of the nodes not know who is closest: there is one list all the same."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_many(random.randint(6, 12))
    closest = town.closest(_NAME)
    others = [node for node in nodes if node is not closest]
    for node in others[::2]:
        node.machine.view.forget(closest.id)
        node.machine.view.version += 1
    for node in others:
        node.subscribe(_NAME)
    world.run_for(1 * SECOND)
    payload = town.publish(random.choice(others), _NAME)
    world.run_for(2 * SECOND)
    town.check_complete([payload], others)
    town.calm_down([_NAME])


@scenario
def defect_requests_out_of_order(stage: Stage) -> None:
    """Shuffle subscriptions and their ends: the last word of each node counts."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(3, 8), 2)
    stage.faults(reorder=0.8, reorder_ns=300 * MS, duplicate=0.3, loss=0.05)
    for _ in range(20):
        node, name = random.choice(town.alive()), random.choice(names)
        node.toggle(name)
        world.run_for(random.randrange(60 * MS))
    stage.heal()
    town.calm_down(names)


@scenario
def defect_ids_compared_in_part(stage: Stage) -> None:
    """Give nodes ids that differ in the last byte alone, and let all but one go at once."""
    random, world = stage.random, stage.world
    town = Town(stage)
    start = random.randbytes(11)
    town.id_of = lambda index: start + bytes([index & 255])  # type: ignore[method-assign]
    nodes = town.open_subscribed(random.randint(4, 9), _NAME)
    last = random.choice(nodes)
    for node in nodes:
        if node is not last:
            node.unsubscribe(_NAME)
    world.run_for(1 * SECOND)
    fault = town.disagreement([_NAME])
    world.check(not fault, fault)
    town.check_calm([_NAME])


@scenario
def defect_end_sent_to_the_wrong_manager(stage: Stage) -> None:
    """End a subscription while the subscriber takes another for the manager."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(4, 8), _NAME)
    manager = town.closest(_NAME)
    newcomer = _open_closer(town, manager)
    world.run_for(random.randrange(2500 * MS))
    leavers = random.sample(nodes, 2)
    for node in leavers:
        if random.random() < 0.5:
            member = node.machine.view.members.get(newcomer.id)
            if member is not None:  # It takes the newcomer for the manager already.
                member.is_settled = True
                node.machine.view.version += 1
        node.unsubscribe(_NAME)
    world.run_for(1500 * MS)
    for node in town.managers(_NAME):
        left = town.listed(node, _NAME) & {leaver.id for leaver in leavers}
        world.check(not left, f"{node} still lists {len(left)} who have left (H3)")
    town.calm_down([_NAME])
