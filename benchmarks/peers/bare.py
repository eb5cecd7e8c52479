"""No peer, but what Python itself allows: payloads copied into a ring that both sides have mapped.

Nothing is framed, counted, repaired, discovered or woken: who has nothing to read gives way and
looks again, so this costs a core a side. What is left is the copy of the publisher and the reading
of the subscribers, by the calls that every row makes. No row that does both can be much faster.
"""

import mmap
import os
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.endpoint import Endpoint, OnPayload

_FOLDER = Path("/dev/shm")
_SLOTS_MIN, _SLOTS_MAX = 4, 4096
_RING_BYTES = 4 << 20
_LINE_BYTES = 64  # A counter has a cache line of its own.


class _Ring:
    """Slots in shared memory, the count of those written, and a count of each reader's."""

    def __init__(self, name: str, size_bytes: int, *, is_writer: bool) -> None:
        self.slots = max(_SLOTS_MIN, min(_SLOTS_MAX, _RING_BYTES // size_bytes))
        self.stride = size_bytes + _LINE_BYTES
        self._path = _FOLDER / name
        path = self._path.with_suffix(".ring")
        self.map = _map(path, _LINE_BYTES + self.slots * self.stride)
        self.view = memoryview(self.map)
        self.written = self.view[:8].cast("Q")
        self.lengths = [self._slot(at)[:8].cast("Q") for at in range(self.slots)]
        self.payloads = [self._slot(at)[_LINE_BYTES:] for at in range(self.slots)]
        if not is_writer:
            self.read = memoryview(_map(self._claim(), 8)).cast("Q")
            self.read[0] = self.written[0]

    def _slot(self, at: int) -> memoryview:
        start = _LINE_BYTES + at * self.stride
        return self.view[start : start + self.stride]

    def _claim(self) -> Path:
        for number in count():
            path = self._path.with_suffix(f".{number}")
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                continue
            return path
        raise AssertionError

    def readers(self) -> list[memoryview]:
        """Return the counts of those who read by now."""
        paths = [one for one in _FOLDER.glob(f"{self._path.name}.*") if one.suffix != ".ring"]
        return [memoryview(_map(one, 8)).cast("Q") for one in paths]


def _map(path: Path, size_bytes: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        os.truncate(descriptor, max(size_bytes, os.fstat(descriptor).st_size))
        return mmap.mmap(descriptor, size_bytes)
    finally:
        os.close(descriptor)


class Bare(Endpoint):
    """A ring of slots; every reader reads every slot before it is written again."""

    distribution = "numpy"
    spins = True
    settings = (
        "no peer: payloads are copied into a ring of 4 MiB (4 slots at least) of shared memory and "
        "read there; both sides look again and again, giving way in between (sched_yield)"
    )

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        self._out = _Ring(sends, size_bytes, is_writer=True) if sends else None
        self._in = _Ring(receives, size_bytes, is_writer=False) if receives else None
        self._readers: list[memoryview] = []
        self._sent = self._room = 0

    def send(self, payload: Any) -> None:
        ring = self._out
        assert ring is not None
        if len(payload) < _LINE_BYTES:  # A control payload: somebody may be new.
            self._readers = ring.readers()
            self._room = 0
        while self._sent >= self._room:
            least = min((one[0] for one in self._readers), default=self._sent)
            self._room = least + ring.slots
            if self._sent >= self._room:
                os.sched_yield()
        at = self._sent % ring.slots
        ring.payloads[at][: len(payload)] = payload
        ring.lengths[at][0] = len(payload)
        self._sent += 1
        ring.written[0] = self._sent

    def serve(self, on_payload: OnPayload) -> None:
        ring = self._in
        assert ring is not None
        taken = ring.read[0]
        while True:
            written = ring.written[0]
            if written == taken:
                os.sched_yield()
            for number in range(taken, written):
                at = number % ring.slots
                if on_payload(ring.payloads[at][: ring.lengths[at][0]]):
                    return
                ring.read[0] = number + 1
            taken = written

    def close(self) -> None:
        """Leave it to the private /dev/shm of the run, which goes with it."""
