"""The scenarios in which eCAL and RODOS fail, with pure machines; docs/originals.md lists them."""

import tracemalloc
from random import Random

import pytest
from msgspec.structs import replace

from hubbub.events import GapAbandoned, PeerLeft
from hubbub.limits import MS, SECOND
from hubbub.wire import control, header
from hubbub.wire.control import Hello
from hubbub.wire.header import DATA, HELLO, SEGMENT, STATUS
from tests.harness import Lan, Node, lose_first, lose_share

SUBJECT = "/a/b"
NODES = 35  # More than ten, and more than the bits of a 32-bit bitmap.


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# First message after create.


@pytest.mark.parametrize("is_reliable", [True, False], ids=["reliable", "best_effort"])
def test_first_message_goes_out_in_the_moment_its_publisher_is_made(is_reliable: bool) -> None:
    lan = Lan(1)
    (subscriber,) = lan.open(1)
    publisher = lan.nodes[0]
    lan.run(1 * SECOND)
    topic = publisher.core.publish_on(lan.now, SUBJECT, is_reliable=is_reliable)
    lan.publish(publisher, topic, b"first", b"second")
    assert lan.run_until(lambda: len(subscriber.received) == 2, 20 * MS)
    assert [got.sequence for got in subscriber.received] == [1, 2]


def test_first_message_of_two_nodes_that_open_at_the_same_moment_arrives() -> None:
    lan = Lan(2)
    publisher, subscriber = lan.nodes
    lan.publish(publisher, publisher.core.publish_on(lan.now, SUBJECT), b"first")
    subscriber.core.subscribe(lan.now, SUBJECT)
    assert lan.run_until(lambda: subscriber.payloads(SUBJECT) == [b"first"], 100 * MS)


# Re-subscribe within the timeout.


@pytest.mark.parametrize("has_same_id", [True, False], ids=["same_id", "other_id"])
def test_subscriber_that_died_and_returns_within_the_timeout_gets_the_next_message(
    has_same_id: bool,
) -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    (first,) = lan.open(1)
    lan.publish(publisher, topic, b"before")
    lan.run(50 * MS)
    first.is_running = False  # It says no goodbye, and its timeout is 3 s.
    again = lan.add(number=2 if has_same_id else 0, incarnation=77)
    again.core.subscribe(lan.now, SUBJECT)
    lan.run(100 * MS)
    lan.publish(publisher, topic, b"after")
    assert lan.run_until(lambda: again.payloads(SUBJECT) == [b"after"], 100 * MS)
    assert first.payloads(SUBJECT) == [b"before"]


@pytest.mark.parametrize("lost", [0, 1, 2, 3, 5, 8])
def test_interest_that_ends_and_begins_again_is_served_whatever_announcement_is_lost(
    lost: int,
) -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    (subscriber,) = lan.open(1, SUBJECT)
    lan.run(200 * MS)
    lan.lose = lose_first(lost, sender=subscriber)
    subscriber.core.unsubscribe(lan.now, SUBJECT)
    lan.run(5 * MS)
    subscriber.core.subscribe(lan.now, SUBJECT)
    assert lan.run_until(
        lambda: topic.receivers == 1 and not publisher_waits(publisher), 2 * SECOND
    )
    lan.publish(publisher, topic, b"again")
    assert lan.run_until(lambda: subscriber.payloads(SUBJECT) == [b"again"], 2 * SECOND)
    assert subscriber.events_of(GapAbandoned) == []


def publisher_waits(publisher: Node) -> bool:
    """Tell whether a grant is still to be answered."""
    return any(peer.debt.due_ns is not None for peer in publisher.core.peers.values())


# Lost ack.


def test_lost_acknowledgements_cost_nothing_and_are_asked_for_again() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    (subscriber,) = lan.open(1)
    lan.publish(publisher, topic, b"before")
    lan.run(200 * MS)
    assert publisher.core.outgoing.is_settled()
    lan.lose = lambda datagram, _: datagram.kind == STATUS
    lan.publish(publisher, topic, *numbers(50))
    lan.run(500 * MS)
    assert subscriber.payloads(SUBJECT)[1:] == numbers(50)
    assert not publisher.core.outgoing.is_settled()
    # Nothing new is sent, so an answer is of what came long ago, and had been answered before.
    lan.lose = lambda *_: False
    assert lan.run_until(publisher.core.outgoing.is_settled, 2 * SECOND)
    assert len(subscriber.received) == 51
    assert publisher.core.outgoing.reliable.repairs_sent == 0


