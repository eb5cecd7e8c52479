"""Pipes between simulated nodes of one host: in order and lossless, until they are cut.

Both ends learn a little later that a pipe was opened or cut, each in its own time. What is on its
way when a pipe is cut is gone.
"""

from typing import TYPE_CHECKING, Final

from hubbub.limits import MS, US
from hubbub.protocol.burst import Pipes
from hubbub.simulation.world import World
from hubbub.wire.batch import decode_reference, encode_reference

if TYPE_CHECKING:
    from hubbub.simulation.node import SimulatedNode

_DELAY_NS: Final = 10 * US
_LEARN_NS: Final = 2 * MS

Pair = frozenset[bytes]


class PipeNetwork:
    """All pipes of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[bytes, SimulatedNode] = {}
        self._open: dict[Pair, int] = {}  # How often the pipe was opened so far: its number.
        self._opened = 0
        self._latest: dict[tuple[bytes, bytes], int] = {}
        self._shared: dict[tuple[bytes, int], tuple[bytes, Pipes]] = {}

    def refer(self, writer: bytes, payload: bytes, route: Pipes) -> bytes | None:
        """Put a payload where the readers of a writer find it; now and then there is no room."""
        if self.world.chance(0.1):
            return None
        number = len(self._shared)
        self._shared[writer, number] = payload, route
        self.world.counts["references"] += 1
        return encode_reference(0, number, len(payload))

    def resolve(self, reader: bytes, writer: bytes, references: list[bytes]) -> list[bytes] | None:
        """Find payloads; None: one was not for this reader."""
        payloads = []
        for packed in references:
            reference = decode_reference(packed)
            payload, route = self._shared.get(
                (writer, reference[1] if reference else -1), (b"", ())
            )
            if reader not in route:
                return None
            payloads.append(payload)
        return payloads

    def open(self, one: "SimulatedNode", other: "SimulatedNode") -> None:
        """Connect two nodes."""
        self._opened += 1
        self._open.setdefault(frozenset((one.key, other.key)), self._opened)
        self._tell(one, other)

    def cut(self, one: "SimulatedNode", other: "SimulatedNode") -> None:
        """End a pipe."""
        self._open.pop(frozenset((one.key, other.key)), None)
        self._tell(one, other)

    def is_open(self, one: "SimulatedNode", other: "SimulatedNode") -> bool:
        """Tell whether two nodes are connected."""
        return frozenset((one.key, other.key)) in self._open

    def bury(self, node: "SimulatedNode") -> None:
        """End all pipes of a node that is gone."""
        self.nodes.pop(node.key, None)
        for pair in [pair for pair in self._open if node.key in pair]:
            del self._open[pair]
            for key in pair - {node.key}:
                self._tell(node, self.nodes[key])

    def send(
        self, source: "SimulatedNode", destination: Pipes, frames: list[bytes], at_ns: int
    ) -> int:
        """Carry frames by the pipes to some nodes; return when the last one has left."""
        for key in destination:
            number = self._open.get(frozenset((source.key, key)))
            if number is None:
                continue
            way = source.key, key
            arrival_ns = max(at_ns + _DELAY_NS, self._latest.get(way, 0))
            self._latest[way] = arrival_ns
            for frame in frames:
                self.world.at(arrival_ns, self._arrive, number, way, frame)
        return at_ns

    def _arrive(self, number: int, way: tuple[bytes, bytes], frame: bytes) -> None:
        node = self.nodes.get(way[1])
        if node is not None and self._open.get(frozenset(way)) == number:
            node.arrive(frame, Pipes(way[:1]))

    def _tell(self, one: "SimulatedNode", other: "SimulatedNode") -> None:
        for node, peer in ((one, other), (other, one)):
            delay_ns = self.world.draw_ns(0, _LEARN_NS)
            self.world.at(self.world.now + delay_ns, self._learn, node, peer)

    def _learn(self, node: "SimulatedNode", peer: "SimulatedNode") -> None:
        if not node.is_alive:
            return
        is_known, is_open = peer.key in node.core.endpoint.pipes, self.is_open(node, peer)
        if is_open and not is_known:
            node.learn_pipe(peer.key, is_open=True, is_dead=False)
        elif is_known and not is_open:
            node.learn_pipe(peer.key, is_open=False, is_dead=not peer.is_alive)
