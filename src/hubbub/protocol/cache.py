"""HOT. What was sent and may be asked for again: bounded by bytes and by age, found by number.

Frames are kept as they were made, without header: a repair gets a new packet number, so its header
is made anew. A frame of small messages is one bytes object; a piece of a large message is its head
and a view of the message, which is kept once. Pieces that went in a train are one entry for all of
them, and made again when somebody asks: to cut, keep and forget each took 0.6 us a frame, and takes
0.06 now. When a frame must go before everybody has it, its run table stays, so that "not
available" can still say which messages were in it.

Invariant: the frames kept are those from `first` to before `end`, each of them in `_singles` or in
the one train of `_trains` that it is of; trains are in the order of their frames.
"""

from bisect import bisect_right
from typing import NamedTuple

from hubbub.limits import FRAME_COST_BYTES, RUN_TABLES_MAX
from hubbub.wire import batch
from hubbub.wire.header import DATA, SEGMENT
from hubbub.wire.train import Train

Body = bytes | tuple[bytes, memoryview]
Single = tuple[Body, int, int]  # A frame, where it begins in the stream, when it was sent.


def body_bytes(body: Body) -> int:
    """Return the size of a frame's body."""
    return len(body) if isinstance(body, bytes) else len(body[0]) + len(body[1])


class _Kept(NamedTuple):
    """A train, with its frames, where it begins in the stream, and when it was sent."""

    first: int
    end: int
    train: Train
    position: int
    sent_ns: int

    @property
    def step_bytes(self) -> int:
        return self.train.body_bytes + FRAME_COST_BYTES


def _runs_in(body: Body) -> bytes:
    if isinstance(body, bytes):
        return batch.read_runs(body)
    return batch.read_segment_run(body[0])


def _first_frame(kept: _Kept) -> int:
    return kept.first


