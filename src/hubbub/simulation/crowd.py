"""Thousands of nodes that share services, in one process: one view for all, and what changes in it.

Ten thousand whole views would be a hundred million entries. What is tried here is everything but
membership: managers, lists, trees and hand-over are the real machines, one set a node; who is there
is known to all at once, after the time that pings and news would take.
"""

from collections import Counter, defaultdict
from functools import partial
from heapq import nsmallest
from random import Random
from typing import NamedTuple

from hubbub.limits import SECOND, US
from hubbub.protocol.rendezvous.placement import Placement, shares
from hubbub.protocol.rendezvous.profile import FAST
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.protocol.rendezvous.seat import NEVER, Place, Seat
from hubbub.protocol.rendezvous.view import Member, News, State, View
from hubbub.simulation.world import World
from hubbub.wire.header import HEADER_BYTES, KIND_NAMES, SERVICE
from hubbub.wire.services import INFO, Record, decode_request, node_key, service_key

_DELAY_NS = 100 * US
_START_NS = 10 * SECOND  # By then everybody is old.
_KIND_OFFSET = 3


class _SharedView(View):
    """The view of one node: that of all."""

    def __init__(
        self, crowd: "Crowd", seat: Seat, placement: Placement, stable_ns: int, weight: int
    ) -> None:
        super().__init__(seat, placement, stable_ns, weight)
        self.members = crowd.members
        self._crowd = crowd

    def present(self) -> list[Member]:
        return self._crowd.alive

    def closest(self, key: bytes) -> bytes | None:
        return self.rank(key, 1)[0]

    def rank(self, key: bytes, count: int, *, is_settled: bool = True) -> list[bytes]:
        return self._crowd.rank(key, count)


class CrowdWork(NamedTuple):
    """What a crowd did until it was asked."""

    nodes: int
    services: int
    subscribed_ms: float  # Until the last subscription was confirmed.
    frames: dict[str, int]
    delivered: int
    fan_out_max: int
    share_max: float  # Of the services, times the number of nodes.
    recovered_ms: float  # From the notice of all deaths until each list was complete again.


