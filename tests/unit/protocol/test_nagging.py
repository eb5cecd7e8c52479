"""The nagging monitor: each window for so long, and so many in all, exactly once."""

from hubbub.protocol.nagging import NaggingMonitor

WINDOW, CHECK = 4, 60


def watch(*requests: int, requests_max: int = 30) -> list[tuple[int, float]]:
    """Return what a monitor finds when so many requests are sent in each window."""
    monitor = NaggingMonitor(0, WINDOW, CHECK, requests_max)
    found = []
    for window, count in enumerate(requests, 1):
        for _ in range(count):
            monitor.requested()
        result = monitor.advance(window * WINDOW)
        if result is not None:
            found.append(result)
    return found


def test_requests_in_every_window_of_the_check_are_found_once() -> None:
    assert watch(*[2] * 15) == [(30, 60e-9)]
    assert len(watch(*[2] * 100)) == 1


def test_one_quiet_window_starts_the_observation_anew() -> None:
    assert watch(*[2] * 14, 0, *[2] * 14) == []


def test_too_few_requests_are_not_nagging() -> None:
    assert watch(*[1] * 100) == []
    assert len(watch(*[1] * 100, requests_max=0)) == 1


def test_after_a_quiet_window_it_may_be_found_again() -> None:
    assert len(watch(*[2] * 15, 0, *[2] * 15)) == 2


def test_window_of_zero_is_off() -> None:
    monitor = NaggingMonitor(0, 0, CHECK, 1)
    monitor.requested()
    assert monitor.due_ns is None and monitor.advance(10**18) is None


def test_windows_slept_through_do_not_count() -> None:
    monitor = NaggingMonitor(0, WINDOW, CHECK, 0)
    monitor.requested()
    assert monitor.advance(1000 * WINDOW) is None
    assert monitor.due_ns == 1001 * WINDOW