class Cache:
    """The frames of one stream that somebody may still miss."""

    def __init__(self, bytes_max: int, age_ns: int) -> None:
        self.bytes_max = bytes_max
        self.age_ns = age_ns
        self.size_bytes = 0
        self._singles: dict[int, Single] = {}
        self._trains: list[_Kept] = []
        self.flags: dict[int, int] = {}  # Only frames that have some.
        self.run_tables: dict[int, bytes] = {}  # Of frames evicted before their time.
        self.first: int | None = None  # The oldest frame kept.
        self.end = 0  # The one behind the newest.
        self.evicted = 0

    def __len__(self) -> int:
        return 0 if self.first is None else self.end - self.first

    def __contains__(self, sequence: int) -> bool:
        return self.first is not None and self.first <= sequence < self.end

    @property
    def bodies(self) -> dict[int, Body]:
        """All frames that are kept, each as if it had gone alone: for those who look at all."""
        return {sequence: self.body_of(sequence) for sequence in self._kept()}

    @property
    def positions(self) -> dict[int, int]:
        """Where in the stream each frame begins that is kept: for those who look at all."""
        return {sequence: self.position_of(sequence) for sequence in self._kept()}

    def _kept(self) -> range:
        return range(self.end if self.first is None else self.first, self.end)

    def add(self, now: int, sequence: int, position: int, body: Body, flags: int) -> int:
        """Keep a frame; return the position behind it."""
        if self.first is None:
            self.first = sequence
        self._singles[sequence] = body, position, now
        self.end = sequence + 1
        if flags:
            self.flags[sequence] = flags
        size = body_bytes(body)
        self.size_bytes += size
        if self.size_bytes > self.bytes_max:
            self._evict_bytes(sequence)
        return position + size + FRAME_COST_BYTES

    def add_train(self, now: int, first: int, position: int, train: Train) -> int:
        """Keep the frames of a train; return the position behind them."""
        if self.first is None:
            self.first = first
        self.end = first + train.frames
        kept = _Kept(first, self.end, train, position, now)
        self._trains.append(kept)
        self.size_bytes += train.frames * train.body_bytes
        if self.size_bytes > self.bytes_max:
            self._evict_bytes(self.end - 1)
        return position + train.frames * kept.step_bytes

    def body_of(self, sequence: int) -> Body:
        """Return a frame that is kept."""
        single = self._singles.get(sequence)
        if single is not None:
            return single[0]
        kept = self._train_of(sequence)
        return kept.train.body(sequence - kept.first)

    def position_of(self, sequence: int) -> int:
        """Return where in the stream a frame begins that is kept."""
        single = self._singles.get(sequence)
        if single is not None:
            return single[1]
        kept = self._train_of(sequence)
        return kept.position + (sequence - kept.first) * kept.step_bytes

    def kind_of(self, sequence: int) -> int:
        """Return the kind of a frame that is kept."""
        return DATA if type(self.body_of(sequence)) is bytes else SEGMENT

    def acknowledge(self, before: int) -> None:
        """Forget the frames that everybody has."""
        first = self.first
        if first is None or first >= before:
            return
        if before >= self.end:
            self._singles.clear()
            self._trains.clear()
            self.flags.clear()
            self.size_bytes, self.first = 0, None
            return
        forgotten_bytes = self.position_of(before) - self.position_of(first)
        self.size_bytes -= forgotten_bytes - (before - first) * FRAME_COST_BYTES
        self._forget_singles(first, before)
        del self._trains[: self._count_trains_before(before)]
        for sequence in [one for one in self.flags if one < before]:
            del self.flags[sequence]
        self.first = before

    def expire(self, now: int) -> None:
        """Forget what is too old."""
        first = self.first
        while first is not None and now - self._sent_ns(first) > self.age_ns:
            first = self._evict(first)

    def runs_of(self, sequence: int) -> list[batch.Run]:
        """Return which messages are or were in a frame; empty if that is forgotten."""
        table = self.run_tables.get(sequence, b"")
        body = self.body_of(sequence) if sequence in self else None
        if isinstance(body, bytes):
            table = batch.read_runs(body)
        return batch.decode_runs(table)

    def _train_of(self, sequence: int) -> _Kept:
        kept = self._trains[bisect_right(self._trains, sequence, key=_first_frame) - 1]
        assert kept.first <= sequence < kept.end
        return kept

    def _sent_ns(self, sequence: int) -> int:
        single = self._singles.get(sequence)
        return single[2] if single is not None else self._train_of(sequence).sent_ns

    def _count_trains_before(self, before: int) -> int:
        """Return how many trains have no frame left from this one on."""
        count = bisect_right(self._trains, before, key=_first_frame)
        return count - (count > 0 and self._trains[count - 1].end > before)

    def _forget_singles(self, first: int, before: int) -> None:
        """Forget the frames between these that went alone, without a look at those of trains."""
        at = first
        for kept in self._trains:
            for sequence in range(at, min(kept.first, before)):
                del self._singles[sequence]
            at = max(at, kept.end)
            if at >= before:
                return
        for sequence in range(at, before):
            del self._singles[sequence]

    def _evict_bytes(self, newest: int) -> None:
        first = self.first
        while self.size_bytes > self.bytes_max and first is not None and first != newest:
            first = self._evict(first)

    def _evict(self, sequence: int) -> int | None:
        """Give up the oldest frame; return the one that is the oldest now."""
        single = self._singles.pop(sequence, None)
        if single is not None:
            table, size_bytes = _runs_in(single[0]), body_bytes(single[0])
        else:
            kept = self._trains[0]
            topic, message, _, _ = kept.train.about
            table, size_bytes = batch.encode_run(topic, message, 1), kept.train.body_bytes
            if kept.end == sequence + 1:
                del self._trains[0]
        self.run_tables[sequence] = table
        if len(self.run_tables) > RUN_TABLES_MAX:
            del self.run_tables[next(iter(self.run_tables))]
        self.size_bytes -= size_bytes
        self.flags.pop(sequence, None)
        self.evicted += 1
        self.first = sequence + 1 if sequence + 1 < self.end else None
        return self.first
