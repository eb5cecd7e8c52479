"""What receivers are owed: granted from a stated place on, repeated until known, ended in time."""

import pytest

from hubbub.events import GapAbandoned
from hubbub.limits import GRANT_INTERVAL_CEILING, MS, SECOND
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import control
from hubbub.wire.control import Grant
from hubbub.wire.header import (
    CHANGE,
    DATA,
    GOODBYE,
    GRANT,
    HEADER_BYTES,
    HELLO,
    REFUSES,
    SKIP,
    STATUS,
)
from tests.harness import Lan, Node, lose_first, lose_nothing


def grants_of(lan: Lan, publisher: Node) -> list[Grant]:
    found = [
        control.decode(Grant, each.data[HEADER_BYTES:]) for each in lan.sent_of(GRANT, publisher)
    ]
    assert all(found)
    return [grant for grant in found if grant is not None]


def test_newcomer_is_granted_the_next_message_and_nothing_earlier() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    (first,) = lan.open(1)
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.publish(publisher, topic, b"1", b"2")
    lan.run(1 * MS)
    (late,) = lan.open(1)
    lan.publish(publisher, topic, b"3")
    lan.run(10 * MS)
    assert first.payloads("/a") == [b"1", b"2", b"3"]
    assert [(got.sequence, got.payload) for got in late.received] == [(3, b"3")]
    assert late.events_of(GapAbandoned) == []


def test_interest_that_matches_nothing_is_not_granted() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.open(1, "/other/...")
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.publish(publisher, topic, b"for nobody")
    lan.run(100 * MS)
    assert topic.receivers == 0 and topic.next_sequence == 2
    assert lan.sent_of(GRANT) == [] and lan.sent_of(DATA) == []


def test_lost_grant_is_repeated_until_it_is_acknowledged() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    publisher.core.publish_on(lan.now, "/a")
    lan.lose = lose_first(3, kind=GRANT)
    lan.open(1)
    lan.run(5 * SECOND)
    assert len(grants_of(lan, publisher)) == 4
    (peer,) = publisher.core.peers.values()
    assert peer.debt.due_ns is None and peer.debt.has_begun


def test_grant_to_one_who_never_answers_is_repeated_ever_more_slowly() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    publisher.core.publish_on(lan.now, "/a")
    lan.lose = lambda datagram, _: datagram.kind == STATUS
    lan.open(1)
    lan.run(10 * SECOND)
    times = [each.sent_ns for each in lan.sent_of(GRANT)]
    assert len(times) < 30
    assert times[-1] - times[-2] == GRANT_INTERVAL_CEILING


def test_messages_published_before_the_grant_arrives_are_delivered() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(60 * MS)
    lan.lose = lose_first(2, kind=GRANT)
    subscriber = lan.add()
    subscriber.core.subscribe(lan.now, "/a")
    lan.run_until(lambda: topic.receivers == 1, 50 * MS)
    for number in range(20):
        lan.publish(publisher, topic, b"%d" % number)
        lan.run(1 * MS)
    lan.run(200 * MS)
    assert subscriber.payloads("/a") == [b"%d" % number for number in range(20)]


def test_topic_that_begins_later_needs_no_grant_of_its_own() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    publisher.core.publish_on(lan.now, "/a")
    (subscriber,) = lan.open(1)
    granted = len(lan.sent_of(GRANT))
    later = publisher.core.publish_on(lan.now, "/b")
    lan.publish(publisher, later, b"1")
    lan.run(10 * MS)
    assert subscriber.payloads("/b") == [b"1"]
    assert len(lan.sent_of(GRANT)) == granted


def test_first_topic_of_a_stream_is_granted_when_it_begins() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    (subscriber,) = lan.open(1)
    for subject, is_reliable in [("/a", True), ("/b", False)]:
        topic = publisher.core.publish_on(lan.now, subject, is_reliable=is_reliable)
        lan.publish(publisher, topic, b"1")
        lan.run(50 * MS)
        assert subscriber.payloads(subject) == [b"1"]


