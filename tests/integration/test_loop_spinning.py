"""The I/O thread while it spins."""

import time

import pytest

from hubbub.limits import MS, SECOND
from hubbub.runtime import lateness
from hubbub.runtime.loop import Loop
from tests.integration.test_loop import PATIENCE_S, Probe


def test_deadline_that_comes_while_the_thread_spins_is_not_slept_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look takes the timer's sign with it; before the fix the thread then slept for ever."""
    monkeypatch.setattr(lateness, "LATENESS_TICK", 3600 * SECOND)
    for _ in range(5):
        loop, probe = Loop(), Probe()
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
