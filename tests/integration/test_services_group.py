"""Services whose subscribers hear a group: nodes and processes on loopback, and the group cut."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import hubbub
from hubbub.limits import GROUP_MIN
from tests.integration.bus import (
    DEADLINE_S,
    Place,
    acting,
    descriptors,
    fresh_place,
    hear,
    payloads,
    say,
    take,
    wait_until,
)
from tests.integration.namespace import ip, run_scenario

NAME = "hype-news"
COUNT = 200


class Bus:
    """Nodes that share services and a group."""

    def __init__(self, stack: ExitStack, **options: Any) -> None:
        self._stack = stack
        self._options = options
        self.place = fresh_place()
        self.nodes: list[hubbub.Node] = []
        self.readers: list[hubbub.Subscription] = []
        self._published = 0

    def open(self, **options: Any) -> hubbub.Node:
        options = {**self._options, "services": True, **options}
        node = self._stack.enter_context(self.place.open(**options))
        self.nodes.append(node)
        return node

    def subscribe(self, count: int) -> None:
        """Open nodes that subscribe, and let one of them be the manager of all."""
        nodes = [self.open() for _ in range(count)]
        for node in nodes:
            assert node.services.wait_for_members(count - 1, DEADLINE_S)
        self.readers += [node.service(NAME).subscribe(queue=10**5) for node in nodes]
        wait_until(lambda: self._is_agreed(count))

    def _is_agreed(self, count: int) -> bool:
        names = {node.service(NAME).manager for node in self.nodes}
        counts = {len(node.service(NAME).subscribers or ()) for node in self.nodes}
        return len(names) == 1 and counts <= {0, count} and count in counts

    @property
    def manager(self) -> hubbub.Node:
        found = self.nodes[0].service(NAME).manager
        return next(node for node in self.nodes if node.id.hex() == found)

    def counters(self, node: hubbub.Node | None = None) -> Counter[str]:
        services = (node or self.manager).statistics().services
        assert services is not None
        return Counter(services.counters)

    def publish(self, count: int = COUNT) -> None:
        """Publish one by one, and see that everybody has each once."""
        first = self._published
        self._published += count
        sent = [b"%d" % number for number in range(first, first + count)]
        service = self.nodes[0].service(NAME)
        for payload in sent:
            service.publish(payload, wait=DEADLINE_S)
        for reader in self.readers:
            assert sorted(payloads(take(reader, count))) == sorted(sent)

    def publish_by_group(self, count: int) -> None:
        """Publish until so many went to the group: where a machine is busy, answers come late."""

        def is_so() -> bool:
            self.publish(20)
            return self.counters()["group_frames"] >= count

        wait_until(is_so)

    def check_nothing_else_came(self) -> None:
        for reader in self.readers:
            assert reader.receive(0.05) is None


@pytest.fixture
def bus() -> Iterator[Bus]:
    with ExitStack() as stack:
        yield Bus(stack)


def test_message_goes_once_to_all_who_hear_the_group(bus: Bus) -> None:
    bus.subscribe(5)
    bus.publish_by_group(COUNT)
    bus.check_nothing_else_came()
    spent = bus.counters()
    assert spent["group_receivers"] >= GROUP_MIN * spent["group_frames"]
    heard = sum(bus.counters(node)["group_heard"] for node in bus.nodes)
    assert heard >= COUNT


def share_a_group_of_ipv6() -> None:
    ip("-6 route add local ff00::/8 dev lo table local")
    port = fresh_place().port
    channel = hubbub.Channel(f"ff02::72:{port:x}", port)
    with ExitStack() as stack:
        bus = Bus(stack, channels=[channel], interface="::1")
        bus.subscribe(4)
        bus.publish_by_group(20)
        bus.check_nothing_else_came()
        assert sum(bus.counters(node)["group_heard"] for node in bus.nodes) >= 20


@pytest.mark.netns
def test_message_goes_once_to_all_who_hear_a_group_of_ipv6() -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    run_scenario(share_a_group_of_ipv6)


def test_group_that_falls_silent_delays_and_loses_nothing_else(bus: Bus) -> None:
    bus.subscribe(5)
    bus.publish_by_group(20)
    for node in bus.nodes:
        listener = node.services.driver.listener
        assert listener is not None
        listener._ear.leave()

    def is_nobody_counted_on() -> bool:
        before = bus.counters()["group_frames"]
        bus.publish()
        return bus.counters()["group_frames"] == before

    wait_until(is_nobody_counted_on)
    bus.check_nothing_else_came()
    assert bus.counters()["group_missed"]


def test_who_does_not_hear_the_group_has_its_messages_by_itself(bus: Bus) -> None:
    bus.subscribe(6)
    deaf = next(node for node in bus.nodes if node is not bus.manager)
    listener = deaf.services.driver.listener
    assert listener is not None
    listener._ear.leave()
    bus.publish_by_group(COUNT)
    bus.check_nothing_else_came()
    assert bus.counters(deaf)["group_heard"] == 0


def test_few_subscribers_need_no_group(bus: Bus) -> None:
    bus.subscribe(GROUP_MIN)  # One of them is the manager.
    bus.publish()
    assert not bus.counters()["group_frames"] and not bus.counters()["group_trials"]


def test_node_that_subscribes_to_nothing_does_not_listen(bus: Bus) -> None:
    node = bus.open()
    node.service(NAME).publish(b"21")
    assert node.services.driver.listener is None
    node.service(NAME).subscribe()
    assert node.services.driver.listener is not None


def test_node_without_multicast_opens_no_group(bus: Bus) -> None:
    node = bus.open(multicast=False, links=["tcp"], listen=0)
    node.service(NAME).subscribe()
    assert node.services.driver.listener is None
    assert node.services.driver.machine.group.place is None


def test_socket_of_the_group_is_closed_with_its_node() -> None:
    before = descriptors()
    with fresh_place().open(services=True) as node:
        node.service(NAME).subscribe()
        assert node.services.driver.listener is not None
    wait_until(lambda: descriptors() <= before)


def play_subscriber(group: str, port: int, domain: str, count: int) -> None:
    """Subscribe, and tell what came."""
    with Place(group, port, domain).open(services=True) as node:
        reader = node.service(NAME).subscribe(queue=10**5)
        assert node.service(NAME).wait_until_subscribed(DEADLINE_S)
        say("subscribed")
        heard = [bytes(message.payload).decode() for message in take(reader, count)]
        say(heard)
        assert hear() == "report"
        more = reader.receive(0.05)
        services = node.statistics().services
        assert services is not None
        say({"more": more is not None, "counters": services.counters})


def test_processes_hear_the_group_of_a_manager() -> None:
    place, sent = fresh_place(), [str(number) for number in range(COUNT)]
    with ExitStack() as stack:
        node = stack.enter_context(place.open(services=True))
        actors = [stack.enter_context(acting(play_subscriber, *place, COUNT)) for _ in range(4)]
        for actor in actors:
            assert actor.hear() == "subscribed"
        assert node.services.wait_for_members(4, DEADLINE_S)
        service = node.service(NAME)
        for payload in sent:
            assert service.publish(payload.encode(), wait=DEADLINE_S) == 4
        for actor in actors:
            assert sorted(actor.hear()) == sorted(sent)
        heard: Counter[str] = Counter()
        for actor in actors:
            actor.tell("report")
            told = actor.hear()
            assert not told["more"]
            heard.update(told["counters"])
        assert heard["group_heard"] >= 10  # More than a trial or two, also where all is late.
