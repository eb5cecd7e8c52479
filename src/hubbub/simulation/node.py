"""A simulated node: the real core, and a model of the shell and the host around it.

What a shell does to time is where protocols die, so that is modelled: the socket buffer is bounded
in bytes and drops, reading takes time and comes in bursts, a poll comes late while another thread
holds the interpreter, sending finds no room, the process is stopped for seconds. Between any two
polls the application may publish.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final
from zlib import crc32

from hubbub.limits import FRAME_COST_BYTES, MS, PIPE_FRAME_BYTES, US
from hubbub.message import Source
from hubbub.protocol.burst import NOWHERE, Address, Pipes
from hubbub.protocol.core import Core
from hubbub.protocol.delivery import DATAGRAM, LOCAL, TCP, Delivery, Handover
from hubbub.protocol.endpoint import Identity
from hubbub.protocol.receipts import Receipt
from hubbub.protocol.settings import Settings
from hubbub.protocol.topics import IncomingTopic, OutgoingTopic
from hubbub.simulation.checkers import Bounds, Ledger, StormWatch
from hubbub.simulation.clocks import Clock
from hubbub.simulation.insistent import Insistent, check_link
from hubbub.simulation.latecomer import Latecomer
from hubbub.simulation.network import Network
from hubbub.simulation.world import World
from hubbub.subjects import matches
from hubbub.wire.header import DATA, KIND_OFFSET, SEGMENT
from hubbub.wire.wishes import Links

_READ_FRAMES_MAX: Final = 64  # Of one poll, as the shell's loop reads before it looks around.
_BURSTS_PER_POLL: Final = 16
_SEND_QUEUE_NS: Final = 1 * MS  # More than this on its way to the wire: the kernel says EAGAIN.
_WAKE_NS: Final = 5 * US
_BUFFER_BYTES: Final = 8 << 20


@dataclass(slots=True)
class Host:
    """What a node runs on, and what is wrong with it."""

    frame_bytes_max: int = 1400
    burst_bytes_max: int = 0
    buffer_bytes: int = _BUFFER_BYTES
    read_ns: int = 2 * US  # To take in one frame; on a slow host, one of data.
    drift_ppm: int = 0
    clock_start_ns: int = 0
    stall: float = 0.0  # Chance that the next poll comes late...
    stall_ns: int = 100 * MS  # ...by up to this.
    eagain: float = 0.0
    has_group: bool = True  # Else all its pipes are the group.
    has_datagram: bool = False  # Whether datagram is one of its links.
    first_frame: int = 1
    first_message: int = 1
    settings: Settings = field(default_factory=Settings)

    def heal(self) -> None:
        """End what is wrong with it."""
        self.stall = self.eagain = 0.0


class SimulatedNode:
    """One node on its host."""

    def __init__(
        self, world: World, network: Network, ledger: Ledger, index: int, host: Host,
        incarnation: int = 1,
    ) -> None:  # fmt: skip
        self.world = world
        self.network = network
        self.ledger = ledger
        self.index = index
        self.host = host
        self.name = f"n{index}"
        self.address: Address = (f"10.0.{index >> 8}.{index & 255}", 7266)
        self.clock = Clock(host.drift_ppm, host.clock_start_ns)
        identity = Identity(
            self.name, index.to_bytes(12, "big"), incarnation, "host", index, "default"
        )
        self.core = Core(
            self.now, identity, host.settings, channel="sim",
            random=Random(world.random.getrandbits(64)), frame_bytes_max=host.frame_bytes_max,
            burst_bytes_max=host.burst_bytes_max, window_bytes=host.buffer_bytes // 2,
            first_frame=host.first_frame, first_message=host.first_message,
        )  # fmt: skip
        self.core.endpoint.wall_offset_ns = self.clock.wall_offset_ns
        self.core.endpoint.ways.has_group = host.has_group
        if not host.has_group:
            self.core.endpoint.links = (LOCAL, TCP)
        if host.has_datagram:
            self.core.endpoint.links += (DATAGRAM,)
            self.core.endpoint.datagram_port = self.address[1]
        self.patterns: dict[str, int] = {}
        self.has_history = False  # Gaps reported here may be of the history of a latecomer.
        self.latecomers: list[Latecomer] = []
        self.insistent: list[Insistent] = []
        self._requests = 0
        self.topics: list[OutgoingTopic] = []
        self.published: dict[str, int] = {}  # Subjects, by how many publishers.
        self.is_alive = True
        self.had_pipes = False
        self.pipes: set[tuple[bytes, str]] = set()  # That it knows of, by key and link.
        self.is_listening = False  # To itself: its own subscriptions see its own messages.
        self.buffer_drops = 0
        self.sent_bytes = 0
        self._buffer: deque[tuple[bytes, Address]] = deque()
        self._buffered_bytes = 0
        self._late_until_ns = 0  # Stalled, stopped or still reading: no poll before this.
        self._sent_until_ns = 0
        self._wake_ns: int | None = None
        self._bounds = Bounds(world, self)
        self._storm = StormWatch(world, self.name)
        self.key = self.core.endpoint.key
        self.core.endpoint.resolve = partial(network.pipes.resolve, self.key)
        for sender in self.core.outgoing.senders.values():
            sender.framer.refer = partial(network.pipes.refer, self.key)
        network.nodes[self.address] = network.pipes.nodes[self.key] = self
        ledger.add_node(self)
        self._wake_at(world.now)

    def __repr__(self) -> str:
        return self.name

    @property
    def now(self) -> int:
        """Return what this host's monotonic clock shows."""
        return self.clock.local(self.world.now)

    @property
    def source(self) -> Source:
        """Return who this node is to others."""
        return self.core.endpoint.source

    @property
    def wanted(self) -> set[str]:
        """Return the patterns of all its subscriptions."""
        return {pattern for one in self.subscribers for pattern in one.patterns}

    @property
    def subscribers(self) -> "list[SimulatedNode | Latecomer | Insistent]":
        """Return all in this node that the ledger compares apart."""
        return [self, *self.latecomers, *self.insistent]

    # What the application does.

    def subscribe(self, pattern: str) -> None:
        """Want what matches."""
        self.ledger.subscribed(self, pattern)
        self.patterns[pattern] = self.patterns.get(pattern, 0) + 1
        self.core.subscribe(self.now, pattern)
        self._wake_at(self.world.now)

    def join(self, pattern: str, count: int = 0, links: Links = ()) -> Latecomer:
        """Want what matches, and its history, for a subscription of its own."""
        self._requests += 1
        latecomer = Latecomer(self, pattern, self._requests, count, links)
        self.latecomers.append(latecomer)
        self.has_history = True
        self.core.join(self.now, pattern, latecomer.request, count, links)
        self._wake_at(self.world.now)
        return latecomer

    def insist(self, pattern: str, links: Links) -> Insistent:
        """Want what matches by these links alone, for a subscription of its own."""
        insistent = Insistent(self, pattern, links)
        self.insistent.append(insistent)
        self.world.note(self.index, "insist", pattern, links)
        self.core.subscribe(self.now, pattern, links)
        self._wake_at(self.world.now)
        return insistent

    def insist_no_more(self, insistent: Insistent) -> None:
        """End such a subscription."""
        self.insistent.remove(insistent)
        self.core.unsubscribe(self.now, insistent.pattern, insistent.links)
        self._drain()
        self._wake_at(self.world.now)

    def leave(self, latecomer: Latecomer) -> None:
        """End such a subscription."""
        self.latecomers.remove(latecomer)
        self.core.leave(self.now, latecomer.pattern, latecomer.request, latecomer.links)
        self._drain()
        self._wake_at(self.world.now)

    def unsubscribe(self, pattern: str) -> None:
        """Want it no longer."""
        self.patterns[pattern] -= 1
        if not self.patterns[pattern]:
            del self.patterns[pattern]
        self.core.unsubscribe(self.now, pattern)
        self._drain()
        self.ledger.unsubscribed(self)
        self._wake_at(self.world.now)

    def publish_on(
        self, subject: str, *, is_reliable: bool = True, history: int = 0, links: Links = ()
    ) -> OutgoingTopic:
        """Begin to publish a subject."""
        topic = self.core.publish_on(
            self.now, subject, is_reliable=is_reliable, history=history, links=links
        )
        self.ledger.declared(self, topic)
        if topic not in self.topics:
            self.topics.append(topic)
        self.published[subject] = self.published.get(subject, 0) + 1
        if self.is_listening:
            topic.sinks = (self,)
        self._wake_at(self.world.now)
        return topic

    def publish_no_more(self, topic: OutgoingTopic) -> None:
        """Close a publisher."""
        self.world.note(self.index, "publish no more", topic.subject)
        self.published[topic.subject] -= 1
        if not self.published[topic.subject]:
            del self.published[topic.subject]
        self.core.publish_no_more(self.now, topic)
        self._wake_at(self.world.now)

    def publish(self, topic: OutgoingTopic, payload: bytes) -> bool:
        """Publish as the shell does; False: the backlog is full, and a real publish would wait."""
        sender = self.core.outgoing.sender_of(topic)
        framer = sender.framer
        is_wanted = topic.receivers or topic.sinks or topic.history is not None
        if not framer.has_work and not is_wanted and not sender.is_held:
            self.core.outgoing.skip_message(topic)
            self.ledger.published(self, topic, payload, is_skipped=True)
            return True
        if not framer.has_room:
            return False
        wall_ns = self.now + self.core.endpoint.wall_offset_ns
        if not self._publish_single(topic, payload, wall_ns):
            framer.add(topic, payload, wall_ns)
        self.ledger.published(self, topic, payload, is_skipped=False)
        self._wake_at(self.world.now)
        return True

    def publish_acknowledged(self, topic: OutgoingTopic, payload: bytes) -> Receipt:
        """Publish a message whose receivers shall say that they have it."""
        wall_ns = self.now + self.core.endpoint.wall_offset_ns
        receipt = self.core.outgoing.receipts.publish(topic, payload, wall_ns)
        self.ledger.published(self, topic, payload, is_skipped=False)
        self._wake_at(self.world.now)
        return receipt

    def _publish_single(self, topic: OutgoingTopic, payload: bytes, wall_ns: int) -> bool:
        """Send at once, in the caller's thread, if the stream is quiet and the host is free."""
        sender = self.core.outgoing.sender_of(topic)
        is_late = self.world.now < max(self._late_until_ns, self._sent_until_ns)
        if is_late:
            return False
        frame = self.core.single(self.now, sender, topic, payload, wall_ns)
        if frame is None:
            return False
        self._transmit(sender.framer.destination, frame, 0)
        self.world.counts["singles"] += 1
        return True

    def wake(self) -> None:
        """Have the shell look for work, as whoever has made some does."""
        self._wake_at(self.world.now)

    def close(self, linger_ns: int) -> None:
        """Begin to leave."""
        self.core.close(self.now, linger_ns)
        self._wake_at(self.world.now)

    def crash(self) -> None:
        """Die without a word."""
        self.is_alive = False
        if self.network.nodes.get(self.address) is self:
            del self.network.nodes[self.address]
        self.network.pipes.bury(self)
        self.ledger.removed(self)

    # What the host does.

    def stop_for(self, time_ns: int) -> None:
        """Stop the process, as SIGSTOP does; the kernel goes on receiving."""
        self._late_until_ns = max(self._late_until_ns, self.world.now + time_ns)

    def step_wall_clock(self, by_ns: int) -> None:
        """Set the wall clock; the shell notices at once."""
        self.clock.wall_offset_ns += by_ns
        self.core.endpoint.wall_offset_ns = self.clock.wall_offset_ns

    def heal(self) -> None:
        """End what is wrong with the host."""
        self.host.heal()

    def arrive(self, frame: bytes, source: Address) -> None:
        """Put a datagram into the socket buffer, if there is room."""
        check_link(self, frame, source)
        cost = len(frame) + FRAME_COST_BYTES
        is_piped = isinstance(source, Pipes)  # Who writes waits where there is no room.
        if self._buffered_bytes + cost > self.host.buffer_bytes and not is_piped:
            self.buffer_drops += 1
            self.world.counts["buffer_drops"] += 1
            return
        self._buffered_bytes += cost
        self._buffer.append((frame, source))
        self._wake_at(self.world.now + _WAKE_NS)

    def learn_pipe(self, key: bytes, link: str, *, is_open: bool, is_dead: bool) -> None:
        """Hear that a pipe was opened or has ended; what came by it before is read first."""
        while self._buffer:
            self._read()
        self.had_pipes = True
        if is_open:
            self.pipes.add((key, link))
            self.core.open_pipe(self.now, key, link=link, place=self._place_of(key))
        else:
            self.pipes.discard((key, link))
            self.core.close_pipe(self.now, key, is_dead=is_dead, link=link)
        self._wake_at(self.world.now)

    def _place_of(self, key: bytes) -> str:
        """Name the other end of a connection; its port says nothing of where datagrams go."""
        other = self.network.pipes.nodes.get(key)
        return "" if other is None else f"{other.address[0]}:1"

    def _wake_at(self, true_ns: int) -> None:
        true_ns = max(true_ns, self._late_until_ns, self.world.now)
        if self._wake_ns is None or true_ns < self._wake_ns:
            self._wake_ns = true_ns
            self.world.at(true_ns, self._wake, true_ns)

    def _wake(self, planned_ns: int) -> None:
        if not self.is_alive or planned_ns != self._wake_ns:
            return
        self._wake_ns = None
        if self.world.now < self._late_until_ns:
            self._wake_at(self._late_until_ns)
        else:
            self._poll()

    def _poll(self) -> None:
        """Do one round of the shell's loop."""
        core, world = self.core, self.world
        read = self._read()
        deadline = core.deadline()
        if deadline is not None and deadline <= self.now:
            core.advance(self.now)
        sent = self._pump()
        handed_out = self._drain()
        self._bounds.look()
        if core.is_closed:
            self.crash()
            return
        if world.chance(self.host.stall):
            self.stop_for(world.draw_ns(0, self.host.stall_ns))
        self._plan(is_progress=bool(read or sent or handed_out))

    def _plan(self, *, is_progress: bool) -> None:
        world = self.world
        if self._buffer:
            self._wake_at(world.now + _WAKE_NS)
        deadline = self.core.deadline()
        if deadline is None:
            return
        due_ns = self.clock.true(deadline)
        if due_ns <= world.now < self._sent_until_ns - _SEND_QUEUE_NS:
            return  # Nothing can be sent: the shell waits until it can, and a poll is planned then.
        self._storm.look(is_due=due_ns <= world.now, is_progress=is_progress)
        self._wake_at(max(due_ns, world.now + _WAKE_NS))

    def _read(self) -> int:
        """Take a burst of datagrams out of the socket buffer, joined as the kernel joins them."""
        count = cost_ns = 0
        while self._buffer and count < _READ_FRAMES_MAX:
            frame, source = self._buffer.popleft()
            run = [frame]
            if self.host.burst_bytes_max:
                self._join(run, source)
            count += len(run)
            is_data = frame[KIND_OFFSET] in (DATA, SEGMENT)
            cost_ns += len(run) * (self.host.read_ns if is_data else self._read_control_ns)
            self._buffered_bytes -= sum(map(len, run)) + len(run) * FRAME_COST_BYTES
            segment_bytes = len(frame) if len(run) > 1 else 0
            self.core.receive(self.now, b"".join(run), segment_bytes, source)
        if count:
            self._late_until_ns = max(self._late_until_ns, self.world.now + cost_ns)
        return count

    @property
    def _read_control_ns(self) -> int:
        return min(self.host.read_ns, 2 * US)

    def _join(self, run: list[bytes], source: Address) -> None:
        size = len(run[0])
        while self._buffer and len(run) < 40 and len(run[-1]) == size:
            frame, other = self._buffer[0]
            # Where datagrams are told from what is for all, they come by another socket.
            is_apart = self.host.has_datagram and type(other) is not type(source)
            if other != source or is_apart or len(frame) > size:
                return
            run.append(frame)
            self._buffer.popleft()

    def _pump(self) -> int:
        world = self.world
        for count in range(_BURSTS_PER_POLL):
            if self._sent_until_ns - world.now > _SEND_QUEUE_NS:
                self._wake_at(self._sent_until_ns - _SEND_QUEUE_NS)
                return count
            if world.chance(self.host.eagain):
                world.counts["eagain"] += 1
                self._sent_until_ns = max(self._sent_until_ns, world.now) + world.draw_ns(
                    _SEND_QUEUE_NS, 5 * MS
                )
                self._wake_at(self._sent_until_ns - _SEND_QUEUE_NS)
                return count
            burst = self.core.next_burst(self.now)
            if burst is None:
                return count
            self._transmit(burst.destination, b"".join(burst.buffers), burst.segment_bytes)
        self._wake_at(world.now + _WAKE_NS)
        return _BURSTS_PER_POLL

    def _transmit(self, destination: Address | None, data: bytes, segment_bytes: int) -> None:
        step = segment_bytes or len(data)
        is_too_long = segment_bytes and len(data) > self.host.burst_bytes_max
        self.world.check(not is_too_long, f"{self.name}: a burst of {len(data)} bytes")
        frames = [data[at : at + step] for at in range(0, len(data), step)]
        # A frame made for a pipe that was cut goes by the network in fragments.
        may_be_large = isinstance(destination, Pipes) or self.had_pipes
        bytes_max = max(self.host.frame_bytes_max, PIPE_FRAME_BYTES if may_be_large else 0)
        self.world.check(
            max(map(len, frames)) <= bytes_max,
            f"{self.name} sent a frame of {max(map(len, frames))} bytes",
        )
        self.world.check(destination != NOWHERE, f"{self.name} sent a frame to nobody")
        self.world.note(self.index, destination, segment_bytes, crc32(data))
        self.world.counts["frames"] += len(frames)
        self.sent_bytes += len(data)
        self._sent_until_ns = self.network.send(
            self, destination, frames, max(self._sent_until_ns, self.world.now)
        )

    def _drain(self) -> int:
        """Hand out what the core delivered and reported."""
        deliveries, events = self.core.deliveries, self.core.events
        count = len(deliveries) + len(events)
        for delivery in deliveries:
            self._hand_out(delivery)
        deliveries.clear()
        reported = list(events)
        events.clear()  # First: who is handed something may make more.
        for event in reported:
            event.run() if isinstance(event, Handover) else self.ledger.reported(self, event)
        return count

    def _hand_out(self, delivery: Delivery) -> None:
        """Give a run to those of our subscriptions that want it."""
        subject, wanted = delivery.topic.subject, delivery.topic.request
        wish = delivery.topic.wish if isinstance(delivery.topic, IncomingTopic) else ()
        by_links: list[Insistent | Latecomer] = [*self.insistent, *self.latecomers]
        for one in [one for one in by_links if one.links == wish and matches(one.pattern, subject)]:
            if wanted in (0, one.request):
                one.take(delivery)
        if not (wish or wanted) and (self.patterns or not self.latecomers):
            self.ledger.delivered(self, delivery)
