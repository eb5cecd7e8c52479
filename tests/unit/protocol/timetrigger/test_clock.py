"""The slot clock: monotonic between steps, its own inverse, and honest about its error."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hubbub.limits import CLOCK_SLEW_PARTS, CLOCK_STEP, MS, SECOND, US
from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.offsets import FOLLOWS, FREE, SYSTEM, Offsets
from hubbub.wire.timed import ANSWERS, ClockExchange

WALL = 1_700_000_000 * SECOND


def make_clock(offset_ns: int = WALL) -> SlotClock:
    clock = SlotClock()
    clock.discipline(0, offset_ns, 0)
    return clock


def test_first_offset_is_taken_without_a_step() -> None:
    clock = make_clock()
    assert clock.at(5) == WALL + 5
    assert (clock.era, clock.steps) == (0, 0)


def test_small_difference_is_slewed() -> None:
    clock = make_clock()
    assert not clock.discipline(SECOND, WALL + 10 * MS, 0)
    assert clock.at(SECOND) == WALL + SECOND
    assert clock.at(SECOND + 500 * MS) == WALL + SECOND + 505 * MS
    assert clock.at(3 * SECOND) == WALL + 3 * SECOND + 10 * MS
    assert clock.era == 0


def test_large_difference_is_a_step_of_a_new_era() -> None:
    clock = make_clock()
    assert clock.discipline(SECOND, WALL - SECOND, 0)
    assert clock.at(SECOND) == WALL
    assert (clock.era, clock.steps) == (1, 1)


offsets = st.integers(-CLOCK_STEP, CLOCK_STEP)


@given(st.lists(st.tuples(st.integers(0, SECOND), offsets), max_size=6), st.integers(0, 9 * SECOND))
def test_slewed_clock_is_monotonic_and_when_is_its_inverse(
    changes: list[tuple[int, int]], ahead_ns: int
) -> None:
    clock, now, target = make_clock(), 0, WALL
    for wait_ns, difference_ns in changes:
        before = clock.at(now)
        now += wait_ns
        assert clock.at(now) - before >= wait_ns * (CLOCK_SLEW_PARTS - 1) // CLOCK_SLEW_PARTS - 1
        target = clock.at(now) - now + difference_ns
        clock.discipline(now, target, 0)
    slot_ns = clock.at(now) + ahead_ns
    reached = clock.when(slot_ns)
    assert clock.at(reached) >= slot_ns > clock.at(reached - 1)


def exchange(
    offsets: Offsets, now: int, there_ns: int, back_ns: int, ahead_ns: int, rank: int = SYSTEM
) -> tuple[int, ClockExchange]:
    heard = now + there_ns + ahead_ns
    answer = ClockExchange(ANSWERS, offsets.key, rank, now, heard, heard + MS, 3)
    return now + there_ns + MS + back_ns, answer


def test_offset_is_off_by_at_most_half_the_round_trip() -> None:
    ours = Offsets(b"b" * 20, FREE)
    ways_us = [(10, 900), (500, 30), (40, 60), (2000, 10)]
    for at_ms, (there_us, back_us) in enumerate(ways_us, 1000):
        now, answer = exchange(ours, at_ms * MS, there_us * US, back_us * US, WALL)
        reading = ours.hear(now, b"a" * 20, answer)
        assert reading is not None
        assert abs(reading.offset_ns - WALL) <= reading.error_ns
    assert reading.error_ns < 60 * US  # The quickest exchange counts: 50 us and the other's 3 us.
    assert ours.following == b"a" * 20 and ours.rank == FOLLOWS


def test_exchange_is_worth_less_the_longer_it_is_ago() -> None:
    ours = Offsets(b"b" * 20, FREE)
    for now_ns, way_us in ((SECOND, 50), (2 * SECOND, 100), (4 * SECOND, 250)):
        now, answer = exchange(ours, now_ns, way_us * US, way_us * US, WALL)
        reading = ours.hear(now, b"a" * 20, answer)
    # Clocks drift by 100 us a second at most: after three of them 50 us have become 350.
    assert reading is not None and reading.error_ns == (250 + 3) * US


def test_best_rank_then_lowest_key_is_followed_and_nobody_follows_a_follower() -> None:
    ours = Offsets(b"m" * 20, FREE)
    for key, rank in [(b"a", FREE), (b"z", SYSTEM), (b"q", SYSTEM), (b"b", FOLLOWS)]:
        now, answer = exchange(ours, SECOND, US, US, WALL, rank)
        ours.hear(now, key * 20, answer)
    assert ours.following == b"q" * 20
    best = Offsets(b"m" * 20, SYSTEM)
    for key, rank in [(b"a", FREE), (b"z", SYSTEM)]:
        now, answer = exchange(best, SECOND, US, US, WALL, rank)
        assert best.hear(now, key * 20, answer) is None
    assert best.following is None and best.rank == SYSTEM


def test_silent_reference_is_left_and_a_stale_answer_ignored() -> None:
    ours = Offsets(b"m" * 20, FREE)
    now, answer = exchange(ours, SECOND, US, US, WALL)
    assert ours.hear(now, b"a" * 20, answer) is not None
    assert ours.choose(now + 6 * SECOND) is None
    assert ours.following is None
    assert ours.hear(now + 7 * SECOND, b"a" * 20, answer) is None


def test_questions_come_fast_at_first_then_each_second() -> None:
    ours, now, times = Offsets(b"m" * 20, FREE), 0, []
    while len(times) < 12:
        if ours.ask(now) is not None:
            times.append(now)
        now += 10 * MS
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == [50 * MS] * 8 + [SECOND] * 3
