"""Lateness is what others took of the thread's time, told at most once a second."""

from hubbub.limits import LATENESS_TICK, MS, SECOND
from hubbub.runtime.lateness import Lateness


class Work:
    """The thread's own processor time."""

    def __init__(self) -> None:
        self.worked_ns = 0

    def clock_ns(self) -> int:
        return self.worked_ns


def test_a_thread_that_runs_when_the_timer_ends_is_not_late() -> None:
    lateness = Lateness(0, Work().clock_ns)
    assert lateness.expect(5 * MS, 0) == 5 * MS
    assert lateness.observe(25 * MS) is None  # Exactly the bound is not beyond it.


def test_a_late_return_from_the_wait_is_reported_in_milliseconds() -> None:
    lateness = Lateness(0, Work().clock_ns)
    lateness.expect(5 * MS, 0)
    assert lateness.observe(35 * MS) == 30.0


def test_without_a_deadline_the_tick_measures() -> None:
    lateness = Lateness(0, Work().clock_ns)
    assert lateness.expect(None, 0) == LATENESS_TICK
    assert lateness.observe(LATENESS_TICK + 50 * MS) == 50.0
    assert lateness.expect(None, LATENESS_TICK + 50 * MS) == 2 * LATENESS_TICK + 50 * MS


def test_a_distant_deadline_does_not_replace_the_tick() -> None:
    lateness = Lateness(0, Work().clock_ns)
    assert lateness.expect(SECOND, 0) == LATENESS_TICK


def test_a_return_before_the_deadline_says_nothing() -> None:
    lateness = Lateness(0, Work().clock_ns)
    lateness.expect(90 * MS, 0)
    assert lateness.observe(50 * MS) is None


def test_who_wants_to_be_served_again_at_once_has_waited_only_since_then() -> None:
    lateness = Lateness(0, Work().clock_ns)
    lateness.expect(50 * MS, 0)
    lateness.observe(50 * MS)
    assert lateness.expect(0, 51 * MS) == 0
    assert lateness.observe(51 * MS) is None


def test_own_work_is_not_starvation() -> None:
    work = Work()
    lateness = Lateness(0, work.clock_ns)
    work.worked_ns = 60 * MS  # A callback computed from 0 to 60 ms, past the deadline at 10 ms.
    lateness.expect(10 * MS, 60 * MS)
    assert lateness.observe(60 * MS) is None


def test_losing_the_interpreter_in_the_middle_of_own_work_is_starvation() -> None:
    work = Work()
    lateness = Lateness(0, work.clock_ns)
    work.worked_ns = 5 * MS  # The same 60 ms, of which the thread had the processor for 5.
    lateness.expect(10 * MS, 60 * MS)
    assert lateness.observe(60 * MS) == 45.0


def test_work_done_before_an_idle_wait_is_not_taken_off() -> None:
    work = Work()
    lateness = Lateness(0, work.clock_ns)
    work.worked_ns = 40 * MS
    lateness.expect(50 * MS, 45 * MS)
    assert lateness.observe(80 * MS) == 30.0


def test_the_worst_of_a_second_is_told_once() -> None:
    lateness = Lateness(0, Work().clock_ns)
    reports = []
    now = 0
    for late_ms in (30, 40, 90, 50, 0, 0, 0, 0, 0, 0, 0):
        lateness.expect(None, now)
        now = now + LATENESS_TICK + late_ms * MS
        reports.append(lateness.observe(now))
    told = [report for report in reports if report is not None]
    assert told == [30.0, 90.0]
    assert lateness.late_ns_max == 90 * MS
