"""Messages on their way to managers: alone while it is quiet, together while it is not."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from hubbub.limits import (
    ACK_DELAY,
    BATCH_AT_ONCE,
    BATCH_HOLD,
    BATCH_HOLD_BEHIND,
    BATCH_QUIET_AT_ONCE,
    HOP_CROWDED,
    HOP_CROWDED_BYTES,
    HOP_STUCK,
    HOP_TIMEOUT,
    HOP_WINDOW_BYTES_MAX,
    HOP_WINDOW_BYTES_MIN,
    MS,
    PUBLISHES_MAX,
    SECOND,
)
from hubbub.protocol.rendezvous.client import FIFO
from hubbub.protocol.rendezvous.rendezvous import Options, Rendezvous
from hubbub.protocol.rendezvous.track import Track
from hubbub.wire.header import ANSWER, HEADER_BYTES, SERVICE
from hubbub.wire.services import (
    ANSWERS,
    ANYCAST,
    PASSED,
    PUBLISH,
    TAKEN,
    Request,
    decode_request,
    distance,
    node_key,
    service_key,
)

PLACES = [("10.0.0.1", 1), ("10.0.0.2", 1)]


class Pair:
    """Two nodes, and a service that the first of them manages and subscribes to."""

    def __init__(self, batch_bytes: int = 60_000) -> None:
        ids = [bytes([letter]) * 12 for letter in b"ab"]
        options = Options(batch_bytes=batch_bytes)
        self.manager, self.publisher = (
            Rendezvous(0, ids[place], 5 + place, 7, Random(place), seeds=seeds, options=options)
            for place, seeds in enumerate([[], [PLACES[0]]])
        )
        names = (f"service-{number}" for number in range(100))
        self.name = next(
            name
            for name in names
            if distance(node_key(ids[0]), service_key(name))
            < distance(node_key(ids[1]), service_key(name))
        )
        self.now = 0
        self.pass_time(5 * SECOND)
        self.manager.subscribe(self.now, self.name)
        self.pass_time(1 * SECOND)
        self.heard()

    def pass_time(self, time_ns: int) -> None:
        end = self.now + time_ns
        while self.now < end:
            self.now += MS
            for machine in (self.manager, self.publisher):
                machine.advance(self.now)
            self.exchange()

    def exchange(self, is_lost: Callable[[bytes], bool] = lambda frame: False) -> list[Request]:
        """Bring all frames to where they belong; return what was published by them."""
        machines, published = [self.manager, self.publisher], []
        while True:
            moved = 0
            for place, machine in enumerate(machines):
                machine.flush()
                while machine.out:
                    moved += 1
                    frame = machine.out.popleft()[1]
                    request = decode_request(frame[HEADER_BYTES:]) if frame[3] == SERVICE else None
                    if request is not None and request.message.type == PUBLISH:
                        published.append(request)
                    if not is_lost(frame):
                        machines[1 - place].receive(self.now, frame, PLACES[place])
            if not moved:
                return published

    def publish(self, count: int, size_bytes: int = 4) -> list[int | None]:
        return [
            self.publisher.publish(self.now, self.name, b"%0*d" % (size_bytes, number))
            for number in range(count)
        ]

    def heard(self) -> list[bytes]:
        found = [one for run in self.manager.seat.deliveries for one in run.payloads]
        self.manager.seat.deliveries.clear()
        return found


def test_quiet_publisher_sends_each_message_at_once() -> None:
    pair = Pair()
    for _ in range(3):
        pair.publish(1)
        assert [one.messages for one in pair.exchange()] == [1]
        pair.pass_time(2 * ACK_DELAY)


def test_a_message_is_passed_on_before_it_is_answered() -> None:
    pair = Pair()
    pair.publisher.subscribe(pair.now, pair.name)
    pair.pass_time(1 * SECOND)
    pair.publish(1)
    pair.exchange()  # From now on the manager knows the frames of the publisher.
    pair.publisher.publish(pair.now, pair.name, b"prompt", is_urgent=True)
    frame = pair.publisher.out.popleft()[1]
    pair.manager.receive(pair.now, frame, PLACES[1])
    assert [frame[3] for _, frame in pair.manager.out] == [SERVICE]
    pair.manager.flush()
    assert [frame[3] for _, frame in pair.manager.out] == [SERVICE, ANSWER]


def test_messages_that_come_while_others_are_under_way_go_together() -> None:
    pair = Pair()
    numbers = pair.publish(100)
    assert numbers == list(range(1, 101))
    # The first ones went alone; their acknowledgement lets go what waited.
    sizes = [one.messages for one in pair.exchange()]
    assert sizes == [1] * BATCH_AT_ONCE + [100 - BATCH_AT_ONCE]
    assert pair.heard() == [b"%04d" % number for number in range(100)]
    pair.pass_time(2 * ACK_DELAY)
    ends = [(one.sequence, one.messages, one.status) for one in pair.publisher.seat.settled]
    assert sum(count for _, count, _ in ends) == 100
    assert {status for _, _, status in ends} == {TAKEN}
    assert pair.publisher.publishing.is_settled


def test_messages_wait_no_longer_than_the_hold_back_time() -> None:
    pair = Pair()
    pair.publish(BATCH_AT_ONCE + 5)
    pair.publisher.flush()
    assert len(pair.publisher.out) == BATCH_AT_ONCE
    assert pair.publisher.deadline() <= pair.now + BATCH_HOLD
    pair.now += BATCH_HOLD
    pair.publisher.advance(pair.now)
    assert len(pair.publisher.out) == BATCH_AT_ONCE + 1


def test_messages_wait_longer_where_many_are_not_acknowledged() -> None:
    """While a manager was dead, each message of a slow publisher went in a frame of its own."""
    pair, frames = Pair(), 0
    pair.publish(1)
    pair.exchange()
    for _ in range(2 * BATCH_QUIET_AT_ONCE):
        pair.now += 10 * MS
        pair.publish(1)
        pair.publisher.publishing.advance(pair.now)
        frames += len([one for one in pair.publisher.out if one[1][3] == SERVICE])
        pair.publisher.out.clear()
    behind = frames - BATCH_QUIET_AT_ONCE
    assert 0 < behind <= BATCH_QUIET_AT_ONCE * 10 * MS // BATCH_HOLD_BEHIND + 1


def test_who_comes_or_goes_has_nothing_sent_again_that_waits_for_the_right_node() -> None:
    """All that was under way to a dead manager was sent to it anew with each change of members."""
    pair = Pair()
    pair.publish(3)
    pair.publisher.out.clear()
    pair.publisher.client.members_changed(pair.now)
    pair.publisher.publishing.advance(pair.now + 3 * HOP_TIMEOUT)
    assert not pair.publisher.out
    restarted = pair.publisher.view.members[pair.manager.seat.node]
    restarted.life += 1
    pair.publisher.client.members_changed(pair.now)
    pair.publisher.publishing.advance(pair.now + 3 * HOP_TIMEOUT)
    assert len(pair.publisher.out) == 3


def test_batch_is_no_longer_than_a_frame() -> None:
    pair = Pair(batch_bytes=1000)
    pair.publish(BATCH_AT_ONCE + 40, 100)
    batches = [one for one in pair.exchange() if one.messages > 1]
    assert [one.messages for one in batches[:4]] == [9] * 4
    assert len(pair.heard()) == BATCH_AT_ONCE + 40


def test_message_that_somebody_waits_for_goes_at_once_and_is_answered_at_once() -> None:
    pair = Pair()
    pair.publish(BATCH_AT_ONCE + 5)
    number = pair.publisher.publish(pair.now, pair.name, b"now", is_urgent=True)
    pair.exchange()
    assert any(one.sequence == number for one in pair.publisher.seat.settled)
    assert pair.heard()[-1] == b"now"


def test_repeated_batch_is_handed_out_once() -> None:
    pair = Pair()
    lost = [0]

    def is_lost(frame: bytes) -> bool:  # Every answer of the manager.
        lost[0] += frame[3] != SERVICE
        return frame[3] != SERVICE

    pair.publish(50)
    pair.exchange(is_lost)
    for _ in range(3):
        pair.now += SECOND // 5
        pair.publisher.advance(pair.now)
        pair.exchange(is_lost)
    assert lost[0]
    pair.pass_time(5 * SECOND)
    assert sorted(pair.heard()) == [b"%04d" % number for number in range(50)]


def test_publisher_without_answers_is_bounded() -> None:
    pair = Pair()
    numbers = pair.publish(PUBLISHES_MAX + 1)
    assert numbers[-2:] == [PUBLISHES_MAX, None]
    pair.exchange()
    assert pair.publish(1) == [PUBLISHES_MAX + 1]


@pytest.mark.parametrize(
    ("count", "size_bytes"), [(3, HOP_CROWDED_BYTES // 2), (HOP_CROWDED + 1, 90)]
)
def test_node_that_is_far_behind_but_gets_on_is_waited_for_and_one_that_stands_still_is_not(
    count: int, size_bytes: int
) -> None:
    """Small frames were given up before their bytes were too many, and no publisher waited."""
    track = Track[str](0)
    track.begin(1, "sent", 1000)
    for _ in range(count):
        track.wait(0, "frame", size_bytes)
    assert not track.is_overfull
    assert track.is_crowded(HOP_STUCK - 1)
    assert not track.is_crowded(HOP_STUCK)
    track.end(HOP_STUCK, 1000, is_acknowledged=True)
    assert track.is_crowded(HOP_STUCK)


def test_window_shrinks_with_each_loss_and_grows_with_what_arrives() -> None:
    track = Track[str](0)
    assert track.window_bytes == HOP_WINDOW_BYTES_MAX
    for _ in range(5):
        track.repeat()
    assert track.window_bytes == HOP_WINDOW_BYTES_MIN
    for _ in range(100):
        track.begin(1, "sent", 60_000)
        del track.sent[1]
        track.end(1, 60_000, is_acknowledged=True)
    assert track.window_bytes == HOP_WINDOW_BYTES_MAX


def publish_on(pair: Pair, subject: str) -> None:
    """Publish on a subject, and wait until it is settled."""
    assert pair.publisher.publish(pair.now, pair.name, b"x", subject=subject) is not None
    pair.pass_time(3 * ACK_DELAY)
    assert pair.publisher.publishing.is_settled


def test_subjects_whose_numbers_are_known_are_bounded_and_the_longest_idle_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hubbub.protocol.rendezvous.publishing.LANES_MAX", 8)
    pair = Pair()
    pair.manager.subscribe(pair.now, pair.name, order=FIFO)
    subjects = [f"/s/{number}" for number in range(8)]
    for subject in [*subjects, "/s/0"]:  # Which is not idle any more, then.
        publish_on(pair, subject)
    publish_on(pair, "/s/8")
    known = pair.publisher.publishing._lanes
    assert len(known) <= 8
    key = service_key(pair.name)
    assert (key, "/s/0") in known and (key, "/s/1") not in known


def test_subject_that_was_forgotten_is_counted_anew_and_heard_at_once_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hubbub.protocol.rendezvous.publishing.LANES_MAX", 4)
    pair = Pair()
    pair.manager.subscribe(pair.now, pair.name, order=FIFO)
    for _ in range(3):
        for number in range(9):
            publish_on(pair, f"/s/{number}")
    had = pair.manager.seat.deliveries
    assert Counter(one.subject for one in had) == {f"/s/{number}": 3 for number in range(9)}
    assert pair.manager.seat.counters["duplicates"] == 0


def test_lane_that_somebody_holds_is_the_same_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hubbub.protocol.rendezvous.publishing.LANES_MAX", 4)
    pair = Pair()
    held = pair.publisher.publishing.lane(pair.name, "/held")
    for number in range(20):
        publish_on(pair, f"/s/{number}")
    assert pair.publisher.publishing.lane(pair.name, "/held") is held
    for _ in range(2):
        pair.publisher.publish_in(pair.now, held, b"x")
        pair.pass_time(3 * ACK_DELAY)
    assert held.last == 2 and pair.publisher.publishing.is_settled
    assert [one.sequence for one in pair.manager.seat.deliveries if one.subject == "/held"] == [
        1,
        2,
    ]


def test_ways_to_hear_of_what_was_passed_on_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub.protocol.rendezvous.express.SERVICES_MAX", 2)
    pair = Pair()
    names = [f"{pair.name}-{number}" for number in range(20)]
    others = [one for one in names if pair.publisher.manager_of(service_key(one)) == b"a" * 12]
    assert len(others) > 2
    for name in others:
        pair.publisher.subscribe(pair.now, name)
    pair.pass_time(1 * SECOND)
    for name in others:
        pair.publisher.publish(pair.now, name, b"x")
        pair.pass_time(3 * ACK_DELAY)
    assert 0 < len(pair.manager.express._done) <= 2
    assert pair.publisher.seat.counters["duplicates"] == 0
    assert len(pair.publisher.seat.deliveries) == len(others)


def test_request_is_given_up_when_who_asked_waits_no_more_and_not_before() -> None:
    pair = Pair()
    pair.manager.subscribe(pair.now, pair.name, flags=ANSWERS)
    machine, ends = pair.publisher, {}
    lane = machine.publishing.lane(pair.name)
    begun = pair.now
    for patience_ns in (3 * SECOND, 12 * SECOND):
        number = machine.publish_in(
            pair.now, lane, b"how long?", flags=ANYCAST, patience_ns=patience_ns
        )
        ends[number] = patience_ns
    while lane.requests:
        pair.pass_time(SECOND)
        assert {ends[one.sequence] for one in machine.seat.settled} == {
            patience_ns for patience_ns in ends.values() if begun + patience_ns <= pair.now
        }
    assert pair.now - begun == 12 * SECOND
    assert {one.status for one in machine.seat.settled} == {PASSED}