def test_receiver_that_wants_it_no_longer_is_owed_nothing() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, "/a")
    (subscriber,) = lan.open(1, "/a")
    assert topic.receivers == 1
    subscriber.core.unsubscribe(lan.now, "/a")
    lan.run(50 * MS)
    assert topic.receivers == 0 and not publisher.core.outgoing.flow.receivers
    lan.publish(publisher, topic, b"unheard")
    lan.run(50 * MS)
    assert subscriber.received == []
    subscriber.core.subscribe(lan.now, "/a")
    lan.run(50 * MS)
    lan.publish(publisher, topic, b"heard")
    lan.run(50 * MS)
    assert [(got.sequence, got.payload) for got in subscriber.received] == [(2, b"heard")]
    assert subscriber.events_of(GapAbandoned) == []


def test_one_of_two_equal_subscriptions_keeps_the_interest() -> None:
    lan = Lan(1)
    topic = lan.nodes[0].core.publish_on(lan.now, "/a")
    (subscriber,) = lan.open(1, "/a")
    subscriber.core.subscribe(lan.now, "/a")
    subscriber.core.unsubscribe(lan.now, "/a")
    lan.run(50 * MS)
    assert topic.receivers == 1


def test_many_topics_are_granted_in_parts_that_fit_a_frame() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    subjects = [f"/plant/line{number}/temperature" for number in range(300)]
    topics = [publisher.core.publish_on(lan.now, subject) for subject in subjects]
    lan.lose = lose_first(3, kind=GRANT)
    (subscriber,) = lan.open(1)
    parts = grants_of(lan, publisher)
    assert max(grant.parts for grant in parts) > 3
    assert max(len(each.data) for each in lan.sent) <= 1400
    for topic in topics:
        lan.publish(publisher, topic, b"x")
    lan.run(500 * MS)
    assert sorted(got.subject for got in subscriber.received) == sorted(subjects)


def test_receiver_that_forgot_its_debt_refuses_and_gets_a_new_one() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, "/a")
    (subscriber,) = lan.open(1, "/a")
    lan.publish(publisher, topic, b"1")
    lan.run(50 * MS)
    (peer,) = subscriber.core.peers.values()
    subscriber.core.membership._forget(lan.now, peer, "timeout", is_final=False)
    lan.run(200 * MS)
    assert any(each.header.flags & REFUSES for each in lan.sent_of(STATUS, subscriber))
    (debtor,) = publisher.core.peers.values()
    assert debtor.debt.number == 2
    of_old_debt = lan.sent_of(STATUS, subscriber)[0].data
    publisher.core.receive(lan.now, of_old_debt, 0, subscriber.address)
    assert publisher.drops["old_status"] == 1
    lan.publish(publisher, topic, b"2")
    lan.run(200 * MS)
    assert subscriber.payloads("/a") == [b"1", b"2"]


def test_receiver_that_timed_out_is_still_owed_what_it_missed() -> None:
    lan = Lan(1, heartbeat_ms=100, peer_timeout_ms=300, repair_window_ms=20_000)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, "/a")
    (subscriber,) = lan.open(1)
    lan.publish(publisher, topic, b"before")
    lan.run(10 * MS)
    lan.lose = lambda *_: True
    lan.run(1 * SECOND)
    before = len(lan.sent_of(DATA))
    lan.publish(publisher, topic, b"while away")
    lan.run(1 * SECOND)
    assert len(lan.sent_of(DATA)) == before, "nobody is there to hear it"
    lan.lose = lambda *_: False
    lan.run(2 * SECOND)
    lan.publish(publisher, topic, b"after")
    lan.run(200 * MS)
    assert subscriber.payloads("/a") == [b"before", b"while away", b"after"]
    assert subscriber.events_of(GapAbandoned) == []


