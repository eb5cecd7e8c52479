"""Which files of a recording were read: all of the segments before one, and some behind it.

Names of all files would grow with a recording, and every step would know them all. But segments
become files one after the other, and each goes only when its files are there. So files of segments
that are gone, and were seen to be, need no names: only the number of the first segment that counts.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from hubbub.pipeline.recording import Name, name_of
from hubbub.store.journal import journal_folder, segments
from hubbub.store.layout import DataFile

FILES = pa.schema([("table", pa.string()), ("hour", pa.string()), ("name", pa.string())])


class Closed(NamedTuple):
    """Segments before this one had all their files at that time."""

    segment: int
    time_ns: int


class Done(NamedTuple):
    """The files that were read."""

    settled: int = 0  # All files of the segments before this one.
    names: frozenset[Name] = frozenset()

    def has(self, file: DataFile) -> bool:
        """Tell whether a file was read."""
        return file.segment < self.settled or name_of(file) in self.names

    def with_names(self, names: Iterable[Name], settled: int) -> "Done":
        """Add files, and forget the names of those whose segments are settled."""
        settled = max(settled, self.settled)
        left = self.names if settled == self.settled else _behind(self.names, settled)
        return Done(settled, left | _behind(names, settled))

    @classmethod
    def read(cls, settled: int, rows: Any) -> "Done":
        """Return what was written down."""
        return cls(settled, frozenset(Name(*row.values()) for row in rows.to_pylist()))


def table_of(names: Iterable[Name]) -> Any:
    """Return names as rows to be kept."""
    return pa.Table.from_pylist([name._asdict() for name in sorted(names)], FILES)


def find_closed(store: Path, newest: int, now_ns: int) -> Closed | None:
    """Say which segments have all their files; `newest` was seen before. None: nobody knows."""
    if not journal_folder(store).is_dir():
        return None
    waiting = [int(path.stem) for path in segments(store)]
    return Closed(min(waiting, default=newest + 1), now_ns)


def _behind(names: Iterable[Name], settled: int) -> frozenset[Name]:
    return frozenset(name for name in names if int(name.name.partition("-")[0]) >= settled)