def test_publisher_whose_window_is_full_goes_on_when_acknowledgements_come_again() -> None:
    lan = Lan(1, slow_ms=60_000)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    (subscriber,) = lan.open(1)
    lan.lose = lambda datagram, _: datagram.kind == STATUS
    count = 3000
    lan.publish(publisher, topic, *(bytes(1000) for _ in range(count)))
    lan.run(1 * SECOND)
    assert 0 < len(subscriber.received) < count
    lan.lose = lambda *_: False
    assert lan.run_until(lambda: len(subscriber.received) == count, 3 * SECOND)


# Reordering and equal timestamps.


def test_messages_of_one_moment_arrive_in_order_although_their_frames_overtake_each_other() -> None:
    lan = Lan(2, holdback_ms=0)
    topics = {
        node.key: [node.core.publish_on(lan.now, subject) for subject in ("/a", "/b")]
        for node in lan.nodes
    }
    publishers = list(lan.nodes)
    (subscriber,) = lan.open(1)
    lan.jitter_ns = 20 * MS
    clock_ns = 10_000 * SECOND
    for number in range(100):
        for node in publishers:
            for topic in topics[node.key]:
                # All have one time, then the clock is set back by an hour.
                at_ns = clock_ns if number < 50 else clock_ns - 3600 * SECOND
                node.core.outgoing.reliable.framer.add(topic, b"%d" % number, at_ns)
                lan.pump(node)
    lan.run(2 * SECOND)
    data = [each for each in lan.sent_of(DATA) if not each.is_repair]
    assert len(data) > 100, "of messages in one frame nothing can overtake another"
    for node in publishers:
        for subject in ("/a", "/b"):
            got = [
                each.payload
                for each in subscriber.received
                if (each.subject, each.sender) == (subject, node.core.endpoint.identity.id)
            ]
            assert got == numbers(100)


def test_frame_that_comes_again_long_after_is_not_delivered_again() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    (subscriber,) = lan.open(1)
    for number in range(20):
        lan.publish(publisher, topic, b"%d" % number)
        lan.run(1 * MS)
    old = lan.sent_of(DATA)[0]
    for _ in range(3):
        lan.run(6 * SECOND)
        subscriber.core.receive(lan.now, old.data, 0, publisher.address)
        lan.publish(publisher, topic, b"later")
        lan.run(100 * MS)
    assert subscriber.payloads(SUBJECT) == [*numbers(20), *[b"later"] * 3]
    assert subscriber.drops["duplicate"] == 3


# 11th and 33rd node.


def test_eleventh_and_thirty_third_node_hear_and_are_heard_like_the_first() -> None:
    lan = Lan(0)
    nodes = lan.open(NODES)
    publishing = [nodes[0], nodes[10], nodes[32]]
    topics = [node.core.publish_on(lan.now, SUBJECT) for node in publishing]
    assert lan.run_until(lambda: all(t.receivers == NODES - 1 for t in topics), 1 * SECOND)
    for node, topic in zip(publishing, topics, strict=True):
        lan.publish(node, topic, node.key)
    lan.run(50 * MS)
    for node in nodes:
        others = sorted(each.key for each in publishing if each is not node)
        assert sorted(node.payloads(SUBJECT)) == others


def test_node_that_leaves_takes_none_along_whose_number_is_the_same_but_for_its_high_bits() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    numbered = [1 + 32, 1 + 64, 1 + 256, 1 + 65_536, 1 + (1 << 31)]
    nodes = [lan.add(number) for number in numbered]
    for node in nodes:
        node.core.subscribe(lan.now, SUBJECT)
    assert lan.run_until(lambda: topic.receivers == len(nodes), 1 * SECOND)
    nodes[0].core.close(lan.now, 100 * MS)
    lan.run(500 * MS)
    nodes[0].is_running = False
    assert topic.receivers == len(nodes) - 1
    lan.publish(publisher, topic, b"still here")
    lan.run(100 * MS)
    assert [len(node.received) for node in nodes] == [0, 1, 1, 1, 1]
    assert [event.peer.id for event in publisher.events_of(PeerLeft)] == [
        nodes[0].core.endpoint.identity.id
    ]


# Tail loss.


@pytest.mark.parametrize("size", [10, 5_000], ids=["frame", "segments"])
def test_loss_of_all_that_was_sent_last_is_repaired_in_the_silence_behind_it(size: int) -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    subscribers = lan.open(3)
    lan.publish(publisher, topic, b"first")
    lan.run(50 * MS)
    lan.lose = lambda datagram, _: datagram.kind in (DATA, SEGMENT) and not datagram.is_repair
    lan.publish(publisher, topic, bytes(size), bytes(size))
    assert lan.run_until(lambda: all(len(s.received) == 3 for s in subscribers), 200 * MS)


