"""Latecomers ask for the history of what they join: the last messages, then the new ones."""

from itertools import combinations

from hubbub.limits import MS, SECOND
from hubbub.protocol.settings import Settings
from hubbub.simulation.checkers import Publication, place_of
from hubbub.simulation.latecomer import Latecomer
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage

_SETTLE_NS = 5 * SECOND


class _Plot:
    """Publishers that keep history, live subscribers, and those who come later."""

    def __init__(self, stage: Stage) -> None:
        random = stage.random
        self.stage = stage
        self.kept = random.choice([1, 7, 40, 400, 400])
        self.host = stage.host(settings=Settings(reference_bytes=random.choice([0, 0, 500])))
        self.size_bytes = random.choice([(1, 100), (1, 1200), (1, 9000)])
        self.pause_ns = random.choice([1_000, 100_000, 1 * MS, 5 * MS])
        self.publishing: list[SimulatedNode] = []
        self.subscribing = stage.nodes(random.randint(0, 2), self.host)
        for node in self.subscribing:
            node.subscribe("/t/...")
        for _ in range(random.randint(1, 2)):
            self.publish()
        self.latecomers: list[tuple[Latecomer, int]] = []

    def publish(self, index: int | None = None) -> None:
        """Open a publisher of some subjects; with an index, one that was there before."""
        stage, random = self.stage, self.stage.random
        node = stage.node(self.host, index)
        self.publishing.append(node)
        counts = [450] if self.kept == 400 else [3, 100, 200]
        for place in range(random.randint(1, 3)):
            topic = node.publish_on(f"/t/{place}", history=self.kept)
            stage.feed(
                node, topic, count=random.choice(counts), pause_ns=(0, self.pause_ns),
                size_bytes=self.size_bytes, burst=random.choice([1, 1, 10]),
            )  # fmt: skip

    def come(self) -> None:
        """Subscribe with history, in a node of its own or in one that listens already."""
        random = self.stage.random
        nodes = self.subscribing + [one.node for one, _ in self.latecomers]
        is_new = not nodes or random.random() < 0.6
        node = self.stage.node(self.host) if is_new else random.choice(nodes)
        wanted = random.choice([0, 0, 3])
        latecomer = node.join(random.choice(["/t/...", "/t/*", "/t/0"]), wanted)
        self.latecomers.append((latecomer, min(wanted or self.kept, self.kept)))

    def go(self) -> None:
        """Let one of those who came leave."""
        place = self.stage.random.randrange(len(self.latecomers))
        latecomer, _ = self.latecomers.pop(place)
        latecomer.node.leave(latecomer)

    def restart(self) -> None:
        """Kill a publisher, and let another incarnation of it begin anew."""
        node = self.stage.random.choice(self.publishing)
        self.publishing.remove(node)
        node.crash()
        self.publish(node.index)

    def connect(self) -> None:
        """Open pipes between all nodes."""
        nodes = {*self.publishing, *self.subscribing, *(one.node for one, _ in self.latecomers)}
        for one, other in combinations(sorted(nodes, key=lambda node: node.index), 2):
            self.stage.network.pipes.open(one, other)

    def lacking(self) -> str:
        """Say what a latecomer still lacks of what is published by those who are here."""
        for latecomer, kept in self.latecomers:
            for node in self.publishing:
                for topic in node.topics:
                    publication = self._publication(node, topic.subject)
                    text = self._compare(latecomer, publication, kept)
                    if text:
                        return f"{latecomer.name} of {topic.subject} by {node.name}: {text}"
        return ""

    def _publication(self, node: SimulatedNode, subject: str) -> Publication:
        return self.stage.ledger.publications[place_of(node.source, subject)]

    def _compare(self, latecomer: Latecomer, publication: Publication, kept: int) -> str:
        subject = publication.topic.subject
        if not self.stage.ledger.is_subscribed(latecomer, subject) or not publication.payloads:
            return ""
        reception = self.stage.ledger.reception(publication, latecomer)
        if reception.next < publication.next:
            return f"has up to {reception.next - 1} of {publication.next - 1}"
        if reception.holes:
            return f"has holes: {reception.holes}"
        assert reception.first is not None
        asked_at = latecomer.asked_at.get(place_of(publication.node.source, subject), 0)
        if reception.first < asked_at - kept:
            return f"began with {reception.first}, asked at {asked_at} for {kept}"
        # Where it was served is where the node was counted in, unless it had been before.
        peer = publication.node.core.peers[latecomer.node.key]
        served_at = max(peer.debt.owed[publication.topic.number], asked_at)
        if reception.first > max(served_at - kept, publication.first):
            is_first_here = latecomer.request == 1 and not latecomer.node.patterns
            if is_first_here:
                return f"began with {reception.first}, served at {served_at} with {kept}"
        return ""


@scenario
def history(stage: Stage) -> None:
    """Ask for the last messages at any time, at up to 20 % loss: they come first, all of them."""
    random, world = stage.random, stage.world
    stage.ledger.are_gaps_allowed = False
    stage.faults(
        loss=random.choice([0, random.uniform(0, 0.2)]), reorder=random.choice([0, 0.05]),
        duplicate=random.choice([0, 0.05]),
    )  # fmt: skip
    plot = _Plot(stage)
    for _ in range(random.randint(3, 12)):
        world.run_for(random.choice([0, random.randrange(10 * MS), random.randrange(100 * MS)]))
        plot.come()
        if random.random() < 0.2:
            plot.go()
        if random.random() < 0.1:
            plot.connect()
    stage.play()
    stage.heal()
    world.run_while(lambda: bool(plot.lacking()), _SETTLE_NS, 5 * MS)
    world.check(not plot.lacking(), plot.lacking())
    stage.finish()
    world.check(not plot.lacking(), plot.lacking())


@scenario
def history_restart(stage: Stage) -> None:
    """Restart publishers that keep history: of each life its own, and none of it twice."""
    random, world = stage.random, stage.world
    stage.ledger.are_gaps_allowed = True  # Who is killed repairs nothing.
    stage.faults(loss=random.choice([0, 0.1]))
    plot = _Plot(stage)
    for _ in range(random.randint(2, 6)):
        world.run_for(random.choice([0, random.randrange(50 * MS), random.randrange(300 * MS)]))
        plot.come()
        if random.random() < 0.5:
            plot.restart()
    stage.play()
    stage.heal()
    world.run_while(lambda: bool(plot.lacking()), _SETTLE_NS, 5 * MS)
    world.check(not plot.lacking(), plot.lacking())
    stage.finish()
