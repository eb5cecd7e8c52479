"""Writes a journal: many records and one sync at a time, into segments that have their space.

`add_run` and `add_row` put records into a group, `commit` writes the group and syncs it. What was
synced is acknowledged, and nothing else ever is. A commit that fails keeps its group, in memory,
and the next one tries again:

- No space: into the same place. Nothing was said to be written, so writing over it is harmless.
- Any other error: the segment is sealed as bad, for after a failed sync nobody knows which of its
  pages are on the disk, and asking again would say that they are. The group goes into a new one,
  with the same offsets: readers take what a bad segment holds only up to where the next begins.

It has no thread: `commit` blocks for as long as the disk does.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import urandom
from pathlib import Path
from typing import Any, Final, NamedTuple

from hubbub.limits import (
    JOURNAL_FORGET_BYTES,
    JOURNAL_PREALLOCATED_BYTES_MIN,
    JOURNAL_SPLIT_ROWS,
    JOURNAL_WRITE_BYTES,
)
from hubbub.store import records
from hubbub.store.disk import NO_SPACE, Disk
from hubbub.store.journal import journal_folder, segment_path
from hubbub.store.records import Begin, Buffers, Chain, End, Timing

_NO_FILE: Final = -1
# A segment that holds no message is closed so much later: a quiet bus makes no heap of small files.
_QUIET_FACTOR: Final = 12


class Start(NamedTuple):
    """Where a journal begins, or goes on."""

    recorder: bytes
    segment: int
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class JournalStatistics:
    """What was written; `bytes` counts the journal's records, not only payloads."""

    acknowledged: int
    messages: int
    rows: int
    bytes: int
    commits: int
    segments: int
    bad_segments: int
    refusals: int
    """Commits that the disk refused; each was tried again."""


