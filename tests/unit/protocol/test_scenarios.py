"""The scenarios that the Java Multicast Distributor fails, with pure machines.

Numbers are those of its acceptance list; what needs sockets or subscriptions is tested elsewhere.
"""

from random import Random

import pytest

from hubbub.events import Closed, GapAbandoned, Nagging, PeerJoined, PeerLeft, SlowConsumer
from hubbub.limits import MS, SECOND
from hubbub.wire.header import DATA, NAK, SEGMENT
from tests.harness import Lan, Node, lose_first, lose_share

SUBJECT = "/a/b"


def open_lan(receivers: int, **options: object) -> tuple[Lan, Node, list[Node]]:
    """Return a lan on which the first node is about to publish and the others want all."""
    lan = Lan(1, **options)
    return lan, lan.nodes[0], lan.open(receivers)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_1_messages_of_any_size_arrive_equal_and_in_order_despite_loss(share: float) -> None:
    lan, publisher, (subscriber,) = open_lan(1)
    random = Random(7)
    sizes = [1, 5_000_000, 0, *(int(10 ** random.uniform(0, 5.3)) for _ in range(60))]
    payloads = [random.randbytes(size) for size in sizes]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(10 * MS)
    lan.lose = lose_share(Random(1), share)
    lan.jitter_ns = 200_000
    lan.publish(publisher, topic, *payloads)
    lan.run_until(lambda: len(subscriber.received) == len(payloads), 60 * SECOND)
    assert subscriber.payloads(SUBJECT) == payloads
    assert subscriber.events_of(GapAbandoned) == []


def test_2_two_publishers_with_the_same_sequences_do_not_mix() -> None:
    lan = Lan(2)
    first, second = lan.nodes
    (subscriber,) = lan.open(1)
    topics = [node.core.publish_on(lan.now, SUBJECT) for node in (first, second)]
    lan.run(10 * MS)
    lost = {4, 5, 9}
    lan.lose = lambda datagram, _: (
        datagram.sender is first and datagram.sequence in lost and not datagram.is_repair
    )
    for number in range(20):
        for node, topic in zip((first, second), topics, strict=True):
            lan.publish(node, topic, b"%d" % number)
        lan.run(1 * MS)
    lan.run(1 * SECOND)
    for node in (first, second):
        got = [
            each.payload
            for each in subscriber.received
            if each.sender == node.core.endpoint.identity.id
        ]
        assert got == [b"%d" % number for number in range(20)]


def test_3_frame_older_than_the_cache_is_reported_with_its_range_and_the_stream_goes_on() -> None:
    # Only who is left behind can miss what the cache no longer has.
    lan, publisher, (subscriber,) = open_lan(1, cache_bytes=4096, slow_ms=20)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(10 * MS)
    begun = lan.now
    lan.lose = lambda datagram, _: (
        datagram.kind == SEGMENT or (datagram.kind == DATA and datagram.sequence < 4)
    )
    lan.publish(publisher, topic, *(bytes(1000) for _ in range(12)))
    is_reported = lan.run_until(lambda: bool(subscriber.events_of(GapAbandoned)), 1 * SECOND)
    assert is_reported and lan.now - begun < 100 * MS
    lan.lose = lambda *_: False
    lan.publish(publisher, topic, b"later")
    lan.run(1 * SECOND)
    (gap,) = subscriber.events_of(GapAbandoned)
    got = [each.sequence for each in subscriber.received]
    assert (gap.subject, gap.reason, gap.first) == (SUBJECT, "too_slow", 1)
    assert got == list(range(gap.last + 1, 14))
    assert subscriber.received[-1].payload == b"later"


def test_4_lost_last_datagram_is_recovered_within_100_ms_of_silence() -> None:
    lan, publisher, (subscriber,) = open_lan(1)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(10 * MS)
    lan.publish(publisher, topic, b"first")
    lan.run(5 * MS)
    lan.lose = lose_first(1, kind=DATA)
    lan.publish(publisher, topic, b"last")
    assert lan.run_until(lambda: len(subscriber.received) == 2, 100 * MS)


def test_5_late_joiner_gets_the_next_message_within_100_ms_of_joining() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(1 * SECOND)
    joiner = lan.add()
    joiner.core.subscribe(lan.now, SUBJECT)
    joined = lan.now
    while not joiner.received and lan.now - joined < 1 * SECOND:
        lan.publish(publisher, topic, b"update")
        lan.run(1 * MS)
    assert lan.now - joined < 100 * MS


