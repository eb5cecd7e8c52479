"""Keeps a store within a bound while it is recorded into: the oldest goes first.

Converted files go before segments that nobody has converted yet, unless a registered reader still
needs them. When nothing else is left, the oldest closed segments go, which loses what only they
held: the recording says so.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hubbub.errors import StoreError
from hubbub.store.journal import open_segment, segments
from hubbub.store.layout import TABLE_NAMES


class Removed(NamedTuple):
    """What had to go."""

    files: int
    segments: int
    messages: int  # In those segments, so lost for good.
    size_bytes: int


def enforce(store: Path, quota_bytes: int, now_ns: int) -> Removed | None:
    """Remove the oldest data beyond a quota; None: it fits, or nothing may go just now."""
    before = size_of(store)
    files = segments_gone = messages = 0
    try:
        while size_of(store) > quota_bytes:
            removed = _remove_files(store, quota_bytes, now_ns)
            closed = segments(store)[:-1]  # The last one is being written.
            if not removed and not closed:
                break
            if not removed:
                messages += _remove_segment(closed[0])
                segments_gone += 1
            files += removed
    except StoreError:
        pass  # It is being compacted just now: the next look comes soon.
    if not files and not segments_gone:
        return None
    return Removed(files, segments_gone, messages, before - size_of(store))


def _remove_files(store: Path, quota_bytes: int, now_ns: int) -> int:
    """Remove the oldest converted files; return how many."""
    folders = [store / name for name in (*TABLE_NAMES, "compact")]
    converted = sum(map(size_of, folders))
    if not converted:
        return 0
    from hubbub.store.prune import prune  # It needs pyarrow, which has made the files.

    room = max(0, quota_bytes - (size_of(store) - converted))
    done = prune(store, now_ns, bytes_max=room, is_dry=False)
    return len(done.removed) + len(done.replaced)


def size_of(folder: Path) -> int:
    """Return how many bytes a folder holds."""
    size = 0
    for path in _walk(folder):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def _walk(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _remove_segment(path: Path) -> int:
    """Remove a segment; return how many messages were only there."""
    try:
        with open_segment(path) as segment:
            for _ in segment:
                pass
        path.unlink()
    except FileNotFoundError:
        return 0  # The process that converts was quicker.
    return segment.end_offset - segment.first_offset
