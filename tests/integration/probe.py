"""An attachment of the loop that notes what is called, for tests of the I/O thread."""

import select
import socket
import threading
from collections.abc import Callable

PATIENCE_S = 10.0


class Probe:
    """An attachment that notes what is called, and can be told to misbehave."""

    is_apart = False
    has_moved = True

    def __init__(self) -> None:
        self.inside, self.outside = socket.socketpair()
        self.inside.setblocking(False)
        self.received: list[bytes] = []
        self.advanced: list[int] = []
        self.late_ms: list[float] = []
        self.deadline_ns: int | None = None
        self.asked = 0
        self.happened = threading.Event()
        self.on_readable: Callable[[], object] = lambda: None
        self.on_advance: Callable[[], object] = lambda: None
        self.on_writable: Callable[[], object] = lambda: None
        self.has_forked = False

    def filenos(self) -> list[int]:
        return [self.inside.fileno()]

    def readable(self, now: int) -> None:
        self.received.append(self.inside.recv(1000))
        self.happened.set()
        self.on_readable()

    def look(self, now: int) -> bool:
        if not select.select([self.inside], [], [], 0)[0]:
            return False
        self.readable(now)
        return True

    def writable(self, now: int) -> None:
        self.on_writable()
        self.happened.set()

    def advance(self, now: int) -> None:
        self.advanced.append(now)
        self.deadline_ns = None
        self.happened.set()
        self.on_advance()

    def deadline(self) -> int | None:
        self.asked += 1
        return self.deadline_ns

    def starved(self, late_ms: float) -> None:
        self.late_ms.append(late_ms)
        self.happened.set()

    def forked(self) -> None:
        self.has_forked = True

    def exiting(self) -> None:
        self.close()

    def wait(self) -> None:
        assert self.happened.wait(PATIENCE_S)
        self.happened.clear()

    def close(self) -> None:
        self.inside.close()
        self.outside.close()


class Reader:
    """A subscription, as the loop sees it."""

    def __init__(self, *, is_awaited: bool = False) -> None:
        self.is_awaited = is_awaited
        self.pending = 0
