"""Asking for what is missing: soon, seldom, again, and not for ever."""

from itertools import pairwise
from math import exp, log
from random import Random
from statistics import mean

import pytest

from hubbub.limits import (
    BACKOFF_FACTOR,
    GRTT_FLOOR,
    GRTT_START,
    HOLDOFF_CEILING,
    MISSING_FRAMES_MAX,
    MS,
    UNANSWERED_CYCLES,
)
from hubbub.protocol.repair import Requester, draw_backoff_ns

TOLERANCE = 1 * MS
WINDOW = BACKOFF_FACTOR * GRTT_FLOOR


def make(receivers: int = 1, seed: int = 0) -> Requester:
    requester = Requester(Random(seed), TOLERANCE)
    requester.grtt_ns = GRTT_FLOOR
    requester.receivers = receivers
    return requester


def fire(requester: Requester) -> tuple[int, list[int]]:
    """Let the timer run out beside other frames; return when that was and what was asked for."""
    while True:
        assert requester.timer_ns is not None
        now = requester.timer_ns
        frames = requester.due(now, now)
        if frames or requester.timer_ns is None:
            return now, frames


def test_lone_receiver_asks_after_the_reorder_tolerance() -> None:
    requester = make()
    requester.miss(0, 5, 8)
    assert requester.due(TOLERANCE - 1, 0) == []
    assert fire(requester) == (TOLERANCE, [5, 6, 7])


def test_frame_that_was_only_late_is_not_asked_for() -> None:
    requester = make()
    requester.miss(0, 5, 6)
    assert requester.found(5)
    assert requester.timer_ns is None and not requester.found(5)