# Forged length, index and fragment number.


def forge(victim: Node, kind: int, body: bytes, number: int = 9) -> bytes:
    """Make a frame that claims to be of some node of the victim's domain."""
    key = header.make_key(number.to_bytes(12, "big"), 1)
    shared = header.prefix(kind, header.OPEN_BITMAP, 0, victim.core.endpoint.domain, key, 8)
    return header.finish(shared, 0, 1, 0, body) + body


@pytest.mark.parametrize("known", [0, 12_000], ids=["short", "long"])
def test_parts_of_an_announcement_that_never_ends_claim_little_memory(known: int) -> None:
    lan = Lan(1)
    victim = lan.nodes[0]
    lan.run(100 * MS)
    sound = control.decode(Hello, lan.sent_of(HELLO)[0].data[header.HEADER_BYTES :])
    assert sound is not None
    bodies = [
        control.encode(replace(sound, part=part, parts=65_535, known=[1 << 31] * known))
        for part in (*range(60), 65_534, 65_535)
    ]
    tracemalloc.start()
    try:
        for body in bodies:
            victim.core.receive(lan.now, forge(victim, HELLO, body), 0, ("10.9.9.9", 1))
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()
    assert not any(peer.is_known for peer in victim.core.peers.values())


# More names than a datagram holds.


def test_interests_and_topics_beyond_64_kib_are_known_in_full_despite_loss() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    (early,) = lan.open(1)
    subjects = [f"/plant/{'n' * 50}/{number:04d}" for number in range(1200)]
    assert sum(map(len, subjects)) > 1 << 16
    lan.lose = lose_share(Random(5), 0.1)
    topics = [publisher.core.publish_on(lan.now, subject) for subject in subjects]
    for topic in topics:  # So all are declared, and only a grant can name them to who comes later.
        lan.publish(publisher, topic, b"early")
    assert lan.run_until(lambda: len(early.received) == len(subjects), 10 * SECOND)
    late = lan.add()
    for subject in subjects:
        late.core.subscribe(lan.now, subject)
    assert lan.run_until(lambda: all(t.receivers == 2 for t in topics), 10 * SECOND)
    for topic in topics:
        lan.publish(publisher, topic, topic.subject.encode())
    assert lan.run_until(lambda: len(late.received) == len(subjects), 10 * SECOND)
    assert all(got.payload == got.subject.encode() for got in late.received)


# 1000+ entities.


def test_thousands_of_publishers_and_subscriptions_find_each_other_and_then_are_silent() -> None:
    lan = Lan(4)
    lan.run(100 * MS)
    topics = []
    for place, node in enumerate(lan.nodes):
        for number in range(300):
            topics.append(node.core.publish_on(lan.now, f"/of/{place}/{number}"))
            node.core.subscribe(lan.now, f"/of/{(place + 1) % 4}/{number}")
    assert lan.run_until(lambda: all(t.receivers == 1 for t in topics), 1 * SECOND)
    lan.run(2 * SECOND)
    at_rest = len(lan.sent)
    lan.run(10 * SECOND)
    for node in lan.nodes:
        mine = [each for each in lan.sent[at_rest:] if each.sender is node]
        assert sum(len(each.data) for each in mine) <= 10 * 200, "bytes in ten seconds"
    for topic in topics:
        owner = next(n for n in lan.nodes if topic in n.core.outgoing.topics.values())
        lan.publish(owner, topic, b"x")
    lan.run(1 * SECOND)
    assert [len(node.received) for node in lan.nodes] == [300] * 4


# What is beyond the list.


@pytest.mark.parametrize("is_clean", [True, False], ids=["goodbye", "killed"])
def test_each_of_many_that_leave_at_once_is_reported(is_clean: bool) -> None:
    lan = Lan(1, heartbeat_ms=100, peer_timeout_ms=300)
    observer = lan.nodes[0]
    nodes = lan.open(12)
    for node in nodes:
        if is_clean:
            node.core.close(lan.now, 100 * MS)
        else:
            node.is_running = False
    lan.run(1 * SECOND)
    left = [event.peer.id for event in observer.events_of(PeerLeft)]
    assert sorted(left) == sorted(node.core.endpoint.identity.id for node in nodes)
