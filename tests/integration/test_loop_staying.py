"""Messages that come one by one to who keeps to itself: read without a turn of the loop around."""

import threading
import time
from collections.abc import Iterator

import pytest

from hubbub.limits import MS, SECOND
from hubbub.runtime import lateness
from hubbub.runtime.loop import Loop
from tests.integration.bus import wait_until
from tests.integration.probe import PATIENCE_S, Probe


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """A loop of the test's own; no regular look at the clock hides what it misses."""
    monkeypatch.setattr(lateness, "LATENESS_TICK", 3600 * SECOND)
    loop = Loop()
    yield loop
    loop.close_at_exit()
    assert loop.statistics().attachments == 0


class Apart(Probe):
    """One that keeps to itself, and whose deadline stays where it is unless a test moves it."""

    is_apart = True

    def __init__(self) -> None:
        super().__init__()
        self.has_moved = False
        self.looks = 0

    def look(self, now: int) -> bool:
        self.looks += 1
        return super().look(now)


@pytest.fixture(params=[0, 300, 10_000], ids=["sleeping", "looking", "looking for long"])
def staying(loop: Loop, request: pytest.FixtureRequest) -> Iterator[Apart]:
    """One whose messages are read one after the other, without anything in between."""
    apart = Apart()
    loop.attach(apart, spin_us=request.param)
    for _ in range(5):
        exchange(apart)
    yield apart
    loop.detach(apart)
    apart.close()


def test_who_moved_no_deadline_is_served_again_without_being_asked(
    loop: Loop, probe: Probe, staying: Apart
) -> None:
    asked, looks = (staying.asked, probe.asked), staying.looks
    for _ in range(5):
        exchange(staying)
    assert (staying.asked, probe.asked) == asked
    assert staying.looks == looks + 5
    assert len(staying.received) == 10


def test_a_deadline_that_a_look_moved_is_met(loop: Loop, staying: Apart) -> None:
    def move() -> None:
        staying.has_moved, staying.deadline_ns = True, 1

    staying.on_readable = move
    exchange(staying)
    wait_until(lambda: bool(staying.advanced))


def test_a_deadline_is_met_beside_one_who_is_served_again_and_again(
    loop: Loop, probe: Probe, staying: Apart
) -> None:
    probe.deadline_ns = time.monotonic_ns() + 20 * MS
    loop.wake()
    exchange(staying)
    exchange(staying)
    wait_until(lambda: bool(probe.advanced))


def test_others_are_served_beside_one_who_is_served_again_and_again(
    loop: Loop, probe: Probe, staying: Apart
) -> None:
    probe.outside.send(b"y")
    staying.outside.send(b"x")
    probe.wait()
    staying.wait()
    called = threading.Event()
    loop.call_soon(called.set)
    assert called.wait(PATIENCE_S)


def test_who_is_detached_while_it_is_waited_for_is_not_served(loop: Loop, staying: Apart) -> None:
    count = len(staying.received)
    loop.detach(staying)
    staying.outside.send(b"x")
    called = threading.Event()
    loop.attach(other := Probe())
    loop.call_soon(called.set)
    assert called.wait(PATIENCE_S)
    assert len(staying.received) == count
    loop.detach(other)
    other.close()


def test_a_look_that_raises_is_reported_and_the_next_one_is_served(
    loop: Loop, staying: Apart
) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    staying.on_readable = fail
    exchange(staying)
    staying.on_readable = lambda: None
    exchange(staying)
    assert loop.statistics().failures == 1


def exchange(probe: Probe) -> None:
    probe.outside.send(b"x")
    probe.wait()
