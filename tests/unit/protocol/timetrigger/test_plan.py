"""When ticks are: the rates that were computed for three schedules, and the bounds they keep."""

from itertools import pairwise
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.limits import PERIODS_PLANNED_MAX, SECOND, US
from hubbub.protocol.timetrigger.plan import DUE, HARMONISED, STRICT, Plan

# Periods in us; G in us; frames a second at G, only due, at the shortest period.
RATES = [
    ((100_000, 150_000), 50_000, 20, 13.3, 10),
    ((100_000, 150_000, 250_000), 50_000, 20, 14.7, 10),
    ((20_000, 33_000, 100_000), 1000, 1000, 78.8, 50),
    ((33_333, 50_000, 100_000), 1, 1_000_000, 50.0, 30),
    ((100_000, 100_001), 1, 1_000_000, 20.0, 10),
]
SCHEDULES = [STRICT, DUE, HARMONISED]
periods_us = st.lists(st.integers(1, 400_000), min_size=1, max_size=6)
spacings_us = st.sampled_from([1, 10, 1000, 1500, 20_000])


def ticks(plan: Plan, start_ns: int, end_ns: int) -> list[int]:
    found = []
    tick = plan.next_after(start_ns)
    while tick <= end_ns:
        found.append(tick)
        tick = plan.next_after(tick)
    return found


@pytest.mark.parametrize(("periods", "common_us", "strict", "due", "harmonised"), RATES)
def test_rates_are_those_that_were_computed(
    periods: tuple[int, ...], common_us: int, strict: float, due: float, harmonised: float
) -> None:
    plans = [Plan(schedule, periods, 1) for schedule in SCHEDULES]
    assert plans[0].tick_ns == common_us * US
    rates = [plan.millihertz / 1000 for plan in plans]
    assert rates == pytest.approx([strict, due, harmonised], abs=0.05)
    for plan in plans[1:]:
        count = len(ticks(plan, 0, 60 * SECOND))
        assert count / 60 == pytest.approx(plan.millihertz / 1000, abs=0.05)


@pytest.mark.parametrize(("periods", "common_us", "strict", "due", "harmonised"), RATES)
def test_a_floor_of_a_millisecond_tames_the_rates(
    periods: tuple[int, ...], common_us: int, strict: float, due: float, harmonised: float
) -> None:
    plan = Plan(STRICT, periods, 1000)
    assert plan.tick_ns >= 1000 * US
    assert plan.millihertz <= 1_000_000
    assert len(ticks(Plan(DUE, periods, 1000), 0, 60 * SECOND)) / 60 <= due + 0.05


@given(st.sampled_from(SCHEDULES), periods_us, spacings_us, st.integers(0, 10**15))
def test_every_slot_of_every_consumer_has_a_tick(
    schedule: str, periods: list[int], spacing_us: int, start_ns: int
) -> None:
    plan = Plan(schedule, periods, spacing_us)
    for period_us in periods:
        served_ns = max(period_us, plan.granted_us, spacing_us) * US
        for slot in range(start_ns // served_ns + 1, start_ns // served_ns + 4):
            tick = plan.next_after(slot * served_ns - 1)
            assert slot * served_ns <= tick < (slot + 1) * served_ns


@given(st.sampled_from(SCHEDULES), periods_us, spacings_us, st.integers(0, 10**15))
def test_ticks_grow_and_are_never_closer_than_the_spacing(
    schedule: str, periods: list[int], spacing_us: int, start_ns: int
) -> None:
    plan = Plan(schedule, periods, spacing_us)
    found = [start_ns]
    for _ in range(50):
        found.append(plan.next_after(found[-1]))
        assert plan.last_at(found[-1]) == found[-1]
        assert plan.last_at(found[-1] - 1) < found[-1]
    gaps = [after - before for before, after in pairwise(found[1:])]
    assert min(gaps) >= spacing_us * US


@given(periods_us, spacings_us)
def test_load_is_bounded_by_common_divisor_and_sum(periods: list[int], spacing_us: int) -> None:
    due = Plan(DUE, periods, spacing_us)
    served = {max(period, spacing_us) for period in periods}
    total = sum(1_000_000_000 / period for period in served)
    assert due.millihertz <= min(1000 * SECOND / due.tick_ns, total) + 1


@given(st.lists(st.integers(1, 400), min_size=1, max_size=5), st.integers(1, 400))
def test_adding_never_raises_the_common_tick_and_removing_never_lowers_it(
    periods_ms: list[int], more_ms: int
) -> None:
    few = Plan(STRICT, [period * 1000 for period in periods_ms], 1000)
    more = Plan(STRICT, [period * 1000 for period in [*periods_ms, more_ms]], 1000)
    assert more.tick_ns <= few.tick_ns and few.tick_ns % more.tick_ns == 0
    assert few.tick_ns == gcd(*periods_ms) * 1_000_000


def test_nobody_who_wants_anything_is_no_plan() -> None:
    plan = Plan(DUE, [], 1000)
    assert not plan
    assert (plan.millihertz, plan.granted_us, plan.tick_ns) == (0, 0, 0)


def test_more_periods_than_can_be_looked_at_are_served_at_the_shortest() -> None:
    plan = Plan(DUE, range(10_000, 10_000 + 2 * PERIODS_PLANNED_MAX), 1000)
    assert plan.schedule == HARMONISED
    assert plan.tick_ns == 10_000 * US