def test_one_request_names_every_gap() -> None:
    requester = make()
    requester.miss(0, 5, 6)
    requester.miss(TOLERANCE // 2, 9, 11)
    assert fire(requester) == (TOLERANCE, [5, 9, 10])


def test_request_is_held_off_and_then_repeated() -> None:
    requester = make()
    requester.miss(0, 5, 6)
    first, _ = fire(requester)
    again, frames = fire(requester)
    assert frames == [5]
    assert again - first >= 2 * GRTT_FLOOR


def test_frames_lost_while_a_request_is_under_way_do_not_wait_for_its_end() -> None:
    requester = make()
    requester.miss(0, 5, 6)
    asked, _ = fire(requester)
    requester.miss(asked, 9, 10)
    assert fire(requester) == (asked + TOLERANCE, [9])


def test_holdoff_doubles_after_unanswered_cycles_up_to_a_ceiling() -> None:
    requester = make()
    requester.miss(0, 5, 6)
    times = [fire(requester)[0] for _ in range(40)]
    waits = [after - before for before, after in pairwise(times)]
    assert len(set(waits[: UNANSWERED_CYCLES - 1])) == 1
    assert waits[UNANSWERED_CYCLES + 2] > 2 * waits[0]
    assert waits == sorted(waits)
    assert waits[-1] <= HOLDOFF_CEILING + TOLERANCE


def test_an_answer_ends_the_doubling() -> None:
    requester = make()
    requester.miss(0, 5, 7)
    for _ in range(10):
        fire(requester)
    requester.found(5)
    assert requester.unanswered == 0


def test_after_an_answer_what_was_held_off_for_long_is_asked_for_soon() -> None:
    requester = make()
    requester.miss(0, 5, 7)
    for _ in range(12):
        now, _ = fire(requester)
    assert requester.missing[6].due_ns - now > 10 * GRTT_FLOOR
    requester.repaired(now, 5)
    later, frames = fire(requester)
    assert frames == [6] and later - now <= 2 * GRTT_START + TOLERANCE


def test_lone_receiver_asks_again_when_its_sender_is_silent() -> None:
    requester = make()
    requester.grtt_ns = 50 * MS
    requester.miss(0, 5, 7)
    asked, _ = fire(requester)
    assert requester.due(asked + GRTT_FLOOR - 1, 0) == []
    assert requester.due(asked + GRTT_FLOOR, asked + GRTT_FLOOR - 1) == []  # It was heard.
    assert requester.timer_ns == asked + 2 * GRTT_FLOOR - 1
    assert requester.due(requester.timer_ns, asked + GRTT_FLOOR - 1) == [5, 6]
    again = requester.timer_ns
    assert again == asked + 4 * GRTT_FLOOR - 1, "twice as patient"


def test_repair_that_comes_shows_that_those_asked_for_before_it_are_lost() -> None:
    requester = make()
    requester.grtt_ns = 50 * MS
    requester.miss(0, 5, 8)
    asked, _ = fire(requester)
    requester.miss(asked, 20, 21)
    fire(requester)
    came = asked + 3 * MS
    requester.repaired(came, 6)
    assert fire(requester) == (came + TOLERANCE, [5]), "7 and 20 may still come"
    requester.repaired(came + 2 * MS, 20)
    assert fire(requester) == (came + 2 * MS + TOLERANCE, [7]), "5 was asked for again after 20"


def test_lone_receiver_is_as_patient_as_repairs_take() -> None:
    requester = make()
    requester.grtt_ns = 100 * MS
    now = 0
    for sequence in range(20):
        requester.miss(now, sequence, sequence + 1)
        asked, _ = fire(requester)
        now = asked + 20 * MS
        requester.repaired(now, sequence)
    requester.miss(now, 100, 101)
    asked, _ = fire(requester)
    assert requester.due(asked + 35 * MS, asked) == []
    assert requester.due(asked + 41 * MS, asked) == [100]


def test_unanswered_requests_do_not_pile_up() -> None:
    requester = make()
    requester.miss(0, 0, 100)
    for _ in range(50):
        fire(requester)
    assert len(requester._under_way) <= 300


def test_receiver_in_a_group_waits_for_the_holdoff_also_in_silence() -> None:
    requester = make(receivers=2)
    requester.miss(0, 5, 6)
    asked, _ = fire(requester)
    assert requester.timer_ns is not None
    assert requester.timer_ns - asked >= (BACKOFF_FACTOR + 2) * GRTT_FLOOR


def test_hearing_another_ask_holds_off_exactly_what_it_names() -> None:
    requester = make(receivers=10)
    requester.miss(0, 5, 9)
    requester.heard(0, [(6, 2), (100, 3)])
    now, frames = fire(requester)
    assert frames == [5, 8] and now <= WINDOW
    assert requester.suppressed == 2
    later, frames = fire(requester)
    assert later >= (BACKOFF_FACTOR + 2) * GRTT_FLOOR
    assert set(frames) >= {6, 7}


def test_second_nak_for_the_same_gap_is_suppressed_once() -> None:
    requester = make(receivers=10)
    requester.miss(0, 5, 6)
    requester.heard(0, [(5, 1)])
    requester.heard(1, [(5, 1)])
    assert requester.suppressed == 1


def test_ranges_far_longer_than_what_is_missing_name_only_that() -> None:
    requester = make(receivers=10)
    requester.miss(0, 5, 7)
    assert requester.within([(0, MISSING_FRAMES_MAX), (6, 1)]) == [5, 6, 6]
    assert requester.within([(7, 2**32 - 1)]) == []


def test_frames_are_given_up_after_rounds_or_time() -> None:
    requester = make()
    requester.miss(0, 5, 6)
    for _ in range(3):
        now, _ = fire(requester)
    assert requester.given_up(now, rounds=3, time_ns=1 << 60) == []
    fire(requester)
    assert requester.given_up(now, rounds=3, time_ns=1 << 60) == [5]
    assert requester.given_up(now, rounds=99, time_ns=now) == []
    assert requester.given_up(now + 1, rounds=99, time_ns=now) == [5]


def test_backoff_stays_within_its_window() -> None:
    random = Random(1)
    for receivers in (1, 2, 50, 2**32 - 1):
        draws = [draw_backoff_ns(random, WINDOW, receivers) for _ in range(500)]
        assert min(draws) >= 0 and max(draws) <= WINDOW


@pytest.mark.parametrize("receivers", [2, 10, 50, 200])
def test_backoff_has_the_distribution_of_rfc_5401(receivers: int) -> None:
    # P(t <= c T) = (e^(cL) - 1) / (e^L - 1) with L = ln(group size) + 1.
    random = Random(receivers)
    draws = sorted(draw_backoff_ns(random, WINDOW, receivers) for _ in range(4000))
    scale = log(receivers) + 1
    for share in (0.25, 0.5, 0.75, 0.9):
        expected = (exp(share * scale) - 1) / (exp(scale) - 1)
        measured = sum(draw <= share * WINDOW for draw in draws) / len(draws)
        assert measured == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(("receivers", "bound"), [(10, 1.9), (50, 2.5), (200, 3.2)])
def test_group_that_loses_the_same_frame_asks_about_once(receivers: int, bound: float) -> None:
    random = Random(receivers)

    def naks() -> int:
        # Everybody hears the first NAK half a round trip later; who has not asked by then will not.
        times = sorted(draw_backoff_ns(random, WINDOW, receivers) for _ in range(receivers))
        return sum(time < times[0] + GRTT_FLOOR // 2 for time in times)

    assert mean(naks() for _ in range(800)) <= bound
