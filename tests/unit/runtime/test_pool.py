"""Delivery threads: one while callbacks return, another only when one blocks and work waits."""

import threading
from collections.abc import Iterator

import pytest

from hubbub.limits import DELIVERY_OVERDUE
from hubbub.runtime.pool import Lane, Pool
from tests.unit.runtime.fakes import FakeTime

PATIENCE_S = 10.0


class Job:
    """A lane's work that says when it runs, and blocks until it may go on."""

    def __init__(self, is_blocking: bool = False) -> None:
        self.turns = 0
        self.threads: list[threading.Thread] = []
        self.entered = threading.Event()
        self.may_go = threading.Event()
        if not is_blocking:
            self.may_go.set()

    def step(self) -> bool:
        self.turns += 1
        self.threads.append(threading.current_thread())
        self.entered.set()
        assert self.may_go.wait(PATIENCE_S)
        return False

    def run_once(self, lane: Lane) -> None:
        self.entered.clear()
        lane.notify()
        assert self.entered.wait(PATIENCE_S)


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def pool(time: FakeTime) -> Pool:
    return Pool(time.call_at, clock_ns=time.clock_ns)


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Blocked jobs that go on when the test ends, however it ends."""
    made: list[Job] = []
    yield made
    for job in made:
        job.may_go.set()


def blocked(pool: Pool, jobs: list[Job]) -> Job:
    """Return a job that has just entered its callback and stays there."""
    job = Job(is_blocking=True)
    jobs.append(job)
    job.run_once(pool.lane(job.step))
    return job


def test_lanes_that_return_share_one_thread(pool: Pool) -> None:
    all_jobs = [Job() for _ in range(20)]
    for job in all_jobs:
        job.run_once(pool.lane(job.step))
    assert pool.close(PATIENCE_S)
    assert len({thread for job in all_jobs for thread in job.threads}) == 1
    assert pool.statistics().threads_peak == 1


def test_no_work_no_thread(pool: Pool) -> None:
    pool.lane(Job().step)
    assert pool.statistics().threads == 0


def test_a_blocked_callback_gets_company_after_ten_milliseconds(
    time: FakeTime, pool: Pool, jobs: list[Job]
) -> None:
    blocked(pool, jobs)
    waiting = Job()
    pool.lane(waiting.step).notify()
    assert [deadline for deadline, _ in time.calls] == [time.now_ns + DELIVERY_OVERDUE]
    time.now_ns += DELIVERY_OVERDUE
    time.make_calls()
    assert waiting.entered.wait(PATIENCE_S)
    assert pool.statistics().threads_peak == 2


def test_before_ten_milliseconds_no_thread_is_started_and_the_look_is_repeated(
    time: FakeTime, pool: Pool, jobs: list[Job]
) -> None:
    blocked(pool, jobs)
    pool.lane(Job().step).notify()
    time.now_ns += DELIVERY_OVERDUE - 1
    time.make_calls()
    assert pool.statistics().threads == 1
    assert len(time.calls) == 1


def test_a_blocked_callback_gets_no_company_when_nobody_waits(
    time: FakeTime, pool: Pool, jobs: list[Job]
) -> None:
    blocked(pool, jobs)
    assert time.calls == []
    assert pool.statistics().threads == 1


def test_while_one_thread_takes_turns_another_may_block_for_ever(
    time: FakeTime, pool: Pool, jobs: list[Job]
) -> None:
    blocked(pool, jobs)
    second = Job(is_blocking=True)
    jobs.append(second)
    pool.lane(second.step).notify()
    time.now_ns += DELIVERY_OVERDUE
    time.make_calls()
    assert second.entered.wait(PATIENCE_S)
    pool.lane(Job().step).notify()  # The second thread has been in its turn for no time yet.
    time.make_calls()
    assert pool.statistics().threads == 2


def test_threads_are_bounded(time: FakeTime, jobs: list[Job]) -> None:
    pool = Pool(time.call_at, threads_max=1, clock_ns=time.clock_ns)
    blocked(pool, jobs)
    pool.lane(Job().step).notify()
    time.now_ns += 100 * DELIVERY_OVERDUE
    time.make_calls()
    assert pool.statistics().threads == 1
    assert pool.statistics().lanes_waiting == 1


def test_a_lane_is_never_run_by_two_threads(time: FakeTime, pool: Pool, jobs: list[Job]) -> None:
    job = Job(is_blocking=True)
    jobs.append(job)
    lane = pool.lane(job.step)
    job.run_once(lane)
    for _ in range(3):
        lane.notify()
    time.now_ns += 2 * DELIVERY_OVERDUE
    time.make_calls()
    assert (job.turns, pool.statistics().threads) == (1, 1)
    job.may_go.set()
    assert pool.close(PATIENCE_S)
    assert job.turns == 2  # Three words of more work while it ran are one more turn.


def test_a_lane_stands_in_line_once(pool: Pool, jobs: list[Job]) -> None:
    blocked(pool, jobs)
    lane = pool.lane(Job().step)
    pool.schedule(lane)
    pool.schedule(lane)
    assert pool.statistics().lanes_waiting == 1


def test_two_lanes_that_come_while_one_thread_is_idle_are_watched(
    time: FakeTime, pool: Pool, jobs: list[Job]
) -> None:
    first, blocking, waiting = Job(), Job(is_blocking=True), Job()
    jobs.append(blocking)
    first.run_once(pool.lane(first.step))
    while list(pool._threads.values()) != [None]:
        pass  # The thread is between its callback and the line.
    with pool._lock:  # Both stand in line before the idle thread can take the first.
        pool._enter_line(pool.lane(blocking.step))
        pool._enter_line(pool.lane(waiting.step))
        assert time.calls == []
    assert blocking.entered.wait(PATIENCE_S)
    time.now_ns += DELIVERY_OVERDUE
    time.make_calls()
    assert waiting.entered.wait(PATIENCE_S)


def test_work_left_over_is_done_in_another_turn_behind_the_others(time: FakeTime) -> None:
    pool = Pool(time.call_at, idle_s=3600.0, clock_ns=time.clock_ns)
    order: list[str] = []
    may_begin = threading.Event()

    def long() -> bool:
        assert may_begin.wait(PATIENCE_S)
        order.append("long")
        return order.count("long") < 3

    def short() -> bool:
        order.append("short")
        return False

    pool.lane(long).notify()
    pool.lane(short).notify()
    may_begin.set()
    assert pool.close(PATIENCE_S)
    assert order == ["long", "short", "long", "long"]


def test_a_thread_without_work_ends_and_later_work_starts_another(time: FakeTime) -> None:
    pool = Pool(time.call_at, idle_s=0.0, clock_ns=time.clock_ns)
    job = Job()
    lane = pool.lane(job.step)
    for turns in (1, 2):
        job.run_once(lane)
        job.threads[-1].join(PATIENCE_S)
        assert not job.threads[-1].is_alive()
        assert pool.statistics().threads == 0
        assert job.turns == turns


def test_a_turn_that_raises_hurts_no_other(pool: Pool) -> None:
    def fail() -> bool:
        raise ZeroDivisionError

    pool.lane(fail).notify()
    job = Job()
    job.run_once(pool.lane(job.step))
    assert pool.statistics().failures == 1


def test_closing_does_not_wait_for_a_blocked_callback_beyond_its_time(
    pool: Pool, jobs: list[Job]
) -> None:
    blocked(pool, jobs)
    waiting = Job()
    pool.lane(waiting.step).notify()
    assert not pool.close(0.0)
    jobs[0].may_go.set()
    jobs[0].threads[0].join(PATIENCE_S)
    assert waiting.turns == 0


def test_closing_inside_a_callback_does_not_wait_for_itself(pool: Pool) -> None:
    done = threading.Event()
    seen: list[bool] = []

    def close() -> bool:
        seen.append(pool.close(PATIENCE_S))
        done.set()
        return False

    pool.lane(close).notify()
    assert done.wait(PATIENCE_S)
    assert seen == [True]


def test_a_closed_pool_takes_no_work(pool: Pool) -> None:
    pool.close()
    pool.lane(Job().step).notify()
    assert pool.statistics().threads == 0


def test_without_an_io_thread_work_waits_and_nothing_fails(
    time: FakeTime, pool: Pool, jobs: list[Job]
) -> None:
    time.is_closed = True
    job = blocked(pool, jobs)
    waiting = Job()
    pool.lane(waiting.step).notify()
    job.may_go.set()
    assert waiting.entered.wait(PATIENCE_S)
