"""Batches of a subscription: all that came of one topic in a frame."""

import pytest

from hubbub.errors import ClosedError, ConfigurationError
from hubbub.message import Message
from tests.unit.runtime.fakes import LIDAR, FakeNode, FakeTopic, run
from tests.unit.test_subscription import open_on, sequences


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


def test_batches_are_what_came_together(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 3), "context")
    subscription.deliver(run(4, 1), "context")
    subscription.close()
    first, second = subscription.batches()
    assert (first.subject, first.source, first.first) == ("/plant/temp", LIDAR, 1)
    assert (first.payloads, list(first.published_ns)) == ([b"1", b"2", b"3"], [1001, 1002, 1003])
    assert (first.received_ns, first.context, len(first)) == (77, "context", 3)
    assert list(second) == [
        Message("/plant/temp", b"4", LIDAR, 4, 1004, 77, "multicast", "context")
    ]


def test_batches_and_messages_share_one_queue(node: FakeNode) -> None:
    subscription = open_on(node)
    subscription.deliver(run(1, 4), None)
    subscription.deliver(run(5, 2), None)
    assert next(iter(subscription)).sequence == 1
    rest = subscription.receive_batch(timeout=0)
    assert rest is not None
    assert [message.sequence for message in rest] == [2, 3, 4]
    assert [message.payload for message in rest] == rest.payloads == [b"2", b"3", b"4"]
    assert (subscription.pending, subscription.statistics().delivered) == (2, 4)
    assert sequences(subscription) == [5, 6]
    assert subscription.receive_batch(timeout=0) is None


def test_batches_of_a_replay_say_so(node: FakeNode) -> None:
    subscription = open_on(node)
    topic = FakeTopic("/plant/temp", LIDAR)
    topic.replayed_ns = 12
    subscription.deliver(run(1, 2, topic), None)
    batch = subscription.receive_batch(timeout=0)
    assert batch is not None and batch.replayed_ns == 12
    assert [message.replayed_ns for message in batch] == [12, 12]


def test_batches_end_as_iteration_does(node: FakeNode) -> None:
    closed = open_on(node)
    closed.close()
    assert list(closed.batches()) == []
    broken = open_on(node, queue=1, overflow="disconnect")
    broken.deliver(run(1, 3), None)
    batches = broken.batches()
    assert next(batches).payloads == [b"1"]
    with pytest.raises(ClosedError, match="too slow for its queue"):
        next(batches)


def test_batches_of_a_typed_subscription_are_refused(node: FakeNode) -> None:
    with pytest.raises(ConfigurationError, match="decoded one by one"):
        open_on(node, type=int).receive_batch(timeout=0)
