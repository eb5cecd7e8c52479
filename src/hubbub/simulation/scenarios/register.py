"""Who has which index, who is named in which frame, and when a frame goes straight to one."""

from hubbub.limits import MS, SECOND, STRAIGHT_CALM
from hubbub.simulation.network import name_kind
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage

_PATTERNS = ("/t/...", "/t/*", "/t/0", "/t/1", "/t/2", "/other")
_SETTLE_NS = 6 * SECOND
_MANY_NODES = 70  # More than a bitmap has bits.


class _Islands:
    """Nodes that open on islands which do not hear each other, and meet later."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        random = stage.random
        self.is_crowd = random.random() < 0.05
        count = _MANY_NODES if self.is_crowd else random.randint(3, 12)
        self.host = stage.host()
        self.nodes: list[SimulatedNode] = []
        self.islands: list[list[SimulatedNode]] = [[] for _ in range(random.randint(1, 3))]
        for _ in range(count):
            self.open()
            stage.world.run_for(random.choice([0, 0, random.randrange(20 * MS)]))

    def open(self, index: int | None = None) -> None:
        """Open a node on one of the islands, or a new incarnation of one."""
        random, stage = self.stage.random, self.stage
        node = stage.node(self.host, index)
        island = random.choice(self.islands)
        for other in self.islands:
            if other is not island:
                stage.network.block([node.index], [far.index for far in other])
        island.append(node)
        self.nodes.append(node)
        node.subscribe(random.choice(_PATTERNS))
        share, messages = (0.05, 10) if self.is_crowd else (0.5, 40)
        if random.random() < share:
            for place in range(random.randint(1, 3)):
                topic = node.publish_on(f"/t/{place}")
                stage.feed(node, topic, count=messages, pause_ns=(0, 40 * MS))

    def meet(self) -> None:
        """Let all islands be one from now on."""
        self.stage.network.unblock()
        self.islands = [[node for island in self.islands for node in island]]

    def split(self) -> None:
        """Cut some nodes off from some others for a while, both ways or one way."""
        random, network = self.stage.random, self.stage.network
        some = random.sample(self.nodes, random.randint(1, len(self.nodes) - 1))
        others = [node.index for node in self.nodes if node not in some]
        network.block([node.index for node in some], others, both=random.random() < 0.5)
        self.stage.world.after(random.choice([100, 1000, 4000]) * MS, network.unblock)

    def restart(self) -> None:
        """Kill a node that only listens, and start it again."""
        random = self.stage.random
        listening = [node for node in self.nodes if not node.topics]
        if listening:
            node = random.choice(listening)
            self._remove(node)
            node.crash()
            self.open(node.index)

    def leave(self) -> None:
        """Close a node that only listens."""
        listening = [node for node in self.nodes if not node.topics]
        if len(listening) > 1:
            node = self.stage.random.choice(listening)
            self._remove(node)
            node.close(100 * MS)

    def change_interest(self) -> None:
        """Let a node want more, or less."""
        node = self.stage.random.choice(self.nodes)
        self.stage.change_interest(node, _PATTERNS)

    def _remove(self, node: SimulatedNode) -> None:
        self.nodes.remove(node)
        for island in self.islands:
            if node in island:
                island.remove(node)


@scenario
def register(stage: Stage) -> None:
    """Open at once, apart, again, beyond 64: indices become unique, and no frame is missed."""
    random, world = stage.random, stage.world
    stage.faults(
        loss=random.choice([0, 0, random.uniform(0, 0.1)]),
        reorder=random.choice([0, 0.05]),
        kind_loss=random.choice([{}, {"heartbeat": 0.7}, {"heartbeat": 0.7, "control": 0.3}]),
    )
    crowd = _Islands(stage)
    world.run_for(random.choice([0, 60 * MS, 1500 * MS]))
    crowd.meet()
    actions = [
        _Islands.split, _Islands.restart, _Islands.leave, _Islands.change_interest,
        _Islands.open, _Islands.meet,
    ]  # fmt: skip
    for _ in range(random.randint(0, 3 if crowd.is_crowd else 10)):
        world.run_for(random.choice([0, random.randrange(300 * MS)]))
        random.choice(actions)(crowd)
    stage.play()
    world.run_for(4 * SECOND)  # Until the last split is over.
    stage.finish(_SETTLE_NS)
    changes = sum(node.core.register.changes for node in crowd.nodes)
    world.counts["index_changes"] += changes - len(crowd.nodes)
    world.counts["passed_by"] += sum(node.core.endpoint.drops["not_for_us"] for node in crowd.nodes)


@scenario
def one_receiver(stage: Stage) -> None:
    """Go straight to the only receiver, to the group when others come: nothing is lost."""
    random, world = stage.random, stage.world
    host: Host = stage.host()
    publisher, bystander, first = stage.nodes(3, host)
    bystander.subscribe("/other")
    first.subscribe("/t/...")
    topic = publisher.publish_on("/t/0")
    stage.meet([topic], 1)
    world.run_for(60 * MS)
    loss = random.choice([0, random.uniform(0, 0.1)])
    stage.faults(loss=loss, reorder=random.choice([0, 0.05]), jitter_ns=random.choice([0, 3 * MS]))
    seen: list[bytes] = []

    def listen(source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        if target is bystander and name_kind(frame) in ("data", "repair"):
            seen.append(frame)
        return False

    stage.network.drop = listen
    feed = stage.feed(publisher, topic, count=10**9, pause_ns=(0, 20 * MS))
    world.run_for(random.randrange(500 * MS))
    world.check(not seen, "frames for one receiver went to the group")
    for _ in range(random.randint(1, 3)):
        second = stage.node(host)
        second.subscribe("/t/...")
        world.run_for(random.randrange(1 * MS, 500 * MS))
        second.close(100 * MS)
        world.run_for(random.choice([0, random.randrange(1 * SECOND)]))
    world.run_for(2 * SECOND)
    world.check(bool(seen), "frames for two receivers did not go to the group")
    world.run_for(STRAIGHT_CALM)
    seen.clear()
    world.run_for(500 * MS)
    world.check(not seen, "frames for one receiver go to the group though all is calm")
    feed.stop()
    stage.finish()
    stage.check_first()