class Journal:
    """The journal of one store, opened for writing; the caller holds the lock of the store."""

    def __init__(
        self,
        store: Path,
        start: Start,
        *,
        split_bytes: int,
        split_ns: int,
        split_rows: int = JOURNAL_SPLIT_ROWS,
        clock: Callable[[], int],
        disk: Disk | None = None,
        on_bad: Callable[[int, OSError], None] | None = None,
    ) -> None:
        self.acknowledged = self._offset = start.offset
        self._first_offset = start.offset
        self._number = self._synced_number = start.number
        self._first_number = start.number
        self._recorder = start.recorder
        self._segment = start.segment - 1  # The open one, or the last that was.
        self._store = store
        self._disk = disk or Disk()
        self._split_bytes = split_bytes
        self._split_ns = split_ns
        self._split_rows = split_rows
        self._clock = clock
        self._on_bad = on_bad
        self._group: list[tuple[int, Buffers]] = []
        self.group_bytes = 0
        self._fd = _NO_FILE
        self._chain = Chain(0)
        self._begin_bytes = 0
        self._begin_offset = 0
        self._created_ns = 0
        self._has_messages = False
        self.refused: OSError | None = None  # Why the last commit failed.
        self._bytes = self._commits = self._segments = self._bad = self._refusals = 0

    # What is to be written.

    def add_run(
        self,
        label: bytes,
        first: int,
        payloads: Sequence[bytes],
        published_ns: Sequence[int],
        received_ns: int,
        replayed_ns: int | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Put a run, or a sample, into the group; it takes the next offsets."""
        body = records.encode_run(
            label, self._offset, first, payloads, published_ns, received_ns, replayed_ns, timing
        )
        self._offset += len(payloads)
        self._add(records.RUN if timing is None else records.CLOCK, body)

    def add_row(self, table: str, values: dict[str, Any]) -> None:
        """Put a row into the group; it takes the next number."""
        self._add(records.ROW, records.encode_row(self._number, table, values))
        self._number += 1

    def _add(self, kind: int, body: Buffers) -> None:
        self._group.append((kind, body))
        self.group_bytes += records.HEAD_BYTES + sum(map(len, body))

    def keep(self) -> None:
        """Own what the group holds: views of memory of others are copied."""
        self._group = [(kind, [b"".join(body)]) for kind, body in self._group]

    # Writing it.

    def commit(self) -> bool:
        """Write the group and sync it; False: the disk refused, and the group is kept."""
        try:
            self._roll()
            if self._group:
                self._write_group()
        except OSError as error:
            self.refused = error
            self._refused(error)
            return False
        self.refused = None
        return True

    def give_up(self) -> int:
        """Throw the group away; return how many messages were in it."""
        count = self._offset - self.acknowledged
        self._group, self.group_bytes = [], 0
        self._offset, self._number = self.acknowledged, self._synced_number
        return count

    def close(self) -> bool:
        """Commit what is left and close the segment; False: the disk refused."""
        is_committed = self.commit()
        if self._fd != _NO_FILE:
            self._close_segment()
        return is_committed

    def abandon(self) -> None:
        """Leave the segment as it is, like a crash would."""
        if self._fd != _NO_FILE:
            self._close_file()

    @property
    def is_due(self) -> bool:
        """Tell whether a commit would close the segment even with nothing in the group."""
        if self._fd == _NO_FILE or self._chain.position == self._begin_bytes:
            return False
        factor = 1 if self._has_messages else _QUIET_FACTOR
        return self._clock() - self._created_ns >= self._split_ns * factor

    def _roll(self) -> None:
        """See to it that a segment is open that the group fits into."""
        if self._fd != _NO_FILE and (self.is_due or not self._has_room()):
            self._close_segment()
        if self._fd == _NO_FILE and self._group:
            self._open_segment()

    def _has_room(self) -> bool:
        if self._chain.position == self._begin_bytes:
            return True  # However large the group is, it goes into one segment.
        size, rows = self._chain.position + self.group_bytes, self._offset - self._begin_offset
        return size <= self._split_bytes and rows <= self._split_rows

    def _write_group(self) -> None:
        position = self._chain.position
        try:
            self._write_records()
        except BaseException:
            self._chain.position = position
            raise
        self._sync()
        self._has_messages |= self._offset > self.acknowledged
        self.acknowledged, self._synced_number = self._offset, self._number
        self._group, self.group_bytes = [], 0
        size = self._chain.position - position
        self._bytes += size
        self._commits += 1
        if size >= JOURNAL_FORGET_BYTES:
            # A flood of large messages would fill the memory of the machine. In a virtual one
            # memory that was long unused is slow, too: 100 MB/s instead of 600.
            self._disk.forget(self._fd, position, size)

    def _write_records(self) -> None:
        """Write the group in parts: the disk works on one while the next is given its checksums."""
        begin = self._chain.position
        pieces: Buffers = []
        for kind, body in self._group:
            pieces += self._chain.add(kind, body)
            if self._chain.position - begin >= JOURNAL_WRITE_BYTES:
                self._disk.write(self._fd, pieces, begin)
                begin, pieces = self._chain.position, []
        if pieces:
            self._disk.write(self._fd, pieces, begin)

    def _sync(self) -> None:
        try:
            self._disk.sync(self._fd)
        except OSError as error:
            self._seal(error)
            raise
        self._chain.synced = self._chain.position

    # Segments.

    def _open_segment(self) -> None:
        """Begin a segment; its name is on the disk before anything in it is acknowledged."""
        number = self._segment + 1
        path = segment_path(self._store, number)
        self._fd = self._create(path)
        self._chain = Chain(int.from_bytes(urandom(4), "little"))
        self._created_ns = self._clock()
        begin = Begin(
            self._recorder, number, self.acknowledged, self._synced_number, self._created_ns
        )
        try:
            record = self._chain.add(records.BEGIN, records.encode_begin(begin))
            self._disk.write(self._fd, record, 0)
            self._disk.sync(self._fd)
            self._disk.sync_folder(journal_folder(self._store))
        except OSError:
            self._close_file()
            with suppress(OSError):
                self._disk.remove(path)
            raise
        self._begin_bytes = self._chain.synced = self._chain.position
        self._begin_offset = self.acknowledged
        self._segment = number
        self._has_messages = False
        self._segments += 1

    def _create(self, path: Path) -> int:
        needed = self.group_bytes + JOURNAL_PREALLOCATED_BYTES_MIN
        size = max(self._split_bytes, needed) + records.END_BYTES
        try:
            return self._disk.create(path, size)
        except OSError as error:
            # There may be no space for a whole segment, and still some for what we have.
            if error.errno not in NO_SPACE or size <= needed:
                raise
            return self._disk.create(path, needed)

    def _close_segment(self) -> None:
        """Say that a segment is whole and cut it; if the disk refuses, it ends where it does."""
        end = End(self.acknowledged, self._synced_number)
        position = self._chain.position
        try:
            record = self._chain.add(records.END, records.encode_end(end))
            self._disk.write(self._fd, record, position)
            self._disk.cut(self._fd, self._chain.position)
            self._close_file()
        except OSError as error:
            self._chain.position = position
            self._seal(error)

    def _seal(self, error: OSError) -> None:
        """Never write to a segment again; cut away what nobody can vouch for, if that works."""
        self._bad += 1
        with suppress(OSError):
            self._disk.cut(self._fd, self._chain.synced)
        self._close_file()
        if self._on_bad is not None:
            self._on_bad(self._segment, error)

    def _close_file(self) -> None:
        fd, self._fd = self._fd, _NO_FILE
        with suppress(OSError):  # Nothing that is not synced is claimed: there is nothing to lose.
            self._disk.close(fd)

    def _refused(self, error: OSError) -> None:
        self._refusals += 1
        if self._fd != _NO_FILE and error.errno not in NO_SPACE:
            self._seal(error)

    def statistics(self) -> JournalStatistics:
        """Return what was written."""
        return JournalStatistics(
            acknowledged=self.acknowledged,
            messages=self.acknowledged - self._first_offset,
            rows=self._synced_number - self._first_number,
            bytes=self._bytes,
            commits=self._commits,
            segments=self._segments,
            bad_segments=self._bad,
            refusals=self._refusals,
        )