def test_goodbye_ends_the_debt_at_once() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, "/a")
    (subscriber,) = lan.open(1)
    subscriber.core.close(lan.now, 1 * SECOND)
    lan.run(10 * MS)
    assert topic.receivers == 0 and not publisher.core.outgoing.flow.receivers


@pytest.mark.parametrize("frames", [1, 30])
def test_request_of_what_is_not_owed_is_answered_by_skip(frames: int) -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    (first,) = lan.open(1)
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.publish(publisher, topic, *[bytes(1000)] * frames)
    lan.run(10 * MS)
    (late,) = lan.open(1)
    (peer,) = (p for p in late.core.peers.values() if p.key == publisher.key)
    late.core.outgoing.endpoint.send(
        peer.address, 5, 1, control.encode_nak(publisher.key, list(range(1, frames + 1)), 1000)
    )
    lan.run(10 * MS)
    assert lan.sent_of(SKIP, publisher)[-1].destination == late.address
    assert publisher.core.outgoing.reliable.repairs_sent == 0
    assert len(first.received) == frames and late.received == []


def begin_to_want(*patterns: str) -> tuple[Lan, Node, OutgoingTopic, Node]:
    """Let a node want something until that is granted, and hear neither that nor be heard again."""
    lan = Lan(2)
    publisher, reader = lan.nodes
    lan.run(60 * MS)
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.lose = lambda datagram, node: node is reader
    for pattern in patterns:
        reader.core.subscribe(lan.now, pattern)
    lan.run_until(lambda: bool(lan.sent_of(GRANT)), 1 * SECOND)
    lan.lose = lambda datagram, node: datagram.kind in (HELLO, CHANGE)
    return lan, publisher, topic, reader


@pytest.mark.parametrize("is_left", [False, True])
def test_grant_that_an_interest_outgrew_still_owes_what_it_names(is_left: bool) -> None:
    """Who began to want something else meanwhile waited for another grant, and lost all of it.

    It had said of each frame that it came. A publisher that closes does not stay for the answer.
    """
    lan, publisher, topic, reader = begin_to_want("/a")
    reader.core.subscribe(lan.now, "/b")
    lan.publish(publisher, topic, b"1", b"2")
    if is_left:
        publisher.core.close(lan.now, 1 * SECOND)
    lan.run(2 * SECOND)
    assert reader.payloads("/a") == [b"1", b"2"]
    assert reader.events_of(GapAbandoned) == []


def test_grant_still_owes_what_it_names_if_another_pattern_ended_that_matched_it_too() -> None:
    """Who wanted less by then held the messages, and dropped them when the publisher closed."""
    lan, publisher, topic, reader = begin_to_want("/*", "/a")
    reader.core.unsubscribe(lan.now, "/*")
    lan.publish(publisher, topic, b"1", b"2")
    publisher.core.close(lan.now, 1 * SECOND)
    lan.run_until(lambda: bool(lan.sent_of(GOODBYE)), 1 * SECOND)
    lan.lose = lose_nothing
    lan.run(2 * SECOND)
    assert reader.payloads("/a") == [b"1", b"2"]
    assert reader.events_of(GapAbandoned) == []


def test_grant_of_what_ended_meanwhile_owes_nothing() -> None:
    """Who wants a subject again begins where that is granted, not where it was wanted before."""
    lan, publisher, topic, reader = begin_to_want("/a")
    reader.core.unsubscribe(lan.now, "/a")
    reader.core.subscribe(lan.now, "/a")
    lan.publish(publisher, topic, b"1")
    lan.run(100 * MS)
    assert reader.received == []
    lan.lose = lose_nothing
    lan.run(2 * SECOND)
    lan.publish(publisher, topic, b"2")
    lan.run(100 * MS)
    assert reader.payloads("/a")[-1:] == [b"2"]
    assert reader.events_of(GapAbandoned) == []
