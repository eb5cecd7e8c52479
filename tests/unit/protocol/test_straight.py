"""The way of frames to the only receiver: straight to it, and what happens when others come."""

from hubbub.limits import MS, SECOND, STRAIGHT_CALM
from hubbub.protocol.burst import Pipes
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire.header import DATA
from tests.harness import Lan, Node


def meet() -> tuple[Lan, Node, Node, OutgoingTopic]:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    topic = publisher.core.publish_on(lan.now, "/a")
    (subscriber,) = lan.open(1, "/a")
    return lan, publisher, subscriber, topic


def publish(lan: Lan, publisher: Node, topic: OutgoingTopic) -> object:
    """Publish a message; return where its frame went."""
    lan.publish(publisher, topic, b"x")
    lan.run(30 * MS)
    return lan.sent_of(DATA, publisher)[-1].destination


def test_frames_for_one_receiver_go_straight_to_it() -> None:
    lan, publisher, subscriber, topic = meet()
    assert publish(lan, publisher, topic) == subscriber.address
    assert subscriber.payloads("/a") == [b"x"]


def test_frames_go_to_the_group_while_there_is_another_and_until_all_is_calm() -> None:
    lan, publisher, subscriber, topic = meet()
    (second,) = lan.open(1, "/a")
    assert publish(lan, publisher, topic) is None
    second.core.close(lan.now, 1 * SECOND)
    lan.run(100 * MS)
    assert publish(lan, publisher, topic) is None
    lan.run(STRAIGHT_CALM)
    assert publish(lan, publisher, topic) == subscriber.address
    assert len(subscriber.received) == 3 and len(second.received) == 1


def test_second_receiver_within_the_calm_begins_it_anew() -> None:
    lan, publisher, subscriber, topic = meet()
    for _ in range(2):
        (second,) = lan.open(1, "/a")
        second.core.close(lan.now, 1 * SECOND)
        lan.run(STRAIGHT_CALM - 1 * SECOND)
    assert publish(lan, publisher, topic) is None
    lan.run(2 * SECOND)
    assert publish(lan, publisher, topic) == subscriber.address


def test_each_stream_has_its_own_way() -> None:
    lan, publisher, subscriber, topic = meet()
    lan.open(1, "/best")
    best = publisher.core.publish_on(lan.now, "/best", is_reliable=False)
    lan.run(30 * MS)
    assert publish(lan, publisher, topic) == subscriber.address
    assert publish(lan, publisher, best) == lan.nodes[-1].address


def test_frames_follow_a_receiver_that_has_moved() -> None:
    lan, publisher, subscriber, topic = meet()
    publish(lan, publisher, topic)
    subscriber.address = ("10.0.0.77", 1234)
    lan.run(2 * SECOND)
    assert publish(lan, publisher, topic) == ("10.0.0.77", 1234)
    assert len(subscriber.received) == 2


def test_receiver_heard_by_a_pipe_only_has_no_address_to_go_straight_to() -> None:
    lan, publisher, subscriber, _ = meet()
    peer = publisher.core.peers[subscriber.key]
    peer.address = Pipes((subscriber.key,))
    publisher.core.reroute(lan.now)
    assert publisher.core.outgoing.reliable.framer.destination is None


def test_rest_of_a_large_message_that_nobody_wants_any_more_is_not_sent() -> None:
    lan, publisher, subscriber, topic = meet()
    publish(lan, publisher, topic)
    framer = publisher.core.outgoing.reliable.framer
    framer.add(topic, bytes(100_000), lan.now)
    framer.add(topic, b"behind it", lan.now)
    assert publisher.core.next_burst(lan.now) is not None
    subscriber.core.unsubscribe(lan.now, "/a")
    publisher.core.outgoing.grants.forget(publisher.core.peers[subscriber.key])
    assert publisher.core.next_burst(lan.now) is None
    assert not framer.has_work and framer.large_bytes == 0 and not framer.behind
    assert topic.next_sequence == 4
