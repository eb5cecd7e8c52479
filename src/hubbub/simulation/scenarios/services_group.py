"""Services with a group that subscribers hear, or some of them, or nobody, or no longer."""

from hubbub.limits import GROUP_MIN, HOP_TIMEOUT, MS, SECOND
from hubbub.protocol.rendezvous.client import FIFO, NO_ORDER, TOTAL
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.protocol.rendezvous.seat import Policy
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.scenarios.services import feed
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import NO_LOCAL, TAKEN

_NAME = "news"
_ORDERS = (NO_ORDER, FIFO, TOTAL)
# From publisher to manager to subscriber, where nothing is lost, and a shell takes its time.
_WAY_NS = 20 * MS


def _gather(stage: Stage, count: int) -> Town:
    """Open nodes that all subscribe, in the orders there are, and have a group."""
    town = Town(stage, has_group=True)
    for place, node in enumerate(town.open_many(count)):
        node.subscribe(_NAME, order=_ORDERS[place % 3])
    town.settle([_NAME])
    return town


def _others(town: Town) -> list[ServiceNode]:
    """Return all but the manager: those to whom something is sent."""
    manager = town.closest(_NAME)
    return [node for node in town.subscribers(_NAME) if node is not manager]


def _count(town: Town, name: str) -> int:
    return sum(node.machine.seat.counters[name] for node in town.nodes)


def _check_times(town: Town, nodes: list[ServiceNode], limit_ns: int, since_ns: int) -> None:
    """Check that nodes were handed what was published from a time on within a time."""
    for node in nodes:
        for heard_ns, delivered in node.heard[_NAME]:
            sent_ns, _ = town.published[delivered.payload]
            took_ns = heard_ns - sent_ns
            is_soon = sent_ns < since_ns or took_ns <= limit_ns
            text = f"{node} had {delivered.payload!r} after {took_ns / MS:.0f} ms"
            town.world.check(is_soon, f"{text}, not {limit_ns / MS:.0f} (H16)")


