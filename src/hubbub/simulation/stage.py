"""What every scenario needs: a world with a network and a ledger, nodes, and the two phases.

Phase 1 has faults and checks safety. Phase 2 is healed and checks liveness: everything deliverable
is delivered within a stated time, and everybody knows again who is there.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hubbub.limits import MS, SECOND
from hubbub.protocol.topics import OutgoingTopic
from hubbub.simulation.checkers import Ledger
from hubbub.simulation.network import Faults, Network
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.roll_call import misnumbered, unsettled
from hubbub.simulation.traffic import Feed
from hubbub.simulation.world import World

SETTLE_NS = 2 * SECOND  # A healed network has delivered everything within this.
AWARE_NS = 5 * SECOND  # And everybody knows within this who is there.


class Stage:
    """Where one scenario of one seed plays."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.network = Network(self.world)
        self.ledger = Ledger(self.world)
        self.feeds: list[Feed] = []
        self._next_index = 1
        self._next_incarnation = 1

    def host(self, **options: object) -> Host:
        """Draw a host: frames of an Ethernet or of a loopback, with or without offloading."""
        drawn: dict[str, object] = self.random.choice([
            {"frame_bytes_max": 1400, "burst_bytes_max": 0},
            {"frame_bytes_max": 1400, "burst_bytes_max": 64_400},
            {"frame_bytes_max": 16_384, "burst_bytes_max": 0},
        ])  # fmt: skip
        return Host(**{**drawn, **options})  # type: ignore[arg-type]

    def node(
        self, host: Host | None = None, index: int | None = None,
        kind: type[SimulatedNode] = SimulatedNode,
    ) -> SimulatedNode:  # fmt: skip
        """Open a node; with an index it is a new incarnation of that one."""
        if index is None:
            index = self._next_index
            self._next_index += 1
        self._next_incarnation += 1
        own = replace(host or self.host())
        return kind(self.world, self.network, self.ledger, index, own, self._next_incarnation)

    def nodes(self, count: int, host: Host | None = None) -> list[SimulatedNode]:
        """Open several nodes on hosts of one kind."""
        host = host or self.host()
        return [self.node(host) for _ in range(count)]

    def group(
        self,
        publishers: int,
        subscribers: int,
        *,
        host: Host | None = None,
        pattern: str = "/t/...",
    ) -> tuple[list[SimulatedNode], list[SimulatedNode]]:
        """Open publishers and subscribers."""
        host = host or self.host()
        subscribing = self.nodes(subscribers, host)
        for node in subscribing:
            node.subscribe(pattern)
        return self.nodes(publishers, host), subscribing

    def topics(self, nodes: list[SimulatedNode], subjects: int = 1) -> list[OutgoingTopic]:
        """Let each node publish some subjects, the same for all."""
        return [node.publish_on(f"/t/{i}") for node in nodes for i in range(subjects)]

    def feed(
        self, node: SimulatedNode, topic: OutgoingTopic, *, count: int,
        pause_ns: tuple[int, int] = (0, 2 * MS), size_bytes: tuple[int, int] = (1, 200),
        burst: int = 1,
    ) -> Feed:  # fmt: skip
        """Let an application publish."""
        feed = Feed(
            self.world, node, topic, count=count, pause_ns=pause_ns, size_bytes=size_bytes,
            burst=burst,
        )  # fmt: skip
        self.feeds.append(feed)
        return feed

    def feed_all(self, nodes: list[SimulatedNode], count: int) -> None:
        """Let applications publish on all topics of nodes, at a pace and in sizes drawn for all."""
        burst = self.random.choice([1, 1, 5, 30])
        size_bytes = self.random.choice([(1, 100), (1, 1200), (1, 4000), (1000, 40_000)])
        pause_ns = 0, burst * self.random.choice([1 * MS, 5 * MS])
        for node in nodes:
            for topic in node.topics:
                self.feed(
                    node, topic, count=count, pause_ns=pause_ns, size_bytes=size_bytes, burst=burst
                )

    def change_interest(self, node: SimulatedNode, patterns: Sequence[str]) -> None:
        """Let a node want one of these patterns, or no longer what it wants."""
        if node.patterns and self.random.random() < 0.5:
            node.unsubscribe(self.random.choice(sorted(node.patterns)))
        else:
            node.subscribe(self.random.choice(patterns))

    def meet(self, topics: list[OutgoingTopic], receivers: int, limit_ns: int = SECOND) -> None:
        """Let time pass until all topics have their receivers; they must, soon."""

        def is_missing_somebody() -> bool:
            return any(topic.receivers != receivers for topic in topics)

        is_met = self.world.run_while(is_missing_somebody, limit_ns)
        self.world.check(is_met, f"after {limit_ns / MS:.0f} ms not all receivers are known")

    def play(self, limit_ns: int = 60 * SECOND) -> None:
        """Let time pass until all feeds are done."""
        is_done = self.world.run_while(
            lambda: not all(feed.is_done for feed in self.feeds), limit_ns, 5 * MS
        )
        self.world.check(is_done, "publishers were held back for too long")

    def heal(self) -> None:
        """Begin phase 2."""
        self.network.heal()
        for node in self.ledger.nodes:
            node.heal()

    def settle(self, limit_ns: int = SETTLE_NS) -> int:
        """Let everything arrive; return how long that took after healing."""
        start = self.world.now
        self.ledger.is_due = True
        self.world.run_while(lambda: not self.ledger.is_complete, limit_ns, 5 * MS)
        lacking = self.ledger.lacking()
        self.world.check(not lacking, f"{limit_ns / MS:.0f} ms after healing: {lacking}")
        return self.world.now - start

    def finish(self, settle_ns: int = SETTLE_NS) -> int:
        """Heal, settle, and check everything that holds at the end of every run."""
        self.heal()
        took_ns = self.settle(settle_ns)
        self.world.run_for(200 * MS)
        self.ledger.check_receptions()
        self.world.run_while(lambda: bool(self._unaware()), AWARE_NS, 50 * MS)
        unaware = self._unaware()
        self.world.check(not unaware, f"{AWARE_NS / MS:.0f} ms later: {unaware}")
        self.ledger.check_receptions()
        return took_ns

    def _unaware(self) -> str:
        """Say who does not know what it should; empty when all do."""
        return self.ledger.unaware() or misnumbered(self.ledger) or unsettled(self.ledger)

    def check_first(self, first: int = 1) -> None:
        """Check that everybody was owed everything from the first message on."""
        for publication, node, _ in self.ledger.debts():
            start = self.ledger.reception(publication, node).start
            self.world.check(
                start == first or not publication.payloads,
                f"{node.name} of {publication.topic.subject} began with {start}, not {first}",
            )

    def faults(self, **faults: object) -> None:
        """Begin faults of the wire."""
        self.network.faults = Faults(**faults)  # type: ignore[arg-type]


Play = Callable[[Stage], None]
