"""What the operating system says of its clock, and what we make of it."""

from typing import Any

import pytest

from hubbub.runtime import kernel_clock


class Kernel:
    """A C library whose clock is in a given state; None: it has no such call."""

    def __init__(self, state: int | None) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        if name != "adjtimex" or self._state is None:
            raise AttributeError(name)
        return lambda buffer: self._state


@pytest.mark.parametrize(
    ("state", "answer"),
    [(0, True), (1, True), (4, True), (5, False), (-1, None), (None, None)],
)
def test_clock_is_synchronised_if_the_kernel_says_so(
    monkeypatch: pytest.MonkeyPatch, state: int | None, answer: bool | None
) -> None:
    monkeypatch.setattr(kernel_clock.sys, "platform", "linux")
    monkeypatch.setattr(kernel_clock.ctypes, "CDLL", lambda name: Kernel(state))
    assert kernel_clock.ask_kernel() is answer
    assert kernel_clock.is_synchronised() is bool(answer)


def test_kernel_that_is_there_answers() -> None:
    assert kernel_clock.is_synchronised() in (True, False)
