"""The shell of services: what goes out at once, and what is done when there is time."""

import select
import time
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from hubbub.limits import ACK_DELAY, SECOND
from hubbub.links.datagram import DatagramLink
from hubbub.protocol.rendezvous.publishing import Lane
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.runtime.loop import Loop
from hubbub.runtime.service_driver import ServiceDriver
from hubbub.wire.services import node_key, service_key

PATIENCE_S = 10.0
IDS = [bytes([number]) * 12 for number in (1, 2)]


class Town:
    """A manager that subscribes to its service, and a publisher; this thread does all their I/O."""

    def __init__(self) -> None:
        links = [DatagramLink("127.0.0.1", 0) for _ in IDS]
        self.heard: list[bytes] = []
        self.manager, self.publisher = (
            ServiceDriver(
                Rendezvous(
                    time.monotonic_ns(), IDS[place], 7 + place, 5, Random(place),
                    seeds=[links[0].place] if place else [],
                ),
                links[place], Loop(), self._take,
            )
            for place in range(2)
        )  # fmt: skip
        names = (f"service-{number}" for number in count())
        self.name = next(name for name in names if _is_closer(name))
        self.wait_until(lambda: any(True for _ in self.publisher.machine.view.present()))
        one = self.manager.call(self.manager.machine.subscribe, self.name)
        self.wait_until(lambda: bool(one.is_confirmed))
        self.lane: Lane = self.publisher.machine.publishing.lane(self.name)

    def _take(self, found: Any) -> None:
        self.heard += getattr(found, "payloads", [])

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline_s, "it did not come to that"
            for driver in (self.manager, self.publisher):
                driver.deadline()
                driver.advance(time.monotonic_ns())
            time.sleep(0.001)

    def say(self, payload: bytes) -> None:
        """Publish something, and wait until it is heard."""
        self.publisher.publish(self.lane, payload)
        self.wait_until(lambda: payload in self.heard)

    def close(self) -> None:
        for driver in (self.manager, self.publisher):
            driver.finish("the test is over")


def _is_closer(name: str) -> bool:
    key = int.from_bytes(service_key(name), "big")
    one, other = (int.from_bytes(node_key(node), "big") ^ key for node in IDS)
    return one < other


@pytest.fixture
def town() -> Iterator[Town]:
    town = Town()
    yield town
    town.close()


def test_single_message_is_handed_out_before_its_acknowledgement_is_noted(town: Town) -> None:
    town.say(b"first")
    town.wait_until(lambda: not town.publisher.machine.publishing.messages)
    town.manager.advance(time.monotonic_ns())  # Lest it comes together with something else.
    assert town.publisher.publish(town.lane, b"second")
    deadline_s = time.monotonic() + PATIENCE_S
    while b"second" not in town.heard:
        assert time.monotonic() < deadline_s, "it did not arrive"
        town.manager.readable(time.monotonic_ns())
    assert town.manager.machine.passed  # The reader has it, and nothing else was done for it.
    due_ns = town.manager.deadline()
    assert town.manager.machine.passed  # Nor is its answer made by itself.
    assert due_ns is not None and due_ns <= time.monotonic_ns() + ACK_DELAY
    time.sleep(ACK_DELAY / SECOND)
    town.manager.deadline()
    assert not town.manager.machine.passed
    town.wait_until(lambda: not town.publisher.machine.publishing.messages)


def test_look_at_a_single_message_moves_the_deadline_only_if_it_is_the_first(town: Town) -> None:
    town.say(b"first")
    town.wait_until(lambda: not town.publisher.machine.publishing.messages)
    town.manager.advance(time.monotonic_ns())
    moved = []
    for number in range(3):
        town.publisher.publish(town.lane, b"%d" % number)
        wait_for_input(town.manager)
        assert town.manager.look(time.monotonic_ns())
        moved.append(town.manager.has_moved)
    assert town.heard[1:] == [b"0", b"1", b"2"]
    assert moved == [True, False, False]
    town.publisher.call(town.publisher.machine.publish_in, town.lane, b"urgent", is_urgent=True)
    wait_for_input(town.manager)
    assert town.manager.look(time.monotonic_ns())
    assert town.manager.has_moved
    assert not town.manager.machine.passed  # Where one is answered, all are.


def wait_for_input(driver: ServiceDriver) -> None:
    assert select.select([driver.link.fileno()], [], [], PATIENCE_S)[0]


def test_messages_arrive_in_the_order_they_were_published(town: Town) -> None:
    town.say(b"0")
    for number in range(1, 200):
        town.publisher.publish(town.lane, b"%d" % number)
        if number % 7 == 0:
            town.manager.readable(time.monotonic_ns())
    town.wait_until(lambda: len(town.heard) >= 200)
    assert town.heard == [b"%d" % number for number in range(200)]
    town.wait_until(lambda: not town.publisher.machine.publishing.messages)
