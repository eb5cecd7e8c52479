"""Time-triggered topics that are begun again, and frames of them that come again (P14, P15)."""

from hubbub.limits import MS, SECOND
from hubbub.protocol.timetrigger.passing import Letter
from hubbub.protocol.timetrigger.timekeeper import BUS_CLOCK
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage
from hubbub.simulation.timed import Company
from hubbub.wire.header import CLOCK, DIRECT, KIND_OFFSET, OFFER

_PORT = 9
_KINDS = (CLOCK, DIRECT, OFFER)


class _Post:
    """A wire that keeps what was on it, and somebody who counts letters."""

    def __init__(self, stage: Stage, listener: SimulatedNode) -> None:
        self.stage = stage
        self.listener = listener
        self.heard: list[tuple[SimulatedNode, SimulatedNode, bytes]] = []
        self.letters: list[Letter | None] = []
        listener.core.timed.post.listen(self.letters.append, _PORT)
        stage.network.drop = self._keep

    def send(self, sender: SimulatedNode, payload: bytes) -> None:
        """Send a direct message to who listens."""
        target = self.listener.core.timed.node
        sender.core.timed.post.send(sender.now, 4, target, _PORT, payload)
        sender.wake()

    def replay(self, count: int) -> None:
        """Send frames again, to those they were sent to."""
        random, world = self.stage.random, self.stage.world
        for _ in range(count):
            source, target, frame = random.choice(self.heard)
            self.stage.network._carry(source, target, frame, world.now)
            if random.random() < 0.2:
                world.run_for(random.randrange(5 * MS))

    def _keep(self, source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        if frame[KIND_OFFSET] in _KINDS:
            self.heard.append((source, target, frame))
        return False


@scenario
def timed_replay_rest(stage: Stage) -> None:
    """Send clock readings, offers and direct messages again: none of them changes anything."""
    random, world = stage.random, stage.world
    company, nodes = Company(stage), stage.nodes(random.randint(2, 4))
    post = _Post(stage, nodes[-1])
    for node in nodes[1:]:
        node.core.timed.time.use(BUS_CLOCK)
    world.run_for(60 * MS)
    makers = [company.make(node) for node in nodes]
    company.use(nodes[-1], 100_000)
    world.run_for(random.randrange(1500 * MS, 3 * SECOND))
    sent = [b"%d" % number for number in range(random.randint(1, 70))]
    for payload in sent:
        post.send(nodes[0], payload)
    makers[0].stop()
    world.run_for(100 * MS)
    clocks = [node.core.timed.clock for node in nodes]
    steps = [clock.steps for clock in clocks]
    post.replay(300)
    world.run_for(100 * MS)
    world.check([clock.steps for clock in clocks] == steps, "an old answer stepped a clock (P15)")
    times = [clock.at(node.now) for clock, node in zip(clocks, nodes, strict=True)]
    apart_ns = max(times) - min(times)
    world.check(apart_ns <= 2 * MS, f"clocks are {apart_ns / MS} ms apart (P15)")
    got = [letter.payload for letter in post.letters if letter is not None]
    world.check(got == sent, f"{len(got)} letters of {len(sent)} (P15)")
    for node in nodes[1:]:
        _, is_there = node.core.timed.wants.offers[makers[0].producer.origin]
        world.check(not is_there, f"{node} believes in a producer that has ended (P15)")
    world.counts["replayed"] += 300


@scenario
def timed_clock_back(stage: Stage) -> None:
    """Let clocks go back, and components end and begin again: they are served as before (P14)."""
    random, world = stage.random, stage.world
    company = Company(stage)
    maker_node, user_node = stage.nodes(2)
    world.run_for(60 * MS)
    maker, user = company.make(maker_node), company.use(user_node, 100_000)
    for _ in range(random.randint(1, 3)):
        world.run_for(random.randrange(300 * MS, 2 * SECOND))
        node = random.choice([maker_node, user_node])
        if node is maker_node:
            maker.stop()
            maker_node.core.timed._next_port = maker.producer.port
        else:
            user.stop()
        node.step_wall_clock(-random.choice([60 * MS, 10 * SECOND, 3600 * SECOND]))
        world.run_for(random.randrange(1100 * MS, 2 * SECOND))
        if node is maker_node:
            maker = company.make(maker_node)
        else:
            user = company.use(user_node, 100_000)
        before = len(user.taken)
        world.run_for(SECOND)
        count = len(user.taken) - before
        world.check(count >= 9, f"{count} samples in the second after {node} began again (P14)")
    world.counts["taken"] += len(user.taken)
