"""A producer follows its interests: when it samples, for whom, and when not at all."""

import os
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.limits import INTERESTS_MAX, INTERESTS_PER_NODE_MAX, MS, SECOND, US
from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.interests import NEVER, Interests
from hubbub.protocol.timetrigger.plan import DUE, HARMONISED, STRICT, Plan
from hubbub.protocol.timetrigger.producer import Due, Producer, ProducerOptions
from hubbub.wire.timed import OBSERVE, RESUMED, Interest, Wanted, make_origin

ORIGIN = make_origin(b"p" * 12, 2)
WALL = 1_700_000_100 * SECOND


def interest(
    port: int = 0, version: int = 1, *periods_ms: float, node: bytes = b"c" * 12,
    lease_ms: int = 3000, mode: int = 0, scope: int = 0,
) -> Interest:  # fmt: skip
    wants = [Wanted(place, int(ms * 1000)) for place, ms in enumerate(periods_ms, 2)]
    return Interest(node, port, 0, 1, 1, version, lease_ms, mode, scope, wants)


def test_first_sample_since_somebody_wants_any_says_so_and_sequences_have_no_holes() -> None:
    bench, flags, sequences = Bench(), [], []
    for version, begin_ms in ((1, 0), (3, 5000)):
        bench.now = begin_ms * MS
        bench.want(interest(0, version, 100))
        for step_ms in range(0, 300, 10):
            bench.now = (begin_ms + step_ms) * MS
            due = bench.producer.advance(bench.now)
            response = due and bench.producer.respond(bench.now, due, b"x", 0)
            if response:
                flags.append(response.flags & RESUMED)
                sequences.append(response.sequence)
            bench.producer.offer()
        bench.want(interest(0, version + 1))
    half = len(flags) // 2
    assert flags == [RESUMED, *[0] * (half - 1)] * 2 and half >= 3
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


def flags_after(bench: "Bench", *asked: Interest) -> int:
    """Return the flags of the first sample that interests draw, heard one after the other."""
    found: list[int] = []
    for one in asked:
        bench.want(one)
        while one.wants and not found:
            due = bench.producer.advance(bench.now)
            response = due and bench.producer.respond(bench.now, due, b"x", 0)
            found += [response.flags] if response else []
            bench.now += 10 * MS
    return found[0]


def test_lease_that_ran_out_while_the_producer_slept_leaves_its_slots_owed() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 100))
    bench.run(500 * MS)
    bench.now = 3100 * MS  # The renewal has waited in the socket.
    assert not flags_after(bench, interest(0, 2, 100)) & RESUMED


def test_lease_that_ran_out_while_the_producer_was_awake_leaves_no_slot_owed() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 100))
    bench.run(3200 * MS)
    assert flags_after(bench, interest(0, 2, 100)) & RESUMED


def test_interest_withdrawn_after_a_sleep_leaves_no_slot_owed() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 100))
    bench.run(500 * MS)
    bench.now = 3100 * MS
    bench.want(interest(0, 2, 100))
    assert flags_after(bench, interest(0, 3), interest(0, 4, 100)) & RESUMED


class Bench:
    """A producer under a hand-turned clock; samples are made at once."""

    def __init__(self, **options: object) -> None:
        self.now = 0
        self.clock = SlotClock()
        self.clock.discipline(0, WALL, None)
        self.producer = Producer(
            0, ORIGIN, 1, "/x", self.clock,
            ProducerOptions(**options),  # type: ignore[arg-type]
        )  # fmt: skip
        self.ticks: list[int] = []

    def want(self, asked: Interest, via: bytes = b"v") -> bool:
        self.advance()
        return self.producer.take_interest(self.now, asked, via)

    def advance(self) -> Due | None:
        due = self.producer.advance(self.now)
        if due is not None:
            response = self.producer.respond(self.now, due, b"x", 0)
            assert response is not None
            assert response.tick_ns == due.tick_ns
            self.ticks.append(due.tick_ns - WALL)
        return due

    def run(self, until_ns: int) -> None:
        while self.producer.due_ns <= until_ns:
            self.now = max(self.now, self.producer.due_ns)
            self.advance()
        self.now = until_ns

    def ms(self) -> list[float]:
        return [tick / MS for tick in self.ticks]


