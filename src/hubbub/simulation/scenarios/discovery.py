"""Who declares what: nodes, publishers and subscriptions come and go, and everybody knows."""

from collections.abc import Callable
from typing import Final

from hubbub.limits import MS, SECOND
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage

_SUBJECTS: Final = tuple(f"/d/{group}/{name}" for group in range(3) for name in range(4))
_PATTERNS: Final = ("/d/...", "/d/*/0", "/d/1/*", "/d/2/...", "/d/0/1", "/elsewhere")
_REST_NS: Final = 3 * SECOND
_REST_BYTES_PER_SECOND: Final = 200
_CALM_NS: Final = 100 * MS  # More than all repetitions of a change take.
# A network of 200 takes a minute to simulate.
_LARGE: Final = (*[20] * 33, *[50] * 5, 100, 200)
_SETTLE_NS: Final = 6 * SECOND  # One that was cut off for long is known again by a heartbeat.

Action = Callable[["_Crowd"], None]


class _Crowd:
    """Nodes that change their minds."""

    def __init__(self, stage: Stage, count: int) -> None:
        self.stage = stage
        self.random = stage.random
        self.nodes = stage.nodes(count)

    def act(self, actions: list[Action], count: int, pause_ns: int) -> None:
        """Let so many things happen, at once or in turn."""
        for _ in range(count):
            self.random.choice(actions)(self)
            self.stage.world.run_for(self.random.choice([0, 0, self.random.randrange(pause_ns)]))

    def publish(self) -> None:
        """Open a publisher, and now and then publish something."""
        node = self.random.choice(self.nodes)
        topic = node.publish_on(self._subject(node))
        for place in range(self.random.choice([0, 0, 3])):
            node.publish(topic, b"%d" % place)

    def withdraw(self) -> None:
        """Close a publisher."""
        node = self.random.choice(self.nodes)
        topics = [topic for topic in node.topics if topic.subject in node.published]
        if topics:
            node.publish_no_more(self.random.choice(topics))

    def burst(self) -> None:
        """Open many publishers at once, and close some of them again."""
        node = self.random.choice(self.nodes)
        topics = [node.publish_on(f"/d/many/{n}") for n in range(self.random.choice([10, 100]))]
        for topic in topics:
            if self.random.random() < 0.5:
                node.publish_no_more(topic)

    def subscribe(self) -> None:
        """Want more."""
        self.random.choice(self.nodes).subscribe(self.random.choice(_PATTERNS))

    def unsubscribe(self) -> None:
        """Want less."""
        node = self.random.choice(self.nodes)
        if node.patterns:
            node.unsubscribe(self.random.choice(sorted(node.patterns)))

    def join(self) -> None:
        """Open a node that has something to declare at once."""
        node = self.stage.node(self.nodes[0].host)
        self.nodes.append(node)
        node.publish_on(self._subject(node))
        node.subscribe(self.random.choice(_PATTERNS))

    def leave(self) -> None:
        """Close a node, or kill it, perhaps to start it again."""
        if len(self.nodes) < 3:
            return
        node = self.nodes.pop(self.random.randrange(len(self.nodes)))
        way = self.random.choice(["close", "crash", "restart"])
        if way == "close":
            node.close(200 * MS)
            return
        node.crash()
        if way == "restart":
            again = self.stage.node(node.host, node.index)
            for subject in list(node.published)[:3]:
                again.publish_on(subject)
            self.nodes.append(again)

    def split(self) -> None:
        """Cut some nodes off from the others for a while, both ways or one way."""
        indices = [node.index for node in self.nodes]
        self.random.shuffle(indices)
        place = self.random.randrange(1, len(indices))
        is_both = self.random.random() < 0.7
        self.stage.network.block(indices[:place], indices[place:], both=is_both)
        time_ns = self.random.choice([30, 300, 5000]) * MS
        self.stage.world.after(time_ns, self.stage.network.unblock)

    def _subject(self, node: SimulatedNode) -> str:
        return self.random.choice([*_SUBJECTS, f"/d/own/{node.index}"])


