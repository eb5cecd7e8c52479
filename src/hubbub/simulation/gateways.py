"""Several LANs in one world, and gateways between them: the real relay on simulated nodes.

The ledger knows publications by their origin, so what crosses is compared with what was published,
byte for byte, once and in order, wherever it arrives.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from hubbub.events import GapAbandoned
from hubbub.limits import (
    BEACON_TIMEOUT,
    HOP_LIMIT,
    MS,
    PORT_SWEEP,
    SECOND,
    TREE_JOIN,
    TREE_LISTEN,
    US,
)
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.gateway.port import Port
from hubbub.protocol.gateway.relay import Relay
from hubbub.protocol.peers import Peer
from hubbub.protocol.topics import IncomingTopic
from hubbub.simulation.checkers import Ledger, Publication
from hubbub.simulation.network import Faults, Network
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.stage import SETTLE_NS, Stage
from hubbub.simulation.world import World

_LOOK_NS: Final = 20 * US
_PUMP_NS: Final = 1 * MS
_AGREE_NS: Final = BEACON_TIMEOUT + TREE_JOIN  # After a death, or a return.


class FarLedger(Ledger):
    """A ledger of nodes that may have gateways between them: all is owed from the beginning."""

    may_gateways_miss = False  # What comes to them by another way is no loss.

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._dead_ports: set[Source] = set()
        self._deaths_ns: list[int] = []

    def removed(self, node: SimulatedNode) -> None:
        """Stop expecting anything of a node."""
        super().removed(node)
        if isinstance(node, PortNode):
            self._dead_ports.add(node.source)
            self._deaths_ns.append(self.world.now)

    def asked(self, node: "PortNode", patterns: frozenset[str]) -> None:
        """Note what a gateway wants on a LAN by now: what it wants again later begins anew."""
        self._end_receptions(node, sorted(patterns))

    def _take_gap(self, node: SimulatedNode, gap: GapAbandoned) -> None:
        if self.may_gateways_miss and isinstance(node, PortNode):
            return
        # What was in a frame of a gateway that died nobody can say. If another gateway brought it,
        # nothing is lost; if not, sequences of the origin are missing, which is a gap of its own.
        is_of_dead = gap.subject is None and gap.publisher in self._dead_ports
        if self.are_gaps_allowed or not is_of_dead:
            super()._take_gap(node, gap)

    def debts(self) -> Iterator[tuple[Publication, SimulatedNode, int | None]]:
        """Name who should get what among those alive, near or far."""
        for publication in self.publications.values():
            if not publication.node.is_alive:
                continue
            for node in self.nodes:
                is_other = node is not publication.node
                if is_other and self.is_subscribed(node, publication.topic.subject):
                    yield publication, node, self._owed(publication, node)

    def _owed(self, publication: Publication, node: SimulatedNode) -> int:
        """Say from where on; who had nothing yet when a gateway died cannot know what it missed."""
        reception = self.reception(publication, node)
        is_bereft = any(death_ns < reception.first_ns for death_ns in self._deaths_ns)
        if reception.start is None or not (self.are_gaps_allowed and is_bereft):
            return publication.first
        return max(publication.first, reception.start)


class PortNode(SimulatedNode):
    """A node of a gateway on one LAN: what it receives is for other LANs."""

    take: Callable[[Delivery], None]
    after: Callable[[], None]

    def _hand_out(self, delivery: Delivery) -> None:
        self.take(delivery)

    def _drain(self) -> int:
        count = super()._drain()
        self.after()
        return count

    def withdraw(self, asked: frozenset[str]) -> None:
        """Want just this from now on; what came before that is told first."""
        super()._drain()
        assert isinstance(self.ledger, FarLedger)
        self.ledger.asked(self, asked)


class SimulatedGateway:
    """A gateway, and the model of the shell around it."""

    def __init__(
        self, lans: "Lans", places: tuple[int, ...], host: Host | None,
        urgent: tuple[str, ...] = (), before: "SimulatedGateway | None" = None,
    ) -> None:  # fmt: skip
        self.world = lans.stage.world
        self.lans = lans
        self.places = places
        self.host = host
        self.is_alive = True
        indices = [None] * len(places) if before is None else [one.index for one in before.nodes]
        self.nodes: list[PortNode] = [
            lans.open(PortNode, lan, host, index)
            for lan, index in zip(places, indices, strict=True)
        ]
        self.ports = [
            Port(str(lan), node.core, urgent=urgent)
            for lan, node in zip(places, self.nodes, strict=True)
        ]
        self._nodes = dict(zip(self.ports, self.nodes, strict=True))
        self.relay = Relay(self.world.now, self.ports, self._call)
        self._is_looking = self._is_pumping = False
        self.world.after(PORT_SWEEP, self._sweep)
        for port, node in self._nodes.items():
            node.take = self._taker(port)
            node.after = self._pump
            node.core.outgoing.grants.on_interest = self._interest_changed
            node.core.on_beacon = partial(self._hear, self.ports.index(port))
        self.world.after(0, self._beat)

    def _taker(self, port: Port) -> Callable[[Delivery], None]:
        def take(delivery: Delivery) -> None:
            topic = delivery.topic
            assert isinstance(topic, IncomingTopic)
            self.world.check(topic.hops <= HOP_LIMIT, f"{topic.subject} made {topic.hops} hops")
            self.relay.take(port, delivery)

        return take

    def _call(self, port: Port, function: Callable[[int], Any]) -> Any:
        node = self._nodes[port]
        result = function(node.now)
        node.wake()
        return result

    def _interest_changed(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self.world.after(_LOOK_NS, self._look)

    def _hear(self, place: int, _: int, peer: Peer, body: bytes) -> None:
        self.relay.hear(place, self.world.now, peer, body)
        self._interest_changed()

    def _beat(self) -> None:
        """Look around again when it is time to tell where we are."""
        if self.is_alive:
            self._look()
            self.world.after(TREE_LISTEN, self._beat)

    def _look(self) -> None:
        self._is_looking = False
        if self.is_alive:
            before = [port.asked for port in self.ports]
            self.relay.look(self.world.now)
            for port, asked in zip(self.ports, before, strict=True):
                if port.asked != asked:
                    self._nodes[port].withdraw(port.asked)
            self._pump()

    def _sweep(self) -> None:
        if self.is_alive:
            self.relay.sweep()
            self.world.after(PORT_SWEEP, self._sweep)

    def _pump(self) -> None:
        if self._is_pumping:
            return  # There was no room, and it is tried again in a while.
        self.relay.pump()
        if self.relay.is_waiting:
            self._is_pumping = True
            self.world.after(_PUMP_NS, self._pump_again)

    def _pump_again(self) -> None:
        self._is_pumping = False
        if self.is_alive:
            self._pump()

    def crash(self) -> None:
        """Die without a word, on all LANs at once."""
        self.is_alive = False
        for node in self.nodes:
            node.crash()

    def restart(self) -> "SimulatedGateway":
        """Begin anew with nothing in memory, as other nodes or, with fixed ids, as the same."""
        before = self if self.world.chance(0.5) else None
        return self.lans.gateway(*self.places, host=self.host, before=before)


class Lans:
    """LANs, their nodes, and the gateways between them."""

    def __init__(self, stage: Stage, count: int) -> None:
        self.stage = stage
        stage.ledger = self.ledger = FarLedger(stage.world)
        self.networks = [stage.network, *(Network(stage.world) for _ in range(count - 1))]
        self.gateways: list[SimulatedGateway] = []

    def open(
        self, kind: type[SimulatedNode], lan: int, host: Host | None, index: int | None = None
    ) -> Any:
        """Open a node on a LAN; with an index it is another life of that one."""
        stage = self.stage
        stage.network = self.networks[lan]
        try:
            return stage.node(host, index, kind)
        finally:
            stage.network = self.networks[0]

    def node(self, lan: int, host: Host | None = None) -> SimulatedNode:
        """Open an ordinary node on a LAN."""
        node: SimulatedNode = self.open(SimulatedNode, lan, host)
        return node

    def gateway(
        self, *lans: int, host: Host | None = None, urgent: tuple[str, ...] = (),
        before: SimulatedGateway | None = None,
    ) -> SimulatedGateway:  # fmt: skip
        """Open a gateway between LANs, or another life of one."""
        gateway = SimulatedGateway(self, lans, host, urgent, before)
        self.gateways.append(gateway)
        return gateway

    def faults(self, **faults: Any) -> None:
        """Begin faults on all wires."""
        for network in self.networks:
            network.faults = Faults(**faults)

    def finish(self, settle_ns: int = SETTLE_NS) -> None:
        """Heal, let everything arrive, and check what holds at the end of every run."""
        for network in self.networks:
            network.heal()
        self.stage.heal()
        self.stage.settle(settle_ns)
        world = self.stage.world
        world.run_for(200 * MS)
        self.ledger.check_receptions()
        if not all(gateway.is_alive for gateway in self.gateways):
            world.run_for(_AGREE_NS)  # Who takes over begins with what it remembers.
            self.ledger.check_receptions()
        sent = self._data()
        world.run_for(1 * SECOND)
        world.check(self._data() == sent, "messages go in a circle")

    def _data(self) -> int:
        return sum(network.counts["data"] for network in self.networks)
