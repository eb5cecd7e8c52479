"""A subscriber that stands still until it is taken for dead, and then goes on."""

from collections import deque
from random import Random

import pytest

from hubbub.limits import (
    ABSENCE,
    ABSENT_NODE_BYTES_MAX,
    MS,
    SECOND,
    SERVICE_LEASE,
)
from hubbub.protocol.rendezvous import track
from hubbub.protocol.rendezvous.profile import FAST
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.protocol.rendezvous.seat import GivenUp
from hubbub.protocol.rendezvous.view import State
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
        self._published = 0
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

    def publish(self, count: int, size_bytes: int = 4) -> list[bytes]:
        """Let the second node publish messages that are all different."""
        payloads = [b"%0*d" % (size_bytes, self._published + number) for number in range(count)]
        self._published += count
        for payload in payloads:
            self.other.publish(self.now, self.name, payload)
            self.pass_time(MS)
        return payloads

    def heard(self) -> list[bytes]:
        return [one for run in self.subscriber.seat.deliveries for one in run.payloads]

    def given_up(self) -> list[GivenUp]:
        return [one for one in self.manager.seat.events if isinstance(one, GivenUp)]

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


def test_subscriber_that_is_struck_off_is_told_so_there_and_then() -> None:
    town = Town(1)
    town.manager.swim._tell_of(town.now, town.manager.view.members[IDS[2]], State.SUSPECT)
    town.manager.swim._tell_of(town.now, town.manager.view.members[IDS[2]], State.DEAD)
    town.manager.advance(town.now)
    assert not town.subscribers()
    town.pass_time(10 * MS)  # Far less than it takes until one of them pings the other.
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


@pytest.mark.parametrize("seed", range(3))
def test_subscriber_has_what_was_published_while_it_stood_still(seed: int) -> None:
    town = Town(seed)
    town.is_still = True
    before = town.publish(3)
    town.inboxes[2].clear()  # Its socket had no room.
    town.stand_still()
    town.is_still = True
    after = town.publish(5)
    town.is_still = False
    assert not town.heard()
    town.pass_time(BACK)
    assert sorted(town.heard()) == before + after  # Each of them once.
    assert not town.given_up()


def test_subscriber_that_was_started_anew_has_nothing_of_what_its_last_life_missed() -> None:
    town = Town(1)
    town.stand_still()
    town.is_still = True
    town.publish(5)
    town.inboxes[2].clear()
    again = Rendezvous(town.now, IDS[2], 99, 7, Random(9), seeds=PLACES[:1], wall_offset_ns=SECOND)
    town.machines[2] = town.subscriber = again
    town.is_still = False
    town.pass_time(BACK)
    town.subscriber.subscribe(town.now, town.name)
    town.pass_time(BACK)
    assert town.subscribers() == [IDS[2]]
    assert not town.heard() and not town.manager.manager.absent.size_bytes


def test_what_is_dropped_for_one_that_was_away_for_too_long_is_told() -> None:
    town = Town(1)
    town.stand_still()
    town.is_still = True
    town.publish(5)
    town.pass_time(ABSENCE + SECOND)
    town.inboxes[2].clear()
    assert not town.manager.manager.absent.size_bytes and not town.given_up()
    town.is_still = False
    town.pass_time(BACK)
    assert town.given_up() == [GivenUp(IDS[2], 5)]
    assert not town.heard()


def test_what_is_kept_for_one_node_is_bounded_and_the_rest_is_told() -> None:
    town = Town(1)
    town.stand_still()
    town.is_still = True
    count, size_bytes = 100, 50_000
    town.publish(count, size_bytes)
    absent = town.manager.manager.absent
    assert ABSENT_NODE_BYTES_MAX - 2 * size_bytes < absent.size_bytes <= ABSENT_NODE_BYTES_MAX
    town.inboxes[2].clear()
    town.is_still = False
    town.pass_time(5 * BACK)
    (given_up,) = town.given_up()
    assert 0 < given_up.messages == count - len(town.heard())


def test_second_absence_soon_after_the_first_is_as_long_as_any() -> None:
    town = Town(3)
    sent = []
    for seconds in (6, 9):
        assert seconds * SECOND < ABSENCE < (6 + 4 + 9) * SECOND
        town.is_still = True
        for _ in range(10 * seconds):
            sent += town.publish(1)
            town.pass_time(99 * MS)
        town.is_still = False
        town.pass_time(4 * SECOND)
    assert sorted(town.heard()) == sent
    assert not town.given_up() and not town.manager.manager.absent.boxes


def test_more_messages_than_may_wait_are_sent_to_one_that_returns_as_room_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(track, "HOP_BACKLOG", 2000)
    town = Town(3)
    town.stand_still()
    town.is_still = True
    sent = town.publish(2 * track.HOP_BACKLOG)
    town.is_still = False
    town.pass_time(8 * BACK)
    assert sorted(town.heard()) == sent
    assert not town.given_up()
