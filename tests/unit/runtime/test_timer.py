"""The timer asks the kernel only when the deadline changes."""

from hubbub.runtime.timer import Timer


def timer_and_calls() -> tuple[Timer, list[int]]:
    calls: list[int] = []
    return Timer(7, lambda fileno, deadline_ns: calls.append(deadline_ns)), calls


def test_an_unchanged_deadline_costs_no_system_call() -> None:
    timer, calls = timer_and_calls()
    timer.arm(500)
    timer.arm(500)
    timer.arm(600)
    assert calls == [500, 600]


def test_no_deadline_disarms_once() -> None:
    timer, calls = timer_and_calls()
    timer.arm(None)
    assert calls == []
    timer.arm(500)
    timer.arm(None)
    timer.arm(None)
    assert calls == [500, 0]


def test_a_deadline_before_the_beginning_of_time_does_not_disarm() -> None:
    timer, calls = timer_and_calls()
    timer.arm(0)
    timer.arm(-5)
    assert calls == [1]