@scenario
def services_group(stage: Stage) -> None:
    """Let all or some hear the group: each message goes there once, and to each other one."""
    random, world = stage.random, stage.world
    town = _gather(stage, random.randint(4, 24))
    others = _others(town)
    deaf = random.sample(others, random.choice([0, 0, 1, len(others) // 2]))
    for node in deaf:
        node.hears_group = False
    publisher = random.choice(town.alive())
    warm = feed(town, publisher, _NAME, 5, 20 * MS)  # Who hears the group says so.
    world.run_for(500 * MS)
    before, trials = town.watch.infos, _count(town, "group_trials")
    sent = feed(town, publisher, _NAME, 50, random.choice([1 * MS, 10 * MS]))
    world.run_for(2 * SECOND)
    town.check_complete(warm + sent, town.alive())
    needed = len(deaf) + 1 if len(others) - len(deaf) >= GROUP_MIN else len(others)
    frames = town.watch.infos - before - (_count(town, "group_trials") - trials)
    text = f"{frames} frames of {len(sent)} messages, not {needed} of each (H16)"
    world.check(frames <= needed * len(sent), text)
    world.check(not _count(town, "group_missed"), "somebody missed what it could hear (H16)")
    _check_times(town, town.alive(), _WAY_NS, 0)
    town.note_counts()


@scenario
def services_group_loss(stage: Stage) -> None:
    """Lose and damage what goes to the group while nodes come and go: all comes, once, in order."""
    random, world = stage.random, stage.world
    town = _gather(stage, random.randint(5, 10))
    nodes, manager = town.alive(), town.closest(_NAME)
    private = random.choice(_others(town))
    private.subscribe(_NAME, flags=NO_LOCAL)  # It wants nothing of its own.
    world.run_for(1 * SECOND)
    random.choice(nodes).hears_group = False
    stage.faults(
        loss=random.choice([0, 0.05]), duplicate=random.choice([0, 0.1]),
        reorder=random.choice([0, 0.2]), corrupt=random.choice([0, 0.02]),
    )  # fmt: skip
    town.group_loss = random.choice([0, 0.02, 0.3])
    publishers = [node for node in nodes if node is not manager][:3]
    sent = [feed(town, node, _NAME, 150, 10 * MS) for node in publishers]
    own = feed(town, private, _NAME, 50, 30 * MS)
    for _ in range(random.randint(0, 3)):
        world.run_for(random.randrange(600 * MS))
        newcomer = town.open()
        if random.random() < 0.5:
            newcomer.subscribe(_NAME)
    if random.random() < 0.5:
        manager.close()
    world.run_for(3 * SECOND)
    stage.heal()
    world.run_for(8 * SECOND)
    # Who asks for an order goes on without what is lost again and again.
    readers = [node for node in nodes[::3] if node.is_alive and node is not private]
    for payloads in (*sent, own):
        town.check_complete(payloads, readers)
    had = [one for one in private.heard[_NAME] if one.delivered.payload in set(own)]
    world.check(not had, f"{private} had {len(had)} messages of its own, unwanted")
    town.check_fifo(_NAME, [node for node in nodes[1::3] if node is not private])
    for node in publishers:
        ends = {one.status for one in node.settled}
        world.check(ends <= {TAKEN}, f"{node}: no end of a message (H9)")
    private.subscribe(_NAME)
    town.group_loss = 0.0
    town.calm_down([_NAME])
    town.note_counts()


@scenario
def services_group_silent(stage: Stage) -> None:
    """Let the group fall silent, or never speak: all comes by itself, late at most once."""
    random, world = stage.random, stage.world
    town = _gather(stage, random.randint(4, 12))
    never = random.random() < 0.3
    town.group_loss = 1.0 if never else 0.0
    publisher = random.choice(town.alive())
    sent = feed(town, publisher, _NAME, 700, 15 * MS)
    world.run_for(random.randrange(500 * MS, 2 * SECOND))
    went_ns = world.now
    if random.random() < 0.5:
        town.group_loss = 1.0
    else:  # Those who hear it have gone to another network.
        for node in town.nodes:
            node.hears_group = False
    frames = _count(town, "group_frames")
    world.check(never == (not frames), f"{frames} frames went to a group that is silent: {never}")
    world.run_for(12 * SECOND)
    town.check_complete(sent, town.alive())
    # What is sent there until that is seen comes a timeout later, and what waits for its turn
    # behind it; nothing after that, however long it goes on.
    _check_times(town, town.alive(), HOP_TIMEOUT + _WAY_NS, 0)
    seen_ns = 0 if never else went_ns + 2 * HOP_TIMEOUT + _WAY_NS
    _check_times(town, town.alive(), _WAY_NS, seen_ns)
    trials = _count(town, "group_trials")
    world.check(trials <= 6, f"a silent group was tried {trials} times in 14 s (H16)")
    town.note_counts()


@scenario
def services_group_policy(stage: Stage) -> None:
    """Refuse some subscribers: they hear nothing of the service, though they hear the group."""
    random, world = stage.random, stage.world
    refused: set[bytes] = set()

    def policy(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
        return action != "subscribe" or node not in refused

    guarded: Policy = policy
    town = Town(stage, Options(policy=guarded), has_group=True)
    nodes = town.open_many(random.randint(6, 10))
    manager = town.closest(_NAME)
    outside = random.sample([node for node in nodes if node is not manager], 2)
    refused.update(node.id for node in outside)
    for node in nodes:
        node.subscribe(_NAME)
    for node in outside:
        del node.wanted[_NAME]
    town.settle([_NAME])
    sent = feed(town, random.choice(nodes), _NAME, 100, 10 * MS)
    world.run_for(3 * SECOND)
    town.check_complete(sent, [node for node in nodes if node not in outside])
    told = _count(town, "group_frames") + _count(town, "group_trials")
    world.check(not told, f"{told} frames of a guarded service went to the group")
    town.note_counts()
