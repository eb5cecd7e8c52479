"""What the simulator found, each defect as the few datagrams that show it."""

from random import Random
from typing import Any

from hubbub.events import GapAbandoned
from hubbub.limits import MS, SECOND
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.framing import Framer
from hubbub.protocol.reassembly import Budget, Share
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.settings import Settings
from hubbub.protocol.topics import OutgoingTopic
from hubbub.simulation.network import KIND_OFFSET
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.stage import Stage
from hubbub.wire import batch
from hubbub.wire.control import (
    Grant,
    GrantedStream,
    Lost,
    Topic,
    decode_declarations,
    encode_declarations,
)
from hubbub.wire.header import BEST_EFFORT, DECLARES, GRANT, HELLO, LOST, RELIABLE

SOURCE = Source("a", bytes(12), 1)


def make_receiver(budget_bytes: int = 1 << 20, **topics: str) -> Receiver:
    receiver = Receiver(
        RELIABLE, SOURCE, 1, Random(1), 0, Share(Budget(budget_bytes)), lambda _: True
    )
    for place, subject in enumerate(topics.values() or ["/a"]):
        receiver.declare(Topic(16 + place, RELIABLE, subject, 1))
    return receiver


def accept(receiver: Receiver, sequence: int, runs: list[batch.Run]) -> list[Delivery]:
    out: list[Delivery] = []
    payloads = [b"x"] * sum(count for _, _, count in runs)
    body = batch.encode(runs, payloads, [0] * len(payloads))
    receiver.accept_data(0, sequence, 0, body, 0, len(body), 0, out)
    return out


def test_repaired_frame_with_two_runs_of_one_topic_leaves_no_hole_between_them() -> None:
    receiver = make_receiver(first="/a", second="/b")
    assert accept(receiver, 2, [(16, 3, 1)]) == []
    delivered = accept(receiver, 1, [(16, 1, 1), (17, 1, 1), (16, 2, 1)])
    assert [(d.topic.subject, d.first) for d in delivered] == [
        ("/a", 1), ("/b", 1), ("/a", 2), ("/a", 3),
    ]  # fmt: skip
    assert receiver.holes == []


def segment(topic: int, sequence: int, offset: int, total: int) -> bytes:
    head = batch.encode_segment_head(topic, sequence, 0, total, offset, 500)
    return head + bytes(min(500, total - offset))


def test_large_messages_beyond_what_may_be_put_together_at_once_wait_instead_of_being_lost() -> (
    None
):
    receiver = make_receiver(budget_bytes=1500)
    out: list[Delivery] = []

    def send(frame: int, body: bytes) -> bool:
        return receiver.accept_segment(0, frame, body, 0, len(body), 0, out)

    assert send(1, segment(16, 1, 0, 1000))
    assert not send(3, segment(16, 2, 0, 1000))
    assert send(2, segment(16, 1, 500, 1000))
    assert send(3, segment(16, 2, 0, 1000)) and send(4, segment(16, 2, 500, 1000))
    assert [delivery.first for delivery in out] == [1, 2]
    assert receiver.holes == []


def test_topic_that_begins_with_a_large_message_is_declared_from_that_message_on() -> None:
    framer = Framer(RELIABLE, 1400, 0, 20, 1 << 20)
    first, second = (
        OutgoingTopic(number, f"/{number}", SOURCE, is_reliable=True) for number in (16, 17)
    )
    first.takers = second.takers = 1
    for topic, size in [(first, 4000), (first, 1), (second, 4000)]:
        framer.add(topic, bytes(size), 0)
    declared = {}
    while (made := framer.next_body(0, 0)) is not None:
        body, flags, _ = made
        if flags & DECLARES:
            assert isinstance(body, bytes)
            frame = batch.decode(body, 0, len(body))
            assert frame is not None
            topics = decode_declarations(frame.declarations) or []
            declared |= {topic.number: topic.first for topic in topics}
    assert declared == {16: 1, 17: 1}


