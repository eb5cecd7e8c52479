"""Services of processes without multicast: managers join, leave politely, and are killed."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

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

# Each process wants some of the services, and the test all of them.
PROCESSES, SERVICES, WANTED, SECONDS, RATE_HZ = (
    (20, 10, 3, 60, 1000) if IS_SOAK else (3, 2, 2, 2, 50)
)
NAMES = [f"service-{number}" for number in range(SERVICES)]
DETECTION_S = FAST.detection_ns / SECOND
ROUND_TRIP_S = 1.0  # Of processes that share two cores with twenty others and those that start.


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
        for name in names:
            assert node.service(name).wait_until_subscribed(DEADLINE_S)
        say({"id": node.id.hex(), "address": node.services.address})
        while hear() == "report":
            say(heard)
    say("left")


class End(NamedTuple):
    """When a process was killed, or left, and what it managed."""

    at_s: float
    names: list[str]


class Town:
    """The members of a test: processes, and a node of the test's own that publishes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.domain = fresh_place().domain
        self.node = stack.enter_context(open_member(self.domain, []))
        self.members: dict[str, Actor] = {}
        self.wanted: dict[str, list[str]] = {}  # By each member.
        self.published: dict[str, float] = {}
        self.heard: dict[str, list[float]] = {name: [] for name in NAMES}  # When.
        self._heard: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._opening: list[tuple[Actor, list[str]]] = []
        self._readers = {name: self.node.service(name).subscribe(queue=10**6) for name in NAMES}

    def begin(self, names: list[str]) -> None:
        """Start a member, and do not wait for it."""
        actor = acting(play_member, self.domain, [self.node.services.address], names)
        self._opening.append((self._stack.enter_context(actor), names))

    def welcome(self, timeout_s: float = 0) -> None:
        """Count those who have arrived, and wait so long for each of the others."""
        opening, self._opening = self._opening, []
        for actor, names in opening:
            if not timeout_s and not actor.has_spoken:
                self._opening.append((actor, names))
                continue
            member: str = actor.hear(timeout_s)["id"]
            self.members[member], self.wanted[member] = actor, names

    def fill(self) -> None:
        """Open as many members as there are to be, each with its share of the services."""
        for number in range(PROCESSES):
            self.begin([NAMES[(number + turn) % SERVICES] for turn in range(WANTED)])
        self.welcome(2 * DEADLINE_S)
        self.settle(DEADLINE_S)

    def take(self, member: str) -> tuple[Actor, list[str]]:
        """Let a member go; another is to take its place."""
        return self.members.pop(member), self.wanted.pop(member)

    def manager(self) -> str | None:
        """Return a manager that is a process, and not the test itself."""
        managers = {self.node.services.manager_of(name) for name in NAMES}
        found = sorted(managers & self.members.keys())
        return random.choice(found) if found else None

    def managed_by(self, member: str) -> list[str]:
        """Return the services of a manager: those it has, and those it is about to have."""
        found = {one.name for one in self.node.services.find(0.2) if one.manager == member}
        expected = {name for name in NAMES if self.node.services.manager_of(name) == member}
        subscribed = self.node.services.statistics().subscribed
        confirmed = {one.name for one in subscribed if one.manager == member}
        return sorted(found | expected | confirmed)

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
        offset_s = time.time() - time.monotonic()
        for name, reader in self._readers.items():
            while (message := reader.receive(0)) is not None:
                self._heard[bytes(message.payload).decode()] += 1
                self.heard[name].append(message.received_ns / SECOND - offset_s)
        return self._heard

    def settle(self, timeout_s: float) -> None:
        """Wait until each list is complete."""
        expected = Counter(name for names in self.wanted.values() for name in names)
        expected.update(NAMES)

        def is_complete() -> bool:
            found = {one.name: one.subscribers for one in self.node.services.find(1.0)}
            return found == expected

        wait_until(is_complete, timeout_s)

    def lost(self) -> list[str]:
        """Return the messages that have not come; wait for them as long as one may take."""
        end_s = time.monotonic() + DETECTION_S
        while missing := self.published.keys() - self.own().keys():
            if time.monotonic() > end_s:
                break
            time.sleep(0.1)
        return sorted(missing)

    def longest_silence(self, kills: list[End]) -> float:
        """Return how long nothing came of a service, at the worst, since a manager was killed."""
        self.own()
        silences = [0.0]
        for name, times in self.heard.items():
            for before, after in pairwise(times):
                # A successor may be killed, too, before anybody has noticed the first.
                begins = [kill.at_s for kill in kills if name in kill.names and kill.at_s < after]
                silences.append(after - max(before, *begins, 0.0))
        return max(silences)


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
    town.fill()
    leaves: list[End] = []
    with town.publishing():
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(1)
            town.welcome()
            leaver = town.manager()
            if leaver is not None:
                leaves.append(End(time.monotonic(), town.managed_by(leaver)))
                actor, names = town.take(leaver)
                actor.tell("leave")
                assert actor.hear() == "left"
                town.begin(names)
    town.welcome(DETECTION_S)
    town.settle(DETECTION_S)
    assert [_describe(one, town.published[one], leaves) for one in town.lost()] == []
    check_once(town.own())


@pytest.mark.soak
def test_killed_managers_cost_no_more_than_the_time_to_notice(town: Town) -> None:
    town.fill()
    kills: list[End] = []
    with town.publishing():
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(1)
            town.welcome()
            victim = town.manager()
            if victim is not None and (not kills or IS_SOAK):
                managed = town.managed_by(victim)
                actor, names = town.take(victim)
                actor.signal(signal.SIGKILL)
                kills.append(End(time.monotonic(), managed))
                town.begin(names)
        time.sleep(DETECTION_S + ROUND_TRIP_S if kills else 0)
    assert kills
    town.welcome(ROUND_TRIP_S)
    town.settle(DETECTION_S + ROUND_TRIP_S)

    lost = [(one, town.published[one]) for one in town.lost()]
    assert [_describe(*one, kills) for one in lost if not _is_near(*one, kills)] == []
    check_once(town.own())
    assert town.longest_silence(kills) <= DETECTION_S + ROUND_TRIP_S
    for actor in town.members.values():
        actor.tell("report")
        report: dict[str, Any] = actor.hear()
        check_once(report)


def _is_near(payload: str, published: float, kills: list[End]) -> bool:
    # What the manager had taken and not yet handed on dies with it; where those who had copies of
    # its list die, too, before that is noticed, the next one begins with the list that it gathers.
    name = payload.split()[0]
    times = [kill.at_s for kill in kills if name in kill.names]
    return any(at_s - 1 <= published <= at_s + DETECTION_S for at_s in times)


def _describe(payload: str, published: float, ends: list[End]) -> str:
    """Say when a message was published, and how long after that somebody went who managed it."""
    name = payload.split()[0]
    nearest = min((end.at_s - published for end in ends if name in end.names), key=abs, default=0)
    others = min((end.at_s - published for end in ends), key=abs, default=0)
    return f"{payload}, {nearest:.2f} s before its manager went, {others:.2f} s before any did"