class Crowd:
    """Many nodes, a few services, and a network that loses nothing."""

    def __init__(self, nodes: int, services: int, seed: int = 1) -> None:
        self.world = World(seed)
        self.world.now = _START_NS
        self.members: dict[bytes, Member] = {}
        self.alive: list[Member] = []
        self.names = [f"service-{number}" for number in range(services)]
        self.wanted: dict[bytes, str] = {}
        self.frames: Counter[str] = Counter()
        self.delivered: Counter[tuple[bytes, bytes]] = Counter()
        self.machines: dict[bytes, Rendezvous] = {}
        self._at: dict[Place, Rendezvous] = {}
        self._ranks: dict[tuple[bytes, int], list[bytes]] = {}
        self._sent: dict[tuple[bytes, bytes], set[Place]] = defaultdict(set)
        self._wakes: dict[bytes, int] = {}
        for number in range(nodes):
            self._open(number)

    def _open(self, number: int) -> None:
        node = node_key(b"crowd %d" % number)[:12]
        place = (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 7266)
        member = Member(Record(node, *place, 1, number, 0), place, 0)
        member.is_settled = True
        self.members[node] = member
        self.alive.append(member)
        machine = Rendezvous(
            0, node, number, 1, Random(number), seeds=[], make_view=partial(_SharedView, self)
        )
        machine.swim.due_ns = NEVER
        machine.hops._suspect = lambda now, node: None
        self.machines[node] = self._at[place] = machine

    def rank(self, key: bytes, count: int) -> list[bytes]:
        """Return the closest nodes to a key, found once for all."""
        found = self._ranks.get((key, count))
        if found is None:
            number = int.from_bytes(key, "big")
            found = [one.node for one in nsmallest(count, self.alive, lambda m: m.number ^ number)]
            self._ranks[key, count] = found
        return found

    # Time.

    def turn(self, machine: Rendezvous) -> None:
        """Send what a node has made, and plan when it has something to do."""
        world, node = self.world, machine.seat.node
        machine.flush()
        while machine.out:
            place, frame = machine.out.popleft()
            kind = frame[_KIND_OFFSET]
            self.frames[KIND_NAMES[kind]] += 1
            if kind == SERVICE:
                self._count(node, place, frame)
            world.after(_DELAY_NS, self._arrive, place, frame, self.members[node].place)
        for one in machine.seat.deliveries:
            self.delivered[node, one.payload] += 1
        machine.seat.deliveries.clear()
        machine.seat.settled.clear()
        machine.seat.events.clear()
        due_ns = machine.deadline()
        if due_ns < self._wakes.get(node, NEVER):
            self._wakes[node] = due_ns
            world.at(due_ns, self._wake, node, due_ns)

    def _count(self, node: bytes, place: Place, frame: bytes) -> None:
        """Note to whom a node sends one message."""
        request = decode_request(frame[HEADER_BYTES:])
        assert request is not None
        if request.message.type == INFO:
            self._sent[node, request.message.rest].add(place)

    def _arrive(self, place: Place, frame: bytes, source: Place) -> None:
        machine = self._at.get(place)
        if machine is not None:
            machine.receive(self.world.now, frame, source)
            self.turn(machine)

    def _wake(self, node: bytes, planned_ns: int) -> None:
        machine = self.machines.get(node)
        if machine is not None and self._wakes.get(node) == planned_ns:
            del self._wakes[node]
            machine.advance(self.world.now)
            self.turn(machine)

    # What happens.

    def subscribe(self) -> float:
        """Let everybody subscribe to one service; return how long that took, in ms."""
        start_ns = self.world.now
        for number, (node, machine) in enumerate(self.machines.items()):
            self.wanted[node] = self.names[number % len(self.names)]
            machine.subscribe(self.world.now, self.wanted[node])
            self.turn(machine)
        is_late = self.world.run_while(lambda: not self._is_confirmed(), 30 * SECOND)
        self.world.check(is_late, "not everybody could subscribe")
        return (self.world.now - start_ns) / 1e6

    def _is_confirmed(self) -> bool:
        return all(
            one.is_confirmed for m in self.machines.values() for one in m.client.subscribed.values()
        )

    def publish(self) -> None:
        """Publish a message in each service, and check that each subscriber has it once."""
        self._sent.clear()
        random, nodes = self.world.random, list(self.machines)
        payloads = {name: random.randbytes(20) for name in self.names}
        for name, payload in payloads.items():
            publisher = self.machines[random.choice(nodes)]
            publisher.publish(self.world.now, name, payload)
            self.turn(publisher)
        self.world.run_for(2 * SECOND)
        for node in self.machines:
            count = self.delivered[node, payloads[self.wanted[node]]]
            self.world.check(count == 1, f"a message came {count} times (H5)")

    @property
    def fan_out_max(self) -> int:
        """Return to how many nodes one has sent one message at most."""
        return max(map(len, self._sent.values()), default=0)

    def kill_managers(self) -> float:
        """Kill all managers at once; return how long lists were incomplete once that was known."""
        victims = {self.rank(service_key(name), 1)[0] for name in self.names}
        for node in victims:
            del self._at[self.members[node].place]
            del self.machines[node]
        self.world.run_for(FAST.detection_ns)
        self._ranks.clear()
        for node in victims:
            self.members[node].state = State.DEAD
        self.alive = [one for one in self.alive if one.is_present]
        for machine in list(self.machines.values()):
            machine.swim.changes += [(News.DIED, self.members[node]) for node in victims]
            machine.advance(self.world.now)
            self.turn(machine)
        start_ns = self.world.now
        is_over = self.world.run_while(lambda: bool(self.incomplete()), 30 * SECOND, US * 1000)
        self.world.check(is_over, f"{self.incomplete()} (H2)")
        return (self.world.now - start_ns) / 1e6

    def incomplete(self) -> str:
        """Say which list is not what it should be."""
        wanted: dict[str, set[bytes]] = {name: set() for name in self.names}
        for node in self.machines:
            wanted[self.wanted[node]].add(node)
        for name in self.names:
            manager = self.machines[self.rank(service_key(name), 1)[0]]
            service = manager.manager.services.get(service_key(name))
            listed = set() if service is None else {line.node for line in service.listing}
            if listed != wanted[name]:
                return f"{name}: {len(listed)} of {len(wanted[name])} are listed"
        return ""

    def run(self) -> CrowdWork:
        """Subscribe, publish, kill all managers, publish again; return what was done."""
        subscribed_ms = self.subscribe()
        self.publish()
        numbers = [member.number for member in self.members.values()]
        parts = shares(self.machines[next(iter(self.machines))].view.placement, numbers, numbers)
        fan_out_max, nodes = self.fan_out_max, len(self.machines)
        recovered_ms = self.kill_managers()
        self.publish()
        return CrowdWork(
            nodes, len(self.names), subscribed_ms, dict(self.frames), self.delivered.total(),
            max(fan_out_max, self.fan_out_max), max(parts) * nodes, recovered_ms,
        )  # fmt: skip
