"""A gateway: nodes on several networks, joined by a relay.

All its work is done on the I/O thread of the process. What comes to one node is queued for the
others in whole runs, and sent at the end of the turn, so that a burst of frames costs one call.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic_ns, sleep
from typing import Any, Final

from hubbub.closing import Closing
from hubbub.connection import Connection
from hubbub.errors import ClosedError, ConfigurationError
from hubbub.gateway.routes import Teller
from hubbub.gateway.side import Side, open_sides
from hubbub.gateway.statistics import GatewayStatistics, describe_port
from hubbub.limits import PORT_PATIENCE, PORT_RETRY, PORT_SWEEP, TREE_LISTEN
from hubbub.node import Node
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.framing import Framer
from hubbub.protocol.gateway.port import Port, has_room
from hubbub.protocol.gateway.relay import Relay
from hubbub.protocol.gateway.remap import Remap
from hubbub.protocol.peers import Peer
from hubbub.runtime.loop import shared
from hubbub.runtime.pipe_driver import LocalDriver
from hubbub.subscription import Subscription

_LOOK_AGAIN_S: Final = 50e-6


class _Tap(Subscription):
    """Takes all that comes to a node of a gateway, in whole runs."""

    def __init__(self, node: Node, take: Callable[[Delivery], None]) -> None:
        super().__init__(node._host)
        self._take_run = take

    def deliver(self, delivery: Delivery, context: Any) -> None:
        """Take a run from the node."""
        self._take_run(delivery)


class Gateway(Closing):
    """Join the networks of several nodes into one bus, until it is closed.

        sides = [Side("office", interface="eth0"), Side("plant", interface="eth1")]
        with Gateway.open(sides, name="gw-1") as gateway: ...

    Only what a node beyond wants crosses. It keeps its origin, its sequence and its order. The
    nodes must not hear themselves (`loopback=False`) nor nodes of this process (`links=`).
    """

    def __init__(self, nodes: Iterable[Node], *, sides: Iterable[Side] = ()) -> None:
        self.nodes = tuple(nodes)
        connections = [(node, one) for node in self.nodes for one in node.channels]
        if len(connections) < 2:
            raise ConfigurationError(f"a gateway joins at least 2 networks, not {len(connections)}")
        for node in self.nodes:
            _check(node)
        described = list(sides) or [Side(one.name) for _, one in connections]
        self._loop = shared()
        self._lock = threading.RLock()  # Before any lock of a channel.
        self._is_pumping = self._is_looking = False
        self._is_closed = False
        self._connections: dict[Port, Connection] = {}
        for side, (node, connection) in zip(described, connections, strict=True):
            port = _make_port(side, connection)
            self._connections[port] = connection
            connection.place("/...", _Tap(node, partial(self._take, port)), None)
        self._relay = Relay(monotonic_ns(), list(self._connections), self._call)
        self._teller = Teller(self._relay.tree.gateway.hex(), self.nodes)
        for place, connection in enumerate(self._connections.values()):
            core = connection.driver.core
            core.outgoing.grants.on_interest = self._look_soon
            core.on_beacon = partial(self._hear, place)
        self._beat()
        self._sweep()

    @classmethod
    def open(cls, sides: Iterable[Side], *, name: str, **options: Any) -> "Gateway":
        """Open a node for each side, and join them; further options are those of `hubbub.open`."""
        sides = list(sides)
        nodes = open_sides(sides, name, **options)
        try:
            return cls(nodes, sides=sides)
        except BaseException:
            for node in nodes:
                node.close(0)
            raise

    @property
    def name(self) -> str:
        """Return what it is called."""
        return self.nodes[0].name

    def _call(self, port: Port, function: Callable[[int], Any]) -> Any:
        return self._connections[port].driver.call(function)

    def _take(self, port: Port, delivery: Delivery) -> None:
        with self._lock:
            self._relay.take(port, delivery)
            if self._relay.is_crowded:
                self._catch_up()
            if self._is_pumping or not self._relay.is_waiting:
                return
            self._is_pumping = True
        self._soon(0, self._pump)

    def _catch_up(self) -> None:
        """Serve those who are behind before anything more is read, but not for long.

        A window does not hold back who publishes by reference: a frame of references is small.
        """
        end_ns = monotonic_ns() + PORT_PATIENCE
        with suppress(ClosedError):
            self._relay.pump()
            while self._relay.is_crowded and monotonic_ns() < end_ns and not self._is_closed:
                for port, connection in self._connections.items():
                    if port.is_waiting:
                        _serve(connection)
                self._relay.pump()

    def _pump(self) -> None:
        """Send on what came; try again in a while where there was no room."""
        with self._lock, suppress(ClosedError):
            self._is_pumping = False
            if self._is_closed:
                return
            self._relay.pump()
            if not self._relay.is_waiting or self._is_pumping:
                return
            self._is_pumping = True
        self._soon(monotonic_ns() + PORT_RETRY, self._pump)

    def _look_soon(self) -> None:
        """Look what is wanted, once whoever holds the lock of a channel has let go of it."""
        if not self._is_looking:
            self._is_looking = True
            self._soon(0, self._look)

    def _hear(self, place: int, now: int, peer: Peer, body: bytes) -> None:
        self._relay.hear(place, now, peer, body)
        self._look_soon()

    def _beat(self) -> None:
        """Look whether the other gateways are still there, and tell them that we are."""
        if self._is_closed:
            return
        self._look()
        self._soon(monotonic_ns() + TREE_LISTEN, self._beat)

    def _look(self) -> None:
        self._is_looking = False
        with self._lock, suppress(ClosedError):
            if not self._is_closed:
                self._relay.look(monotonic_ns())
                self._relay.pump()
                self._teller.tell(monotonic_ns(), self.statistics)

    def _sweep(self) -> None:
        with self._lock, suppress(ClosedError):
            if not self._is_closed:
                self._relay.sweep()
                self._soon(monotonic_ns() + PORT_SWEEP, self._sweep)

    def _soon(self, deadline_ns: int, function: Callable[[], None]) -> None:
        with suppress(ClosedError):
            self._loop.call_at(deadline_ns, function)

    def statistics(self) -> GatewayStatistics:
        """Return what each side did."""
        described = [
            self._call(port, partial(describe_port, port=port)) for port in self._connections
        ]
        tree = self._relay.tree
        return GatewayStatistics(
            self.name, tree.gateway.hex(), tuple(described), tree.root.hex(), tree.is_standby
        )

    def close(self) -> None:
        """Leave all networks; what was taken is sent first, as far as that is quickly done."""
        self._is_closed = True
        for node in self.nodes:
            node.close()


def _make_port(side: Side, connection: Connection) -> Port:
    remap = Remap(side.remap) if side.remap else None
    port = Port(side.name, connection.driver.core, side.only, side.urgent, remap)
    if connection.driver.pipes is not None:
        connection.driver.pipes.hand_on()
        port.has_room = partial(_has_room, connection.driver.pipes)
    return port


def _has_room(pipes: LocalDriver, framer: Framer, waited_ns: int) -> bool:
    return has_room(framer) and pipes.has_depot_room(framer, waited_ns)


def _serve(connection: Connection) -> None:
    """Do a turn of the loop for one channel: take in what its receivers say, and send."""
    driver = connection.driver
    now = monotonic_ns()
    served = [driver.look(now), *(pipes.look(now) for pipes in driver.pipe_drivers)]
    if (driver.deadline() or 0) <= now:
        driver.advance(now)
    if not any(served):
        sleep(_LOOK_AGAIN_S)


def _check(node: Node) -> None:
    if node.loopback or "inproc" in node.links:
        raise ConfigurationError(
            f"node {node.name} of a gateway needs loopback=False and links without inproc"
        )
