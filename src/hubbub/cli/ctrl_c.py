"""Ctrl-C that ends a wait at once, and work only between two steps of it."""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


_SIGNALS_AT_ONCE: Final = 64
# Once would do, if the main thread waits already; it may be about to.
_NUDGES: Final = 3
_NUDGE_S: Final = 0.05


def reach_main_thread() -> None:
    """Let a signal end what the main thread waits for, whichever thread the kernel gives it to.

    One that is just being started may take a signal that is on its way to the main thread. Python
    notes that, but nothing interrupts the wait: a gateway went on sleeping after Ctrl-C.
    """
    if not hasattr(signal, "pthread_kill"):
        return  # No Linux: there Ctrl-C is as good as Python's own.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGURG, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    arguments = reading, threading.get_ident()
    threading.Thread(target=_nudge, args=arguments, name="hubbub-signals", daemon=True).start()


def _nudge(reading: int, thread: int) -> None:
    """Interrupt a thread whenever a signal has come."""
    while numbers := os.read(reading, _SIGNALS_AT_ONCE):
        if any(number != signal.SIGURG for number in numbers):
            for _ in range(_NUDGES):
                signal.pthread_kill(thread, signal.SIGURG)
                time.sleep(_NUDGE_S)


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
