"""Notices new files of a recording, at a cost that does not grow with those that were read.

A live run looks many times a second, and hours of a recording are tens of thousands of files. So a
folder of an hour is listed again only if it may have changed since: by its time of change, which is
believed once it is older than any clock's grain, and for a minute at most.

When everything is listed anew, it is also seen which segments have all their files. What was so a
minute ago, and of which nothing waits, is settled: by then no file system hides a file any more.

Spark does not look at the recording at all. Its stream watches a folder of its own, into which a
signal is put when there is something to do: for Spark a signal is a file, for us one step.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hubbub.limits import LISTING_KEPT_S, LISTING_SETTLED_S, SECOND
from hubbub.pipeline.done import Closed, Done, find_closed
from hubbub.pipeline.recording import INPUTS
from hubbub.store.layout import DataFile, list_folder, parse_name


class _Listed(NamedTuple):
    """A folder as it was: when it had changed, which names it had, what of it was not read."""

    changed_ns: int
    names: set[str]
    waiting: list[DataFile]
    newest: int  # The highest segment of all.


_UNSETTLED: Final = -1  # No folder changed then.
_NOT_YET: Final = _Listed(_UNSETTLED, set(), [], -1)


class Notices:
    """The files of a recording that were not read yet."""

    def __init__(self, store: Path, closed: Closed | None = None) -> None:
        self._store = store
        self._known: dict[Path, _Listed] = {}
        self._since_s = time.monotonic()
        self.closed = closed  # As it was seen last, also by an earlier run.
        self.settled = 0

    def waiting(self, done: Done) -> list[DataFile]:
        """Return the files that are not done, in the order in which they were made."""
        if time.monotonic() - self._since_s > LISTING_KEPT_S:
            self._known, self._since_s = {}, time.monotonic()
        is_anew = not self._known
        found = sorted(self._look(done), key=lambda file: (file.segment, file.table, file.first))
        if is_anew:
            self._settle(found)
        return found

    def _look(self, done: Done) -> list[DataFile]:
        known, self._known = self._known, {}
        found: list[DataFile] = []
        for folder, changed_ns in self._folders():
            listed = known.get(folder, _NOT_YET)
            is_settled = time.time_ns() - changed_ns > LISTING_SETTLED_S * SECOND
            if listed.changed_ns != changed_ns:
                listed = _list_again(folder, listed, changed_ns if is_settled else _UNSETTLED)
            waiting = [file for file in listed.waiting if not done.has(file)]
            self._known[folder] = listed._replace(waiting=waiting)
            found += waiting
        return found

    def _settle(self, waiting: list[DataFile]) -> None:
        """Settle what had all its files a while ago; note what has them now."""
        now_ns, before = time.time_ns(), self.closed
        age_ns = now_ns - before.time_ns if before is not None else 0
        if before is not None and 0 <= age_ns < LISTING_KEPT_S * SECOND:
            return
        if before is not None and age_ns > 0:
            first = min((file.segment for file in waiting), default=before.segment)
            self.settled = max(self.settled, min(before.segment, first))
        newest = max((listed.newest for listed in self._known.values()), default=-1)
        self.closed = find_closed(self._store, newest, now_ns)

    def _folders(self) -> Iterator[tuple[Path, int]]:
        """Yield the folders of all hours, and when they changed; one may vanish meanwhile."""
        for table in INPUTS:
            for folder in list_folder(self._store / table):
                try:
                    yield folder, os.stat(folder).st_mtime_ns
                except FileNotFoundError:
                    continue


def _list_again(folder: Path, before: _Listed, changed_ns: int) -> _Listed:
    """Look at the names that are new."""
    names = {path.name for path in list_folder(folder)}
    new = [file for name in names - before.names if (file := parse_name(folder / name))]
    newest = max((file.segment for file in new), default=before.newest)
    return _Listed(changed_ns, names, [*before.waiting, *new], max(newest, before.newest))


class Signals:
    """Says to a stream of Spark's that there is something to do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._is_given = False
        folder.mkdir(parents=True, exist_ok=True)

    def give(self, steps: int = 1) -> None:
        """Ask for so many steps, unless the last one asked for has not begun."""
        if self._is_given or not steps:
            return
        self._is_given = True
        for old in list_folder(self.folder):  # They have been seen.
            old.unlink(missing_ok=True)
        for number in range(steps):
            signal = self.folder / f".{time.time_ns()}-{number}"
            signal.write_text("go")
            signal.rename(self.folder / signal.name[1:])

    def taken(self) -> None:
        """Note that a step begins."""
        self._is_given = False
