"""Pipes between simulated nodes, of one host or by TCP: in order and lossless, until they are cut.

Both ends learn a little later that a pipe was opened or cut, each in its own time. What is on its
way when a pipe is cut is gone.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from hubbub.limits import MS, US
from hubbub.protocol.burst import ChosenPipes, FarPipes, Pipes
from hubbub.protocol.delivery import LOCAL, TCP
from hubbub.simulation.world import World
from hubbub.wire.batch import decode_references, encode_reference

if TYPE_CHECKING:
    from hubbub.simulation.node import SimulatedNode

_DELAYS_NS: Final = {LOCAL: 10 * US, TCP: 60 * US}  # The best one first.
_LEARN_NS: Final = 2 * MS
_FOR_EVER: Final = 1 << 63

Pair = frozenset[bytes]


def _may_take(destination: Iterable[bytes], key: bytes, link: str) -> bool:
    """Tell whether frames may take a link to a node: any, unless it was chosen."""
    if not isinstance(destination, ChosenPipes):
        return not isinstance(destination, Pipes) or not destination.is_near or link == LOCAL
    return key in (destination.near if link == LOCAL else destination.far)


class PipeNetwork:
    """All pipes of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[bytes, SimulatedNode] = {}
        self._open: dict[tuple[Pair, str], int] = {}  # Which opening of all this one was.
        self._opened = 0
        self._spans: dict[tuple[Pair, str], list[list[int]]] = {}  # When each was open, to when.
        self._latest: dict[tuple[bytes, bytes, str], int] = {}
        self._shared: dict[tuple[bytes, int], tuple[bytes, Pipes]] = {}

    def refer(self, writer: bytes, payloads: Sequence[bytes], route: Pipes) -> list[bytes]:
        """Put payloads where the readers of a writer find them; now and then there is no room."""
        references = []
        for payload in payloads:
            if self.world.chance(0.1):
                break
            number = len(self._shared)
            self._shared[writer, number] = payload, route
            self.world.counts["references"] += 1
            references.append(encode_reference(0, number, len(payload)))
        return references

    def resolve(self, reader: bytes, writer: bytes, references: list[bytes]) -> list[bytes] | None:
        """Find payloads; None: one was not for this reader."""
        payloads = []
        for _, number, _, _ in decode_references(references) or [(0, -1, 0, 0)]:
            payload, route = self._shared.get((writer, number), (b"", ()))
            if reader not in route:
                return None
            payloads.append(payload)
        return payloads

    def open(self, one: "SimulatedNode", other: "SimulatedNode", link: str = LOCAL) -> None:
        """Connect two nodes."""
        self._opened += 1
        place = frozenset((one.key, other.key)), link
        if self._open.setdefault(place, self._opened) == self._opened:
            self._spans.setdefault(place, []).append([self.world.now, _FOR_EVER])
        self._tell(one, other, link)

    def cut(self, one: "SimulatedNode", other: "SimulatedNode", link: str = LOCAL) -> None:
        """End a pipe."""
        place = frozenset((one.key, other.key)), link
        if self._open.pop(place, None) is not None:
            self._spans[place][-1][1] = self.world.now
        self._tell(one, other, link)

    def is_open(self, one: "SimulatedNode", other: "SimulatedNode", link: str = LOCAL) -> bool:
        """Tell whether two nodes are connected."""
        return (frozenset((one.key, other.key)), link) in self._open

    def was_open(
        self, one: "SimulatedNode", other: "SimulatedNode", link: str, *, for_ns: int, by_ns: int
    ) -> bool:
        """Tell whether two nodes had been connected for so long without a break by some time."""
        spans = self._spans.get((frozenset((one.key, other.key)), link), ())
        return any(min(end_ns, by_ns) - begin_ns >= for_ns for begin_ns, end_ns in spans)

    def bury(self, node: "SimulatedNode") -> None:
        """End all pipes of a node that is gone."""
        self.nodes.pop(node.key, None)
        for pair, link in [place for place in self._open if node.key in place[0]]:
            del self._open[pair, link]
            for key in pair - {node.key}:
                self._tell(node, self.nodes[key], link)

    def send(
        self, source: "SimulatedNode", destination: Iterable[bytes], frames: list[bytes], at_ns: int
    ) -> int:
        """Carry frames by the best pipes to some nodes; return when the last one has left."""
        for key in destination:
            pair = frozenset((source.key, key))
            for link in _DELAYS_NS:
                if (pair, link) in self._open and _may_take(destination, key, link):
                    self._carry((source.key, key), link, frames, at_ns)
                    break
        return at_ns

    def send_to_all(self, source: "SimulatedNode", frames: list[bytes], at_ns: int) -> int:
        """Carry frames by all pipes of a node, where these are the group."""
        keys = {key for pair, _ in self._open for key in pair if source.key in pair}
        return self.send(source, sorted(keys - {source.key}), frames, at_ns)

    def _carry(self, way: tuple[bytes, bytes], link: str, frames: list[bytes], at_ns: int) -> None:
        number = self._open[frozenset(way), link]
        arrival_ns = max(at_ns + _DELAYS_NS[link], self._latest.get((*way, link), 0))
        self._latest[*way, link] = arrival_ns
        for frame in frames:
            self.world.at(arrival_ns, self._arrive, number, way, link, frame)

    def _arrive(self, number: int, way: tuple[bytes, bytes], link: str, frame: bytes) -> None:
        node = self.nodes.get(way[1])
        if node is not None and self._open.get((frozenset(way), link)) == number:
            node.arrive(frame, Pipes(way[:1]) if link == LOCAL else FarPipes(way[:1]))

    def _tell(self, one: "SimulatedNode", other: "SimulatedNode", link: str) -> None:
        for node, peer in ((one, other), (other, one)):
            delay_ns = self.world.draw_ns(0, _LEARN_NS)
            self.world.at(self.world.now + delay_ns, self._learn, node, peer, link)

    def _learn(self, node: "SimulatedNode", peer: "SimulatedNode", link: str) -> None:
        if not node.is_alive:
            return
        place, is_open = (peer.key, link), self.is_open(node, peer, link)
        if is_open and place not in node.pipes:
            node.learn_pipe(*place, is_open=True, is_dead=False)
        elif place in node.pipes and not is_open:
            # Who closes a connection may live: only on one host does somebody know.
            is_dead = not peer.is_alive and link == LOCAL
            node.learn_pipe(*place, is_open=False, is_dead=is_dead)