def make_pair(**settings: Any) -> tuple[Stage, SimulatedNode, SimulatedNode]:
    """Open a publisher of /t/0 and a subscriber that know each other."""
    stage = Stage(1)
    host = Host(settings=Settings(**settings))
    (publisher,), (subscriber,) = stage.group(1, 1, host=host)
    topic = publisher.publish_on("/t/0")
    stage.meet([topic], 1)
    stage.world.run_for(60 * MS)
    return stage, publisher, subscriber


def test_hole_of_a_publisher_that_was_forgotten_and_returns_is_reported() -> None:
    stage, publisher, subscriber = make_pair(
        peer_timeout_ms=500, heartbeat_ms=100, repair_window_ms=500
    )
    stage.ledger.are_gaps_allowed = True
    stage.feed(publisher, publisher.topics[0], count=200, pause_ns=(20 * MS, 20 * MS))
    stage.world.run_for(500 * MS)
    stage.network.block([publisher.index], [subscriber.index])
    stage.world.run_for(2 * SECOND)
    stage.network.unblock()
    stage.play()
    stage.finish()
    gaps = [event for _, _, event in stage.ledger.events if isinstance(event, GapAbandoned)]
    assert [gap.reason for gap in gaps] == ["expired"]


def test_silent_peer_is_reported_when_its_timeout_is_over_not_at_the_next_sweep() -> None:
    stage, publisher, subscriber = make_pair(peer_timeout_ms=2000, heartbeat_ms=500)
    heard_ns = subscriber.core.peers[publisher.core.endpoint.key].heard_ns
    publisher.crash()
    stage.world.run(heard_ns + 2001 * MS)
    assert stage.ledger.present[subscriber] == set()


def test_messages_of_a_topic_whose_declaring_frame_is_repaired_later_are_not_lost() -> None:
    receiver = Receiver(RELIABLE, SOURCE, 1, Random(1), 0, Share(Budget(0)), lambda _: True)
    assert accept(receiver, 2, [(16, 2, 1)]) == []
    out: list[Delivery] = []
    declarations = encode_declarations([Topic(16, RELIABLE, "/a", 1)])
    body = batch.encode([(16, 1, 1)], [b"x"], [0], declarations)
    receiver.accept_data(0, 1, DECLARES, body, 0, len(body), 0, out)
    assert [delivery.first for delivery in out] == [1, 2]
    assert receiver.holes == [] and receiver.held_bytes == 0


def test_message_that_comes_right_after_the_loss_of_its_topics_name_is_held() -> None:
    """Both read at once, it was dropped without a word before the new grant was asked for."""
    receiver = Receiver(RELIABLE, SOURCE, 1, Random(1), 0, Share(Budget(0)), lambda _: True)
    receiver.extend(0, 3)
    receiver.lose(Lost(bytes(20), "not_available", [(1, 1)], [(17, 1, 1)]), 0, [])
    assert accept(receiver, 2, [(17, 2, 1)]) == [] and receiver.held_bytes > 0
    receiver.declare(Topic(17, RELIABLE, "/a", 1))
    receiver.is_awaiting_grant = False
    out: list[Delivery] = []
    receiver.release_held(0, out)
    assert [delivery.first for delivery in out] == [2]
    assert [(hole.first, hole.last) for hole in receiver.holes] == [(1, 1)]


def test_what_nobody_can_name_any_more_is_not_kept() -> None:
    receiver = make_receiver()
    accept(receiver, 2, [(99, 1, 1)])
    assert receiver.held_bytes > 0
    accept(receiver, 1, [(16, 1, 1)])
    assert receiver.held == {} and receiver.held_bytes == 0


