"""The disk as the journal uses it: few calls, each of which may fail, and which tests make fail."""

import ctypes
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from hubbub.store.layout import sync

_PIECES_MAX: Final = min(os.sysconf("SC_IOV_MAX"), 1024)
_WRITE_BYTES_MAX: Final = 1 << 30  # The kernel writes at most 2 GiB at a time.
_BEGIN_BYTES_MIN: Final = 1 << 20  # Less than this is soon written when it is synced.
_BEGIN_WRITING: Final = 2  # SYNC_FILE_RANGE_WRITE
_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class Disk:
    """The file system itself. Everything raises OSError; nothing is tried again."""

    def create(self, path: Path, size_bytes: int) -> int:
        """Make a file that has its space; return its descriptor. What was there is gone."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            self._allocate(fd, size_bytes)
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                path.unlink()
            raise
        return fd

    def open(self, path: Path) -> int:
        """Open a file for writing; return its descriptor."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, fd: int, pieces: Sequence[bytes], position: int) -> None:
        """Write all pieces one behind the other, and let the disk begin with them."""
        begin = position
        rest = [piece for piece in pieces if len(piece)]
        at = 0
        while at < len(rest):
            written = os.pwritev(fd, _next_pieces(rest, at), position)
            position += written
            while at < len(rest) and written >= len(rest[at]):
                written -= len(rest[at])
                at += 1
            if written:
                rest[at] = memoryview(rest[at])[written:]  # type: ignore[call-overload]
        if position - begin >= _BEGIN_BYTES_MIN and _sync_file_range is not None:
            # Only a hint, so that the sync that follows has less to wait for.
            _sync_file_range(fd, begin, position - begin, _BEGIN_WRITING)

    def sync(self, fd: int) -> None:
        """Return only when everything written to a file is on the disk for good."""
        os.fdatasync(fd)

    def forget(self, fd: int, position: int, size_bytes: int) -> None:
        """Let the memory go that holds what is on the disk: what is written next takes it."""
        with suppress(OSError):
            os.posix_fadvise(fd, position, size_bytes, os.POSIX_FADV_DONTNEED)

    def cut(self, fd: int, size_bytes: int) -> None:
        """Cut a file, for good."""
        os.ftruncate(fd, size_bytes)
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def rename(self, path: Path, name: Path) -> None:
        """Give a file another name, in whose place nothing may be seen but it or what was there."""
        os.replace(path, name)

    def sync_folder(self, folder: Path) -> None:
        """Return only when the names in a folder are on the disk for good."""
        sync(folder)

    @staticmethod
    def _allocate(fd: int, size_bytes: int) -> None:
        try:
            os.posix_fallocate(fd, 0, size_bytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            os.ftruncate(fd, size_bytes)  # A file system that reserves nothing.


def _next_pieces(pieces: Sequence[bytes], at: int) -> list[bytes]:
    """Choose what one system call takes."""
    chosen: list[bytes] = []
    size = 0
    for piece in pieces[at : at + _PIECES_MAX]:
        chosen.append(piece)
        size += len(piece)
        if size >= _WRITE_BYTES_MAX:
            break
    return chosen


def write_whole(disk: Disk, path: Path, content: bytes) -> None:
    """Put a small file in place: all of it or nothing, for good once this returns."""
    new = path.with_name(f".{path.name}.new")
    fd = disk.create(new, max(1, len(content)))
    try:
        disk.write(fd, [content], 0)
        disk.cut(fd, len(content))
    finally:
        disk.close(fd)
    disk.rename(new, path)
    disk.sync_folder(path.parent)
