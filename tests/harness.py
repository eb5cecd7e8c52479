"""Some nodes on one multicast group, datagrams moved by function call, under a clock of our own.

Every test that needs more than one machine uses this: no socket, no port, no wall clock. What a
test wants to lose, it says with `lose`, a function of a datagram and the node about to get it.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple, TypeVar

from hubbub.events import Event
from hubbub.limits import MS, US
from hubbub.protocol.burst import Address, FarPipes
from hubbub.protocol.core import Core
from hubbub.protocol.delivery import Handover
from hubbub.protocol.endpoint import Identity
from hubbub.protocol.settings import Settings
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import header

SomeEvent = TypeVar("SomeEvent", bound=Event)


class Datagram(NamedTuple):
    """One frame on its way."""

    sent_ns: int
    sender: "Node"
    destination: Address | None
    data: bytes

    @property
    def header(self) -> header.Header:
        return header.decode(self.data)

    @property
    def kind(self) -> int:
        return self.header.kind

    @property
    def sequence(self) -> int:
        return self.header.sequence

    @property
    def is_repair(self) -> bool:
        return self.header.flags & header.REPAIR != 0


Lose = Callable[[Datagram, "Node"], bool]


class Got(NamedTuple):
    """One message as a subscriber got it."""

    subject: str
    sequence: int
    payload: bytes
    sender: bytes
    received_ns: int


class Node:
    """A core with what its shell would have drained."""

    def __init__(self, core: Core, address: Address) -> None:
        self.core = core
        self.address = address
        self.received: list[Got] = []
        self.events: list[Event] = []
        self.is_running = True

    @property
    def key(self) -> bytes:
        return self.core.endpoint.key

    @property
    def drops(self) -> dict[str, int]:
        return dict(self.core.endpoint.drops)

    def drain(self, now: int) -> None:
        for delivery in self.core.deliveries:
            for place, payload in enumerate(delivery.payloads):
                source = delivery.topic.source.id
                self.received.append(
                    Got(delivery.topic.subject, delivery.first + place, payload, source, now)
                )
        self.core.deliveries.clear()
        reported = list(self.core.events)
        self.core.events.clear()
        for event in reported:
            if isinstance(event, Handover):
                event.run()
            else:
                self.events.append(event)

    def payloads(self, subject: str) -> list[bytes]:
        return [got.payload for got in self.received if got.subject == subject]

    def events_of(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        return [event for event in self.events if isinstance(event, kind)]


def make_core(number: int, now: int = 0, *, incarnation: int = 0, **options: Any) -> Core:
    """Make the core of node `number`; options that no core has are settings."""
    domain = options.pop("domain", "default")
    name = options.pop("name", f"node{number}")
    identity = Identity(
        name, number.to_bytes(12, "big"), incarnation or 1000 + number, "host", number, domain
    )
    own = {
        name: options.pop(name, default)
        for name, default in {
            "frame_bytes_max": 1400,
            "burst_bytes_max": 0,
            "first_frame": 1,
            "first_message": 1,
        }.items()
    }
    return Core(
        now, identity, Settings(**options), channel="test", random=Random(number),
        window_bytes=1 << 20, **own,
    )  # fmt: skip


def lose_nothing(_datagram: Datagram, _node: Node) -> bool:
    return False


class Lan:
    """Nodes, a clock, and what is on the wire."""

    def __init__(self, count: int = 0, *, now: int = 0, seed: int = 0, **options: Any) -> None:
        self.now = now
        self.random = Random(seed)
        self.delay_ns = 100 * US
        self.jitter_ns = 0
        self.lose: Lose = lose_nothing
        self.nodes: list[Node] = []
        self.sent: list[Datagram] = []
        self._queue: list[tuple[int, int, Datagram, Node]] = []
        self._count = 0
        self.options = options
        for _ in range(count):
            self.add()

    def add(self, number: int = 0, **options: Any) -> Node:
        """Open another node; `number` lets it come back under an old id."""
        number = number or len(self.nodes) + 1
        core = make_core(number, self.now, **(self.options | options))
        node = Node(core, ("10.0.0.1", 7000 + len(self.nodes)))
        self.nodes.append(node)
        return node

    def open(self, count: int, pattern: str = "/...", **options: Any) -> list[Node]:
        """Open nodes that want this pattern, and let everybody meet."""
        nodes = [self.add(**options) for _ in range(count)]
        for node in nodes:
            node.core.subscribe(self.now, pattern)
        self.run(60 * MS)
        return nodes

    def publish(self, node: Node, topic: OutgoingTopic, *payloads: bytes) -> None:
        """Publish as a shell does: what nobody wants is counted, not sent."""
        outgoing = node.core.outgoing
        sender = outgoing.sender_of(topic)
        for payload in payloads:
            is_wanted = topic.receivers or topic.sinks or topic.history is not None
            if is_wanted or sender.is_held:
                sender.framer.add(topic, payload, self.now)
            else:
                outgoing.skip_message(topic)
        self.pump(node)

    def pump(self, node: Node) -> None:
        """Send all that a node may send now."""
        while node.is_running and (burst := node.core.next_burst(self.now)) is not None:
            data = b"".join(burst.buffers)
            step = burst.segment_bytes or len(data)
            for start in range(0, len(data), step):
                self._send(Datagram(self.now, node, burst.destination, data[start : start + step]))
        node.drain(self.now)
        if node.is_running and node.core.timed.out:
            self.pump(node)  # Samples that were made meanwhile.

    def _send(self, datagram: Datagram) -> None:
        assert len(datagram.data) <= self.options.get("frame_bytes_max", 1400)
        self.sent.append(datagram)
        for node in self.nodes:
            is_for_it = datagram.destination in (None, node.address)
            if node is datagram.sender or not is_for_it or self.lose(datagram, node):
                continue
            self._count += 1
            delay = self.delay_ns + (self.random.randrange(self.jitter_ns) if self.jitter_ns else 0)
            heappush(self._queue, (self.now + delay, self._count, datagram, node))

    def run(self, duration_ns: int) -> None:
        """Let time pass."""
        self.run_until(lambda: False, duration_ns)

    def run_until(self, is_done: Callable[[], bool], limit_ns: int) -> bool:
        """Let time pass until something is so; False if it never was."""
        until = self.now + limit_ns
        for node in self.nodes:
            self.pump(node)
        while not is_done():
            soonest = min(self._times(), default=until)
            if soonest > until:
                self.now = until
                return is_done()
            self.now = max(self.now, soonest)
            self._step()
        return True

    def _times(self) -> Iterator[int]:
        if self._queue:
            yield self._queue[0][0]
        for node in self.nodes:
            deadline = node.core.deadline()
            if node.is_running and deadline is not None:
                yield deadline

    def _step(self) -> None:
        while self._queue and self._queue[0][0] <= self.now:
            _, _, datagram, node = heappop(self._queue)
            if node.is_running:
                node.core.receive(self.now, datagram.data, 0, datagram.sender.address)
                self.pump(node)
        for node in self.nodes:
            deadline = node.core.deadline()
            if node.is_running and deadline is not None and deadline <= self.now:
                node.core.advance(self.now)
                self.pump(node)

    def sent_of(self, kind: int, sender: Node | None = None) -> list[Datagram]:
        """Return what was sent of one kind (by one node)."""
        return [
            datagram
            for datagram in self.sent
            if datagram.kind == kind and sender in (None, datagram.sender)
        ]


def carry(lan: Lan, sender: Node, target: Node, first: int = header.DATA) -> None:
    """Carry what a node sends to another by TCP now, frames of one kind before the others."""
    frames: list[bytes] = []
    while (burst := sender.core.next_burst(lan.now)) is not None:
        if isinstance(burst.destination, FarPipes) and target.key in burst.destination:
            frames.append(b"".join(burst.buffers))
    for frame in sorted(frames, key=lambda one: one[header.KIND_OFFSET] != first):
        target.core.receive(lan.now, frame, 0, FarPipes((sender.key,)))
    target.drain(lan.now)
    sender.drain(lan.now)


def lose_share(random: Random, share: float) -> Lose:
    """Lose this share of all datagrams, each receiver for itself."""
    return lambda _datagram, _node: random.random() < share


def lose_first(count: int, **wanted: Any) -> Lose:
    """Lose the first deliveries of datagrams whose attributes are these, then nothing."""
    left = count

    def lose(datagram: Datagram, _node: Node) -> bool:
        nonlocal left
        if left and all(getattr(datagram, name) == value for name, value in wanted.items()):
            left -= 1
            return True
        return False

    return lose
