"""Services with other placements, slow subscribers, policies, and nodes of the first version."""

from hubbub.limits import ABSENCE, HOP_TIMEOUT, MS, SECOND, SERVICE_LEASE, TREE_FAN_OUT
from hubbub.protocol.burst import Address
from hubbub.protocol.rendezvous.client import FIFO, NO_ORDER
from hubbub.protocol.rendezvous.placement import PLACEMENTS
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.simulation.node import Host
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.scenarios.services import feed, gather
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import (
    INFO,
    PUBLISH,
    REFUSED,
    SUBSCRIBE_SERVICE,
    TAKEN,
    UNSUBSCRIBE_SERVICE,
    Message,
    decode_message,
    encode_message,
    service_key,
)

_NAME = "news"


@scenario
def services_placement(stage: Stage) -> None:
    """Place services by another measure: joins and crashes end as they do by XOR."""
    random, world = stage.random, stage.world
    placement = PLACEMENTS[random.choice(["hrw", "weighted"])]
    town = Town(stage, Options(placement=placement))
    town.watch.is_xor = False
    nodes = town.open_many(random.randint(4, 10))
    for node in nodes:
        node.subscribe(_NAME)
    world.run_for(1 * SECOND)
    for _ in range(random.randint(1, 4)):
        (manager,) = town.managers(_NAME)
        random.choice([manager.crash, manager.close])()
        town.open().subscribe(_NAME)
        world.run_for(12 * SECOND)
    managers = town.managers(_NAME)
    world.check(len(managers) == 1, f"managed by {managers} (H1)")
    closest = min(town.alive(), key=lambda node: managers[0].machine.view.measure(_key(), node.id))
    world.check(managers == [closest], f"managed by {managers}, not {closest} (H1)")
    town.check_calm([_NAME])


def _key() -> bytes:
    return service_key(_NAME)


@scenario
def services_slow(stage: Stage) -> None:
    """Stop a subscriber for a while: the others have every message at once."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(5, 9), _NAME)
    manager = town.closest(_NAME)
    slow, publisher = random.sample([node for node in nodes if node is not manager], 2)
    slow.stop_for(random.randrange(1 * SECOND, 3 * SECOND))
    sent = feed(town, publisher, _NAME, 300, 5 * MS)
    world.run_for(2 * SECOND)
    for node in nodes:
        if node is slow:
            continue
        for heard in node.heard[_NAME]:
            late_ns = heard.true_ns - town.published[heard.delivered.payload][0]
            world.check(late_ns < 20 * MS, f"{node} waited {late_ns / MS:.0f} ms for another")
        town.check_complete(sent, [node])
    world.run_for(4 * SECOND)
    town.calm_down([_NAME])


@scenario
def services_tree_slow(stage: Stage) -> None:
    """Stop some who pass messages on: those below them hardly wait, and nobody serves too many."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(40, 80), _NAME)
    manager = town.closest(_NAME)
    listing = manager.machine.manager.services[_key()].listing
    heads = [line.node for line in listing if line.node != manager.id][:TREE_FAN_OUT]
    slow = random.sample([node for node in nodes if node.id in heads], random.randint(1, 3))
    publisher = random.choice([node for node in nodes if node not in slow])
    # One more for each that is late.
    town.watch.fan_out_max = TREE_FAN_OUT + len(slow)
    for node in slow:
        node.stop_for(random.randrange(500 * MS, 2 * SECOND))
    start_ns = world.now
    sent = feed(town, publisher, _NAME, 100, random.choice([2, 10, 20]) * MS)
    world.run_for(6 * SECOND)
    _check_prompt(town, [node for node in nodes if node not in slow], start_ns)
    town.check_complete(sent, nodes)
    town.calm_down([_NAME])
    town.note_counts()


def _check_prompt(town: Town, nodes: list[ServiceNode], since_ns: int) -> None:
    """Check that nobody waits for others longer than it takes to see that they are late."""
    for node in nodes:
        for heard in node.heard[_NAME]:
            published_ns = town.published[heard.delivered.payload][0]
            is_known = published_ns >= since_ns + 2 * HOP_TIMEOUT
            bound_ns = 20 * MS if is_known else HOP_TIMEOUT + 20 * MS
            late_ns = heard.true_ns - published_ns
            town.world.check(late_ns < bound_ns, f"{node} waited {late_ns / MS:.0f} ms for another")