def test_strict_ticks_at_every_multiple_of_the_common_divisor() -> None:
    bench = Bench(schedule=STRICT)
    bench.now = 60 * MS
    bench.want(interest(0, 1, 100, 150))
    bench.run(400 * MS)
    assert bench.producer.plan.tick_ns == 50 * MS
    assert bench.ms() == [50, 100, 150, 200, 250, 300, 350, 400]


def test_due_ticks_only_where_a_period_begins() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 100, 150))
    bench.run(600 * MS)
    assert bench.ms() == [0, 100, 150, 200, 300, 400, 450, 500, 600]


def test_harmonised_ticks_at_the_shortest_period() -> None:
    bench = Bench(schedule=HARMONISED)
    bench.want(interest(0, 1, 100, 150, 330))
    bench.run(500 * MS)
    assert bench.ms() == [0, 100, 200, 300, 400, 500]


def test_nobody_who_wants_anything_no_tick() -> None:
    bench = Bench()
    bench.run(10 * SECOND)
    assert bench.ticks == [] and bench.producer.due_ns == NEVER


def test_newcomer_is_served_at_once_and_no_tick_twice() -> None:
    bench = Bench()
    bench.now = 437 * MS
    bench.want(interest(0, 1, 1000))
    bench.run(440 * MS)
    assert bench.ms() == [437]
    bench.want(interest(1, 1, 300))
    bench.run(450 * MS)
    assert bench.ms() == [437, 440]
    bench.run(1050 * MS)
    assert bench.ms() == [437, 440, 600, 900, 1000]


def test_second_consumer_of_a_node_is_served_at_once_too() -> None:
    bench = Bench()
    bench.now = 437 * MS
    bench.want(interest(0, 1, 60_000))
    bench.run(500 * MS)
    assert bench.want(interest(0, 2, 60_000, 8_000))
    bench.run(510 * MS)
    assert bench.ms() == [437, 500]
    assert bench.want(interest(0, 3, 60_000, 8_000, 8_000)), "a third, of a period that is there"
    bench.run(520 * MS)
    assert bench.ms() == [437, 500, 510]
    assert not bench.want(interest(0, 4, 60_000, 8_000, 8_000)), "a renewal is no newcomer"
    assert bench.want(interest(0, 5, 60_000))
    bench.run(530 * MS)
    assert bench.ms() == [437, 500, 510]


def test_lease_that_is_not_renewed_ends_the_ticks() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 100))
    bench.run(2500 * MS)
    bench.want(interest(0, 2, 100))
    bench.run(20 * SECOND)
    assert bench.ms() == [*range(0, 5500, 100)]
    assert not bench.producer.is_wanted


def test_withdrawal_ends_one_period_and_not_that_of_another_consumer() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 100))
    bench.want(interest(1, 1, 100))
    bench.want(interest(0, 2))
    bench.run(300 * MS)
    assert bench.ms() == [0, 100, 200, 300]
    bench.want(interest(1, 2))
    bench.run(10 * SECOND)
    assert not bench.producer.plan and len(bench.ticks) == 4


def test_changed_period_replaces_the_old_one_and_an_old_frame_changes_nothing() -> None:
    bench = Bench()
    bench.want(interest(0, 5, 100))
    bench.run(250 * MS)
    assert bench.want(interest(0, 6, 200))
    assert not bench.want(interest(0, 5, 100))
    assert not bench.want(interest(0, 6, 100))
    bench.run(1000 * MS)
    assert bench.ms() == [0, 100, 200, 400, 600, 800, 1000]
    bench.want(interest(0, 7))
    assert not bench.want(interest(0, 6, 200)), "a replayed frame brought it back"


