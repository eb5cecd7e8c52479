"""Keeps a store within a bound while it is recorded into: the oldest goes first.

Converted files go before segments that nobody has converted yet. When nothing else is left, the
oldest closed segments go, which loses what only they held: the recording says so.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hubbub.store.journal import Segment, open_segment, segments
from hubbub.store.layout import TABLE_NAMES, data_files


class Removed(NamedTuple):
    """What had to go."""

    files: int
    segments: int
    messages: int  # In those segments, so lost for good.
    size_bytes: int


def enforce(store: Path, quota_bytes: int) -> Removed | None:
    """Remove the oldest data beyond a quota; None: it fits."""
    excess = size_of(store) - quota_bytes
    if excess <= 0:
        return None
    files = segments_gone = messages = removed = 0
    for path in _oldest_files(store):
        if removed >= excess:
            break
        removed += _remove(path)
        files += 1
    for path in segments(store)[:-1]:  # The last one is being written.
        if removed >= excess:
            break
        with suppress(OSError), open_segment(path) as segment:
            messages += _messages_of(segment)
        removed += _remove(path)
        segments_gone += 1
    return Removed(files, segments_gone, messages, removed) if removed else None


def size_of(folder: Path) -> int:
    """Return how much of the disk a folder takes."""
    size = 0
    for path in _walk(folder):
        with suppress(FileNotFoundError):
            size += path.stat().st_blocks * 512
    return size


def _walk(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _oldest_files(store: Path) -> list[Path]:
    found = [file for table in TABLE_NAMES for file in data_files(store, table)]
    return [file.path for file in sorted(found, key=lambda file: (file.segment, file.first))]


def _messages_of(segment: Segment) -> int:
    for _ in segment:
        pass
    return segment.end_offset - segment.first_offset


def _remove(path: Path) -> int:
    """Remove a file; return how much of the disk that sets free."""
    try:
        size = path.stat().st_blocks * 512
        path.unlink()
    except FileNotFoundError:
        return 0  # The process that converts was quicker.
    return size
