"""A disk in memory that loses power, runs full and breaks, as the operating system lets it.

What was written is seen at once, and is on the disk only once it was synced. When the power is
lost, any part of the rest may be there, sector by sector, the last one torn. After a sync that
failed nobody knows what is there, and what was not written is not tried again by a later sync.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hubbub.store.disk import Disk

SECTOR_BYTES = 512


class PowerLost(BaseException):
    """The machine is off: no code of ours runs from here on."""


@dataclass
class _Inode:
    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)

    def write(self, data: bytes, position: int) -> None:
        end = position + len(data)
        self.seen.extend(bytes(max(0, end - len(self.seen))))
        self.seen[position:end] = data
        self.dirty.update(range(position // SECTOR_BYTES, -(-end // SECTOR_BYTES)))

    def settle(self, sector: int, size: int = SECTOR_BYTES) -> None:
        """Bring a sector, or the first bytes of it, onto the disk."""
        begin = sector * SECTOR_BYTES
        data = self.seen[begin : begin + size]
        self.durable.extend(bytes(max(0, begin + len(data) - len(self.durable))))
        self.durable[begin : begin + len(data)] = data

    def sync(self) -> None:
        for sector in self.dirty:
            self.settle(sector)
        self.dirty.clear()
        del self.durable[len(self.seen) :]
        self.durable.extend(bytes(len(self.seen) - len(self.durable)))

    def forget(self, random: Random) -> None:
        """Bring a part of what is dirty onto the disk, and take the rest for clean."""
        for sector in sorted(self.dirty):
            if random.random() < 0.5:
                self.settle(sector, random.choice((SECTOR_BYTES, random.randrange(SECTOR_BYTES))))
        self.dirty.clear()


class HastyDisk(Disk):
    """The real disk without waiting for it: for what is not about losing power."""

    def sync(self, fd: int) -> None:
        pass

    def cut(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def sync_folder(self, folder: Path) -> None:
        pass


class SimulatedDisk(Disk):
    """Fails where it is told to: at the n-th call, by an error, or by losing power."""

    def __init__(self, random: Random, capacity_bytes: int = 1 << 40) -> None:
        self.random = random
        self.capacity_bytes = capacity_bytes
        self.calls = 0
        self.failures: dict[int, int] = {}  # Error by number of the call.
        self.power_lost_at = -1
        self.syncs = 0
        self._names: dict[Path, _Inode] = {}
        self._durable_names: dict[Path, _Inode] = {}
        self._open: dict[int, _Inode] = {}
        self._next_fd = 1000

    def create(self, path: Path, size_bytes: int) -> int:
        self._step()
        used = sum(len(inode.seen) for inode in self._names.values())
        if used + size_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        inode = self._names[path] = _Inode()
        inode.seen = bytearray(size_bytes)
        return self._opened(inode)

    def open(self, path: Path) -> int:
        self._step()
        return self._opened(self._names[path])

    def write(self, fd: int, pieces: Sequence[bytes], position: int) -> None:
        data = b"".join(pieces)
        try:
            self._step()
        except BaseException:
            self._open[fd].write(data[: self.random.randrange(len(data) + 1)], position)
            raise
        self._open[fd].write(data, position)

    def sync(self, fd: int) -> None:
        try:
            self._step()
        except OSError:
            self._open[fd].forget(self.random)
            raise
        self.syncs += 1
        self._open[fd].sync()

    def forget(self, fd: int, position: int, size_bytes: int) -> None:
        """Only a hint."""

    def cut(self, fd: int, size_bytes: int) -> None:
        self._step()
        inode = self._open[fd]
        del inode.seen[size_bytes:]
        inode.dirty = {one for one in inode.dirty if one * SECTOR_BYTES < size_bytes}
        self._step()
        inode.sync()

    def close(self, fd: int) -> None:
        del self._open[fd]
        self._step()

    def remove(self, path: Path) -> None:
        self._step()
        del self._names[path]

    def rename(self, path: Path, name: Path) -> None:
        self._step()
        self._names[name] = self._names.pop(path)

    def sync_folder(self, folder: Path) -> None:
        self._step()
        self._durable_names = dict(self._names)

    def crash(self) -> dict[Path, bytes]:
        """Lose power; return what is on the disk when it comes back."""
        fresh = {path: one for path, one in self._names.items() if self.random.random() < 0.5}
        names = self._durable_names | fresh
        for inode in names.values():
            inode.forget(self.random)
            if self.random.random() < 0.5:  # The size may have come there before the content.
                inode.durable.extend(bytes(max(0, len(inode.seen) - len(inode.durable))))
        return {path: bytes(inode.durable) for path, inode in names.items()}

    def image(self) -> dict[Path, bytes]:
        """Return what a process sees that is started after this one was killed."""
        return {path: bytes(inode.seen) for path, inode in self._names.items()}

    def _opened(self, inode: _Inode) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = inode
        return self._next_fd

    def _step(self) -> None:
        self.calls += 1
        if self.calls == self.power_lost_at:
            raise PowerLost
        code = self.failures.get(self.calls)
        if code is not None:
            raise OSError(code, os.strerror(code))
