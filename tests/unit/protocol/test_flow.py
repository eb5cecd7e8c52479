"""Flow control: within the slowest conforming receiver's window, and without the hopeless."""

from hubbub.limits import GRTT_CEILING, GRTT_FLOOR, MS, SECOND, WINDOW_BYTES_MIN
from hubbub.protocol.flow import Flow, TokenBucket
from hubbub.wire.control import Status

SLOW = 200 * MS
WINDOW = 100_000
CACHE = 1_000_000


def status(contiguous: int, window_bytes: int = WINDOW) -> Status:
    return Status(b"", 0, 0, contiguous, contiguous, window_bytes, 0, 0)


def make(*keys: bytes) -> Flow:
    flow = Flow(SLOW, CACHE)
    for key in keys:
        flow.add(key, 0, 10, 0, WINDOW)
    return flow


def update(flow: Flow, key: bytes, contiguous: int, base: int, now: int = 0) -> None:
    flow.update(now, flow.receivers[key], status(contiguous), 1000, base, base)


def test_nobody_sets_no_limit() -> None:
    assert make().limit is None
    assert make().is_acknowledged(5)


def test_limit_is_that_of_the_receiver_furthest_behind() -> None:
    flow = make(b"a", b"b")
    update(flow, b"a", 50, 5000)
    assert flow.limit == WINDOW and flow.acknowledged == 10
    update(flow, b"b", 30, 3000)
    assert flow.limit == 3000 + WINDOW and flow.acknowledged == 30
    flow.remove(b"b", 1000)
    assert flow.limit == 5000 + WINDOW and flow.acknowledged == 50


def test_tiny_window_is_raised_to_the_minimum() -> None:
    flow = make(b"a")
    flow.update(0, flow.receivers[b"a"], status(11, window_bytes=0), 1000, 0, 0)
    assert flow.limit == WINDOW_BYTES_MIN


def test_no_window_is_larger_than_what_is_kept_for_repair() -> None:
    flow = Flow(SLOW, CACHE)
    flow.add(b"a", 0, 10, 500, 4 * CACHE)
    assert flow.limit == 500 + CACHE
    flow.update(0, flow.receivers[b"a"], status(11, window_bytes=4 * CACHE), 1000, 600, 600)
    assert flow.limit == 600 + CACHE


def test_status_of_what_was_never_sent_is_not_believed() -> None:
    flow = make(b"a")
    update(flow, b"a", 1001, 5000)
    assert flow.acknowledged == 10 and flow.limit == WINDOW


def test_status_that_was_overtaken_changes_nothing() -> None:
    flow = make(b"a")
    update(flow, b"a", 50, 5000)
    update(flow, b"a", 40, 4000)
    assert flow.acknowledged == 50 and flow.limit == 5000 + WINDOW


def test_receiver_that_does_not_advance_while_it_holds_back_leaves_the_minimum() -> None:
    flow = make(b"slow", b"fast")
    update(flow, b"fast", 500, 50_000, now=100 * MS)
    flow.blocked(100 * MS)
    assert flow.slow_deadline() == 100 * MS + SLOW
    assert flow.drop_slow(100 * MS + SLOW - 1, 1000) == []
    assert flow.drop_slow(100 * MS + SLOW, 1000) == [b"slow"]
    assert flow.limit == 50_000 + WINDOW
    assert flow.acknowledged == 10, "it is still owed what it lacks"


def test_slow_receiver_that_advances_is_waited_for() -> None:
    flow = make(b"a")
    flow.blocked(0)
    update(flow, b"a", 11, 1000, now=150 * MS)
    assert flow.drop_slow(SLOW, 1000) == []
    assert flow.slow_deadline() == 150 * MS + SLOW


def test_nobody_is_slow_while_nothing_waits_to_be_sent() -> None:
    flow = make(b"a")
    assert flow.drop_slow(100 * SECOND, 1000) == [] and flow.slow_deadline() is None
    flow.blocked(0)
    flow.unblocked()
    assert flow.drop_slow(100 * SECOND, 1000) == []


def test_slow_receiver_that_caught_up_counts_again() -> None:
    flow = make(b"a")
    flow.blocked(0)
    flow.drop_slow(SLOW, 1000)
    assert flow.limit is None
    flow.update(SLOW, flow.receivers[b"a"], status(20), 1000, 500_000, 9000)
    assert flow.limit is None, "still a window behind"
    flow.update(SLOW, flow.receivers[b"a"], status(990), 1000, 500_000, 490_000)
    assert flow.limit == 490_000 + WINDOW


def test_lost_receiver_is_owed_but_not_waited_for() -> None:
    flow = make(b"a")
    flow.set_lost(b"a", 1000, is_lost=True)
    assert flow.limit is None and flow.acknowledged == 10
    assert flow.is_acknowledged(1000) and not flow.has_present
    flow.set_lost(b"a", 1000, is_lost=False)
    assert flow.limit == WINDOW and flow.has_present


def test_round_trip_goes_up_quickly_and_down_slowly_within_its_bounds() -> None:
    flow = make(b"a", b"b")
    state = flow.receivers[b"a"]
    for _ in range(20):
        flow.sample_rtt(0, state, 50 * MS)
    assert 45 * MS < flow.grtt_ns <= 50 * MS
    flow.sample_rtt(0, state, 0)
    assert flow.grtt_ns > 40 * MS
    for _ in range(500):
        flow.sample_rtt(0, state, 0)
    assert flow.grtt_ns == GRTT_FLOOR
    flow.sample_rtt(0, state, GRTT_CEILING + 1)
    flow.sample_rtt(0, state, -1)
    assert flow.grtt_ns == GRTT_FLOOR


def test_round_trip_of_a_stall_is_forgotten_in_seconds_also_when_samples_are_rare() -> None:
    flow = make(b"a")
    state = flow.receivers[b"a"]
    for _ in range(20):
        flow.sample_rtt(0, state, 400 * MS)
    for second in range(1, 4):
        flow.sample_rtt(second * SECOND, state, 1 * MS)
    assert flow.grtt_ns == GRTT_FLOOR


def test_bucket_lets_a_burst_pass_and_then_the_rate() -> None:
    bucket = TokenBucket(8_000_000)  # a megabyte a second, ten milliseconds in the bucket
    assert bucket.ready_ns(0) is None
    bucket.take(0, 20_000)
    assert bucket.ready_ns(0) == 10 * MS + 1
    assert bucket.ready_ns(10 * MS + 1) is None


def test_bucket_never_holds_more_than_a_burst() -> None:
    bucket = TokenBucket(8_000_000)
    assert bucket.ready_ns(0) is None
    assert bucket.ready_ns(1000 * SECOND) is None
    bucket.take(1000 * SECOND, 10_000)
    assert bucket.ready_ns(1000 * SECOND) is not None


def test_bucket_keeps_its_rate_over_many_bursts() -> None:
    bucket, now, sent = TokenBucket(1_000_000), 0, 0
    while now < 10 * SECOND:
        ready = bucket.ready_ns(now)
        if ready is None:
            bucket.take(now, 1400)
            sent += 1400
        else:
            now = ready
    assert 0.99 < sent * 8 / 1e7 < 1.01


def test_round_trip_of_a_lost_receiver_does_not_slow_down_the_others() -> None:
    flow = make(b"a", b"b")
    for _ in range(20):
        flow.sample_rtt(0, flow.receivers[b"a"], 400 * MS)
    flow.set_lost(b"a", 10, is_lost=True)
    flow.sample_rtt(0, flow.receivers[b"b"], 1 * MS)
    assert flow.grtt_ns == GRTT_FLOOR
