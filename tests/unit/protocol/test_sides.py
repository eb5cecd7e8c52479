"""Receivers of this host and elsewhere: each side has its stream, and who moves loses nothing."""

from random import Random

import pytest

from hubbub.limits import MS, SECOND, SORTING_CALM, STRAIGHT_CALM
from hubbub.message import Source
from hubbub.protocol.delivery import LOCAL, MULTICAST, Delivery
from hubbub.protocol.framing import Framer
from hubbub.protocol.reassembly import Budget, Share
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.settings import Settings
from hubbub.protocol.topics import OutgoingTopic
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.stage import Stage
from hubbub.wire import batch
from hubbub.wire.control import Lost, Topic
from hubbub.wire.header import DATA, REFERS, RELIABLE, RELIABLE_BESIDE, decode

SOURCE = Source("a", bytes(12), 1)


class Sides:
    """A publisher with a pipe to one subscriber and none to the other."""

    def __init__(self, *, is_reliable: bool = True) -> None:
        self.stage = Stage(1)
        host = Host(settings=Settings(reference_bytes=5000))
        (self.publisher,), (self.near, self.far) = self.stage.group(1, 2, host=host)
        self.topic = self.publisher.publish_on("/t/0", is_reliable=is_reliable)
        self.stage.meet([self.topic], 2)
        self.stage.world.run_for(60 * MS)
        self.stage.network.pipes.open(self.publisher, self.near)
        self.by_group: list[bytes] = []
        self.stage.network.drop = self._watch
        self.run(10)

    def _watch(self, source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        if source is self.publisher and decode(frame).kind == DATA and target is self.far:
            self.by_group.append(frame)
        return False

    def run(self, time_ms: float) -> None:
        self.stage.world.run_for(int(time_ms * MS))

    def publish(self, *payloads: bytes) -> None:
        for payload in payloads:
            assert self.publisher.publish(self.topic, payload)
        self.run(50)

    def split(self) -> "Sides":
        self.run(SORTING_CALM / MS + 50)
        assert self.placed(self.far) == (RELIABLE_BESIDE,), "it has moved"
        return self

    def placed(self, node: SimulatedNode) -> tuple[int, ...]:
        return self.publisher.core.peers[node.key].debt.placed[self.topic.number]

    def links(self, node: SimulatedNode) -> list[str]:
        [receiver] = node.core.peers[self.publisher.key].incoming.values()
        return [receiver.way.link.link, str(receiver.stream)]

    def count(self, node: SimulatedNode) -> int:
        [publication] = self.stage.ledger.publications.values()
        return self.stage.ledger.reception(publication, node).count


def test_those_elsewhere_get_a_stream_of_their_own_after_a_while_of_both() -> None:
    sides = Sides()
    assert sides.placed(sides.near) == sides.placed(sides.far) == (RELIABLE,)
    sides.split()
    assert sides.placed(sides.near) == (RELIABLE,)
    sides.publish(b"x")
    assert sides.links(sides.near) == [LOCAL, str(RELIABLE)]
    assert sides.links(sides.far) == [MULTICAST, str(RELIABLE_BESIDE)]
    assert sides.count(sides.near) == sides.count(sides.far) == 1


def test_receivers_whose_pipes_open_one_after_another_stay_where_they_are() -> None:
    sides = Sides()
    sides.stage.network.pipes.open(sides.publisher, sides.far)
    sides.run(1000)
    assert sides.publisher.core.endpoint.counters["moves"] == 0
    assert sides.publisher.core.outgoing.reliable.framer.route is not None


def test_frames_for_those_elsewhere_name_them_alone_and_carry_whole_payloads() -> None:
    sides = Sides().split()
    before = sides.stage.world.counts["references"]
    sides.publish(b"small")
    sides.publish(bytes(6000))
    assert sides.stage.world.counts["references"] == before + 1, "by reference to who is here"
    index = sides.far.core.register.index
    for frame in sides.by_group:
        header = decode(frame)
        assert header.stream == RELIABLE_BESIDE and not header.flags & REFERS
        assert (header.receiver, header.bitmap) == (index, 1 << index)
    assert sides.count(sides.near) == sides.count(sides.far) == 2


def test_topic_for_one_side_alone_is_not_sent_to_the_other() -> None:
    sides = Sides().split()
    sides.near.subscribe("/here")
    topic = sides.publisher.publish_on("/here")
    sides.stage.meet([topic], 1)
    frames = len(sides.by_group)
    sides.publisher.publish(topic, b"x")
    sides.run(50)
    assert len(sides.by_group) == frames


def test_one_that_loses_much_does_not_hold_back_the_other_side() -> None:
    sides = Sides().split()
    sides.stage.network.block([sides.publisher.index], [sides.far.index])
    for _ in range(300):
        sides.publisher.publish(sides.topic, bytes(4000))
    sides.run(50)
    assert sides.count(sides.near) == 300 and sides.count(sides.far) == 0
    sides.stage.network.unblock()
    sides.run(500)
    assert sides.count(sides.far) == 300


def test_streams_become_one_again_when_one_side_has_been_empty_for_long() -> None:
    sides = Sides().split()
    sides.stage.network.pipes.cut(sides.publisher, sides.near)
    sides.run(SORTING_CALM / MS + 100)
    assert sides.placed(sides.near) in [(RELIABLE,), (RELIABLE_BESIDE,)]
    sides.run(STRAIGHT_CALM / MS + 200)
    sides.publish(b"x")
    assert sides.placed(sides.near) == sides.placed(sides.far) == (RELIABLE,)
    assert sides.count(sides.near) == sides.count(sides.far) == 1


def test_best_effort_has_sides_too() -> None:
    sides = Sides(is_reliable=False)
    sides.run(SORTING_CALM / MS + 50)
    before = sides.stage.world.counts["references"]
    sides.publish(bytes(6000))
    assert sides.stage.world.counts["references"] == before + 1
    assert sides.count(sides.near) == sides.count(sides.far) == 1


def test_peer_that_dies_on_the_way_takes_its_move_with_it() -> None:
    sides = Sides()
    sides.stage.network.block([sides.publisher.index], [sides.far.index])
    sides.run(SORTING_CALM / MS + 5)
    grants = sides.publisher.core.outgoing.grants
    assert list(grants.moving) == [sides.far.key]
    sides.stage.ledger.are_gaps_allowed = True
    sides.far.crash()
    sides.run(70 * SECOND / MS)
    assert not grants.moving and sides.topic.copy is None
    assert [sender.leaving for sender in sides.publisher.core.outgoing.senders.values()] == [0] * 4


# The receiving end.


def make_twins(until: int) -> tuple[Receiver, Receiver]:
    """Make a stream whose topic 16 has begun, and another that continues it."""
    old = Receiver(RELIABLE, SOURCE, 1, Random(1), 0, Share(Budget(0)), lambda _: True)
    old.declare(Topic(16, RELIABLE, "/a", 1))
    new = Receiver(
        RELIABLE_BESIDE, SOURCE, 1, Random(1), 0, Share(Budget(0)), lambda _: True, twin=old
    )
    new.follow(old, until)
    new.declare(Topic(16, RELIABLE_BESIDE, "/a", 1))
    new.carry(16)
    return old, new


def accept(receiver: Receiver, frame: int, first: int) -> list[int]:
    """Take a frame of one message of topic 16; return which messages are handed out."""
    out: list[Delivery] = []
    body = batch.encode([(16, first, 1)], [b"x"], [0])
    receiver.accept_data(0, frame, 0, body, 0, len(body), 0, out)
    return [delivery.first for delivery in out]


def take_over(receiver: Receiver) -> list[int]:
    out: list[Delivery] = []
    receiver.take_over(0, out)
    return [delivery.first for delivery in out]


def test_what_the_new_stream_brings_early_waits_until_the_old_one_is_settled() -> None:
    old, new = make_twins(until=3)
    assert accept(new, 1, 3) == [] and not new.may_take_over()
    assert accept(old, 1, 1) == [1] and not new.may_take_over()
    assert accept(old, 2, 2) == [2] and new.may_take_over()
    assert take_over(new) == [3]
    assert accept(new, 2, 4) == [4] and old.holes == []


def test_what_comes_by_both_streams_is_handed_out_once() -> None:
    old, new = make_twins(until=2)
    assert accept(old, 1, 1) == [1]
    assert accept(new, 1, 2) == [2], "it is the next one, whoever brings it"
    assert accept(old, 2, 2) == []
    assert take_over(new) == []
    assert accept(old, 3, 4) == [], "the new stream will bring it"
    assert accept(new, 2, 3) == [3] and accept(new, 3, 4) == [4]
    assert old.holes == []


def test_what_the_old_stream_has_lost_is_reported_before_the_new_one_goes_on() -> None:
    old, new = make_twins(until=3)
    assert accept(new, 1, 3) == []
    old.extend(0, 3)
    assert accept(old, 2, 2) == []
    old.lose(Lost(bytes(20), "not_available", [(1, 1)], [(16, 1, 1)]), 0, [])
    assert new.may_take_over() and take_over(new) == [3]
    assert [(hole.first, hole.last) for hole in old.holes] == [(1, 1)]


def test_end_of_the_old_stream_is_not_known_yet() -> None:
    old, new = make_twins(until=0)
    assert accept(old, 1, 1) == [1] and not new.may_take_over()


def test_loss_on_the_new_stream_is_not_told_before_its_time() -> None:
    old, new = make_twins(until=2)
    new.extend(0, 2)
    new.lose(Lost(bytes(20), "not_available", [(1, 1)], [(16, 2, 1)]), 0, [])
    assert accept(new, 2, 3) == [] and old.holes == []
    assert accept(old, 1, 1) == [1]
    new.is_awaiting_grant = False
    assert take_over(new) == [3]
    assert [(hole.first, hole.last) for hole in old.holes] == [(2, 2)]


# The framing end.


def make_framers() -> tuple[Framer, Framer, OutgoingTopic]:
    main, beside = (Framer(stream, 1400, 0, 20, 1 << 16) for stream in (RELIABLE, RELIABLE_BESIDE))
    main.beside = beside
    topic = OutgoingTopic(16, "/a", SOURCE, is_reliable=True)
    topic.is_declared = True
    topic.enlist(1)
    return main, beside, topic


def runs_of(framer: Framer) -> list[batch.Run]:
    runs: list[batch.Run] = []
    while (made := framer.next_body(0, 0)) is not None:
        assert isinstance(made[0], bytes)
        runs += batch.decode_runs(batch.read_runs(made[0]))
    return runs


def test_messages_get_their_sequence_once_and_are_framed_on_both_sides() -> None:
    main, beside, topic = make_framers()
    main.add(topic, b"1", 0)
    assert runs_of(main) == [(16, 1, 1)]
    topic.enlist(2, (True,))
    main.add(topic, b"2", 0)
    main.add(topic, b"3", 0)
    assert runs_of(main) == runs_of(beside) == [(16, 2, 2)]
    topic.dismiss(1)
    main.add(topic, b"4", 0)
    assert runs_of(main) == [] and runs_of(beside) == [(16, 4, 1)]
    topic.dismiss(2, (True,))
    assert topic.copy is None and topic.receivers == 0


def test_message_that_is_skipped_is_skipped_on_both_sides() -> None:
    main, beside, topic = make_framers()
    topic.enlist(2, (True,))
    main.add(topic, b"1", 0)
    assert runs_of(main) == [(16, 1, 1)]
    topic.skip()
    main.add(topic, b"3", 0)
    assert runs_of(main) == [(16, 3, 1)]
    assert runs_of(beside) == [(16, 1, 1), (16, 3, 1)]


@pytest.mark.parametrize("size_bytes", [100, 5000])
def test_one_side_runs_ahead_of_the_other_by_a_backlog_and_no_more(size_bytes: int) -> None:
    main, beside, topic = make_framers()
    topic.enlist(2, (True,))
    sent = 0
    while not main.is_ahead:
        main.add(topic, bytes(size_bytes), 0)
        while main.next_body(0, 0) is not None:
            pass
        sent += size_bytes
    assert sent <= 70 * max(size_bytes, 1 << 16)
    while beside.next_body(0, 0) is not None:
        pass
    assert not main.is_ahead
