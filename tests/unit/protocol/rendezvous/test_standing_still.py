"""A subscriber that stands still until it is taken for dead, and then goes on."""

from collections import deque
from random import Random

import pytest

from hubbub.limits import MS, SECOND, SERVICE_LEASE
from hubbub.protocol.rendezvous.profile import FAST
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.wire.services import distance, node_key, service_key

IDS = [bytes([letter]) * 12 for letter in b"abc"]
PLACES = [(f"10.0.0.{number}", 1) for number in (1, 2, 3)]
BACK = 1 * SECOND  # Much less than a third of the lease, when it would subscribe anew anyway.


class Town:
    """Three nodes; the first manages the service that the last subscribes to."""

    def __init__(self, seed: int) -> None:
        self.machines = [
            Rendezvous(0, node, 5 + at, 7, Random(seed + at), seeds=PLACES[:1] if at else [])
            for at, node in enumerate(IDS)
        ]
        self.manager, self.other, self.subscriber = self.machines
        self.inboxes: list[deque[tuple[bytes, tuple[str, int]]]] = [deque() for _ in IDS]
        self.is_still = False
        names = (f"service-{number}" for number in range(100))
        self.name = next(name for name in names if _closest(name) == IDS[0])
        self.now = 0
        self.pass_time(5 * SECOND)
        self.subscriber.subscribe(self.now, self.name)
        self.pass_time(1 * SECOND)

    def pass_time(self, time_ns: int) -> None:
        end = self.now + time_ns
        while self.now < end:
            self.now += MS
            for at, machine in enumerate(self.machines):
                if not (self.is_still and machine is self.subscriber):
                    self._run(at, machine)

    def _run(self, at: int, machine: Rendezvous) -> None:
        while self.inboxes[at]:
            machine.receive(self.now, *self.inboxes[at].popleft())
        if machine.deadline() <= self.now:
            machine.advance(self.now)
        machine.flush()
        while machine.out:
            place, data = machine.out.popleft()
            self.inboxes[PLACES.index(place)].append((data, PLACES[at]))

    def stand_still(self) -> None:
        """Keep the subscriber from running until both others take it for dead."""
        self.is_still, until = True, self.now + FAST.detection_ns
        while any(one.view.is_present(IDS[2]) for one in (self.manager, self.other)):
            assert self.now < until
            self.pass_time(100 * MS)
        assert not self.subscribers()
        self.is_still = False

    def subscribers(self) -> list[bytes]:
        service = self.manager.manager.services.get(service_key(self.name))
        return [] if service is None else [line.node for line in service.listing]


def _closest(name: str) -> bytes:
    return min(IDS, key=lambda node: distance(node_key(node), service_key(name)))


@pytest.mark.parametrize("seed", range(5))
def test_subscriber_that_was_taken_for_dead_subscribes_anew_at_once(seed: int) -> None:
    """It reads of the suspicion first, objects to that, and then reads of its death."""
    assert BACK < SERVICE_LEASE // 3
    town = Town(seed)
    town.stand_still()
    town.pass_time(BACK)
    assert town.subscribers() == [IDS[2]]


@pytest.mark.parametrize("seed", range(5))
def test_subscriber_that_never_heard_of_its_death_is_told_by_who_struck_it_off(seed: int) -> None:
    """It had objected to the suspicion, but nobody heard that before it counted as dead."""
    town = Town(seed)
    town.stand_still()
    town.inboxes[2].clear()
    town.subscriber.swim.incarnation += 1
    town.pass_time(BACK)
    assert town.subscribers() == [IDS[2]]


def test_death_that_is_told_again_and_again_makes_it_subscribe_once() -> None:
    town = Town(1)
    town.stand_still()
    dead = town.manager.view.members[IDS[2]].record()
    town.pass_time(BACK)
    one = town.subscriber.client.subscribed[service_key(town.name)]
    stamp = one.stamp
    for _ in range(3):
        town.subscriber.swim._object(town.now, dead)
        town.pass_time(MS)
    assert one.stamp == stamp
