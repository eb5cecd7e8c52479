"""Wait for descriptors, for a deadline and for a wake-up from another thread, all at once.

On Linux: epoll, a timerfd and an eventfd, the last two edge-triggered, so that neither is ever
read. Elsewhere: what `selectors` offers, the timeout of the wait, and a pair of sockets.
"""

import os
import select
import selectors
import socket
import time
from typing import Final, Protocol

from hubbub.limits import LEAD_PATIENCE, SECOND
from hubbub.runtime.timer import Timer, open_timer

READABLE: Final = 1
WRITABLE: Final = 4
_FOREVER: Final = -1


class Poller(Protocol):
    """What the loop waits with."""

    def add(self, fileno: int) -> None:
        """Wait for this descriptor to become readable."""

    def watch_writable(self, fileno: int, on: bool) -> None:
        """Wait, or no longer wait, for it to become writable as well."""

    def discard(self, fileno: int) -> None:
        """Forget it; a descriptor that is unknown or closed already is no error."""

    def poll(self, deadline_ns: int | None, is_waiting: bool) -> list[tuple[int, int]]:
        """Return what is ready, waiting until the deadline if `is_waiting`."""

    def poll_again(self, *, is_waiting: bool = True) -> list[tuple[int, int]]:
        """Wait as the last time, until the same deadline; may name the poller's own, too."""

    def wait_armed(self, timeout_s: float = -1) -> None:
        """Wait for a wake-up, or for the time that another thread arms meanwhile."""

    def arm(self, deadline_ns: int) -> None:
        """End the wait of another thread at this time, if the system can do that."""

    def wake(self) -> None:
        """End the wait of another thread."""

    def close(self) -> None:
        """Give every descriptor of the poller back; those it waits for are not its own."""


def open_poller() -> Poller:
    """Return the best way to wait that this system has."""
    timer = open_timer() if hasattr(select, "epoll") and hasattr(os, "eventfd") else None
    return SelectorPoller() if timer is None else EpollPoller(timer)


class EpollPoller:
    """Wait with epoll, timerfd and eventfd."""

    def __init__(self, timer: Timer) -> None:
        assert select.EPOLLIN == READABLE
        assert select.EPOLLOUT == WRITABLE
        self._timer = timer
        self._wake_fileno = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._own = {timer.fileno, self._wake_fileno}
        for fileno in self._own:
            self._epoll.register(fileno, select.EPOLLIN | select.EPOLLET)

    def add(self, fileno: int) -> None:
        """Wait for this descriptor to become readable."""
        self._epoll.register(fileno, select.EPOLLIN)

    def watch_writable(self, fileno: int, on: bool) -> None:
        """Wait, or no longer wait, for it to become writable as well."""
        self._epoll.modify(fileno, select.EPOLLIN | select.EPOLLOUT if on else select.EPOLLIN)

    def discard(self, fileno: int) -> None:
        """Forget it; the kernel has done so already if it was closed."""
        try:
            self._epoll.unregister(fileno)
        except (OSError, ValueError):
            return

    def poll(self, deadline_ns: int | None, is_waiting: bool) -> list[tuple[int, int]]:
        """Return what is ready, waiting until the deadline if `is_waiting`."""
        if not is_waiting:
            ready = self._epoll.poll(0)
        else:
            self._timer.arm(deadline_ns)
            ready = self._epoll.poll(_FOREVER)
        own = self._own
        return [event for event in ready if event[0] not in own]

    def poll_again(self, *, is_waiting: bool = True) -> list[tuple[int, int]]:
        """Wait as the last time: the timer is set."""
        return self._epoll.poll(_FOREVER if is_waiting else 0)

    def wait_armed(self, timeout_s: float = _FOREVER) -> None:
        """Wait for a wake-up, or for the time that another thread arms meanwhile."""
        self._epoll.poll(timeout_s)

    def arm(self, deadline_ns: int) -> None:
        """End the wait of another thread at this time."""
        self._timer.arm(deadline_ns)

    def wake(self) -> None:
        """End the wait of another thread; nobody waits any more once it is closed."""
        if not self._epoll.closed:
            os.eventfd_write(self._wake_fileno, 1)

    def close(self) -> None:
        """Give every descriptor of the poller back, once; those it waits for are not its own."""
        if self._epoll.closed:
            return
        self._epoll.close()
        self._timer.close()
        os.close(self._wake_fileno)


class SelectorPoller:
    """Wait with whatever this system has; deadlines are met to a millisecond or so."""

    def __init__(self) -> None:
        self._deadline_ns: int | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)

    def add(self, fileno: int) -> None:
        """Wait for this descriptor to become readable."""
        self._selector.register(fileno, selectors.EVENT_READ)

    def watch_writable(self, fileno: int, on: bool) -> None:
        """Wait, or no longer wait, for it to become writable as well."""
        events = selectors.EVENT_READ | selectors.EVENT_WRITE if on else selectors.EVENT_READ
        self._selector.modify(fileno, events)

    def discard(self, fileno: int) -> None:
        """Forget it; a descriptor that is unknown or closed already is no error."""
        try:
            self._selector.unregister(fileno)
        except (KeyError, ValueError, OSError):
            return

    def poll(self, deadline_ns: int | None, is_waiting: bool) -> list[tuple[int, int]]:
        """Return what is ready, waiting until the deadline if `is_waiting`."""
        timeout_s: float | None = None
        self._deadline_ns = deadline_ns
        if not is_waiting:
            timeout_s = 0.0
        elif deadline_ns is not None:
            timeout_s = max(0, deadline_ns - time.monotonic_ns()) / SECOND
        ready = []
        for key, events in self._selector.select(timeout_s):
            if key.fileobj is self._wake_reader:
                self._wake_reader.recv(4096)
                continue
            mask = (READABLE if events & selectors.EVENT_READ else 0) | (
                WRITABLE if events & selectors.EVENT_WRITE else 0
            )
            ready.append((key.fd, mask))
        return ready

    def poll_again(self, *, is_waiting: bool = True) -> list[tuple[int, int]]:
        """Wait as the last time."""
        return self.poll(self._deadline_ns, is_waiting)

    def wait_armed(self, timeout_s: float = _FOREVER) -> None:
        """Wait for a wake-up, or a little: a wait under way cannot be told of a time."""
        self.poll(time.monotonic_ns() + LEAD_PATIENCE, is_waiting=True)

    def arm(self, deadline_ns: int) -> None:
        """Do nothing: who waits looks often enough."""

    def wake(self) -> None:
        """End the wait of another thread; a full or closed pair needs none."""
        try:
            self._wake_writer.send(b"\0")
        except OSError:
            return

    def close(self) -> None:
        """Give every descriptor of the poller back; those it waits for are not its own."""
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()
