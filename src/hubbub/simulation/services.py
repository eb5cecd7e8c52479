"""Nodes that share services under simulation, and what they promise (invariants H1 to H16).

What applications did is written down as they do it, what they were handed as it comes. The checks
know nothing of lists, epochs or trees: they know who lives, who subscribed, and what was published.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple
from zlib import crc32

from hubbub.limits import MS, SECOND, SERVICE_LEASE
from hubbub.protocol.burst import Address
from hubbub.protocol.rendezvous.client import NO_ORDER
from hubbub.protocol.rendezvous.rendezvous import Options, Rendezvous
from hubbub.protocol.rendezvous.seat import NEVER, Delivered, Settled
from hubbub.simulation.network import Station
from hubbub.simulation.node import Host
from hubbub.simulation.services_watch import Watch
from hubbub.simulation.stage import Stage
from hubbub.wire.header import KIND_OFFSET, MEMBERS
from hubbub.wire.services import distance, node_key, service_key

_DOMAIN = 7
_WALL_NS = 1_700_000_000 * SECOND
_FIRST_INDEX = 1 << 12  # Apart from the nodes of a stage.
CALM_NS = 3 * SECOND


GROUP: Address = ("239.255.72.66", 7267)


class Ear:
    """Where a node hears the group: as far away as the node itself."""

    def __init__(self, node: "ServiceNode") -> None:
        self.node = node
        self.index = node.index
        self.host = node.host
        self.address: Address = (f"group {node.index}", 7267)

    def arrive(self, frame: bytes, source: Address) -> None:
        """Take a datagram that was sent to the group."""
        self.node.arrive(frame, source, by_group=True)


class Heard(NamedTuple):
    """A message that an application was handed."""

    true_ns: int
    delivered: Delivered


class ServiceNode:
    """One node: the real machines, and a model of the socket and the thread around them."""

    def __init__(
        self, town: "Town", index: int, seeds: list[Address], options: Options, life: int
    ) -> None:
        self.town = town
        self.world = town.stage.world
        self.index = index
        self.host = Host()
        self.address: Address = (f"10.1.{index >> 8 & 255}.{index & 255}", 7266)
        self.id = town.id_of(index)
        self.life = life
        self.is_alive = True
        self.is_leaving = False
        self.wanted: dict[str, int] = {}  # Services, and since when.
        self.ended: dict[str, int] = {}  # And until when.
        self.wanted_everywhere: list[str] = []
        self.heard: dict[str, list[Heard]] = defaultdict(list)
        self.settled: list[Settled] = []
        self.answer: Callable[[bytes], bytes | None] = lambda payload: None
        self._stopped_until_ns = 0
        self._waiting: list[tuple[bytes, Address, bool]] = []
        self.ear = Ear(self)
        self.hears_group = town.has_group
        self._room_frames: int | None = None
        self._wake_ns = NEVER
        self.machine = Rendezvous(
            self.world.now, self.id, life, _DOMAIN, Random(self.world.random.getrandbits(64)),
            seeds=[(host, port) for host, port in seeds], options=options,
            wall_offset_ns=_WALL_NS, group=GROUP if town.has_group else None,
        )  # fmt: skip
        town.stage.network.nodes[self.address] = self
        town.stage.network.nodes[self.ear.address] = self.ear
        self._turn()

    def __repr__(self) -> str:
        return f"n{self.index}"

    # What the application does.

    def subscribe(
        self, name: str, *, flags: int = 0, order: str = NO_ORDER, credentials: bytes = b"",
        patterns: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Subscribe to a service."""
        self.wanted[name] = self.world.now
        self.ended.pop(name, None)
        self.machine.subscribe(
            self.world.now, name, flags=flags, order=order, credentials=credentials,
            patterns=patterns,
        )  # fmt: skip
        self._turn()

    def want_everywhere(self, patterns: Sequence[str]) -> None:
        """Want what matches whatever service it is in."""
        self.wanted_everywhere = list(patterns)
        self.machine.want_everywhere(self.world.now, patterns)
        self._turn()

    def unsubscribe(self, name: str) -> None:
        """End a subscription."""
        del self.wanted[name]
        self.ended[name] = self.world.now
        self.machine.unsubscribe(self.world.now, name)
        self._turn()

    def toggle(self, name: str) -> None:
        """Subscribe to a service, or end a subscription there is."""
        (self.unsubscribe if name in self.wanted else self.subscribe)(name)

    def publish(
        self, name: str, payload: bytes, *, flags: int = 0, subject: str = ""
    ) -> int | None:
        """Publish in a service."""
        sequence = self.machine.publish(self.world.now, name, payload, flags=flags, subject=subject)
        self._turn()
        return sequence

    def request_any(self, name: str, payload: bytes) -> int | None:
        """Ask any one member."""
        sequence = self.machine.request_any(self.world.now, name, payload)
        self._turn()
        return sequence

    def close(self) -> None:
        """Leave politely."""
        self.is_leaving = True
        self.wanted.clear()
        self.machine.close(self.world.now)
        self._turn()

    def crash(self) -> None:
        """Die without a word."""
        self.is_alive = False
        self.wanted.clear()
        self._vanish()

    # What the host does.

    def stop_for(self, time_ns: int, room_frames: int | None = None) -> None:
        """Stop the process; the kernel goes on receiving, as long as there is room."""
        self._room_frames = room_frames
        self._stopped_until_ns = self.world.now + time_ns
        self.world.at(self._stopped_until_ns, self._go_on)

    def _go_on(self) -> None:
        if self.is_alive and self.world.now >= self._stopped_until_ns:
            waiting, self._waiting = self._waiting, []
            for frame, source, by_group in waiting:
                self.arrive(frame, source, by_group=by_group)
            self._turn()

    def arrive(self, frame: bytes, source: Address, *, by_group: bool = False) -> None:
        """Take a datagram."""
        if not self.is_alive:
            return
        if self.world.now < self._stopped_until_ns:
            if self._room_frames is None or len(self._waiting) < self._room_frames:
                self._waiting.append((frame, source, by_group))
            return
        receive = self.machine.receive_group if by_group else self.machine.receive
        receive(self.world.now, frame, (source[0], source[1]))
        self._turn(has_message=len(frame) <= KIND_OFFSET or frame[KIND_OFFSET] != MEMBERS)

    def _turn(self, *, has_message: bool = True) -> None:
        """Do what the shell does after each thing that happens; it may have been a message."""
        machine, world, seat = self.machine, self.world, self.machine.seat
        if seat.deliveries or seat.settled or seat.events:
            self._drain()
        machine.flush()
        while machine.out:
            place, frame = machine.out.popleft()
            self.town.watch.sent(self, place, frame)
            world.note(self.index, place, crc32(frame))
            targets = self.town.hearing(self, place)
            if targets:
                self.town.stage.network.send_to(self, targets, [frame], world.now)
        self.town.watch.look(self, has_message=has_message)
        if machine.is_closed:
            self.is_alive = False
            self._vanish()
            return
        due_ns = machine.deadline()
        if due_ns < self._wake_ns:
            self._wake_ns = max(due_ns, world.now)
            world.at(self._wake_ns, self._wake, self._wake_ns)

    def _vanish(self) -> None:
        for address in (self.address, self.ear.address):
            self.town.stage.network.nodes.pop(address, None)

    def _wake(self, planned_ns: int) -> None:
        if not self.is_alive or planned_ns != self._wake_ns:
            return
        self._wake_ns = NEVER
        if self.world.now < self._stopped_until_ns:
            return
        self.machine.advance(self.world.now)
        self._turn(has_message=False)

    def _drain(self) -> None:
        seat, world = self.machine.seat, self.world
        deliveries, seat.deliveries = seat.deliveries, []
        for one in [run.pick(place) for run in deliveries for place in range(len(run.payloads))]:
            payload = one.payload
            self.town.watch.delivered(self, one)
            self.heard[one.name].append(Heard(world.now, one))
            world.note(self.index, "heard", payload)
            reply = None if one.answer is None else self.answer(payload)
            if reply is not None:
                self.machine.reply(world.now, one.answer, reply)
        for end in seat.settled:
            numbers = range(end.sequence, end.sequence + end.messages)
            self.settled += [end._replace(sequence=number, messages=1) for number in numbers]
        seat.settled.clear()
        seat.events.clear()


