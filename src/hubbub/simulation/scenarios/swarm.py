"""Everything at once: each seed switches some faults off altogether and draws the others anew.

A fault that always runs beside all others hides what it would show alone, and one that always runs
alone never meets the others; so each seed is another mix.
"""

from collections.abc import Callable

from hubbub.limits import MS, SECOND, US
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage

_PATTERNS = ("/t/...", "/t/*", "/t/0", "/t/1", "/t/new/*")
_SETTLE_NS = 6 * SECOND

Action = Callable[["_Crowd"], None]


class _Crowd:
    """The nodes of a swarm, and what happens to them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        random = stage.random
        self.host = stage.host(
            stall=random.choice([0, 0, 0.02, 0.1]), eagain=random.choice([0, 0, 0.1]),
            drift_ppm=random.randint(-200, 200),
            # A lone receiver gets a quarter window of repairs a round, so that small windows take
            # long to catch up after a pause of seconds; `small_buffers` has those.
            buffer_bytes=random.choice([1 << 20, 8 << 20]),
        )  # fmt: skip
        self.publishing, self.subscribing = stage.group(
            random.randint(1, 3), random.randint(1, 3), host=self.host
        )
        for node in self.publishing:
            self._listen_to_itself(node)
            for place in range(random.randint(1, 2)):
                self._begin(node, f"/t/{place}")

    def _listen_to_itself(self, node: SimulatedNode) -> None:
        if self.stage.random.random() < 0.3:
            node.subscribe("/t/...")
            node.is_listening = True

    def _begin(self, node: SimulatedNode, subject: str, *, is_reliable: bool = True) -> None:
        random = self.stage.random
        topic = node.publish_on(subject, is_reliable=is_reliable)
        largest = random.choice([50, 1000, 5000, 30_000])
        burst = random.choice([1, 1, 10])
        self.stage.feed(
            node, topic, count=random.randint(20, 150), pause_ns=(0, 4 * burst * MS),
            size_bytes=(1, largest), burst=burst,
        )  # fmt: skip

    def begin_topic(self) -> None:
        """Let a publisher begin another topic."""
        node = self.stage.random.choice(self.publishing)
        is_reliable = self.stage.random.random() < 0.7
        self._begin(node, f"/t/new/{len(node.topics)}", is_reliable=is_reliable)

    def change_interest(self) -> None:
        """Let a subscriber want more, or less."""
        node = self.stage.random.choice(self.subscribing)
        self.stage.change_interest(node, _PATTERNS)

    def stop(self) -> None:
        """Stop a process for a while."""
        node = self.stage.random.choice(self.publishing + self.subscribing)
        node.stop_for(self.stage.random.choice([50, 300, 4000]) * MS)

    def split(self) -> None:
        """Cut the way from one node to another for a while."""
        nodes = self.stage.random.sample(self.publishing + self.subscribing, 2)
        one, other = (node.index for node in nodes)
        self.stage.network.block([one], [other], both=self.stage.random.random() < 0.5)
        self.stage.world.after(
            self.stage.random.choice([50, 300, 4000]) * MS, self.stage.network.unblock
        )

    def join(self) -> None:
        """Open another subscriber."""
        node = self.stage.node(self.host)
        node.subscribe(self.stage.random.choice(_PATTERNS))
        self.subscribing.append(node)

    def leave(self) -> None:
        """Close a subscriber, or kill it and start it again."""
        random = self.stage.random
        if len(self.subscribing) < 2:
            return
        node = self.subscribing.pop(random.randrange(len(self.subscribing)))
        if random.random() < 0.5:
            node.close(200 * MS)
            return
        patterns = sorted(node.patterns)
        node.crash()
        again = self.stage.node(self.host, node.index)
        for pattern in patterns:
            again.subscribe(pattern)
        self.subscribing.append(again)

    def step_clock(self) -> None:
        """Set a wall clock."""
        node = self.stage.random.choice(self.publishing + self.subscribing)
        node.step_wall_clock(self.stage.random.randint(-3600, 3600) * SECOND)


@scenario
def swarm(stage: Stage) -> None:
    """Mix all faults, a new mix for each seed: nothing missing, nothing twice, no gap."""
    random, world = stage.random, stage.world
    stage.faults(
        loss=random.choice([0, random.uniform(0, 0.2)]),
        duplicate=random.choice([0, 0, 0.1]),
        reorder=random.choice([0, 0, 0.1]),
        reorder_ns=random.choice([1, 20]) * MS,
        corrupt=random.choice([0, 0, 0.02]),
        burst_begin=random.choice([0, 0, 0.005]),
        delay_ns=random.choice([20 * US, 300 * US, 3 * MS]),
        kind_loss=random.choice([{}, {}, {"nak": 0.5}, {"status": 0.5}, {"control": 0.3}]),
    )
    crowd = _Crowd(stage)
    actions: list[Action] = [
        _Crowd.begin_topic, _Crowd.change_interest, _Crowd.stop, _Crowd.split, _Crowd.join,
        _Crowd.leave, _Crowd.step_clock,
    ]  # fmt: skip
    enabled = [action for action in actions if random.random() < 0.5]
    for _ in range(random.randint(0, 12) if enabled else 0):
        world.run_for(random.choice([0, random.randrange(100 * MS)]))
        random.choice(enabled)(crowd)
    stage.play()
    world.run_for(4 * SECOND if _Crowd.stop in enabled else 0)
    stage.finish(_SETTLE_NS)
    for publication in stage.ledger.publications.values():
        node = publication.node
        if node.is_listening:
            own = stage.ledger.reception(publication, node).count
            world.check(own == len(publication.payloads), f"{node.name} heard {own} of its own")
