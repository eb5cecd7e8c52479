"""One at a time: locks of a store, held by a process and gone with it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from hubbub.errors import StoreError

_held: "WeakSet[StoreLock]" = WeakSet()


class StoreLock:
    """The right to record into a store; the kernel takes it back when the process dies."""

    def __init__(self, store: Path) -> None:
        try:
            store.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(store / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{store} cannot be recorded into: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            if not isinstance(error, BlockingIOError):
                raise StoreError(f"{store} cannot be locked: {error}") from error
            raise StoreError(
                f"{store} is being recorded into by process {holder}: end it first,"
                " or name another store"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        _held.add(self)

    def release(self) -> None:
        """Let another one record; more than once does no harm."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # A child forked just now may not have let go yet.
            self.forget()

    def forget(self) -> None:
        """Let go without unlocking: what a forked child holds is its parent's lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _forked() -> None:
    """Let go in a forked child, or it would hold the lock when the recorder is long gone."""
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forked)


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Do something that one process does at a time; False: another one does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    is_ours = True
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_ours = False
        yield is_ours
    finally:
        if is_ours:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # A child forked meanwhile has it open, too.
        os.close(descriptor)
