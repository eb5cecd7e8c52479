"""Keeps a store within a bound while it is recorded into: the oldest goes first.

Converted files go before segments that nobody has converted yet, and what a registered reader still
needs stays. A reader that has not moved for long is dropped, so that one which never comes again
does not fill the disk. While others need the oldest, nothing goes, and the recording says that it
is larger than it should be: what lies behind it never goes before it. When no converted file may
go, the oldest closed segments do, which loses what only they held: the recording names it.
"""

import os
from pathlib import Path
from typing import NamedTuple

from hubbub.errors import StoreError
from hubbub.limits import READER_STALE, RECORDER_LOST_RANGES_MAX
from hubbub.message import Source
from hubbub.runtime.tally import Loss, Tally
from hubbub.store.checkpoints import checkpoints, remove
from hubbub.store.journal import open_segment, segments
from hubbub.store.layout import TABLE_NAMES, size_of
from hubbub.store.records import PackedRun


class Removed(NamedTuple):
    """What had to go, and why not more."""

    files: int
    segments: int
    messages: int  # In those segments, so lost for good.
    size_bytes: int
    loss: Loss | None  # Which messages.
    dropped: tuple[str, ...]  # Readers.
    held_bytes: int  # Beyond the quota, because readers need what is oldest.


def enforce(store: Path, quota_bytes: int, now_ns: int) -> Removed | None:
    """Remove the oldest data beyond a quota; None: it fits, or nothing may go just now."""
    before = folder_bytes(store)
    files = segments_gone = held_bytes = 0
    lost = Tally(RECORDER_LOST_RANGES_MAX)
    dropped: list[str] = []
    try:
        while (size := folder_bytes(store)) > quota_bytes:
            removed, is_held = _remove_files(store, quota_bytes, now_ns)
            files += removed
            if removed:
                continue
            if is_held:
                stale = _drop_stale(store, now_ns)
                dropped += stale
                if stale:
                    continue
                held_bytes = size - quota_bytes
                break
            if not (closed := segments(store)[:-1]):  # The last one is being written.
                break
            _remove_segment(closed[0], lost)
            segments_gone += 1
    except StoreError:
        pass  # It is being compacted just now: the next look comes soon.
    if not (files or segments_gone or dropped or held_bytes):
        return None
    freed = before - folder_bytes(store)
    return Removed(files, segments_gone, lost.total, freed, lost.take(), tuple(dropped), held_bytes)


def _remove_files(store: Path, quota_bytes: int, now_ns: int) -> tuple[int, bool]:
    """Remove the oldest converted files; return how many, and whether readers need others."""
    folders = [store / name for name in (*TABLE_NAMES, "compact")]
    converted = sum(map(folder_bytes, folders))
    if not converted:
        return 0, False
    from hubbub.store.prune import NEEDED, prune  # It needs pyarrow, which has made the files.

    room = max(0, quota_bytes - (folder_bytes(store) - converted))
    done = prune(store, now_ns, bytes_max=room, is_dry=False)
    is_held = any(one.held_by == NEEDED for one in done.held)
    return len(done.removed) + len(done.replaced), is_held


def _drop_stale(store: Path, now_ns: int) -> list[str]:
    """Forget the readers that have not moved for long; return their names."""
    stale = [one.name for one in checkpoints(store) if one.updated_ns + READER_STALE <= now_ns]
    return [name for name in stale if remove(store, name)]


def folder_bytes(folder: Path) -> int:
    """Return how many bytes a folder holds."""
    return sum(
        size_of(Path(parent, name)) for parent, _, names in os.walk(folder) for name in names
    )


def _remove_segment(path: Path, lost: Tally) -> None:
    """Remove a segment, and note which messages were only there."""
    try:
        with open_segment(path) as segment:
            runs = [one for one in segment.packed() if isinstance(one, PackedRun)]
        path.unlink()
    except FileNotFoundError:
        return  # The process that converts was quicker.
    for run in runs:
        topic = run.topic
        source = Source(topic.source_name, topic.source_id, topic.incarnation)
        lost.add(topic.subject, source, run.first, run.size)
