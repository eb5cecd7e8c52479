"""Spinning: only while waits are short, and hardly ever in vain."""

from itertools import count
from types import SimpleNamespace

import pytest

from hubbub.limits import SECOND, US
from hubbub.runtime import spin as spinning
from hubbub.runtime.spin import Spin


class FakePoller:
    """Finds something at a given look; counts the looks."""

    def __init__(self) -> None:
        self.looks = 0
        self.ready_at = 0  # 0: never.
        self.ready = [(7, 1)]

    def poll(self, deadline_ns: int | None, is_waiting: bool) -> list[tuple[int, int]]:
        assert not is_waiting
        return self.poll_again(is_waiting=False)

    def poll_again(self, *, is_waiting: bool) -> list[tuple[int, int]]:
        assert not is_waiting
        self.looks += 1
        return self.ready if self.looks == self.ready_at else []


def make(*, is_woken: bool = False) -> tuple[Spin, FakePoller]:
    poller = FakePoller()
    spin = Spin(poller, lambda: is_woken)  # type: ignore[arg-type]
    spin.spin_ns = 200 * US
    return spin, poller


FAR = 1 << 62


def nothing(now: int) -> bool:
    return False


def test_nothing_is_looked_for_before_a_short_wait() -> None:
    spin, poller = make()
    assert spin.look(0, FAR, nothing) == [] and poller.looks == 0
    spin.waited(SECOND, is_ready=True)
    assert spin.look(0, FAR, nothing) == [] and poller.looks == 0
    spin.waited(50 * US, is_ready=False)  # A timer, not a frame.
    assert spin.look(0, FAR, nothing) == [] and poller.looks == 0


def test_after_a_short_wait_it_looks_until_something_is_there() -> None:
    spin, poller = make()
    spin.waited(50 * US, is_ready=True)
    poller.ready_at = 3
    # A start far in the future of the monotonic clock would end at the first look; begin at 0.
    spin.spin_ns = FAR
    assert spin.look(0, FAR, nothing) == [(7, 1)]
    assert poller.looks == 3


def test_between_two_looks_it_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    spin, poller = make()
    monkeypatch.setattr(spinning, "_give_way", lambda: given.append(poller.looks))
    spin.waited(50 * US, is_ready=True)
    poller.ready_at = 3
    spin.spin_ns = FAR
    spin.look(0, FAR, nothing)
    assert given == [1, 2]  # What was found waits for nobody.


def test_it_does_not_look_beyond_a_deadline_or_a_wake_up() -> None:
    spin, poller = make()
    spin.waited(50 * US, is_ready=True)
    assert spin.look(1000, 1000, nothing) == [] and poller.looks == 0
    spin, poller = make(is_woken=True)
    spin.waited(50 * US, is_ready=True)
    assert spin.look(0, FAR, nothing) == [] and poller.looks == 0


def test_looks_in_vain_become_ever_rarer_and_a_find_forgives_them() -> None:
    spin, poller = make()
    looked = []
    for _ in range(200):
        spin.waited(50 * US, is_ready=True)
        before = poller.looks
        spin.look(0, 1, nothing)  # Ends after one look: the clock is past 1 ns.
        looked.append(poller.looks > before)
    assert sum(looked) <= 9
    for _ in range(100):
        spin.waited(50 * US, is_ready=True)
    poller.ready_at = poller.looks + 1
    assert spin.look(0, 1, nothing)
    spin.waited(50 * US, is_ready=True)
    assert spin.look(0, 1, nothing) == []
    spin.waited(50 * US, is_ready=True)
    spin.waited(50 * US, is_ready=True)
    poller.ready_at = poller.looks + 1
    assert spin.look(0, 1, nothing)


def test_who_had_something_last_is_served_at_once() -> None:
    spin, poller = make()
    spin.waited(50 * US, is_ready=True)
    poller.ready_at = 1
    assert spin.look(0, 1, lambda now: now > 0) == [] and spin.has_served
    poller.ready_at = 2
    assert spin.look(0, 1, nothing) == [(7, 1)] and not spin.has_served
    poller.ready_at, poller.ready = 3, [(7, 1), (8, 1)]
    assert spin.look(0, 1, lambda now: True) == [(7, 1), (8, 1)] and not spin.has_served


def test_where_a_wait_goes_on_it_looks_at_once_and_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[int] = []
    spin, poller = make()
    monkeypatch.setattr(spinning, "_give_way", lambda: given.append(poller.looks))
    spin.spin_ns, poller.ready_at = FAR, 3
    assert spin.look_again() == [(7, 1)]
    assert given == [1, 2]


def test_where_a_wait_goes_on_looks_in_vain_become_ever_rarer_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spin, poller = make()
    clock = count()  # Each reading is a nanosecond later, so there is time for one look.
    monkeypatch.setattr(spinning, "time", SimpleNamespace(monotonic_ns=lambda: next(clock)))
    spin.spin_ns = 2
    looked = []
    for _ in range(200):
        before = poller.looks
        assert spin.look_again() == []
        looked.append(poller.looks > before)
    assert sum(looked) == 9 and looked[:6] == [True, False, True, False, False, True]


def test_where_a_wait_goes_on_it_does_not_look_if_woken_or_told_not_to() -> None:
    spin, poller = make(is_woken=True)
    assert spin.look_again() == [] and poller.looks == 0
    spin, poller = make()
    spin.spin_ns = 0
    assert spin.look_again() == [] and poller.looks == 0
