"""The process that turns closed segments into Parquet files: `python -m hubbub.store.converter`.

A recorder starts it (`hubbub.store.converting`) and talks to it by standard input: a line says that
a segment was closed, the end of input that no more will come. It then converts what is closed and
ends; when the recorder has died it ends at once, for the next one starts another. It never touches
what is being written, so a recorder is right without it, and it may be killed at any time.
"""

import argparse
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

from pyarrow import ArrowException

from hubbub.errors import StoreError
from hubbub.limits import (
    COMPACT_POLL_S,
    CONVERT_POLL_S,
    CONVERT_RETRY_S,
    CONVERTER_GRACE_S,
    CONVERTER_NICENESS,
)
from hubbub.store.compact import compact, sweep, tidying
from hubbub.store.convert import Conversion, convert_segment
from hubbub.store.disk import Disk
from hubbub.store.identity import read_identity
from hubbub.store.journal import open_segment, segments
from hubbub.store.layout import TABLE_NAMES, remove_unfinished
from hubbub.store.lock import StoreLock, alone
from hubbub.store.recovery import Torn, recover

# Runs wait by the ten thousand to be columns, and are part of no cycle: looking at them again and
# again took a tenth of the time and more.
_COLLECTED_OBJECTS: Final = 1_000_000


class Rest(NamedTuple):
    """What was converted after a recorder had ended, and what it never finished writing."""

    conversions: list[Conversion]
    torn: tuple[Torn, ...]


def closed_segments(store: Path) -> list[Path]:
    """Return the segments that nobody will write to any more, by number.

    One that was given up says nothing of its end; that its successor has begun does. It is void
    from there on, so it goes first: without its successor nobody could tell.
    """
    paths = segments(store)
    closed: list[Path] = []
    for place, path in enumerate(paths, 1):
        if not _is_over(path, paths[place] if place < len(paths) else None):
            break
        closed.append(path)
    return closed


def _is_over(path: Path, following: Path | None) -> bool:
    with open_segment(path) as segment:
        if segment.is_closed:
            return True
    if following is None:
        return False
    with open_segment(following) as successor:
        return successor.created_ns > 0


def convert_closed(store: Path, torn: Iterable[Torn] = ()) -> Iterator[Conversion]:
    """Convert what is closed, one segment a step; what was cut off for that is told."""
    cut_bytes = {one.segment: one.size_bytes for one in torn}
    for path in closed_segments(store):
        yield convert_segment(store, path, cut_bytes.get(int(path.stem), 0))


def convert_rest(store: Path, timeout_s: float = CONVERTER_GRACE_S) -> Rest:
    """Convert everything that a recorder left when it ended, or died; it may not be there any more.

    What it was writing when it died is cut off, as the next recorder would do. That one may come
    while we convert: it writes other segments.
    """
    read_identity(store)
    lock = StoreLock(store)
    try:
        torn = recover(store, time.time_ns(), Disk()).torn
    finally:
        lock.release()
    end_s = time.monotonic() + timeout_s
    while True:
        with conversion_lock(store) as is_ours:
            if is_ours:
                return Rest(list(convert_closed(store, torn)), torn)
        if time.monotonic() > end_s:
            raise StoreError(f"{store} is being converted by another process: try again")
        time.sleep(CONVERT_POLL_S)


def conversion_lock(store: Path) -> AbstractContextManager[bool]:
    """Let one process at a time convert and compact; False: another one does."""
    return alone(store / "converter.lock")


class _Work:
    """What the process does until it is told to end."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._parent = os.getppid()
        self._is_told_to_end = False
        self._told = ""
        self._tidy_at_s = time.monotonic() + COMPACT_POLL_S

    @property
    def _is_orphan(self) -> bool:
        return os.getppid() != self._parent

    def run(self) -> int:
        while not self._is_orphan:
            with conversion_lock(self._store) as is_ours:
                if is_ours:
                    return self._convert_until_the_end()
            if self._is_told_to_end:
                return 0  # Who holds the lock does our work.
            self._wait(CONVERT_POLL_S)
        return 0

    def _convert_until_the_end(self) -> int:
        for table in TABLE_NAMES:
            remove_unfinished(self._store / table)
        while not self._is_orphan:
            is_last = self._is_told_to_end  # What was closed before we were told is seen below.
            is_well = self._convert()
            if is_last:
                return 0 if is_well else 1
            self._tidy()
            self._wait(CONVERT_POLL_S if is_well else CONVERT_RETRY_S)
        return 0

    def _convert(self) -> bool:
        """Convert what is closed; False: something was refused, and is tried again later."""
        try:
            for conversion in convert_closed(self._store):
                if not conversion.is_whole:
                    self._tell(f"segment {conversion.segment} is damaged: see journal/damaged")
                if self._is_orphan:
                    return True
        except FileNotFoundError:
            return False  # The recorder's quota was quicker, and has told so.
        except (OSError, StoreError, ArrowException) as error:
            self._tell(f"not converted: {error}")
            return False
        return True

    def _tidy(self) -> None:
        """Compact from time to time, as long as no segment waits."""
        if time.monotonic() < self._tidy_at_s:
            return
        self._tidy_at_s = time.monotonic() + COMPACT_POLL_S
        try:
            with tidying(self._store) as is_ours:
                if is_ours:
                    for _ in compact(self._store, time.time_ns(), self._is_idle):
                        pass
                    sweep(self._store, time.time_ns())
        except (OSError, StoreError, ArrowException) as error:
            self._tell(f"not compacted: {error}")

    def _is_idle(self) -> bool:
        return not (self._is_orphan or closed_segments(self._store))

    def _tell(self, text: str) -> None:
        """Say something, but not the same again and again."""
        if text != self._told:
            _write(text)
        self._told = text

    def _wait(self, seconds: float) -> None:
        """Wait for a word of the recorder."""
        if self._is_told_to_end:
            time.sleep(seconds)
            return
        ready, _, _ = select.select([0], [], [], seconds)
        if ready:
            self._is_told_to_end = not os.read(0, 1 << 16)


def _write(text: str) -> None:
    sys.stderr.write(f"hubbub: {text}\n")
    sys.stderr.flush()


def main() -> int:
    """Convert until standard input ends."""
    parser = argparse.ArgumentParser(
        prog="hubbub.store.converter", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("store", type=Path, help="the folder of a recording")
    store: Path = parser.parse_args().store
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the recorder, which tells us.
    os.nice(CONVERTER_NICENESS)
    gc.freeze()
    gc.set_threshold(_COLLECTED_OBJECTS)
    if not store.is_dir():
        _write(f"{store} is no folder")
        return 2
    return _Work(store).run()


if __name__ == "__main__":
    sys.exit(main())
