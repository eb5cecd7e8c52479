"""Ordinary subjects by services: nodes that know one other, and publish and subscribe as ever."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import hubbub
from tests.integration.bus import DEADLINE_S, fresh_place, wait_until


class Nodes:
    """Nodes without multicast and without a connection, who know the first of them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._domain = fresh_place().domain
        self._all: list[hubbub.Node] = []

    def open(self, **options: Any) -> hubbub.Node:
        peers = [self._all[0].services.address] if self._all else None
        node = hubbub.open(
            f"n{len(self._all)}", domain=self._domain, interface="127.0.0.1", multicast=False,
            listen=0, peers=peers, links=["services"], **options,
        )  # fmt: skip
        self._stack.callback(node.close)
        self._all.append(node)
        return node

    def open_many(self, count: int, **options: Any) -> list[hubbub.Node]:
        nodes = [self.open(**options) for _ in range(count)]
        for node in nodes:
            assert node.services.wait_for_members(count - 1, DEADLINE_S)
        return nodes


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(stack)


def wait_for_reader(node: hubbub.Node, subject: str, count: int = 1) -> None:
    """Publish until the manager tells of so many who want it."""
    publisher = node.publisher(subject)

    def is_wanted() -> bool:
        publisher.publish(b"is anybody there?")
        return node.flush(DEADLINE_S) and publisher.publish(b"is anybody there?") >= count

    wait_until(is_wanted)


def take(subscription: hubbub.Subscription, wanted: bytes) -> hubbub.Message:
    """Return the first message with this payload."""
    while True:
        message = subscription.receive(DEADLINE_S)
        assert message is not None, f"{wanted!r} did not come"
        if message.payload == wanted:
            return message


def test_message_reaches_a_node_that_its_publisher_does_not_know_of(nodes: Nodes) -> None:
    between, here, there = nodes.open_many(3)
    assert here.peers() == there.peers() == between.peers() == ()
    subscription = there.subscribe("/plant/*/temp")
    wait_for_reader(here, "/plant/line1/temp")
    here.publish("/plant/line1/speed", b"20")
    here.publish("/plant/line1/temp", b"21.5")
    message = take(subscription, b"21.5")
    assert (message.subject, message.source.id, message.link) == (
        "/plant/line1/temp", here.id, "services",
    )  # fmt: skip
    assert subscription.receive(0) is None


def test_pattern_that_begins_with_a_wildcard_hears_every_service(nodes: Nodes) -> None:
    _, here, there = nodes.open_many(3)
    subscription = there.subscribe("/*/temp")
    for subject in ("/plant/temp", "/yard/temp"):
        wait_for_reader(here, subject)
        here.publish(subject, subject.encode())
        assert take(subscription, subject.encode()).subject == subject
    subscription.close()
    wait_until(lambda: here.flush(DEADLINE_S) and not here.publish("/plant/temp", b"anybody?"))


def test_messages_of_a_subject_come_in_order_and_once(nodes: Nodes) -> None:
    _, here, there = nodes.open_many(3)
    subscription = there.subscribe("/plant/...", queue=10_000)
    wait_for_reader(here, "/plant/count")
    for number in range(2000):
        here.publish("/plant/count", b"%d" % number)
    take(subscription, b"0")
    rest = [subscription.receive(DEADLINE_S) for _ in range(1999)]
    assert [one and one.payload for one in rest] == [b"%d" % number for number in range(1, 2000)]


def test_publisher_waits_for_subscribers_that_the_manager_tells_of(nodes: Nodes) -> None:
    _, here, there = nodes.open_many(3)
    publisher = here.publisher("/plant/line1/temp")
    assert not publisher.wait_for_subscribers(1, 0.3) and not publisher.is_connected
    subscription = there.subscribe("/plant/*/temp")
    own = here.subscribe("/plant/...")  # Which is none of the other nodes'.
    assert publisher.wait_for_subscribers(1, DEADLINE_S)
    assert publisher.is_connected and publisher.receivers == 1
    assert not publisher.wait_for_subscribers(2, 0.3)
    publisher.publish(b"21.5")
    assert take(subscription, b"21.5").subject == take(own, b"21.5").subject
    wild = nodes.open().subscribe("/*/*/temp")
    assert publisher.wait_for_subscribers(2, DEADLINE_S)
    assert wild is not None and not here.publisher("/plant/line1/speed").is_connected


def test_own_subscription_has_a_message_once(nodes: Nodes) -> None:
    _, node = nodes.open_many(2)
    subscription = node.subscribe("/plant/...")
    assert node.publish("/plant/x", b"own") >= 1
    assert node.flush(DEADLINE_S)
    assert take(subscription, b"own").source.id == node.id
    assert subscription.receive(0.1) is None


def test_typed_payloads_travel_by_services(nodes: Nodes) -> None:
    _, here, there = nodes.open_many(2 + 1)
    subscription = there.subscribe("/plant/typed", type=dict[str, int])
    publisher = here.publisher("/plant/typed", type=dict[str, int])
    wait_until(lambda: publisher.publish({"a": 1}) > 0 or not here.flush(DEADLINE_S))
    publisher.publish({"b": 2})
    assert any(subscription.receive(DEADLINE_S).payload == {"b": 2} for _ in range(20))


def test_second_level_may_name_the_service_too(nodes: Nodes) -> None:
    options = hubbub.ServiceOptions(service_levels=2)
    _, here, there = nodes.open_many(3, services=options)
    exact, wild = there.subscribe("/plant/line1/temp"), there.subscribe("/plant/*/speed")
    for subject, subscription in (("/plant/line1/temp", exact), ("/plant/line1/speed", wild)):
        wait_for_reader(here, subject)
        here.publish(subject, b"now")
        assert take(subscription, b"now").subject == subject
    found = {one.name.split(" ")[1] for one in here.services.find(1.0)}
    assert found == {"/plant/line1"}


def test_what_subjects_do_not_have_by_services_is_refused(nodes: Nodes) -> None:
    node = nodes.open()
    with pytest.raises(hubbub.ConfigurationError, match="history, acknowledge_ms"):
        node.publisher("/a/b", history=1, acknowledge_ms=10)
    with pytest.raises(hubbub.ConfigurationError, match="history"):
        node.subscribe("/a/b", history=True)
    with pytest.raises(hubbub.PayloadError, match="60000"):
        node.publish("/a/b", bytes(60_001))
    with pytest.raises(hubbub.ConfigurationError, match="all subjects, or none"):
        hubbub.open(links=["services", "tcp"])
    with pytest.raises(hubbub.ConfigurationError, match="service_levels=0"):
        hubbub.ServiceOptions(service_levels=0)
