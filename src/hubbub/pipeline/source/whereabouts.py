"""Where the rows of a recording lie just now: in journal segments and in Parquet files.

What is listed first goes away first: a segment is removed only when its Parquet files are there, a
small file only when a large one stands for it. Who lists in this order sees each row at least once,
and offsets tell what it sees twice. A file that is gone when it is opened has become another: list
again.
"""

from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from hubbub.errors import StoreError
from hubbub.limits import DAMAGE_NUMBER, SOURCE_HINT_BYTES
from hubbub.pipeline.source.planner import Extent
from hubbub.store.identity import identity_path, read_identity
from hubbub.store.journal import Segment, open_segment, segments
from hubbub.store.layout import TABLE_NAMES, data_files
from hubbub.store.manifest import readable
from hubbub.store.schema import TABLES

MESSAGES: Final = "messages"
OPEN_END: Final = 1 << 62  # Of a segment that may grow.


class Piece(NamedTuple):
    """A file with rows `first` up to, but without, `end` in it."""

    first: int
    end: int
    path: Path
    is_journal: bool


class Hint(NamedTuple):
    """Where in a segment a row begins, so that what lies before need not be read."""

    segment: int
    row: int
    position: int


def key_of(table: str) -> str:
    """Return the column that counts the rows of a table."""
    return "offset" if table == MESSAGES else "number"


def time_of(table: str) -> str:
    """Return the column that tells when a row came."""
    return "received_ns" if table == MESSAGES else "time_ns"


def find_stores(path: Path) -> list[Path]:
    """Return the store, or the stores in a folder."""
    if identity_path(path).exists():
        return [path]
    found = sorted(one.parent for one in path.glob("*/" + identity_path(path).name))
    if not found:
        raise StoreError(f"{path} is no store, and has none in it")
    return found


class Whereabouts:
    """Knows where the rows of one table of a store lie, and how far they go."""

    def __init__(self, store: Path, table: str) -> None:
        assert table in TABLES
        self.store = store
        self.table = table
        self.recorder = read_identity(store).recorder
        self._firsts: dict[Path, int] = {}  # Where segments begin.
        self._tail: Segment | None = None
        self._hints: list[Hint] = []

    def pieces(self) -> list[Piece]:
        """List the files, journal segments first; the last segment may grow."""
        journal = [(path, first) for path in segments(self.store) if (first := self._first(path))]
        ends = [*(first for _, first in journal[1:]), OPEN_END + 1]
        found = [
            Piece(first - 1, end - 1, path, True)
            for (path, first), end in zip(journal, ends, strict=False)
        ]
        found += [
            Piece(file.first, file.last + 1, file.path, False)
            for file in readable(self.store, self.table)
            if file.first < DAMAGE_NUMBER
        ]
        return found

    def damage_files(self) -> list[Path]:
        """Return the files with rows about damage, which have numbers of their own."""
        files = readable(self.store, self.table) if self.table == "events" else []
        return [file.path for file in files if file.first >= DAMAGE_NUMBER]

    def end(self) -> int:
        """Return the row behind the last one."""
        end = self._follow()
        return self._parquet_end() if end is None else end

    def extent(self) -> Extent:
        """Return what there is, and where files begin."""
        end = self.end()
        pieces = [piece for piece in self.pieces() if piece.first < end]
        seams = sorted({piece.first for piece in pieces})
        return Extent(seams[0] if seams else end, end, tuple(seams))

    def hint(self, row: int) -> Hint | None:
        """Tell where a row of the open segment is to be found, if it is there."""
        at = bisect_right(self._hints, row, key=lambda hint: hint.row) - 1
        return self._hints[at] if at >= 0 else None

    def close(self) -> None:
        """Let go of the open segment."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _first(self, path: Path) -> int:
        """Return the first row of a segment, counted from 1; 0: it is gone, or has not begun."""
        if path not in self._firsts:
            with suppress(FileNotFoundError), open_segment(path) as segment:
                if not segment.created_ns:
                    for _ in segment:  # Its first record is damaged: look for the next.
                        break
                if segment.created_ns or segment.end_offset or segment.end_number:
                    self._firsts[path] = 1 + self._row_of(segment, is_first=True)
        return self._firsts.get(path, 0)

    def _row_of(self, segment: Segment, *, is_first: bool = False) -> int:
        if self.table == MESSAGES:
            return segment.first_offset if is_first else segment.end_offset
        return segment.first_number if is_first else segment.end_number

    def _follow(self) -> int | None:
        """Read what has come to the last segment; None: there is no segment."""
        while paths := [path for path in segments(self.store) if self._first(path)]:
            with suppress(FileNotFoundError):
                return self._follow_in(paths[-1])
        self.close()
        return None

    def _follow_in(self, path: Path) -> int:
        if self._tail is None or self._tail.path != path:
            self.close()
            self._tail = open_segment(path)
            self._tail.packed()  # And so it goes on: runs are not taken apart.
            self._hints.clear()
        tail = self._tail
        told = self._hints[-1].position if self._hints else -SOURCE_HINT_BYTES
        row, position = self._row_of(tail), tail.position
        for _ in tail.follow():
            if position - told >= SOURCE_HINT_BYTES:
                self._hints.append(Hint(tail.number, row, position))
                told = position
            row, position = self._row_of(tail), tail.position
        return self._row_of(tail)

    def _parquet_end(self) -> int:
        """Return the end of what was converted; numbers are shared by the tables that have them."""
        others = [table for table in TABLE_NAMES if table != MESSAGES]
        ends = [
            file.last + 1
            for table in ([MESSAGES] if self.table == MESSAGES else others)
            for file in data_files(self.store, table)
            if file.first < DAMAGE_NUMBER
        ]
        return max(ends, default=0)
