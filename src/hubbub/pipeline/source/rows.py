"""Reads rows by their offsets, wherever they lie when they are read.

Between planning and reading, segments become Parquet and small files large ones. So a reader is
told offsets, not files. It goes from row to row: which file has the next one? What one file does
not have, another may; only what none has, looked for again, is lost. Each row is handed out once,
because the next one wanted is always behind the last one handed out.
"""

import logging
import time
from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from hubbub.errors import DataLoss
from hubbub.limits import SOURCE_LOOKS_MAX, SOURCE_PATIENCE_S
from hubbub.pipeline.source.files import read_piece
from hubbub.pipeline.source.planner import Span
from hubbub.pipeline.source.whereabouts import MESSAGES, Hint, Piece, Whereabouts, key_of
from hubbub.subjects import Matcher, is_subject

_log: Final = logging.getLogger("hubbub.pipeline.source")
_LOOK_S: Final = 0.05


class _Found(NamedTuple):
    """How far one look came, where rows go on behind a hole, and whether a file was gone."""

    at: int
    following: int
    is_gone: bool


class Rows:
    """Reads spans of one table of a store."""

    def __init__(self, where: Whereabouts, *, is_loss_failure: bool = True) -> None:
        self.where = where
        self.lost = 0
        self._is_loss_failure = is_loss_failure
        self._patience_s = SOURCE_PATIENCE_S

    def read(self, first: int, end: int, hint: Hint | None = None) -> Iterator[pa.Table]:
        """Yield the rows `first` up to, but without, `end`, in order, each once."""
        is_dense = self.where.table == MESSAGES
        return (self._read_dense if is_dense else self._read_sparse)(first, end, hint)

    def _read_dense(self, at: int, end: int, hint: Hint | None) -> Iterator[pa.Table]:
        """Read offsets, which have no holes: each must be somewhere."""
        pieces, is_fresh, looks = self.where.pieces(), True, 0
        while at < end:
            found = yield from self._read_on(pieces, at, end, hint)
            if found.at > at:
                at, is_fresh, looks = found.at, False, 0
            elif (found.is_gone and looks < SOURCE_LOOKS_MAX) or not is_fresh:
                pieces, is_fresh, looks = self.where.pieces(), True, looks + 1
            elif found.following == end and not _has_later(pieces, at) and self._wait():
                pieces = self.where.pieces()
            else:
                later = [piece.first for piece in pieces if at < piece.first < found.following]
                following = min(later, default=found.following)
                self._lose(Span(self.where.recorder, at, following))
                at, is_fresh = following, False

    def _read_on(
        self, pieces: list[Piece], at: int, end: int, hint: Hint | None
    ) -> Generator[pa.Table, None, _Found]:
        """Read from one file, of those that may have the next row, as far as it goes unbroken."""
        start, following, is_gone = at, end, False
        for piece in _covering(pieces, at):
            try:
                for table in read_piece(self.where, piece, at, min(end, piece.end), hint):
                    part, behind = _unbroken(table, at)
                    at += part.num_rows
                    if part.num_rows:
                        yield part
                    if behind is not None:
                        following = min(following, behind)
                        break
            except FileNotFoundError:
                is_gone = True
            except (OSError, pa.ArrowException) as error:
                _log.warning("%s cannot be read: %s", piece.path, error)
            if at > start:
                break
        return _Found(at, following, is_gone)

    def _read_sparse(self, at: int, end: int, hint: Hint | None) -> Iterator[pa.Table]:
        """Read numbers, which several tables share: most of them are elsewhere."""
        pieces = self.where.pieces()
        while at < end:
            covering = _covering(pieces, at)
            if not covering:
                later = [piece.first for piece in pieces if at < piece.first < end]
                at = min(later, default=end)
                continue
            stop = min(end, covering[0].end)
            try:
                yield from read_piece(self.where, covering[0], at, stop, hint)
            except FileNotFoundError:
                pieces = self.where.pieces()
                continue
            except (OSError, pa.ArrowException) as error:
                _log.warning("%s cannot be read: %s", covering[0].path, error)
                self._lose(Span(self.where.recorder, at, stop))
            at = stop

    def _wait(self) -> bool:
        """Give a file system of the network a moment to show what was written elsewhere."""
        if self._patience_s <= 0:
            return False
        self._patience_s -= _LOOK_S
        time.sleep(_LOOK_S)
        return True

    def _lose(self, span: Span) -> None:
        self.lost += span.end - span.first
        report_loss([span], self.where, is_failure=self._is_loss_failure)


def report_loss(spans: Iterable[Span], where: Whereabouts, *, is_failure: bool) -> None:
    """Say what is not there: as an error, or, where that is accepted, in the log."""
    for span in spans:
        key = key_of(where.table)
        text = f"{key} {span} is not in {where.store} (any more): it was pruned, or is damaged"
        if is_failure:
            raise DataLoss(f"{text}; to go on without it, set failOnDataLoss to false")
        _log.warning("%s", text)


def _covering(pieces: list[Piece], row: int) -> list[Piece]:
    """Return the files that may have a row, the quickest to read first."""
    found = [piece for piece in pieces if piece.first <= row < piece.end]
    return sorted(found, key=lambda piece: (piece.is_journal, -piece.end, piece.first))


def _has_later(pieces: list[Piece], row: int) -> bool:
    return any(piece.first > row for piece in pieces)


def _unbroken(table: pa.Table, at: int) -> tuple[pa.Table, int | None]:
    """Return the rows that follow each other from `at` on, and the first one behind a hole."""
    offsets = table.column("offset").to_numpy()
    count = table.num_rows
    if count and offsets[0] == at and offsets[-1] == at + count - 1:
        return table, None
    breaks = np.flatnonzero(offsets != np.arange(at, at + count))
    if not len(breaks):
        return table, None
    return table.slice(0, breaks[0]), int(offsets[breaks[0]])


class Subjects:
    """Picks the rows of some subjects."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._matcher: Matcher[None] = Matcher()
        for pattern in patterns:
            self._matcher.add(pattern, None)

    def pick(self, table: pa.Table) -> pa.Table:
        """Return the rows whose subject matches a pattern."""
        subjects = table.column("subject").combine_chunks().dictionary_encode()
        wanted = [
            name is not None and is_subject(name) and bool(self._matcher.match(name))
            for name in subjects.dictionary.to_pylist()
        ]
        return table.filter(pa.array(wanted, pa.bool_()).take(subjects.indices))
