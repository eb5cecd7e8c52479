"""Reads journal segments, also while they are written, and whatever became of them since.

The disk is not trusted. A record whose checksum is wrong is passed over and told in `damaged`, and
reading goes on at the next sound head. Damage that no sound record follows is a torn tail: the
write that was under way when the recorder died. Zeros are the end, but for a segment that was
closed whole, which is cut to its size: there they are damage.

Files are read by `pread`, not mapped: a segment is cut when it is closed, and who reads a mapping
beyond the end dies of it.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from hubbub.errors import StoreError
from hubbub.limits import JOURNAL_READ_BYTES
from hubbub.store import records
from hubbub.store.identity import read_identity
from hubbub.store.records import (
    HEAD_BYTES,
    MAGIC,
    ZEROS,
    Begin,
    Decoder,
    End,
    Head,
    PackedRun,
    Row,
    Run,
)
from hubbub.store.records import Topic as Topic

SUFFIX: Final = ".journal"
_DIGITS: Final = 12
_NEVER: Final = 1 << 64

Range = tuple[int, int]  # From the first to before the second.


class Entry(NamedTuple):
    """A sound record, and where in its segment it stands."""

    position: int
    head: Head
    value: Run | PackedRun | Row | Begin | End


def journal_folder(store: Path) -> Path:
    """Return where the segments of a store lie."""
    return store / "journal"


def segment_path(store: Path, number: int) -> Path:
    """Return where a segment lies."""
    return journal_folder(store) / f"{number:0{_DIGITS}}{SUFFIX}"


def segments(store: Path) -> list[Path]:
    """Return the segments of a store, by number; the last may be the one that is written."""
    return sorted(path for path in journal_folder(store).glob(f"*{SUFFIX}") if path.stem.isdigit())


def open_segment(path: Path) -> "Segment":
    """Open a segment for reading."""
    return Segment(path)


class Segment:
    """A segment opened for reading; one reader at a time.

    Iterating starts at the beginning and tells afterwards what was found: up to where the offsets
    and numbers go, which bytes are `damaged`, which offsets are therefore `missing`, how long the
    torn tail is. `follow()` goes on where the last iteration ended, for a segment that still grows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.stem)
        self.recorder = ""  # Hex; empty where nobody says.
        self.created_ns = 0
        self.first_offset = self.first_number = 0
        self.end_offset = self.end_number = 0
        self._file = _File(path)
        self.id: int | None = None
        self._has_begin = False
        self._limit = End(_NEVER, _NEVER)
        try:
            self._read_begin()
            self.is_closed = self._find_end() is not None
            self._look_behind()
        except BaseException:
            self.close()
            raise
        self.position = 0
        self._has_ended = False
        self._rewind()

    def __enter__(self) -> "Segment":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __iter__(self) -> Iterator[Run | Row]:
        """Read everything from the beginning."""
        self._rewind()
        return self.follow()

    def packed(self) -> Iterator[PackedRun | Row]:
        """Read everything from the beginning, and do not take runs apart."""
        self._rewind()
        self._decoder = Decoder(is_packed=True)
        carefully = self._read()
        while True:
            yield from self._hurry()  # type: ignore[misc]
            value = next(carefully, None)
            if value is None:
                return
            yield value  # type: ignore[misc]

    def _hurry(self) -> Iterator[Run | PackedRun | Row]:
        """Read on while everything is plainly sound and in order; else leave it to `_read`."""
        if self.id is None or self._limit.end_offset != _NEVER:
            return
        begin = -1
        while begin != self.position:
            begin = self.position
            window = self._file.read(begin, JOURNAL_READ_BYTES)
            for position, value in self._decoder.scan(window, begin, self.id):
                if isinstance(value, Row):
                    if value.number < self.end_number:
                        return
                    self.end_number = value.number + 1
                elif value.offset == self.end_offset:
                    self.end_offset = value.end_offset
                else:
                    return
                self.position = position
                yield value

    def follow(self) -> Iterator[Run | Row]:
        """Read what has come since the last iteration ended."""
        return self._read()  # type: ignore[return-value]

    def _read(self) -> Iterator[Run | PackedRun | Row]:
        self._file.forget()
        if self.id is None:
            self._read_begin()
            self.end_offset, self.end_number = self.first_offset, self.first_number
        entries = self.entries()
        while (self.end_offset, self.end_number) != self._limit:
            entry = next(entries, None)
            if entry is None:
                return
            value = entry.value
            if isinstance(value, Run | PackedRun):
                if self.end_offset <= value.offset < self._limit.end_offset:
                    self._expect(value.offset)
                    self.end_offset = value.end_offset
                    yield value
            elif isinstance(value, Row):
                if self.end_number <= value.number < self._limit.end_number:
                    self.end_number = value.number + 1
                    yield value
            elif isinstance(value, End):
                self._expect(value.end_offset)
                self.end_offset, self.end_number = value

    def entries(self, is_thorough: bool = False) -> Iterator[Entry]:
        """Read the sound records that come next; thoroughly: also behind zeros."""
        self.torn_bytes = self.size_of_data(0) if self.id is None else 0
        while self.id is not None and not self._has_ended:
            head = self._head_at(self.position)
            body = self._body_of(head) if head else b""
            value = self._decode(head, body) if head else None
            if head is not None and value is not None:
                position, self.position = self.position, self.position + HEAD_BYTES + len(body)
                self._has_ended = isinstance(value, End)
                self.is_closed |= self._has_ended
                yield Entry(position, head, value)
            elif not self._pass_over(head, is_thorough):
                return

    def size_of_data(self, position: int) -> int:
        """Return how many bytes follow a position, but for zeros at the end."""
        return self._file.end_of_data(position) - position

    def _decode(self, head: Head, body: bytes) -> Run | PackedRun | Row | Begin | End | None:
        if len(body) != head.size_bytes or crc32(body) != head.crc:
            return None
        return self._decoder.decode(head.kind, body)

    def _pass_over(self, head: Head | None, is_thorough: bool) -> bool:
        """Go on behind what is no record; False: nothing sound follows."""
        begin = self.position
        if head is None and not (self.is_closed or is_thorough) and self._is_zero(begin):
            return False
        start = begin + (HEAD_BYTES + head.size_bytes if head else 1)
        following = self._find_head(start)
        if following is None:
            self.torn_bytes = self.size_of_data(begin)
            return False
        # It may have been written while we looked for the next one.
        self._file.forget()
        if self._is_sound(begin):
            return True
        if self.damaged and self.damaged[-1][1] == begin:
            begin = self.damaged.pop()[0]
        self.damaged.append((begin, following))
        self.position = following
        return True

    def _is_sound(self, position: int) -> bool:
        head = self._head_at(position)
        return head is not None and self._decode(head, self._body_of(head)) is not None

    def _body_of(self, head: Head) -> bytes:
        return self._file.read(head.position + HEAD_BYTES, head.size_bytes)

    def _expect(self, offset: int) -> None:
        """Note the offsets that are missing before this one."""
        if not self._has_begin and self.end_offset == 0:
            self.first_offset = self.end_offset = offset
        if offset > self.end_offset:
            self.missing.append((self.end_offset, offset))

    def _rewind(self) -> None:
        self.position = 0
        self.end_offset, self.end_number = self.first_offset, self.first_number
        self.torn_bytes = 0
        self.damaged: list[Range] = []  # Bytes.
        self.missing: list[Range] = []  # Offsets.
        self._has_ended = False
        self._decoder = Decoder()

    def _read_begin(self) -> None:
        """Learn the id of the segment, from its first record or else from the next sound one."""
        head = self._head_at(0)
        if head is not None:
            body = self._body_of(head)
            if len(body) == head.size_bytes and crc32(body) == head.crc:
                self._accept(head, body)
        if self.id is None and not self._is_zero(0):
            position = self._find_head(1)
            head = None if position is None else self._head_at(position)
            self.id = None if head is None else head.segment_id
            with suppress(StoreError):
                self.recorder = read_identity(self.path.parents[1]).recorder

    def _accept(self, head: Head, body: bytes) -> None:
        begin = records.decode_begin(body)
        if begin is None:
            raise StoreError(
                f"{self.path} is of a format that this version of Hubbub cannot read:"
                f" it reads {records.FORMAT}; use the version that wrote it"
            )
        self.id = head.segment_id
        self._has_begin = True
        self.recorder, self.created_ns = begin.recorder.hex(), begin.created_ns
        self.first_offset, self.first_number = begin.first_offset, begin.first_number

    def _find_end(self) -> Head | None:
        """Look for the last record of a segment that was closed whole."""
        position = self._file.size - records.END_BYTES
        head = self._head_at(position) if position > 0 else None
        return head if head is not None and head.kind == records.END else None

    def _look_behind(self) -> None:
        """Learn where the next segment begins: what a bad one holds from there on is void.

        It was written again, after the disk could not say what became of it the first time.
        """
        path = self.path.with_name(f"{self.number + 1:0{_DIGITS}}{SUFFIX}")
        if self.is_closed or not path.exists():
            return
        with suppress(OSError, StoreError), Segment(path) as following:
            if following._has_begin:
                self._limit = End(following.first_offset, following.first_number)

    def _head_at(self, position: int) -> Head | None:
        """Read a head, which must be one of this segment and stand in its place."""
        head = records.decode_head(self._file.read(position, HEAD_BYTES))
        if head is None or head.position != position or self.id not in (None, head.segment_id):
            return None
        return head

    def _find_head(self, start: int) -> int | None:
        """Look for the next sound head."""
        self._file.forget()
        position = self._file.find(MAGIC, start)
        while position is not None:
            if self._head_at(position) is not None:
                return position
            position = self._file.find(MAGIC, position + 1)
        return None

    def _is_zero(self, position: int) -> bool:
        return ZEROS.startswith(self._file.read(position, HEAD_BYTES))


