"""One sample a slot: the losses of the obvious filter, and none of ours, at any jitter."""

from itertools import pairwise
from random import Random

import pytest

from hubbub.limits import MS, SECOND, US
from hubbub.protocol.timetrigger.slots import DUPLICATE, EARLY, LATE, TAKEN, Stream
from hubbub.wire.timed import LIMITED, Response

ORIGIN = bytes(14)
DELAY = 2 * MS
EPOCH = 1_700_000_100 * SECOND  # A multiple of all periods here.
RUN_S = 600


def sample(
    sequence: int, tick_ns: int, era: int = 0, granted_us: int = 0, flags: int = 0
) -> Response:
    return Response(ORIGIN, 0, 1, 1, flags, era, sequence, tick_ns, tick_ns, granted_us, b"")


def arrivals(tick_ms: int, jitter_ns: int, random: Random) -> list[tuple[int, int]]:
    """Return tick and arrival of each sample, in the order of arrival: half-normal jitter."""
    ticks = range(0, RUN_S * SECOND, tick_ms * MS)
    delays = [DELAY + min(int(abs(random.gauss(0, jitter_ns))), tick_ms * MS // 2) for _ in ticks]
    return [(tick, tick + delay) for tick, delay in zip(ticks, delays, strict=True)]


def obvious(period_ns: int, pairs: list[tuple[int, int]]) -> list[int]:
    """Return the ticks that `now - last >= period` takes."""
    taken, last = [], None
    for tick, arrival in pairs:
        if last is None or arrival - last >= period_ns:
            taken.append(tick)
            last = arrival
    return taken


# Period and tick in ms; per cent of the wanted samples that the obvious filter takes at jitters of
# 0, 1 us, 100 us, 1 ms and 5 ms; and the longest gap in ms between its samples at any jitter.
LOSSES = [
    (150, 50, [100, 91.2, 83.9, 83.8, 83.8], 200),
    (100, 100, [100, 77.4, 63.1, 63.2, 63.2], 200),
    (100, 50, [100, 87.5, 77.4, 77.4, 77.5], 150),
    (1000, 50, [100, 98.8, 97.3, 97.3, 97.3], 1050),
]
JITTERS = [0, 1 * US, 100 * US, 1 * MS, 5 * MS]
CASES = [
    pytest.param(period, tick, jitter, per_cent, gap, id=f"{period}-{tick}-{jitter // US}us")
    for period, tick, shares, gap in LOSSES
    for jitter, per_cent in zip(JITTERS, shares, strict=True)
]


@pytest.mark.parametrize(("period_ms", "tick_ms", "jitter_ns", "per_cent", "gap_ms"), CASES)
def test_all_wanted_samples_are_taken_where_the_obvious_filter_loses_them(
    period_ms: int, tick_ms: int, jitter_ns: int, per_cent: float, gap_ms: int
) -> None:
    # Whole microseconds, as that was measured: at 1 us of jitter ties decide.
    pairs = arrivals(tick_ms, jitter_ns, Random(period_ms + jitter_ns))
    pairs = [(tick, arrival // US * US) for tick, arrival in pairs]
    wanted = RUN_S * 1000 // period_ms
    taken = obvious(period_ms * MS, pairs)
    assert 100 * len(taken) / wanted == pytest.approx(per_cent, abs=0.7)
    longest_ns = max(after - before for before, after in pairwise(taken))
    assert longest_ns == (gap_ms if jitter_ns else period_ms) * MS
    # Half a tick of tolerance is enough, as long as nothing is lost.
    assert len(obvious(period_ms * MS - tick_ms * MS // 2, pairs)) == wanted
    stamped, unstamped = Stream(0, period_ms * MS), Stream(0, period_ms * MS)
    for sequence, (tick, arrival) in enumerate(sorted(pairs, key=lambda pair: pair[1]), 1):
        assert stamped.judge(arrival) == 0
        stamped.take(arrival, sample(sequence, EPOCH + tick))
        unstamped.take(arrival, sample(sequence, 0))
    assert (stamped.served, stamped.missed) == (wanted, 0)
    assert (unstamped.served, unstamped.missed) == (wanted, 0)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.49])
def test_same_ticks_are_taken_at_any_jitter_below_half_a_tick(share: float) -> None:
    random, taken = Random(5), {}
    for jitter_ns in (0, int(share * 50 * MS)):
        stream = Stream(0, 150 * MS)
        pairs = [(n * 50 * MS, n * 50 * MS + random.randint(0, jitter_ns)) for n in range(1, 2000)]
        taken[jitter_ns] = [
            tick
            for sequence, (tick, arrival) in enumerate(pairs, 1)
            if stream.take(arrival + DELAY, sample(sequence, EPOCH + tick)) == TAKEN
        ]
    assert len({tuple(ticks) for ticks in taken.values()}) == 1


def test_gap_after_losses_is_the_period_and_a_tick_for_each() -> None:
    random = Random(3)
    for losses in range(1, 8):
        stream, gaps, last, left = Stream(0, 150 * MS), [], None, 0
        for number in range(1, 4000):
            tick, left = number * 50 * MS, left - 1
            if left < -1 and random.random() < 0.05:
                left = losses
            if left <= 0 and stream.take(tick, sample(number, tick)) == TAKEN:
                gaps.append(0 if last is None else tick - last)
                last = tick
        assert 150 * MS < max(gaps) <= (150 + 50 * losses) * MS


def test_slot_that_stays_empty_is_judged_once_and_its_sample_is_late() -> None:
    stream = Stream(0, 100 * MS)
    assert stream.take(1 * SECOND, sample(1, 1 * SECOND)) == TAKEN
    assert stream.judge(1249 * MS) == 0
    assert stream.judge(1250 * MS) == 1
    assert stream.judge(1251 * MS) == 0
    assert stream.take(1252 * MS, sample(2, 1100 * MS)) == LATE
    assert stream.take(1253 * MS, sample(3, 1200 * MS)) == TAKEN
    assert stream.take(1254 * MS, sample(3, 1200 * MS)) == DUPLICATE
    assert stream.take(1255 * MS, sample(4, 1250 * MS)) == EARLY
    assert (stream.served, stream.missed) == (2, 1)
    assert stream.judge(1749 * MS) == 3
    assert (stream.served, stream.missed) == (2, 4)


def test_reordered_sample_is_not_taken_after_a_newer_one() -> None:
    stream = Stream(0, 100 * MS)
    assert stream.take(1000 * MS, sample(1, 1000 * MS)) == TAKEN
    assert stream.take(1201 * MS, sample(3, 1200 * MS)) == TAKEN
    assert stream.take(1202 * MS, sample(2, 1100 * MS)) == EARLY
    assert (stream.served, stream.missed) == (2, 1)


@pytest.mark.parametrize("step_ns", [-3600 * SECOND, -70 * MS, 70 * MS, 3600 * SECOND])
def test_step_of_the_producers_clock_costs_at_most_one_slot(step_ns: int) -> None:
    stream, period = Stream(0, 100 * MS), 100 * MS
    now = 0
    for number in range(1, 41):
        era = int(number > 20)
        now = number * period
        stream.judge(now)
        tick = (EPOCH + now + era * step_ns) // period * period
        stream.take(now, sample(number, tick, era))
    assert stream.served == 40
    assert stream.missed <= 1


def test_granted_period_that_is_longer_makes_slots_longer() -> None:
    stream = Stream(0, 1 * MS)
    for number in range(1, 11):
        now = number * 100 * MS
        assert stream.judge(now) == 0
        limited = sample(number, now, granted_us=100_000, flags=LIMITED)
        assert stream.take(now, limited) == TAKEN
    assert (stream.served, stream.missed) == (10, 0)


def test_period_that_others_ask_for_is_not_taken_for_what_is_granted_to_us() -> None:
    stream = Stream(0, 10 * MS)
    missed = 0
    for number in range(1, 11):
        now = number * 100 * MS
        missed += stream.judge(now)
        assert stream.take(now, sample(number, now, granted_us=100_000)) == TAKEN
    assert (stream.served, stream.missed) == (10, 9 * 9) and missed > 50


def test_limit_that_ends_leaves_no_slots_behind_that_were_never_owed() -> None:
    stream = Stream(0, 10 * MS)
    assert stream.take(100 * MS, sample(1, 100 * MS, granted_us=100_000, flags=LIMITED)) == TAKEN
    assert stream.take(200 * MS, sample(2, 200 * MS, granted_us=10_000)) == TAKEN
    assert stream.take(210 * MS, sample(3, 210 * MS, granted_us=10_000)) == TAKEN
    assert (stream.served, stream.missed) == (3, 0)


def test_slots_before_a_change_of_the_period_are_not_owed_at_the_new_one() -> None:
    stream = Stream(0, 1000 * MS)
    assert stream.take(1002 * MS, sample(1, 1000 * MS)) == TAKEN
    stream.change_period(1902 * MS, 20 * MS)
    assert stream.judge(1910 * MS) == 0
    assert stream.take(1922 * MS, sample(2, 1920 * MS)) == TAKEN
    assert (stream.served, stream.missed) == (2, 0)


def test_period_that_changes_serves_no_slot_twice() -> None:
    stream = Stream(0, 100 * MS)
    assert stream.take(1000 * MS, sample(1, 1000 * MS)) == TAKEN
    stream.change_period(1000 * MS, 300 * MS)
    assert stream.take(1100 * MS, sample(2, 1100 * MS)) == EARLY
    assert stream.take(1200 * MS, sample(3, 1200 * MS)) == TAKEN
    stream.change_period(1200 * MS, 50 * MS)
    assert stream.take(1240 * MS, sample(4, 1240 * MS)) == EARLY
    assert stream.take(1250 * MS, sample(5, 1250 * MS)) == TAKEN


def test_unstamped_stream_is_anchored_anew_after_a_silence() -> None:
    stream = Stream(0, 100 * MS)
    taken = [
        n
        for n in (*range(0, 1000, 50), *range(1230, 2000, 50))
        if stream.take(SECOND + n * MS, sample(n + 1, 0)) == TAKEN
    ]
    assert taken == [*range(0, 1000, 100), *range(1230, 2000, 100)]


@pytest.mark.parametrize("delay_ms", [100, 160, 500, 3000])
def test_way_that_becomes_longer_for_good_costs_the_slots_it_took_and_no_more(
    delay_ms: int,
) -> None:
    stream, period = Stream(0, 100 * MS), 100 * MS
    for number in range(1, 201):
        now = number * period + (delay_ms * MS if number > 20 else 0)
        stream.judge(now)
        stream.take(now, sample(number, EPOCH + number * period))
    assert stream.served + stream.missed == 200
    assert stream.missed <= delay_ms // 100 + 1
    at_rest = stream.missed
    for number in range(201, 301):  # And when it is short again, slots are judged in time.
        now = number * period + delay_ms * MS * (number < 203)
        stream.judge(now)
        stream.take(now, sample(number, EPOCH + number * period))
    assert stream.missed == at_rest
    assert stream.judge(302 * period + 51 * MS) == 1
