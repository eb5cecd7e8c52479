"""Services of processes without multicast: managers join, leave politely, and are killed."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import hubbub
from hubbub.limits import SECOND
from hubbub.protocol.rendezvous.profile import FAST
from tests.integration.bus import (
    DEADLINE_S,
    IS_SOAK,
    Actor,
    acting,
    fresh_place,
    hear,
    say,
    wait_until,
)

PROCESSES, SERVICES, SECONDS, RATE_HZ = (20, 10, 60, 1000) if IS_SOAK else (3, 2, 2, 50)
NAMES = [f"service-{number}" for number in range(SERVICES)]
DETECTION_S = FAST.detection_ns / SECOND


def open_member(domain: str, peers: list[str]) -> hubbub.Node:
    return hubbub.open(
        domain=domain, interface="127.0.0.1", multicast=False, listen=0, peers=peers,
        links=["tcp"], services=True,
    )  # fmt: skip


def play_member(domain: str, peers: list[str], names: list[str]) -> None:
    """Subscribe, and tell what came when asked."""
    with open_member(domain, peers) as node:
        heard: Counter[str] = Counter()
        for name in names:
            node.service(name).subscribe(lambda one: heard.update([bytes(one.payload).decode()]))
            node.service(name).wait_until_subscribed(DEADLINE_S)
        say({"id": node.id.hex(), "address": node.services.address})
        while hear() == "report":
            say(heard)
    say("left")


class Town:
    """The members of a test: processes, and a node of the test's own that publishes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.domain = fresh_place().domain
        self.node = stack.enter_context(open_member(self.domain, []))
        self.members: dict[str, Actor] = {}
        self.published: dict[str, float] = {}
        self._heard: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._readers = {name: self.node.service(name).subscribe(queue=10**6) for name in NAMES}

    def open(self, names: list[str]) -> str:
        actor = self._stack.enter_context(
            acting(play_member, self.domain, [self.node.services.address], names)
        )
        member: str = actor.hear(2 * DEADLINE_S)["id"]
        self.members[member] = actor
        return member

    def manager(self) -> str | None:
        """Return a manager that is a process, and not the test itself."""
        managers = {self.node.services.manager_of(name) for name in NAMES}
        found = sorted(managers & self.members.keys())
        return random.choice(found) if found else None

    @contextmanager
    def publishing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._publish, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _publish(self) -> None:
        number, start = 0, time.monotonic()
        while not self._stopping.is_set():
            name = NAMES[number % SERVICES]
            payload = f"{name} {number}"
            self.published[payload] = time.monotonic()
            self.node.service(name).publish(payload.encode())
            number += 1
            self._stopping.wait(max(0.0, start + number / RATE_HZ - time.monotonic()))

    def own(self) -> Counter[str]:
        """Return what the test's own subscriptions were handed."""
        for reader in self._readers.values():
            while (message := reader.receive(0)) is not None:
                self._heard[bytes(message.payload).decode()] += 1
        return self._heard

    def settle(self) -> None:
        """Wait until each list is complete."""
        expected = {self.node.id.hex(), *self.members}

        def is_complete() -> bool:
            found = {one.name: one for one in self.node.services.find(1.0)}
            return all(name in found and found[name].subscribers == len(expected) for name in NAMES)

        wait_until(is_complete, 2 * DEADLINE_S)


@pytest.fixture
def town() -> Iterator[Town]:
    with ExitStack() as stack:
        made = Town(stack)
        yield made


def check_once(heard: dict[str, int]) -> None:
    assert [payload for payload, count in heard.items() if count > 1] == []


@pytest.mark.soak
@pytest.mark.skipif(not IS_SOAK, reason="takes a minute; test_services_api has one such leave")
def test_joins_and_polite_leaves_lose_no_message(town: Town) -> None:
    for _ in range(PROCESSES):
        town.open(NAMES)
    town.settle()
    with town.publishing():
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(1)
            leaver = town.manager()
            if leaver is not None:
                actor = town.members.pop(leaver)
                actor.tell("leave")
                assert actor.hear() == "left"
            town.open(NAMES)
    wait_until(lambda: len(town.own()) == len(town.published), 2 * DEADLINE_S)
    check_once(town.own())
    town.settle()


@pytest.mark.soak
def test_killed_managers_cost_no_more_than_the_time_to_notice(town: Town) -> None:
    for _ in range(PROCESSES):
        town.open(NAMES)
    town.settle()
    kills: list[float] = []
    with town.publishing():
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(1)
            victim = town.manager()
            if victim is not None and (not kills or IS_SOAK):
                town.members.pop(victim).signal(signal.SIGKILL)
                kills.append(time.monotonic())
                town.open(NAMES)
    town.settle()

    def lost_apart() -> list[str]:
        """Name messages that were lost, and not published around a kill."""
        missing = town.published.keys() - town.own().keys()
        return [one for one in missing if not _is_near(town.published[one], kills)]

    wait_until(lambda: not lost_apart(), 2 * DEADLINE_S)
    check_once(town.own())
    for actor in town.members.values():
        actor.tell("report")
        report: dict[str, Any] = actor.hear()
        check_once(report)


def _is_near(published: float, kills: list[float]) -> bool:
    # What the manager had taken and not yet handed on dies with it.
    return any(kill - 1 <= published <= kill + DETECTION_S for kill in kills)
