"""The wire between simulated nodes: who hears a datagram, when, how often, and in what state.

Loss comes in the kinds that matter to a NAK protocol: independent at each receiver, in bursts
(Gilbert's two states), before the last switch (all lose the same), by kind of frame, and by
direction. Datagrams between two nodes keep their order unless a fault says otherwise.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from hubbub.limits import MS, US
from hubbub.protocol.burst import Address, Pipes, Straight
from hubbub.simulation.pipes import PipeNetwork
from hubbub.simulation.world import World
from hubbub.wire.header import (
    DATA,
    HEARTBEAT,
    INTEREST,
    KIND_OFFSET,
    NAK,
    REPAIR,
    RESPONSE,
    SEGMENT,
    STATUS,
)

if TYPE_CHECKING:
    from hubbub.simulation.node import Host, SimulatedNode

_FLAGS_OFFSET: Final = 5
_NANOSECONDS_PER_BYTE: Final = 0.8  # 10 Gbit/s
_FRAME_GAP_NS: Final = 500

# Names for what can be lost by kind; data are first transmissions, repairs the others.
KINDS: Final = {
    NAK: "nak", HEARTBEAT: "heartbeat", STATUS: "status", INTEREST: "interest",
    RESPONSE: "response",
}  # fmt: skip


def name_kind(frame: bytes) -> str:
    """Name what a frame is, as faults by kind know it."""
    kind = frame[KIND_OFFSET]
    if kind in (DATA, SEGMENT):
        return "repair" if frame[_FLAGS_OFFSET] & REPAIR else "data"
    return KINDS.get(kind, "control")


@dataclass(slots=True)
class Faults:
    """What the wire does to datagrams; probabilities are for each datagram and receiver."""

    loss: float = 0.0
    common_loss: float = 0.0  # Before the last switch: nobody gets it.
    burst_begin: float = 0.0  # Gilbert: from the good to the bad state...
    burst_end: float = 0.25  # ...and back.
    burst_loss: float = 1.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_ns: int = 5 * MS
    corrupt: float = 0.0
    delay_ns: int = 20 * US
    jitter_ns: int = 30 * US
    kind_loss: dict[str, float] = field(default_factory=dict)

    @property
    def is_lossy(self) -> bool:
        """Tell whether anything can be lost by chance."""
        return bool(self.loss or self.common_loss or self.burst_begin or self.kind_loss)


class Station(Protocol):
    """Whoever sends and hears datagrams."""

    index: int
    address: Address
    host: "Host"

    def arrive(self, frame: bytes, source: Address) -> None:
        """Hear a datagram."""


Pair = tuple[int, int]
Drop = Callable[[Any, Any, bytes], bool]  # Sender, target, frame.


class Network:
    """Carries datagrams between nodes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[Address, Station] = {}
        self.pipes = PipeNetwork(world)
        self.faults = Faults()
        self.blocked: set[Pair] = set()  # (from, to), by index: partitions and one-way loss.
        self.drop: Drop | None = None  # A scenario's own rule of what is lost.
        self.counts: Counter[str] = Counter()  # Frames sent, by kind.
        self._bad: set[Pair] = set()
        self._latest: dict[Pair, int] = {}

    def heal(self) -> None:
        """End all faults; what is under way stays so."""
        self.faults = Faults(delay_ns=self.faults.delay_ns, jitter_ns=self.faults.jitter_ns)
        self.blocked.clear()
        self.drop = None

    def block(self, sources: Iterable[int], targets: Iterable[int], *, both: bool = True) -> None:
        """Cut the way from some nodes to others, or both ways."""
        targets = list(targets)
        for source in sources:
            for target in targets:
                self.blocked.add((source, target))
                if both:
                    self.blocked.add((target, source))

    def unblock(self) -> None:
        """End all partitions."""
        self.blocked.clear()

    def send(
        self, source: "SimulatedNode", destination: Address | None, frames: list[bytes], at_ns: int
    ) -> int:
        """Carry frames that leave from `at_ns` on; return when the last one has left."""
        if isinstance(destination, Pipes):
            at_ns = self.pipes.send(source, destination, frames, at_ns)
            for address in destination.addresses:
                at_ns = self.send(source, address, frames, at_ns)
            if not destination.has_group:
                return at_ns
            destination = None
        is_alone = destination is not None
        if not source.host.has_group and not (is_alone and source.host.has_datagram):
            return self.pipes.send_to_all(source, frames, at_ns)
        targets = self._targets(source, destination)
        return self.send_to(source, targets, frames, at_ns, is_straight=is_alone)

    def send_to(
        self, source: Station, targets: list[Station], frames: list[bytes], at_ns: int, *,
        is_straight: bool = False,
    ) -> int:  # fmt: skip
        """Carry frames to some nodes; return when the last one has left."""
        address = Straight(source.address) if is_straight else source.address
        for frame in frames:
            at_ns += int(len(frame) * _NANOSECONDS_PER_BYTE) + _FRAME_GAP_NS
            kind = name_kind(frame)
            self.counts[kind] += 1
            if self.world.chance(self.faults.common_loss):
                continue
            for target in targets:
                if not self._is_lost(source, target, frame, kind):
                    self._carry(source, target, frame, at_ns, address)
        return at_ns

    def _targets(self, source: Station, destination: Address | None) -> list[Station]:
        if destination is not None:
            node = self.nodes.get(destination)
            return [] if node is None else [node]
        others = (node for node in self.nodes.values() if node is not source)
        return [node for node in others if node.host.has_group]

    def _is_lost(self, source: Station, target: Station, frame: bytes, kind: str) -> bool:
        pair = source.index, target.index
        if pair in self.blocked or (self.drop is not None and self.drop(source, target, frame)):
            return True
        faults, chance = self.faults, self.world.chance
        if not faults.is_lossy:
            return False
        if faults.burst_begin:
            if pair in self._bad:
                if chance(faults.burst_end):
                    self._bad.discard(pair)
            elif chance(faults.burst_begin):
                self._bad.add(pair)
            if pair in self._bad and chance(faults.burst_loss):
                return True
        return chance(faults.loss) or chance(faults.kind_loss.get(kind, 0))

    def _carry(
        self, source: Station, target: Station, frame: bytes, at_ns: int,
        address: Address | None = None,
    ) -> None:  # fmt: skip
        world, faults = self.world, self.faults
        pair = source.index, target.index
        copies = 2 if world.chance(faults.duplicate) else 1
        for _ in range(copies):
            arrival_ns = at_ns + faults.delay_ns + world.draw_ns(0, faults.jitter_ns)
            if world.chance(faults.reorder):
                arrival_ns += world.draw_ns(0, faults.reorder_ns)
            else:
                arrival_ns = max(arrival_ns, self._latest.get(pair, 0))
                self._latest[pair] = arrival_ns
            if world.chance(faults.corrupt):
                frame = self._corrupted(frame)
            world.at(arrival_ns, self._arrive, target.address, frame, address or source.address)

    def _arrive(self, address: Address, frame: bytes, source: Address) -> None:
        # Whoever has the address now gets it: a node that restarted hears what was for the old one.
        node = self.nodes.get(address)
        if node is not None:
            node.arrive(frame, source)

    def _corrupted(self, frame: bytes) -> bytes:
        damaged = bytearray(frame)
        for _ in range(self.world.random.randint(1, 16)):
            bit = self.world.random.randrange(8 * len(damaged))
            damaged[bit >> 3] ^= 1 << (bit & 7)
        self.world.counts["corrupted"] += 1
        return bytes(damaged)