@scenario
def services_standing_still(stage: Stage) -> None:
    """Stop a subscriber until it counts as dead: it goes on, and has all that it missed (H7)."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_many(random.randint(4, 9))
    for node in nodes:
        node.subscribe(_NAME, order=random.choice([NO_ORDER, FIFO]))
    town.settle([_NAME])
    manager = town.closest(_NAME)
    still, publisher = random.sample([node for node in nodes if node is not manager], 2)
    sent = feed(town, publisher, _NAME, 400, 20 * MS)
    world.run_for(random.randrange(500 * MS))
    still.stop_for(random.randrange(2 * SECOND, 10 * SECOND), random.choice([0, 20, None]))
    world.run_for(random.randrange(6 * SECOND))
    change = random.choice(["none", "join", "leave"])
    if change == "join":
        town.open().subscribe(_NAME)
    elif change == "leave":
        manager.close()
    world.run_for(12 * SECOND)
    town.calm_down([_NAME])
    for node in (still, publisher):
        town.check_complete(sent, [node])
    town.check_fifo(_NAME, [still] if still.machine.client.subscribed[_key()].order == FIFO else [])
    world.run_for(ABSENCE)
    kept = sum(node.machine.manager.absent.size_bytes for node in town.alive())
    world.check(not kept, f"{kept} bytes are kept for nobody (H13)")
    world.counts["sent_to_returned"] += sum(
        node.machine.seat.counters["sent_to_returned"] for node in town.nodes
    )


@scenario
def services_policy(stage: Stage) -> None:
    """Refuse some: they are told, and nobody else is hurt."""
    random, world = stage.random, stage.world
    outlaws: set[bytes] = set()

    def policy(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
        return node not in outlaws or action == "unsubscribe"

    town = Town(stage, Options(policy=policy))
    nodes = town.open_many(random.randint(4, 8))
    outlaw, *others = random.sample(nodes, len(nodes))
    outlaws.add(outlaw.id)
    for node in nodes:
        node.subscribe(_NAME)
    town.publish(outlaw, _NAME)
    world.run_for(2 * SECOND)
    statuses = [one.status for one in outlaw.settled]
    world.check(statuses == [REFUSED, REFUSED], f"who may not was told {statuses}")
    wrong = [node for node in nodes if node.heard[_NAME]]
    world.check(not wrong, f"{wrong} had a message of one who may not publish")
    outlaw.unsubscribe(_NAME)
    town.settle([_NAME])
    payload = town.publish(others[0], _NAME)
    world.run_for(1 * SECOND)
    town.check_complete([payload], others)
    world.check(others[0].settled[-1].status == TAKEN, "who may publish was not told so")


class _FirstVersion:
    """A node of the first version: it knows one address, and nothing but the five messages."""

    def __init__(self, town: Town, to: Address) -> None:
        self.index = 1 << 14
        self.host = Host()
        self.address: Address = ("10.9.0.1", 7266)
        self.heard: list[bytes] = []
        self._network = town.stage.network
        self._world = town.world
        self._to = to
        self._network.nodes[self.address] = self

    def arrive(self, frame: bytes, source: Address) -> None:
        """Read a bare message; anything else would be an error."""
        message = decode_message(frame)
        self._world.check(message is not None, "a frame that the first version cannot read (H14)")
        assert message is not None
        if message.type == INFO:
            self.heard.append(message.rest)

    def send(self, message: Message) -> None:
        """Send a bare message."""
        target = self._network.nodes[self._to]
        self._network.send_to(self, [target], [encode_message(message)], self._world.now)


@scenario
def services_first_version(stage: Stage) -> None:
    """Let one of the first version subscribe and publish, and managers change meanwhile (H14)."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(3, 8), 1)
    name, key = names[0], service_key(names[0])
    anybody = random.choice([node for node in town.alive() if node is not town.closest(name)])
    old = _FirstVersion(town, anybody.address)
    old.send(Message(SUBSCRIBE_SERVICE, key))
    world.run_for(500 * MS)
    payloads = [town.publish(random.choice(town.alive()), name) for _ in range(5)]
    world.run_for(1 * SECOND)
    world.check(sorted(old.heard) == sorted(payloads), f"the first version had {old.heard}")
    old.send(Message(PUBLISH, key, b"HelloHypeWorld"))
    world.run_for(1 * SECOND)
    for node in town.subscribers(name):
        count = town.count(node, name, b"HelloHypeWorld")
        world.check(count == 1, f"{node} had the message of the first version {count} times")
    _change_manager(town, name, anybody)
    old.heard.clear()
    payload = town.publish(random.choice(town.alive()), name)
    world.run_for(1 * SECOND)
    world.check(old.heard == [payload], f"after another manager the first version had {old.heard}")
    old.heard.clear()
    old.send(Message(UNSUBSCRIBE_SERVICE, key))
    world.run_for(1 * SECOND)
    town.publish(random.choice(town.alive()), name)
    world.run_for(1 * SECOND)
    world.check(not old.heard, "the first version had a message after its end (H11)")


