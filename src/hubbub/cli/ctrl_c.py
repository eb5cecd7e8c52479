"""Ctrl-C that ends a wait at once, and work only between two steps of it."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class CtrlC:
    """Note Ctrl-C; interrupt only what waits, or what hangs: pressed again, it ends everything."""

    def __init__(self, on_press: Callable[[], object] | None = None) -> None:
        self.is_pressed = False
        self._on_press = on_press
        self._is_waiting = False
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._press)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let Ctrl-C interrupt everything again."""
        if signal.getsignal(signal.SIGINT) == self._press:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something that waits; Ctrl-C ends it, also if it was pressed before."""
        self._is_waiting = True
        try:
            if self.is_pressed:
                raise KeyboardInterrupt
            return work(*args, **kwargs)
        finally:
            self._is_waiting = False

    def _press(self, number: int, frame: FrameType | None) -> None:
        is_second, self.is_pressed = self.is_pressed, True
        if self._on_press is not None:
            self._on_press()
        if self._is_waiting or is_second:
            self._is_waiting = False  # What is done on the way out is work again.
            raise KeyboardInterrupt