class Town:
    """All nodes of a run, and what holds of them together."""

    def __init__(
        self, stage: Stage, options: Options | None = None, *, has_group: bool = False
    ) -> None:
        self.stage = stage
        self.world = stage.world
        self.options = options or Options()
        self.nodes: list[ServiceNode] = []
        self.watch = Watch(self.world)
        self.published: dict[bytes, tuple[int, str]] = {}
        self._salt = stage.random.getrandbits(64).to_bytes(8, "big")
        self._count = 0
        self.has_group = has_group
        self.group_loss = 0.0  # What the group loses at each, beside all other loss; 1: everything.

    def hearing(self, sender: ServiceNode, place: Address) -> list[Station]:
        """Return who hears what is sent to a place."""
        if place != GROUP:
            target = self.stage.network.nodes.get(place)
            return [] if target is None else [target]
        others = [node for node in self.nodes if node.is_alive and node is not sender]
        return [
            node.ear
            for node in others
            if node.hears_group and not self.world.chance(self.group_loss)
        ]

    def id_of(self, index: int) -> bytes:
        """Return the id of a node: as random as real ones, the same at each start."""
        return node_key(self._salt + index.to_bytes(4, "big"))[:12]

    def open(
        self, index: int | None = None, *, seeds: list[Address] | None = None,
        options: Options | None = None,
    ) -> ServiceNode:  # fmt: skip
        """Open a node that knows one other at least; with an index it is started again."""
        if index is None:
            index = _FIRST_INDEX + len({node.index for node in self.nodes})
        if seeds is None:
            alive = [node.address for node in self.alive() if node.index != index]
            seeds = self.stage.random.sample(alive, min(2, len(alive)))
        life = self.stage.random.getrandbits(64)
        node = ServiceNode(self, index, seeds, options or self.options, life)
        self.nodes.append(node)
        return node

    def open_many(self, count: int) -> list[ServiceNode]:
        """Open several nodes, one after the other, and let them meet."""
        nodes = []
        for _ in range(count):
            nodes.append(self.open())
            self.world.run_for(self.stage.random.randrange(20 * MS))
        self.world.run_for(3 * SECOND)
        return nodes

    def open_subscribed(self, count: int, name: str) -> list[ServiceNode]:
        """Open several nodes, and let all of them subscribe to a service."""
        nodes = self.open_many(count)
        for node in nodes:
            node.subscribe(name)
        self.settle([name])
        return nodes

    def alive(self) -> list[ServiceNode]:
        """Return who lives and stays."""
        return [node for node in self.nodes if node.is_alive and not node.is_leaving]

    def subscribers(self, name: str) -> list[ServiceNode]:
        """Return who has subscribed to a service."""
        return [node for node in self.alive() if name in node.wanted]

    def closest(self, name: str, among: Iterable[ServiceNode] | None = None) -> ServiceNode:
        """Return who is to manage a service, by nothing but keys."""
        return self.ranked(name, among)[0]

    def ranked(self, name: str, among: Iterable[ServiceNode] | None = None) -> list[ServiceNode]:
        """Return all nodes, those closest to a service first."""
        key = service_key(name)
        nodes = self.alive() if among is None else among
        return sorted(nodes, key=lambda node: distance(node_key(node.id), key))

    def managers(self, name: str) -> list[ServiceNode]:
        """Return who serves a service that has subscribers, in its own opinion."""
        key = service_key(name)
        found = []
        for node in self.alive():
            service = node.machine.manager.services.get(key)
            if service is not None and service.is_served and service.listing.count:
                found.append(node)
        return found

    def rivals(self, name: str, nodes: list[ServiceNode]) -> list[ServiceNode]:
        """Return who would serve a service, though with an empty list, and is not the closest."""
        key, closest = service_key(name), self.closest(name, nodes)
        found = [(node, node.machine.manager.services.get(key)) for node in nodes]
        return [
            node
            for node, service in found
            if service is not None and service.is_served and node is not closest
        ]

    def publish(self, node: ServiceNode, name: str, *, flags: int = 0) -> bytes:
        """Publish a message that no other is like."""
        self._count += 1
        payload = b"%s %d" % (name.encode(), self._count)
        self.published[payload] = (self.world.now, name)
        self.world.check(
            node.publish(name, payload, flags=flags) is not None, "no room for a message (H13)"
        )
        return payload

    # What holds when things have calmed down.

    def disagreement(self, names: Iterable[str], among: Iterable[ServiceNode] | None = None) -> str:
        """Say which service is not as it should be (H1 to H4); empty when all are."""
        nodes = self.alive() if among is None else list(among)
        for name in names:
            wanted = {node.id for node in nodes if name in node.wanted}
            managers = [node for node in self.managers(name) if node in nodes]
            expected = [self.closest(name, nodes)] if wanted else []
            if managers != expected:
                promise = "H1" if wanted else "H4"
                return f"{name}: managed by {managers}, not {expected} ({promise})"
            others = self.rivals(name, nodes)
            if others:
                return f"{name}: {others} take themselves for its manager, too (H1)"
            for manager in managers:
                found = self.listed(manager, name)
                if wanted - found:
                    return f"{name}: {len(wanted - found)} lost at {manager} (H2)"
                if found - wanted:
                    return f"{name}: {len(found - wanted)} phantoms at {manager} (H3)"
        return ""

    def listed(self, node: ServiceNode, name: str) -> set[bytes]:
        """Return who is on the list of a node."""
        service = node.machine.manager.services.get(service_key(name))
        return set() if service is None else {line.node for line in service.listing}

    @property
    def convergence_ns(self) -> int:
        """Return the time after the last change by which all is as it should be.

        T_conv = T_detect + 2 rounds of gossip + 1 refresh of a lease, which comes up to a tenth
        late. What was parted needs no more: it is found again sooner than a death is noticed.
        """
        profile, refresh_ns = self.options.profile, SERVICE_LEASE // 3
        return profile.detection_ns + 2 * profile.gossip_ns + refresh_ns + refresh_ns // 10

    def settle(
        self, names: list[str], among: Iterable[ServiceNode] | None = None,
        limit_ns: int | None = None, promise: str = "",
    ) -> int:  # fmt: skip
        """Let time pass until all is as it should be, as promised; return how long that took."""
        start, limit_ns = self.world.now, limit_ns or self.convergence_ns
        nodes = None if among is None else list(among)
        self.world.run_while(lambda: bool(self.disagreement(names, nodes)), limit_ns, 100 * MS)
        fault = self.disagreement(names, nodes)
        self.world.check(not fault, f"after {limit_ns / SECOND:.0f} s {fault}{promise}")
        return self.world.now - start

    def calm_down(self, names: list[str], limit_ns: int | None = None) -> None:
        """Let time pass until all is as it should be, and see that messages come."""
        self.settle(names, limit_ns=limit_ns)
        self.check_calm(names)

    def check_calm(self, names: Iterable[str], among: list[ServiceNode] | None = None) -> None:
        """Publish while nothing is wrong: everybody has it exactly once (H5)."""
        nodes = self.alive() if among is None else among
        sample = self.stage.random.sample
        sent = [
            (name, self.publish(publisher, name))
            for name in names
            for publisher in sample(nodes, min(3, len(nodes)))
        ]
        self.world.run_for(CALM_NS)
        for name, payload in sent:
            for node in nodes:
                count = self.count(node, name, payload)
                expected = int(name in node.wanted)
                text = f"{node} had {payload!r} {count} times, not {expected} (H5)"
                self.world.check(count == expected, text)

    def count(self, node: ServiceNode, name: str, payload: bytes) -> int:
        """Return how often a node was handed a message."""
        return sum(heard.delivered.payload == payload for heard in node.heard[name])

    def check_complete(self, payloads: Iterable[bytes], nodes: Iterable[ServiceNode]) -> None:
        """Check that nodes were handed all of these messages (H7)."""
        wanted = set(payloads)
        for node in nodes:
            had = {one.delivered.payload for some in node.heard.values() for one in some}
            lost = sorted(wanted - had)
            self.world.check(not lost, f"{node} lost {len(lost)} messages, {lost[:3]} (H7)")

    def check_fifo(self, name: str, nodes: Iterable[ServiceNode]) -> None:
        """Check that nodes were handed the messages of each publisher in its order (H8)."""
        for node in nodes:
            last: dict[bytes, int] = {}
            for _, one in node.heard[name]:
                is_next = one.sequence > last.get(one.origin, 0)
                self.world.check(is_next, f"{node}: not in the order of its publisher (H8)")
                last[one.origin] = one.sequence

    def note_counts(self) -> None:
        """Add up what was done."""
        counts: Counter[str] = self.world.counts
        for node in self.nodes:
            counts["heard"] += sum(map(len, node.heard.values()))
            for name in ("passed", "taken_over", "repeated", "duplicates"):
                counts[name] += node.machine.seat.counters[name]