def test_renewed_interest_whose_end_was_never_heard_goes_on_behind_what_has_passed() -> None:
    wanted = {"/a"}
    receiver = Receiver(RELIABLE, SOURCE, 1, Random(1), 0, Share(Budget(0)), wanted.__contains__)
    granted = Topic(16, RELIABLE, "/a", 1)
    receiver.declare(granted)
    assert len(accept(receiver, 1, [(16, 1, 3)])) == 1
    wanted.clear()
    receiver.reconsider_interest()
    assert accept(receiver, 2, [(16, 4, 2)]) == []
    wanted.add("/a")
    receiver.reconsider_interest()
    receiver.declare(granted)
    assert [delivery.first for delivery in accept(receiver, 3, [(16, 6, 1)])] == [6]
    assert receiver.holes == []


def test_goodbye_waits_until_receivers_know_what_they_are_owed() -> None:
    stage = Stage(1)
    _, (subscriber,) = stage.group(0, 1)
    stage.world.run_for(100 * MS)
    publisher = stage.node(subscriber.host)
    stage.network.drop = lambda source, target, frame: frame[KIND_OFFSET] == GRANT
    publisher.publish(publisher.publish_on("/t/0"), b"x")
    publisher.close(1 * SECOND)
    stage.world.run_for(100 * MS)
    stage.network.drop = None
    stage.world.run_for(1 * SECOND)
    assert stage.world.counts["delivered"] == 1


def test_message_far_behind_a_large_one_of_its_topic_does_not_overtake_nearer_ones() -> None:
    framer = Framer(RELIABLE, 1400, 0, 20, 1 << 20)
    large, other = (
        OutgoingTopic(number, f"/{number}", SOURCE, is_reliable=True) for number in (16, 17)
    )
    large.takers = other.takers = 1
    framer.add(large, bytes(9000), 0)
    for place in range(3):
        framer.add(large, b"%d" % place, 0)
        framer.add(other, b"x", 0)
    order = []
    while (made := framer.next_body(0, 0)) is not None:
        if isinstance(made[0], bytes) and (frame := batch.decode(made[0], 0, len(made[0]))):
            order += [payload for payload in frame.payloads if payload != b"x"]
    assert order == [b"0", b"1", b"2"]


def test_grant_of_a_later_stream_is_not_acknowledged_by_a_status_for_an_earlier_one() -> None:
    stage, publisher, subscriber = make_pair()
    stage.network.drop = lambda source, target, frame: frame[KIND_OFFSET] == GRANT
    topic = publisher.publish_on("/t/best", is_reliable=False)
    stage.feed(publisher, publisher.topics[0], count=20, pause_ns=(5 * MS, 5 * MS))
    stage.play()
    stage.network.drop = None
    stage.world.run_for(500 * MS)
    publisher.publish(topic, b"x")
    stage.world.run_for(100 * MS)
    publication = next(p for p in stage.ledger.publications.values() if p.topic is topic)
    assert stage.ledger.reception(publication, subscriber).count == 1


def test_topic_whose_declaring_frame_is_lost_for_good_is_named_by_a_new_grant() -> None:
    stage, publisher, subscriber = make_pair(cache_bytes=1000)
    stage.ledger.are_gaps_allowed = True
    stage.network.block([publisher.index], [subscriber.index])
    topic = publisher.publish_on("/t/new")
    for _ in range(20):
        publisher.publish(topic, bytes(500))
        stage.world.run_for(20 * MS)
    stage.network.unblock()
    stage.finish()
    gaps = [event for _, _, event in stage.ledger.events if isinstance(event, GapAbandoned)]
    assert [(gap.subject, gap.first) for gap in gaps] == [("/t/new", 1)]


def declare(receiver: Receiver, frame: int, number: int, first: int) -> list[Delivery]:
    """Send a frame that declares a topic and has the message `first` of it."""
    out: list[Delivery] = []
    declarations = encode_declarations([Topic(number, RELIABLE, f"/{number}", first)])
    body = batch.encode([(number, first, 1)], [b"x"], [0], declarations)
    receiver.accept_data(0, frame, DECLARES, body, 0, len(body), 0, out)
    return out


