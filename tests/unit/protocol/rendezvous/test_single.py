"""The short way of a published message does what the long one does, frame by frame."""

from collections.abc import Callable

import pytest

from hubbub.limits import (
    ACK_DELAY,
    BATCH_AT_ONCE,
    BATCH_QUIET,
    MS,
    SINGLES_HELD_MAX,
    SINGLES_PER_ANSWER,
)
from hubbub.protocol.rendezvous.profile import FAST
from hubbub.protocol.rendezvous.publishing import Lane
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.protocol.rendezvous.single import Single
from hubbub.simulation import run
from tests.unit.protocol.rendezvous.test_publishing import PLACES, Pair

SCENARIOS = ["services_burst", "services_order", "services_loss", "services_slow"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_run_is_the_same_whether_messages_take_the_short_way_or_the_long_one(
    scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = [0]
    sound = Single.publish

    def count(self: Single, now: int, lane: Lane, payload: bytes) -> bool:
        is_taken = sound(self, now, lane, payload)
        taken[0] += is_taken
        return is_taken

    monkeypatch.setattr(Single, "publish", count)
    short = run(scenario, 5)
    monkeypatch.setattr(Single, "publish", lambda *_: False)
    long = run(scenario, 5)
    assert short.ok and long.ok
    assert taken[0]
    assert short.trace_hash == long.trace_hash


class Quiet(Pair):
    """A publisher that has published lately, so that its next message is nothing new."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = self.publisher.publishing.lane(self.name)
        self.publisher.publish_in(self.now, self.lane, b"first")
        self.exchange()

    def try_short(self, payload: bytes = b"next") -> bool:
        return self.publisher.single.publish(self.now, self.lane, payload)


def test_message_of_a_quiet_publisher_goes_out_and_moves_no_deadline() -> None:
    pair = Quiet()
    due_ns = pair.publisher.deadline()
    assert pair.try_short()
    assert len(pair.publisher.out) == 1
    assert pair.publisher.deadline() == due_ns
    pair.exchange()
    assert pair.heard() == [b"first", b"next"]


def _wait_in_the_lane(pair: Quiet) -> None:
    pair.publisher.publishing._wait(pair.lane, b"waits")


def _be_hinted_at_another(pair: Quiet) -> None:
    pair.publisher.client.asking.hint(pair.now, pair.lane.key, b"c" * 12)


def _leave(pair: Quiet) -> None:
    pair.publisher.close(pair.now)


def _have_much_under_way(pair: Quiet) -> None:
    for _ in range(BATCH_AT_ONCE):
        pair.publisher.publish_in(pair.now, pair.lane, b"some")


def _lose_the_manager(pair: Quiet) -> None:
    pair.publisher.view.forget(pair.manager.seat.node)
    pair.publisher.view.version += 1


def _have_no_deadline_yet(pair: Quiet) -> None:
    pair.publisher.publishing.due_ns = NEVER


def _crowd(pair: Quiet) -> None:
    pair.publisher.hops.crowded.add(pair.manager.seat.node)


@pytest.mark.parametrize(
    "happen",
    [
        _wait_in_the_lane, _be_hinted_at_another, _leave, _have_much_under_way, _lose_the_manager,
        _crowd, _have_no_deadline_yet,
    ],
)  # fmt: skip
def test_what_is_out_of_the_ordinary_goes_the_long_way(happen: Callable[[Quiet], None]) -> None:
    pair = Quiet()
    assert pair.try_short()
    happen(pair)
    last, under_way = pair.lane.last, len(pair.lane.under_way)
    assert not pair.try_short()
    assert (pair.lane.last, len(pair.lane.under_way)) == (last, under_way)  # Nothing was done.


def test_large_message_goes_the_long_way() -> None:
    pair = Quiet()
    assert not pair.try_short(bytes(40_000))
    assert pair.try_short(bytes(4_000))


def test_answer_to_a_single_message_may_wait_and_is_given_all_the_same() -> None:
    pair = Quiet()
    assert pair.try_short()
    _, frame = pair.publisher.out.popleft()
    assert pair.manager.receive(pair.now, frame, PLACES[1])
    assert pair.manager.passed and not pair.manager.out
    pair.manager.flush()  # The shell does so before it asks for the deadline.
    assert not pair.manager.passed
    assert pair.manager.deadline() <= pair.now + ACK_DELAY
    pair.pass_time(ACK_DELAY + 2 * MS)
    assert not pair.publisher.publishing.messages


def pass_singles(pair: Quiet, count: int, step_ns: int) -> None:
    for _ in range(count):
        pair.now += step_ns
        assert pair.try_short()
        _, frame = pair.publisher.out.popleft()
        assert pair.manager.receive(pair.now, frame, PLACES[1])


def test_answers_to_single_messages_are_held_until_the_first_is_due() -> None:
    pair = Quiet()
    pass_singles(pair, SINGLES_HELD_MAX - 1, 2 * BATCH_QUIET)
    first_ns = pair.now - (SINGLES_HELD_MAX - 2) * 2 * BATCH_QUIET
    assert pair.manager.held_until(pair.now) == first_ns + ACK_DELAY
    pass_singles(pair, 1, 2 * BATCH_QUIET)
    assert pair.manager.held_until(pair.now) == pair.now  # They are many.


def test_answers_that_were_held_are_due_when_they_would_have_been() -> None:
    pair = Quiet()
    pair.pass_time(2 * ACK_DELAY)  # What came before is answered.
    pass_singles(pair, 3, 2 * BATCH_QUIET)
    first_ns = pair.now - 2 * 2 * BATCH_QUIET
    pair.manager.seat.now = first_ns + ACK_DELAY - 1
    pair.manager.flush()
    assert not pair.manager.passed and not pair.manager.out
    assert pair.manager.deadline() == first_ns + ACK_DELAY
    pair.manager.seat.now += 1
    pair.manager.flush()
    assert len(pair.manager.out) == 1


def test_answers_to_who_publishes_fast_are_not_held() -> None:
    pair = Quiet()
    pair.manager.flush()
    pass_singles(pair, SINGLES_PER_ANSWER - 1, BATCH_QUIET // 100)
    assert pair.manager.held_until(pair.now) > pair.now
    pass_singles(pair, 1, BATCH_QUIET)
    assert pair.manager.held_until(pair.now) == pair.now


def test_whom_to_ask_is_found_out_once_as_soon_as_we_count() -> None:
    pair = Quiet()
    view, lane = pair.publisher.view, pair.lane
    lane.target_version, view._started_ns = -1, pair.now - FAST.stable_ns + 1
    assert pair.try_short()
    assert lane.target_version == -1
    pair.now += 1
    assert pair.try_short()
    assert lane.target_version == view.version and not view.is_sure


def test_answers_to_batches_and_to_who_waits_do_not_wait() -> None:
    pair = Quiet()
    pair.publisher.publish_in(pair.now, pair.lane, b"urgent", is_urgent=True)
    _, frame = pair.publisher.out.popleft()
    assert not pair.manager.receive(pair.now, frame, PLACES[1])
    for _ in range(BATCH_AT_ONCE + 5):
        pair.publisher.publish_in(pair.now, pair.lane, b"many")
    pair.publisher.publishing._cut(pair.now, pair.lane)
    *_, (_, frame) = pair.publisher.out
    assert not pair.manager.receive(pair.now, frame, PLACES[1])