def _change_manager(town: Town, name: str, stays: ServiceNode) -> None:
    """Let another node manage a service; then more time passes than other subscriptions hold."""
    random, manager = town.stage.random, town.closest(name)
    change = random.choice(["join", "leave", "crash"])
    stays.subscribe(name)
    if change == "join":
        while town.closest(name) is manager:
            town.open()
    else:
        (manager.close if change == "leave" else manager.crash)()
    town.world.run_for(SERVICE_LEASE + random.randrange(2 * SERVICE_LEASE))


@scenario
def services_speaking_first_version(stage: Stage) -> None:
    """Let some nodes, or all, send bare messages: lists and messages come all the same (H14)."""
    random, world = stage.random, stage.world
    spoken = Options(is_first_version=True)
    town = Town(stage)
    town.open(options=spoken)
    for _ in range(random.randint(3, 8)):
        town.open(options=random.choice([spoken, spoken, None]))
        world.run_for(random.randrange(20 * MS))
    world.run_for(3 * SECOND)
    for node in town.alive():
        node.subscribe(_NAME)
    town.settle([_NAME])
    for _ in range(random.randint(1, 4)):
        (manager,) = town.managers(_NAME)
        happen = random.choice(["join", "leave", "crash", "end"])
        if happen == "join" or len(town.alive()) < 4:
            town.open(options=spoken).subscribe(_NAME)
        elif happen == "end":
            random.choice(town.subscribers(_NAME)).toggle(_NAME)
        else:
            (manager.close if happen == "leave" else manager.crash)()
        town.settle([_NAME])
        # Nobody tells a publisher that its message went to one who is gone: all must know it.
        world.run_for(town.options.profile.detection_ns)
        town.check_calm([_NAME])
    random.choice(town.alive()).publish(_NAME, b"")  # Which only an envelope can say.
    world.run_for(1 * SECOND)
    for node in town.subscribers(_NAME):
        came = town.count(node, _NAME, b"")
        world.check(came == 1, f"{node} had an empty message {came} times (H5)")
    world.check(world.counts["sent_bare"] > 0, "nobody spoke the first version")
    town.note_counts()


@scenario
def services_swarm(stage: Stage) -> None:
    """Draw a mix of everything that can go wrong; healed, all is right within the stated time."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(5, 14), 3)
    stage.faults(
        loss=random.choice([0, 0, 0.05, 0.2]), duplicate=random.choice([0, 0, 0.1]),
        reorder=random.choice([0, 0, 0.3]), reorder_ns=random.choice([5 * MS, 200 * MS]),
        burst_begin=random.choice([0, 0, 0.01]), corrupt=random.choice([0, 0, 0.02]),
        delay_ns=random.choice([20_000, 5 * MS, 50 * MS]),
    )  # fmt: skip
    for _ in range(random.randint(5, 15)):
        _do_harm(stage, town, names)
        for name in random.sample(names, 2):
            town.publish(random.choice(town.alive()), name)
        world.run_for(random.randrange(2 * SECOND))
    stage.heal()
    stage.faults()
    world.run_for(4 * SECOND)
    town.calm_down(names)
    for node in town.alive():
        is_settled = node.machine.client.is_settled
        world.check(is_settled, f"{node}: requests without end (H9)")
    town.note_counts()


def _do_harm(stage: Stage, town: Town, names: list[str]) -> None:
    """Let one thing go wrong, or change."""
    random = stage.random
    node, name = random.choice(town.alive()), random.choice(names)
    harm = random.choice(["cut", "mend", "kill", "leave", "join", "again", "stop", "change"])
    if harm == "cut":  # One way or both, from one node to some others.
        others = random.sample(town.alive(), random.randint(1, len(town.alive()) - 1))
        targets = [one.index for one in others if one is not node]
        stage.network.block([node.index], targets, both=random.random() < 0.5)
    elif harm == "mend":
        stage.network.unblock()
    elif harm in ("kill", "again", "leave") and len(town.alive()) > 4:
        if harm == "leave":
            node.close()
            return
        node.crash()
        if harm == "again":
            town.open(node.index).subscribe(name)
    elif harm == "stop":
        node.stop_for(random.randrange(50 * MS, 4 * SECOND))
    elif harm == "change":
        node.toggle(name)
    else:
        town.open().subscribe(name)
