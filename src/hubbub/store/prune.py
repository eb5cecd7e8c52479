"""Takes old rows out of a store: whole files, oldest first, none that a reader still needs.

The newest file of each table stays, whatever is asked for: a recorder that starts learns from its
name where to go on. Small files that large ones have replaced for an hour go, too.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from hubbub.errors import StoreError
from hubbub.limits import DAMAGE_NUMBER
from hubbub.store.checkpoints import floor
from hubbub.store.compact import remove_files, sweep, tidying
from hubbub.store.layout import (
    HOUR_NS,
    TABLE_NAMES,
    DataFile,
    hour_folder,
    hour_start_ns,
    size_of,
)
from hubbub.store.manifest import (
    Entry,
    Manifest,
    entry_path,
    read_manifest,
    readable,
    write_manifest,
)

NEEDED: Final = "a reader needs it"


class Candidate(NamedTuple):
    """A file that holds rows, its size, and why it must stay (empty: it need not)."""

    file: DataFile
    size_bytes: int
    held_by: str


class Pruning(NamedTuple):
    """What goes, or would go: files with rows, files that others have replaced, and what stays."""

    removed: list[Candidate]
    replaced: list[tuple[Path, int]]
    held: list[Candidate]  # Old enough, but needed.
    left_bytes: int

    @property
    def size_bytes(self) -> int:
        """Return how much room that makes."""
        return sum(one.size_bytes for one in self.removed) + sum(size for _, size in self.replaced)


def prune(
    store: Path,
    now_ns: int,
    *,
    before_ns: int | None = None,
    bytes_max: int | None = None,
    is_dry: bool = True,
) -> Pruning:
    """Remove files that hold nothing from `before_ns` on, and the oldest beyond `bytes_max`."""
    with tidying(store) as is_ours:
        if not is_ours:
            raise StoreError(f"{store} is being compacted or pruned just now: try again")
        replaced = [(path, size_of(path)) for path in sweep(store, now_ns, is_dry)]
        gone = {path for path, _ in replaced}
        candidates = _candidates(store, gone)
        total = sum(one.size_bytes for one in candidates)
        removed, held = _choose(candidates, total, before_ns, bytes_max)
        if removed and not is_dry:
            _remove(store, removed)
    freed = sum(one.size_bytes for one in removed)
    return Pruning(removed, replaced, held, total - freed)


def _candidates(store: Path, gone: set[Path]) -> list[Candidate]:
    """Return all files that hold rows, oldest first; with those that they have replaced."""
    found = []
    replaced = _replaced_bytes(store, gone)
    for table in TABLE_NAMES:
        files, needed = readable(store, table), floor(store, table)
        newest = max((file.last for file in files if file.first < DAMAGE_NUMBER), default=0)
        for file in files:
            held = ""
            if needed is not None and file.last >= needed:
                held = NEEDED
            elif file.last == newest:
                held = "each table keeps its newest"
            size = size_of(file.path) + replaced.get(file.path, 0)
            found.append(Candidate(file, size, held))
    return sorted(found, key=lambda one: (one.file.hour, one.file.first))


def _replaced_bytes(store: Path, gone: set[Path]) -> dict[Path, int]:
    """Return for each large file the size of those it replaces, as far as they are there."""
    return {
        entry_path(store, entry): sum(
            size_of(path) for path in _sources(store, entry) if path not in gone
        )
        for entry in read_manifest(store).entries
    }


def _sources(store: Path, entry: Entry) -> list[Path]:
    folder = hour_folder(store, entry.table, entry.hour)
    return [folder / name for name in entry.sources]


def _choose(
    candidates: list[Candidate], total: int, before_ns: int | None, bytes_max: int | None
) -> tuple[list[Candidate], list[Candidate]]:
    removed: list[Candidate] = []
    held: list[Candidate] = []
    for one in candidates:
        end_ns = hour_start_ns(one.file.hour) + HOUR_NS
        is_old = before_ns is not None and end_ns <= before_ns
        is_too_much = bytes_max is not None and total > bytes_max
        if not (is_old or is_too_much):
            continue
        if one.held_by:
            held.append(one)
        else:
            removed.append(one)
            total -= one.size_bytes
    return removed, held


def _remove(store: Path, removed: list[Candidate]) -> None:
    """Take files away one by one, oldest first: whatever ends this, no hole is left."""
    _mark(store, removed)
    for one in removed:
        manifest = read_manifest(store)
        entries = {entry_path(store, entry): entry for entry in manifest.entries}
        entry = entries.get(one.file.path)
        if entry is not None:
            remove_files(_sources(store, entry))  # First: else they would be read again.
            left = [other for other in manifest.entries if other is not entry]
            _change(store, manifest, entries=left)
        remove_files([one.file.path])


def _mark(store: Path, removed: list[Candidate]) -> None:
    """Say from where on streams may begin, before anything goes."""
    manifest = read_manifest(store)
    swept = dict(manifest.swept)
    for one in removed:
        if one.file.first < DAMAGE_NUMBER:
            swept[one.file.table] = max(swept.get(one.file.table, 0), one.file.last + 1)
    _change(store, manifest, swept=swept)


def _change(store: Path, manifest: Manifest, **changes: Any) -> None:
    generation = manifest.generation + 1
    write_manifest(store, msgspec.structs.replace(manifest, generation=generation, **changes))
