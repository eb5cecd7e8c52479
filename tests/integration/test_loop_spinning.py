"""The I/O thread while it spins."""

import time
from typing import Any

import pytest

from hubbub.limits import MS, SECOND
from hubbub.runtime import lateness
from hubbub.runtime.loop import Loop
from hubbub.runtime.spin import Spin
from tests.integration.probe import PATIENCE_S, Probe, Reader


def test_deadline_that_comes_while_the_thread_spins_is_not_slept_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look takes the timer's sign with it; before the fix the thread then slept for ever."""
    monkeypatch.setattr(lateness, "LATENESS_TICK", 3600 * SECOND)
    for _ in range(5):
        loop, probe = Loop(), Probe()
        loop.callbacks.add(Reader())
        loop.attach(probe, spin_us=50_000)
        try:
            probe.deadline_ns = time.monotonic_ns() + 40 * MS
            loop.wake()
            time.sleep(0.01)  # It sleeps now, with the timer set for the deadline.
            probe.outside.send(b"x")  # A short wait, so the next one begins with a spin.
            end_s = time.monotonic() + PATIENCE_S
            while not probe.advanced:
                assert time.monotonic() < end_s, "the deadline was slept through"
                time.sleep(0.001)
        finally:
            loop.detach(probe)
            probe.close()


@pytest.mark.parametrize("is_awaited", [True, False])
def test_io_thread_spins_only_where_somebody_waits_for_what_it_brings(
    monkeypatch: pytest.MonkeyPatch, is_awaited: bool
) -> None:
    looks: list[int] = []
    whole = Spin.look

    def look(self: Spin, now: int, *others: Any) -> Any:
        looks.append(now)
        return whole(self, now, *others)

    monkeypatch.setattr(Spin, "look", look)
    loop, probe = Loop(), Probe()
    loop.subscriptions.add(Reader(is_awaited=is_awaited))
    loop.attach(probe, spin_us=1_000)
    try:
        for count in range(1, 4):
            probe.outside.send(b"x")
            end_s = time.monotonic() + PATIENCE_S
            while len(probe.received) < count:
                assert time.monotonic() < end_s, "it was not served"
                time.sleep(0.001)
    finally:
        loop.detach(probe)
        probe.close()
    assert bool(looks) == is_awaited