_CHANGES: Final[list[Action]] = [
    _Crowd.publish, _Crowd.publish, _Crowd.withdraw, _Crowd.subscribe, _Crowd.unsubscribe,
]  # fmt: skip


@scenario
def discovery(stage: Stage) -> None:
    """Let up to 20 nodes change what they declare, lose announcements and each other: all know."""
    random = stage.random
    stage.ledger.are_gaps_allowed = True  # Who is killed repairs nothing.
    crowd = _Crowd(stage, random.choice([2, 3, 3, 5, 8, 8, 12, 20]))
    stage.faults(
        loss=random.choice([0, random.uniform(0, 0.3)]),
        reorder=random.choice([0, 0, 0.2]),
        duplicate=random.choice([0, 0, 0.1]),
        kind_loss=random.choice([{}, {}, {"control": 0.5}, {"heartbeat": 0.7}]),
    )
    more = [_Crowd.burst, _Crowd.join, _Crowd.leave, _Crowd.split]
    actions = [*_CHANGES, *(action for action in more if random.random() < 0.5)]
    crowd.act(actions, random.randint(5, 40), random.choice([1, 30, 300]) * MS)
    stage.play()
    stage.world.run_for(random.choice([0, 5 * SECOND]))
    stage.finish(_SETTLE_NS)
    _check_silence(stage)
    _check_rest(stage)


def _check_silence(stage: Stage) -> None:
    """Check that what nobody wants is sent to nobody."""
    world, counts = stage.world, stage.network.counts
    before = counts["data"]
    unwanted = [
        (node, topic)
        for node in stage.ledger.nodes
        for topic in node.topics
        if not any(
            stage.ledger.is_subscribed(other, topic.subject)
            for other in stage.ledger.nodes
            if other is not node
        )
    ]
    for node, topic in unwanted:
        # One that timed out is owed, and sent to where others are, until it is forgotten.
        if not topic.receivers:
            node.publish(topic, b"for nobody")
    world.run_for(_CALM_NS)
    world.check(counts["data"] == before, f"{counts['data'] - before} frames were for nobody")


def _check_rest(stage: Stage) -> None:
    """Check that nodes at rest send a heartbeat now and then, and nothing else."""
    world, counts = stage.world, stage.network.counts
    world.run_for(SECOND)  # The last repairs may still be under way.
    before, sent = counts["control"], {node: node.sent_bytes for node in stage.ledger.nodes}
    world.run_for(_REST_NS)
    world.check(counts["control"] == before, f"{counts['control'] - before} frames at rest")
    for node in stage.ledger.nodes:
        rate = (node.sent_bytes - sent[node]) * SECOND // _REST_NS
        world.check(rate <= _REST_BYTES_PER_SECOND, f"{node.name} sends {rate} bytes/s at rest")
        world.counts["rest_bytes_per_second"] = max(world.counts["rest_bytes_per_second"], rate)


@scenario
def discovery_large(stage: Stage) -> None:
    """Open 20 nodes, seldom 200, with 1,000 topics in all: all know all, and rest is cheap."""
    random, world = stage.random, stage.world
    count = random.choice(_LARGE)
    pause_ns = random.choice([0, 10 * MS])
    host = stage.host()
    crowd = _Crowd(stage, 0)
    topics = 0
    for place in range(count):
        node = stage.node(host)
        crowd.nodes.append(node)
        node.subscribe(f"/d/{place % 10}/...")
        for _ in range(1000 // count + (place < 1000 % count)):
            node.publish_on(f"/d/{topics % 20}/{topics}")
            topics += 1
        world.run_for(pause_ns)
    began_ns = world.now
    is_known = world.run_while(lambda: bool(stage.ledger.unaware()), 2 * SECOND, 10 * MS)
    world.check(is_known, stage.ledger.unaware())
    world.counts["aware_ms"] = (world.now - began_ns) // MS
    crowd.act(_CHANGES, 10, 10 * MS)
    stage.finish(_SETTLE_NS)
    _check_rest(stage)
