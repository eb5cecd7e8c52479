"""Crowds of vehicles: the gateways alone, on a bus that brings every frame to everybody.

A thousand whole nodes would spend their time on each other's heartbeats. What grows with the crowd
is the work of the gateways, so these are all there is: no peers to find, no link, no loss.
"""

from collections import Counter, deque
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

from hubbub.limits import MS, SECOND
from hubbub.protocol.burst import Pipes
from hubbub.protocol.delivery import Handover
from hubbub.protocol.endpoint import Endpoint, Identity
from hubbub.protocol.peers import Peer
from hubbub.protocol.settings import Settings
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.gateway import Gateway
from hubbub.protocol.timetrigger.producer import Due, ProducerOptions
from hubbub.wire.header import INTEREST, RESPONSE, decode

_WALL_NS = 1_700_000_100 * SECOND
_BODY_BYTES_MAX = 1314
_CELL = 10  # So many vehicles want the speeds of each other.
_LOCAL_TYPE = 1000


class FleetWork(NamedTuple):
    """What the gateways of a fleet did."""

    vehicles: int
    components: int
    frames: int  # Samples that were sent outside, each to everybody.
    interests: int
    heard: int
    relayed: int  # Frames that concerned a component.
    handed: int  # To components.
    taken: int
    missed: int


class _Car:
    """One vehicle: half of its components make, the others want."""

    def __init__(
        self, number: int, components: int, peers: dict[bytes, Peer], settings: Settings
    ) -> None:
        identity = Identity(f"car{number}", number.to_bytes(12, "big"), 1, "", number, "fleet")
        self.endpoint = Endpoint(identity, settings, "fleet", Random(number), count(1))
        self.endpoint.wall_offset_ns = _WALL_NS
        self.gateway = Gateway(self.endpoint, peers, _BODY_BYTES_MAX)
        self.office, self.take, self.events = (
            self.gateway.office, self.gateway.take, self.endpoint.events
        )  # fmt: skip
        self.consumers: list[Consumer] = []
        self.peer = peers[self.endpoint.key] = Peer(self.endpoint.key, ("car", number), 0)
        self.now = 0
        cell = 1 + number // _CELL
        for place in range(components // 2):
            # One pair talks to the cell, the others to each other inside.
            type = cell if place == 0 else _LOCAL_TYPE + _LOCAL_TYPE * number + place
            subject, options = f"/fleet/{type}", ProducerOptions(is_staggered=True)
            self.gateway.produce(0, type, subject, options, self._read)
            consumer = Consumer(0, type, subject, self.gateway.clock, period_us=100_000)
            self.gateway.consume(0, consumer, lambda sample: None)
            self.consumers.append(consumer)

    def _read(self, due: Due) -> None:
        self.gateway.respond(self.now, due, b"13.9", due.tick_ns)


class Fleet:
    """Vehicles that all hear each other."""

    def __init__(self, vehicles: int, components: int) -> None:
        settings, self._peers = Settings(), dict[bytes, Peer]()
        self._components = components
        self.cars = [_Car(number, components, self._peers, settings) for number in range(vehicles)]
        self._agenda: list[tuple[int, int]] = []
        self._busy: deque[_Car] = deque()
        self.sent: Counter[int] = Counter()
        for number in range(vehicles):
            self._drain(self.cars[number], 0)
            heappush(self._agenda, (0, number))

    def run(self, until_ns: int) -> FleetWork:
        """Let time pass, and return what was done."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= until_ns:
            due_ns, number = heappop(agenda)
            car = self.cars[number]
            if car.gateway.due_ns <= due_ns:
                car.now = car.endpoint.now = due_ns
                car.gateway.advance(due_ns)
                self._drain(car, due_ns)
            heappush(agenda, (max(car.gateway.due_ns, due_ns + MS // 100), number))
        tallies = [car.gateway.tally for car in self.cars]
        consumers = [one for car in self.cars for one in car.consumers]
        return FleetWork(
            len(self.cars), self._components, self.sent[RESPONSE], self.sent[INTEREST],
            sum(tally.heard for tally in tallies), sum(tally.relayed for tally in tallies),
            sum(tally.handed for tally in tallies), sum(one.served for one in consumers),
            sum(one.missed for one in consumers),
        )  # fmt: skip

    def _drain(self, first: _Car, now: int) -> None:
        """Make the samples that are due, and bring what gateways send to the others."""
        busy = self._busy
        busy.append(first)
        while busy:
            car = busy.popleft()
            car.now = car.endpoint.now = now
            endpoint, gateway = car.endpoint, car.gateway
            while endpoint.events or endpoint.control or gateway.out:
                events = list(endpoint.events)
                endpoint.events.clear()
                for event in events:
                    if isinstance(event, Handover):
                        event.run()
                for queue in (endpoint.control, gateway.out):
                    while queue:
                        burst = queue.popleft()
                        self._carry(car, now, b"".join(burst.buffers), burst.destination)

    def _carry(self, car: _Car, now: int, data: bytes, destination: object) -> None:
        header = decode(data)
        self.sent[header.kind] += 1
        is_for_all = destination is None or isinstance(destination, Pipes)
        targets = self.cars if is_for_all else [self.cars[destination[1]]]  # type: ignore[index]
        size = len(data)
        peer = car.peer
        for other in targets:
            if other is not car:
                office = other.office
                before = office.due_ns
                other.take(now, peer, header, data, 0, size)
                if other.events:
                    self._busy.append(other)
                if office.due_ns < before:
                    number = other.peer.address[1]
                    heappush(self._agenda, (max(now, office.due_ns), number))
