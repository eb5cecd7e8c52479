"""Whether the process at the other end of a pipe still lives: a descriptor of it (pidfd) tells.

The end of a socket may come a moment before the end of its process, so who is in doubt goes on
being watched for a while.
"""

import os
import select
import socket
from typing import Final

_DOUBTFUL_MAX: Final = 64


def open_process(pid: int) -> int | None:
    """Return a descriptor that is readable once a process has ended; None: nobody can say."""
    if pid == os.getpid() or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def is_over(pidfd: int | None) -> bool:
    """Tell whether a process has certainly ended."""
    return pidfd is not None and is_readable(pidfd)


def is_readable(opened: int | socket.socket) -> bool:
    """Tell whether a descriptor is readable now."""
    look = select.poll()
    look.register(opened, select.POLLIN)
    return bool(look.poll(0))


class Doubtful:
    """Processes whose pipe has ended while they seemed to live, and which may be about to die."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._keys: dict[int, bytes] = {}  # By pidfd, in the poller since the pipe was opened.

    def add(self, pidfd: int, key: bytes) -> None:
        """Go on watching a process; the oldest one too many is trusted."""
        self._keys[pidfd] = key
        if len(self._keys) > _DOUBTFUL_MAX:
            self.take(next(iter(self._keys)))

    def take(self, pidfd: int) -> bytes:
        """Watch a process no longer; return the key of the pipe that led to it, if any."""
        key = self._keys.pop(pidfd, b"")
        if key:
            self._epoll.unregister(pidfd)
            os.close(pidfd)
        return key

    def abandon(self) -> None:
        """Close the descriptors alone: the poller may be another process's, too."""
        for pidfd in self._keys:
            os.close(pidfd)
        self._keys.clear()