def test_change_of_the_plan_leaves_no_gap_longer_than_the_period() -> None:
    random, bench, version = Random(4), Bench(schedule=STRICT), 1
    bench.want(interest(0, 1, 100, lease_ms=10**6))
    for _ in range(200):
        bench.run(bench.now + random.randrange(400) * MS)
        version += 1
        periods = random.choice([(), (150,), (70, 330), (33,)])
        bench.want(interest(1, version, *periods))
    slots = {tick // (100 * MS) for tick in bench.ticks}
    assert slots == set(range(max(slots) + 1))
    assert len(set(bench.ticks)) == len(bench.ticks)


@pytest.mark.parametrize("withdrawn_ms", [301, 319])
def test_slot_whose_tick_was_to_come_later_keeps_it_when_the_plan_changes(
    withdrawn_ms: int,
) -> None:
    bench = Bench(schedule=HARMONISED)
    bench.want(interest(1, 1, 80))
    bench.want(interest(0, 1, 300))
    bench.run(withdrawn_ms * MS)  # The slot from 300 ms on was to be served at 320.
    bench.want(interest(1, 2))
    bench.run(1000 * MS)
    assert bench.ms() == [0, 1, 80, 160, 240, 320, 600, 900]


def test_pause_is_not_made_up_for_by_a_burst() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 10, lease_ms=10**6))
    bench.run(100 * MS)
    bench.now = 5 * SECOND + 3 * MS
    bench.advance()
    bench.run(5030 * MS)
    assert bench.ms()[-4:] == [5000, 5010, 5020, 5030]
    assert bench.producer.skipped == 489


def test_endless_pause_is_reckoned_and_not_counted_tick_by_tick() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 1, lease_ms=10**9))
    bench.run(10 * MS)
    bench.now = 1000 * SECOND
    bench.advance()
    assert bench.ms()[-1] == 1_000_000
    assert bench.producer.skipped == pytest.approx(999_989, rel=0.001)


def test_sampling_that_takes_too_long_skips_ticks() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 100))
    bench.now = 1 * MS
    due = bench.producer.advance(bench.now)
    assert due is not None
    for now_ms in (100, 200, 300):
        assert bench.producer.advance(now_ms * MS) is None
    assert bench.producer.skipped == 2
    assert bench.producer.respond(350 * MS, due, b"late", 0) is not None
    assert bench.producer.advance(400 * MS) is not None


def test_newest_tick_waits_for_the_sample_before_it() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 99, 100))
    bench.now = 1 * MS
    first = bench.producer.advance(bench.now)
    assert first is not None and bench.producer.respond(2 * MS, first, b"x", 0) is not None
    due = bench.producer.advance(99 * MS)
    assert due is not None and bench.producer.advance(100 * MS) is None
    assert bench.producer.respond(101 * MS, due, b"x", 0) is not None
    following = bench.producer.follow()
    assert following is not None and following.tick_ns == WALL + 100 * MS
    assert bench.producer.respond(102 * MS, following, b"x", 0) is not None
    assert (bench.producer.skipped, bench.producer.follow()) == (0, None)
    # What nobody wants any more by then is not made.
    assert bench.producer.advance(198 * MS) is not None
    assert bench.producer.advance(200 * MS) is None
    bench.now = 201 * MS
    bench.want(interest(0, 2))
    assert bench.producer.follow() is None


def test_nothing_is_sent_after_stop() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 100))
    due = bench.producer.advance(0)
    bench.producer.stop()
    assert due is not None
    assert bench.producer.respond(1, due, b"x", 0) is None
    assert bench.producer.due_ns == NEVER
    assert not bench.producer.take_interest(2, interest(0, 2, 50), b"v")


@pytest.mark.parametrize("step_ns", [-10 * SECOND, -60 * MS, 60 * MS, 10 * SECOND])
def test_step_of_the_clock_makes_at_most_one_gap_of_two_periods(step_ns: int) -> None:
    bench, times = Bench(), []
    bench.want(interest(0, 1, 100, lease_ms=10**6))
    while bench.now < 4 * SECOND:
        bench.now = bench.producer.due_ns
        if bench.advance() is not None:
            times.append(bench.now)
        if 2 * SECOND <= bench.now < 2 * SECOND + 90 * MS and not bench.clock.era:
            bench.now += 30 * MS
            bench.clock.discipline(bench.now, WALL + step_ns, None)
            bench.producer.clock_changed(bench.now)
    gaps = [after - before for before, after in pairwise(times)]
    assert bench.clock.era == 1
    assert max(gaps) <= 200 * MS
    assert sum(gap != 100 * MS for gap in gaps) <= 2


