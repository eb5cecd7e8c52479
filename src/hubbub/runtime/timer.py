"""One absolute timer of the kernel that an epoll set can wait for.

Why not the timeout of `epoll_wait`: it counts milliseconds and rounds up, so a wait of 100 us takes
1.1 ms; a timerfd wakes after 130 us. Python has it since 3.13, ctypes reaches it before. The
library is opened as a `PyDLL`, which keeps the interpreter lock during the call: arming takes less
than a microsecond, while giving the lock away beside a busy thread costs a switch interval.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Final

_NEVER: Final = 0  # The kernel's own notion: a timer set to zero is disarmed.
_ABSOLUTE: Final = 1  # TFD_TIMER_ABSTIME

Settime = Callable[[int, int], None]


class Timer:
    """Become readable when CLOCK_MONOTONIC reaches the armed deadline.

    Wait for it edge-triggered and it never has to be read: each arming makes a new edge.
    """

    def __init__(self, fileno: int, settime: Settime) -> None:
        self.fileno = fileno
        self._settime = settime
        self._armed_ns = _NEVER

    def arm(self, deadline_ns: int | None) -> None:
        """Set the deadline in nanoseconds of `time.monotonic_ns()`; None disarms."""
        wanted_ns = _NEVER if deadline_ns is None else max(deadline_ns, 1)
        if wanted_ns != self._armed_ns:
            self._settime(self.fileno, wanted_ns)
            self._armed_ns = wanted_ns

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fileno)


def open_timer() -> Timer | None:
    """Return a timer, or None where the system has none: then the wait itself gets a timeout."""
    try:
        return Timer(*_create())
    except (OSError, AttributeError, NotImplementedError):
        return None


def _create() -> tuple[int, Settime]:
    """Make a descriptor and the function that sets it."""
    if sys.version_info >= (3, 13):
        return _create_with_os()
    return _create_with_ctypes()


def _create_with_os() -> tuple[int, Settime]:
    """Use what Python 3.13 brings."""
    if sys.version_info < (3, 13):
        raise NotImplementedError
    flags = os.TFD_NONBLOCK | os.TFD_CLOEXEC

    def settime(fileno: int, deadline_ns: int) -> None:
        os.timerfd_settime_ns(fileno, flags=os.TFD_TIMER_ABSTIME, initial=deadline_ns)

    return os.timerfd_create(time.CLOCK_MONOTONIC, flags=flags), settime


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def _create_with_ctypes() -> tuple[int, Settime]:
    """Call the C library."""
    if sys.platform != "linux":
        raise NotImplementedError
    libc = ctypes.PyDLL(None, use_errno=True)
    timerfd_settime = libc.timerfd_settime
    timerfd_settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    specification = _Itimerspec()
    address = ctypes.addressof(specification)

    def settime(fileno: int, deadline_ns: int) -> None:
        value = specification.value
        value.seconds, value.nanoseconds = divmod(deadline_ns, 1_000_000_000)
        if timerfd_settime(fileno, _ABSOLUTE, address, None) != 0:
            raise _error()

    fileno = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if fileno < 0:
        raise _error()
    return fileno, settime


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