def test_frame_that_declares_a_topic_while_a_grant_is_awaited_does_not_say_what_is_owed() -> None:
    receiver = make_receiver()
    receiver.is_awaiting_grant = True
    assert declare(receiver, 1, 17, 1) == [] and declare(receiver, 2, 18, 1) == []
    receiver.declare(Topic(17, RELIABLE, "/17", 2))  # The grant; 18 was begun behind it.
    receiver.is_awaiting_grant = False
    out: list[Delivery] = []
    receiver.release_held(0, out)
    assert [(delivery.topic.subject, delivery.first) for delivery in out] == [("/18", 1)]
    assert receiver.holes == []


def test_late_frame_of_an_old_incarnation_does_not_end_the_new_one_for_ever() -> None:
    stage, publisher, subscriber = make_pair(peer_timeout_ms=1000, heartbeat_ms=300)
    old_hellos: list[bytes] = []

    def keep_hello(source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        if source is publisher and frame[KIND_OFFSET] == HELLO:
            old_hellos.append(frame)
        return False

    stage.network.drop = keep_hello
    publisher.publish_on("/t/1")
    publisher.core.discovery.look_longer(publisher.now)  # It says HELLO again.
    stage.world.run_for(200 * MS)
    publisher.crash()
    again = stage.node(publisher.host, publisher.index)
    subscriber.core.discovery.departed.clear()  # It never heard the old one.
    stage.world.run_for(100 * MS)
    subscriber.core.discovery.departed.clear()
    subscriber.arrive(old_hellos[-1], publisher.address)
    stage.world.run_for(3 * SECOND)
    assert stage.ledger.present[subscriber] == {again.source}


def test_grant_for_an_older_interest_does_not_say_where_the_newer_one_begins() -> None:
    _, publisher, subscriber = make_pair()
    core = subscriber.core
    peer = core.peers[publisher.core.endpoint.key]
    number = publisher.topics[0].number
    subscriber.unsubscribe("/t/...")
    subscriber.subscribe("/t/*")
    older = Grant(
        core.endpoint.key, 0, True, core.interest.version - 1, 0, 1, 2000,
        [GrantedStream(RELIABLE, 1, 1, True)], [Topic(number, RELIABLE, "/t/0", 1)], 99,
    )  # fmt: skip
    core.incoming.take_grant(subscriber.now, peer, older)
    assert peer.incoming[RELIABLE].topics[number].expected is None


def test_incomplete_large_message_of_best_effort_is_not_reported_when_a_grant_comes() -> None:
    receiver = Receiver(
        BEST_EFFORT, SOURCE, 1, Random(1), 0, Share(Budget(1 << 20)), lambda _: True
    )
    receiver.declare(Topic(16, BEST_EFFORT, "/a", 1))
    out: list[Delivery] = []
    last = segment(16, 1, 500, 1000)
    receiver.accept_segment(0, 2, last, 0, len(last), 0, out)
    receiver.release_held(0, out)
    assert receiver.holes == [] and out == []


def test_frame_read_together_with_the_loss_of_its_topics_name_is_kept_for_the_grant() -> None:
    stage, publisher, subscriber = make_pair(cache_bytes=1000)
    stage.ledger.are_gaps_allowed = True
    stage.network.block([publisher.index], [subscriber.index])
    topic = publisher.publish_on("/t/new")
    for _ in range(5):
        publisher.publish(topic, bytes(500))
        stage.world.run_for(20 * MS)
    stage.network.unblock()

    def is_lost(source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        if frame[KIND_OFFSET] == LOST:
            subscriber.stop_for(1 * MS)  # So that it reads the repair behind it at once, too.
        return False

    stage.network.drop = is_lost
    stage.settle()
    (publication,) = (p for p in stage.ledger.publications.values() if p.topic is topic)
    assert stage.ledger.reception(publication, subscriber).next == 6