class _File:
    """A file, read through a window: most records are small and lie side by side."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._window = b""
        self._start = 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def forget(self) -> None:
        """Look at the file itself again: it may have grown."""
        self._window = b""

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return so many bytes, or what there is of them."""
        at = position - self._start
        if at < 0 or at + size_bytes > len(self._window):
            size_bytes = min(size_bytes, max(0, self.size - position))
            self._window = self._pread(max(size_bytes, JOURNAL_READ_BYTES), position)
            self._start, at = position, 0
        return self._window[at : at + size_bytes]

    def find(self, pattern: bytes, start: int) -> int | None:
        """Return where the pattern first stands from `start` on."""
        while start < self.size:
            piece = self._pread(JOURNAL_READ_BYTES, start)
            found = piece.find(pattern)
            if found >= 0:
                return start + found
            start += max(1, len(piece) - len(pattern) + 1)
        return None

    def end_of_data(self, start: int) -> int:
        """Return where nothing but zeros follows."""
        end = start
        while piece := self._pread(JOURNAL_READ_BYTES, start):
            if kept := piece.rstrip(b"\0"):
                end = start + len(kept)
            start += len(piece)
        return end

    def _pread(self, size_bytes: int, position: int) -> bytes:
        """Read all of it: one call returns at most 2 GiB, and less if it is interrupted."""
        pieces = []
        while size_bytes and (piece := os.pread(self._fd, size_bytes, position)):
            pieces.append(piece)
            size_bytes -= len(piece)
            position += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
