"""Subjects of services on real sockets: the manager sends what is wanted, and nothing else."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import hubbub
from tests.integration.bus import DEADLINE_S, wait_until
from tests.integration.test_services_api import Bus

NAME = "plant"


@pytest.fixture
def nodes() -> Iterator[list[hubbub.Node]]:
    with ExitStack() as stack:
        yield Bus(stack).open_many(3)


def publish(node: hubbub.Node, subjects: list[str]) -> list[int | None]:
    service = node.service(NAME)
    return [service.publish(one.encode(), subject=one, wait=DEADLINE_S) for one in subjects]


def take(subscription: hubbub.Subscription, count: int) -> list[str]:
    found = [subscription.receive(DEADLINE_S) for _ in range(count)]
    assert subscription.receive(0) is None
    return [one.subject for one in found if one is not None]


def test_subscriber_gets_what_its_patterns_match(nodes: list[hubbub.Node]) -> None:
    warm = nodes[0].service(NAME).subscribe(patterns="/plant/*/temp")
    everything = nodes[1].service(NAME).subscribe()
    for node in nodes[:2]:
        assert node.service(NAME).wait_until_subscribed(DEADLINE_S)
    subjects = ["/plant/line1/temp", "/plant/line1/speed", "/plant/line2/temp"]
    assert publish(nodes[2], subjects) == [2, 1, 2]
    assert take(warm, 2) == ["/plant/line1/temp", "/plant/line2/temp"]
    assert take(everything, 3) == subjects


def test_subscriptions_of_one_node_want_different_things(nodes: list[hubbub.Node]) -> None:
    service = nodes[0].service(NAME)
    warm, fast = service.subscribe(patterns=["/*/temp"]), service.subscribe(patterns=["/*/speed"])
    assert service.wait_until_subscribed(DEADLINE_S)
    wait_until(lambda: publish(nodes[1], ["/a/speed"]) == [1])
    assert publish(nodes[1], ["/a/temp", "/a/speed", "/a/other"]) == [1, 1, 0]
    assert take(warm, 1) == ["/a/temp"]
    assert set(take(fast, fast.pending)) == {"/a/speed"}
    fast.close()
    wait_until(lambda: publish(nodes[1], ["/b/speed"]) == [0])
    assert publish(nodes[1], ["/b/temp"]) == [1]
    assert take(warm, 1) == ["/b/temp"]


def test_message_without_a_subject_is_for_those_who_want_everything(
    nodes: list[hubbub.Node],
) -> None:
    service = nodes[0].service(NAME)
    service.subscribe(patterns=["/plant/..."])
    assert service.wait_until_subscribed(DEADLINE_S)
    assert nodes[1].service(NAME).publish(b"x", wait=DEADLINE_S) == 0


def test_too_many_patterns_are_looked_at_here(nodes: list[hubbub.Node]) -> None:
    service = nodes[0].service(NAME)
    some = service.subscribe(patterns=[f"/plant/line{number}/temp" for number in range(100)])
    assert service.wait_until_subscribed(DEADLINE_S)
    assert publish(nodes[1], ["/plant/line7/temp", "/plant/line7/speed"]) == [1, 1]
    assert take(some, 1) == ["/plant/line7/temp"]


def test_what_cannot_be_is_refused(nodes: list[hubbub.Node]) -> None:
    service = nodes[0].service(NAME)
    with pytest.raises(hubbub.ConfigurationError, match="leave out patterns"):
        service.subscribe(patterns=["/a/*"], order="total")
    with pytest.raises(hubbub.ConfigurationError, match="without a subject"):
        service.publish(b"x", subject="/a/b", retain=True)
    with pytest.raises(hubbub.SubjectError):
        service.publish(b"x", subject="no/subject/*")