def test_staggered_producers_send_at_other_moments_for_the_same_tick() -> None:
    bench = Bench(is_staggered=True)
    bench.want(interest(0, 1, 100))
    bench.run(150 * MS)
    ticks = len(bench.ticks)
    bench.now = bench.producer.due_ns
    assert 200 * MS < bench.now < 250 * MS
    bench.advance()
    assert bench.ms()[ticks:] == [200]


def test_observer_gets_copies_and_starts_nothing() -> None:
    bench = Bench()
    bench.want(interest(0, 1, 0, mode=OBSERVE), b"o")
    bench.run(1 * SECOND)
    assert bench.ticks == []
    bench.want(interest(1, 1, 500), b"v")
    bench.run(2 * SECOND)
    assert bench.ms() == [1000, 1500, 2000]
    assert sorted(bench.producer.receivers) == [b"o", b"v"]


def test_period_0_asks_for_one_sample_at_once() -> None:
    bench = Bench()
    bench.now = 5 * MS
    bench.want(interest(0, 1, 0))
    bench.run(2 * SECOND)
    assert bench.ms() == [5]
    strict = Bench(schedule=STRICT)
    assert not strict.want(interest(0, 1, 0))


def test_interest_of_another_scope_is_not_for_it() -> None:
    bench = Bench(scope=7)
    assert not bench.want(interest(0, 1, 100, scope=8))
    assert bench.want(interest(0, 1, 100, scope=7))
    assert bench.want(interest(1, 1, 100))


@pytest.mark.soak
def test_million_interests_of_a_microsecond_stay_below_the_cap() -> None:
    bench = Bench(cap_hz=500)
    for number in range(1_000_000 if os.environ.get("HUBBUB_SOAK") == "1" else 50_000):
        node = (number % 6000).to_bytes(12, "big")
        asked = interest(0, number + 1, 0.001, node=node, lease_ms=10**6)
        bench.producer.take_interest(bench.now, asked, node)
    bench.run(2 * SECOND)
    assert 999 <= len(bench.ticks) <= 1001
    assert bench.producer.plan.granted_us == 2000
    assert bench.producer.refused_periods >= INTERESTS_MAX
    assert len(bench.producer.interests.leases) == INTERESTS_MAX
    assert bench.producer.interests.refused > 0


def test_one_node_cannot_take_all_the_room() -> None:
    table = Interests()
    taken = [table.take(0, interest(port, 1, 100), b"v") for port in range(5000)]
    assert sum(taken) == len(table.leases) == INTERESTS_PER_NODE_MAX
    assert table.take(0, interest(0, 1, 100, node=b"d" * 12), b"w")


actions = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from([(), (20,), (33,), (100,), (150,), (20, 33.333)]),
        st.integers(0, 300),
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=60)
@given(st.sampled_from([STRICT, DUE, HARMONISED]), actions)
def test_whatever_is_asked_ticks_grow_and_keep_their_distance(
    schedule: str, asked: list[tuple[int, tuple[float, ...], int]]
) -> None:
    bench, live = Bench(schedule=schedule), {}
    for version, (port, periods, wait_ms) in enumerate(asked, 1):
        bench.want(interest(port, version, *periods, lease_ms=10**6))
        live[port] = periods
        plan = Plan(schedule, [int(ms * 1000) for some in live.values() for ms in some], 1000)
        assert bench.producer.plan.tick_ns == plan.tick_ns
        bench.run(bench.now + wait_ms * MS)
    gaps = [after - before for before, after in pairwise(bench.ticks)]
    assert all(gap >= 1000 * US for gap in gaps)
