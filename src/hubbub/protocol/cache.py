"""HOT. What was sent and may be asked for again: bounded by bytes and by age, found in O(1).

Frames are kept as they were made, without header: a repair gets a new packet number, so its header
is made anew. A frame of small messages is one bytes object; a piece of a large message is its head
and a view of the message, which is kept once. When a frame must go before everybody has it, its run
table stays, so that "not available" can still say which messages were in it.
"""

from itertools import repeat

from hubbub.limits import FRAME_COST_BYTES, RUN_TABLES_MAX
from hubbub.wire import batch
from hubbub.wire.header import DATA, SEGMENT

Body = bytes | tuple[bytes, memoryview]


def body_bytes(body: Body) -> int:
    """Return the size of a frame's body."""
    return len(body) if isinstance(body, bytes) else len(body[0]) + len(body[1])


class Cache:
    """The frames of one stream that somebody may still miss."""

    def __init__(self, bytes_max: int, age_ns: int) -> None:
        self.bytes_max = bytes_max
        self.age_ns = age_ns
        self.size_bytes = 0
        self.bodies: dict[int, Body] = {}
        self.flags: dict[int, int] = {}  # Only frames that have some.
        self.positions: dict[int, int] = {}  # Where in the stream a frame begins.
        self.sent_ns: dict[int, int] = {}
        self.run_tables: dict[int, bytes] = {}  # Of frames evicted before their time.
        self.first: int | None = None  # The oldest frame kept.
        self.evicted = 0

    def add(self, now: int, sequence: int, position: int, body: Body, flags: int) -> int:
        """Keep a frame; return the position behind it."""
        if self.first is None:
            self.first = sequence
        self.bodies[sequence] = body
        self.positions[sequence] = position
        self.sent_ns[sequence] = now
        if flags:
            self.flags[sequence] = flags
        size = body_bytes(body)
        self.size_bytes += size
        if self.size_bytes > self.bytes_max:
            self._evict_bytes(sequence)
        return position + size + FRAME_COST_BYTES

    def add_train(self, now: int, first: int, position: int, bodies: list[Body]) -> int:
        """Keep frames of one size that follow each other; return the position behind them."""
        if self.first is None:
            self.first = first
        size, count = body_bytes(bodies[0]), len(bodies)
        end = position + count * (size + FRAME_COST_BYTES)
        frames = range(first, first + count)
        self.bodies.update(zip(frames, bodies, strict=True))
        places = range(position, end, size + FRAME_COST_BYTES)
        self.positions.update(zip(frames, places, strict=True))
        self.sent_ns.update(zip(frames, repeat(now)))
        self.size_bytes += count * size
        if self.size_bytes > self.bytes_max:
            self._evict_bytes(frames[-1])
        return end

    def kind_of(self, sequence: int) -> int:
        """Return the kind of a frame that is kept."""
        return DATA if type(self.bodies[sequence]) is bytes else SEGMENT

    def acknowledge(self, before: int) -> None:
        """Forget the frames that everybody has."""
        first = self.first
        if first is None or first >= before:
            return
        if before >= first + len(self.bodies):
            for kept in (self.bodies, self.positions, self.sent_ns, self.flags):
                kept.clear()
            self.size_bytes, self.first = 0, None
            return
        bodies, positions, sent_ns = self.bodies, self.positions, self.sent_ns
        forgotten_bytes = positions[before] - positions[first]
        self.size_bytes -= forgotten_bytes - (before - first) * FRAME_COST_BYTES
        for sequence in range(first, before):
            del bodies[sequence], positions[sequence], sent_ns[sequence]
        for sequence in [one for one in self.flags if one < before]:
            del self.flags[sequence]
        self.first = before

    def expire(self, now: int) -> None:
        """Forget what is too old."""
        first = self.first
        while first is not None and now - self.sent_ns[first] > self.age_ns:
            first = self._evict(first)

    def runs_of(self, sequence: int) -> list[batch.Run]:
        """Return which messages are or were in a frame; empty if that is forgotten."""
        body = self.bodies.get(sequence)
        table = batch.read_runs(body) if isinstance(body, bytes) else b""
        return batch.decode_runs(self.run_tables.get(sequence, table))

    def _evict_bytes(self, newest: int) -> None:
        first = self.first
        while self.size_bytes > self.bytes_max and first is not None and first != newest:
            first = self._evict(first)

    def _evict(self, sequence: int) -> int | None:
        body = self.bodies[sequence]
        table = (
            batch.read_runs(body) if isinstance(body, bytes) else batch.read_segment_run(body[0])
        )
        self.run_tables[sequence] = table
        if len(self.run_tables) > RUN_TABLES_MAX:
            del self.run_tables[next(iter(self.run_tables))]
        self._forget(sequence)
        self.evicted += 1
        self.first = sequence + 1 if self.bodies else None
        return self.first

    def _forget(self, sequence: int) -> None:
        self.size_bytes -= body_bytes(self.bodies.pop(sequence))
        del self.positions[sequence]
        del self.sent_ns[sequence]
        self.flags.pop(sequence, None)