def test_6_twenty_subscribers_that_lose_the_same_frame_ask_about_once() -> None:
    lan, publisher, subscribers = open_lan(20)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(50 * MS)
    losses = 40
    lan.jitter_ns = 50_000
    for number in range(losses):
        lost = publisher.core.outgoing.reliable.next_sequence
        lan.lose = lambda datagram, _, lost=lost: (
            datagram.kind == DATA and datagram.sequence == lost and not datagram.is_repair
        )
        lan.publish(publisher, topic, b"%d" % number, b"next")
        lan.publish(publisher, topic, b"behind")
        lan.run(200 * MS)
    assert all(len(node.received) == 3 * losses for node in subscribers)
    assert len(lan.sent_of(NAK)) <= 2.2 * losses
    assert publisher.core.outgoing.reliable.repairs_sent <= 1.2 * losses


def test_7_closed_publisher_is_reported_at_once() -> None:
    lan, publisher, (subscriber,) = open_lan(1)
    publisher.core.close(lan.now, 1 * SECOND)
    assert lan.run_until(lambda: bool(subscriber.events_of(PeerLeft)), 5 * MS)
    assert [event.reason for event in subscriber.events_of(PeerLeft)] == ["closed"]


def test_7_killed_publisher_is_reported_within_its_timeout() -> None:
    lan, publisher, (subscriber,) = open_lan(1, heartbeat_ms=100, peer_timeout_ms=300)
    lan.run(1 * SECOND)
    publisher.is_running = False
    assert lan.run_until(lambda: bool(subscriber.events_of(PeerLeft)), 345 * MS)
    lan.run(5 * SECOND)
    assert [event.reason for event in subscriber.events_of(PeerLeft)] == ["timeout"]


@pytest.mark.parametrize("clock_ns", [0, -3600 * SECOND])
def test_8_restart_under_the_same_id_and_address_is_a_new_peer(clock_ns: int) -> None:
    lan, old, (subscriber,) = open_lan(1, now=7200 * SECOND)
    topic = old.core.publish_on(lan.now, SUBJECT)
    lan.run(10 * MS)
    lan.publish(old, topic, b"old 1", b"old 2")
    lan.run(1 * MS)
    old.is_running = False
    new = lan.add(number=1, incarnation=77)
    new.address = old.address
    new.core.endpoint.wall_offset_ns = clock_ns
    again = new.core.publish_on(lan.now, SUBJECT)
    lan.run(60 * MS)
    lan.publish(new, again, b"new 1")
    lan.run(100 * MS)
    assert subscriber.payloads(SUBJECT) == [b"old 1", b"old 2", b"new 1"]
    assert [event.reason for event in subscriber.events_of(PeerLeft)] == ["restarted"]
    assert len(subscriber.events_of(PeerJoined)) == 2
    assert subscriber.events_of(GapAbandoned) == []


def test_11_rate_limit_holds_within_ten_percent_with_repairs() -> None:
    lan, publisher, (subscriber,) = open_lan(1, rate_limit_bits=1_000_000)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(100 * MS)
    lan.lose = lose_share(Random(3), 0.1)
    begun, before = lan.now, len(lan.sent)
    for _ in range(500):
        while publisher.core.outgoing.reliable.framer.pending_count < 10:
            lan.publish(publisher, topic, bytes(1000))
        lan.run(10 * MS)
    sent = [each for each in lan.sent[before:] if each.sender is publisher]
    assert any(each.is_repair for each in sent)
    bits = sum(8 * len(each.data) for each in sent if each.kind in (DATA, SEGMENT))
    assert 0.9e6 <= bits * SECOND / (lan.now - begun) <= 1.1e6
    assert len(subscriber.received) > 400


def test_12_quiet_sender_sends_each_message_at_once_in_a_datagram_of_its_own() -> None:
    lan, publisher, (subscriber,) = open_lan(1)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(10 * MS)
    for number in range(100):
        published = lan.now
        lan.publish(publisher, topic, b"%d" % number)
        lan.run(1 * MS)
        assert subscriber.received[-1].received_ns - published == lan.delay_ns
    assert len(lan.sent_of(DATA)) == 100


def test_12_busy_sender_fills_frames_and_none_waits_longer_than_the_holdback() -> None:
    lan, publisher, (subscriber,) = open_lan(1, holdback_ms=2)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(10 * MS)
    published = {}
    for number in range(2000):
        published[b"%d" % number] = lan.now
        lan.publish(publisher, topic, b"%d" % number)
        lan.run(10_000)
    lan.run(10 * MS)
    waits = [got.received_ns - published[got.payload] for got in subscriber.received]
    assert len(waits) == 2000
    assert max(waits) <= lan.delay_ns + 2 * MS
    assert len(lan.sent_of(DATA)) < 100


def test_13_steady_loss_nags_exactly_once_and_requests_stop() -> None:
    options = {"nagging_window_ms": 4_000, "nagging_check_ms": 60_000, "nagging_requests": 15}
    lan, publisher, (subscriber,) = open_lan(1, **options)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lose_steadily(lan, publisher, topic, 90)
    (event,) = subscriber.events_of(Nagging)
    assert (event.seconds, event.policy) == (60, "suspend")
    naks = len(lan.sent_of(NAK))
    lose_steadily(lan, publisher, topic, 30)
    assert len(lan.sent_of(NAK)) == naks
    assert len(subscriber.events_of(Nagging)) == 1


def test_13_loss_that_pauses_for_one_window_does_not_nag() -> None:
    options = {"nagging_window_ms": 4_000, "nagging_check_ms": 60_000, "nagging_requests": 15}
    lan, publisher, (subscriber,) = open_lan(1, **options)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    for _ in range(3):
        lose_steadily(lan, publisher, topic, 48)
        lan.lose = lambda *_: False
        lan.run(8 * SECOND)
    assert len(lan.sent_of(NAK)) > 60
    assert subscriber.events_of(Nagging) == []


def lose_steadily(lan: Lan, publisher: Node, topic: object, seconds: int) -> None:
    """Lose every other frame once for so long."""
    lan.lose = lambda datagram, _: (
        datagram.kind == DATA and datagram.sequence % 2 == 0 and not datagram.is_repair
    )
    for _ in range(seconds):
        lan.publish(publisher, topic, b"lost or not")  # type: ignore[arg-type]
        lan.run(1 * SECOND)


def test_15_receiver_that_stops_is_left_behind_and_the_others_go_on() -> None:
    lan, publisher, (healthy, stopped) = open_lan(2)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(50 * MS)
    lan.lose = lambda datagram, node: node is stopped and datagram.kind in (DATA, SEGMENT)
    count = 4000
    lan.publish(publisher, topic, *(bytes(1000) for _ in range(count)))
    assert lan.run_until(lambda: len(healthy.received) == count, 2 * SECOND)
    (event,) = publisher.events_of(SlowConsumer)
    assert event.peer == stopped.core.endpoint.source
    assert publisher.core.outgoing.cache.size_bytes <= publisher.core.settings.cache_bytes


@pytest.mark.parametrize("start", [2**32 - 20, 2**63 - 20, 2**64 - 500])
def test_16_sequences_pass_their_powers_of_two(start: int) -> None:
    lan = Lan(1, first_frame=start, first_message=start)
    publisher = lan.nodes[0]
    (subscriber,) = lan.open(1)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(10 * MS)
    lan.lose = lose_share(Random(2), 0.2)
    for number in range(60):
        lan.publish(publisher, topic, b"%d" % number)
        lan.run(1 * MS)
    lan.run(2 * SECOND)
    assert [got.sequence for got in subscriber.received] == list(range(start, start + 60))
    assert subscriber.payloads(SUBJECT) == [b"%d" % number for number in range(60)]


def test_17_close_twice_is_one_closed_event_and_no_timer_is_left() -> None:
    lan, publisher, (subscriber,) = open_lan(1)
    topic = publisher.core.publish_on(lan.now, SUBJECT)
    lan.run(10 * MS)
    lan.publish(publisher, topic, b"last words")
    publisher.core.close(lan.now, 1 * SECOND)
    publisher.core.close(lan.now, 9 * SECOND)
    assert lan.run_until(lambda: publisher.core.is_closed, 1 * SECOND)
    lan.run(1 * SECOND)
    assert publisher.core.deadline() is None
    assert [type(event) for event in publisher.events].count(Closed) == 1
    assert subscriber.payloads(SUBJECT) == [b"last words"]
