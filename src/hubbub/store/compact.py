"""Small files of hours that are over -> large ones in a tree of their own.

Streams list the small files and remember their names, so those stay as they are: a large file lies
in `compact/`, which no stream lists, and batch readers learn from its manifest to read it instead.
Nothing is compacted that a registered reader still needs. Small files go later (`sweep`), when they
have been replaced for an hour, so that who has just listed them finds them.

Steps, after each of which everything may end: the large file is written under a name that is not
there yet, synced, renamed (nobody knows of it), named in the manifest (in one step it is read and
the small ones are not), and at last the small ones are removed. The newest file of a table is never
touched: a recorder that starts learns from its name where to go on.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from hubbub.errors import StoreError
from hubbub.limits import (
    COMPACT_AFTER,
    COMPACT_BYTES,
    COMPACT_ROWS,
    DAMAGE_NUMBER,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    SWEEP_AFTER,
)
from hubbub.store.checkpoints import floor
from hubbub.store.layout import (
    HOUR_NS,
    TABLE_NAMES,
    DataFile,
    data_files,
    file_name,
    hour_start_ns,
    make_folder,
    remove_unfinished,
    sync,
    whole_file,
)
from hubbub.store.lock import alone
from hubbub.store.manifest import (
    Entry,
    Manifest,
    compact_folder,
    entry_path,
    read_manifest,
    sources_of,
    write_manifest,
)
from hubbub.store.parquet import Writer, fit, open_parquet
from hubbub.store.schema import TABLES


class Group(NamedTuple):
    """Small files of one table and hour that become one large file."""

    table: str
    hour: str
    files: list[DataFile]


def tidying(store: Path) -> AbstractContextManager[bool]:
    """Let one process at a time compact, sweep and prune; False: another one does."""
    return alone(store / "tidy.lock")


def plan(store: Path, now_ns: int) -> list[Group]:
    """Say what can be compacted now."""
    manifest = read_manifest(store)
    return [group for table in TABLE_NAMES for group in _plan_table(store, table, manifest, now_ns)]


def _plan_table(store: Path, table: str, manifest: Manifest, now_ns: int) -> Iterator[Group]:
    replaced, needed = sources_of(manifest, table), floor(store, table)
    files = data_files(store, table)
    newest = max((file.last for file in files if file.first < DAMAGE_NUMBER), default=0)
    candidates = [
        file
        for file in files
        if (file.hour, file.path.name) not in replaced
        and file.first < DAMAGE_NUMBER
        and (needed is None or file.last < needed)
        and file.last != newest
        and hour_start_ns(file.hour) + HOUR_NS + COMPACT_AFTER <= now_ns
    ]
    for hour, small in groupby(candidates, key=lambda file: file.hour):
        yield from (Group(table, hour, files) for files in _pack(list(small)))


def _pack(files: list[DataFile]) -> Iterator[list[DataFile]]:
    """Put files together until they are large; one alone gains nothing."""
    pack: list[DataFile] = []
    size = rows = 0
    for file in files:
        try:
            file_bytes = file.path.stat().st_size
        except FileNotFoundError:
            continue
        if pack and (size + file_bytes > COMPACT_BYTES or rows + file.rows > COMPACT_ROWS):
            if len(pack) > 1:
                yield pack
            pack, size, rows = [], 0, 0
        pack.append(file)
        size += file_bytes
        rows += file.rows
    if len(pack) > 1:
        yield pack


def compact_now(store: Path, now_ns: int) -> list[Entry]:
    """Compact everything that can be."""
    with tidying(store) as is_ours:
        if not is_ours:
            raise StoreError(f"{store} is being compacted or pruned just now: try again")
        return list(compact(store, now_ns))


def compact(store: Path, now_ns: int, go_on: Callable[[], bool] = lambda: True) -> Iterator[Entry]:
    """Compact what can be, one large file a step; `tidying` must be ours."""
    _remove_orphans(store)
    for group in plan(store, now_ns):
        if not go_on():
            return
        entry = compact_group(store, group, now_ns)
        if entry is not None:
            yield entry


def compact_group(store: Path, group: Group, now_ns: int) -> Entry | None:
    """Make one large file of small ones, and name it in the manifest; None: too few are sound."""
    sound = [file for file in group.files if _is_sound(file.path)]
    if len(sound) < 2:
        return None
    name = file_name(max(file.segment for file in sound), sound[0].first, sound[-1].last)
    entry = Entry(group.table, group.hour, name, 0, [file.path.name for file in sound], now_ns)
    path = entry_path(store, entry)
    make_folder(path.parent)
    with whole_file(path) as temporary:
        rows = _merge(temporary, TABLES[group.table], [file.path for file in sound])
    manifest = read_manifest(store)
    entry = msgspec.structs.replace(entry, rows=rows)
    write_manifest(store, msgspec.structs.replace(
        manifest, generation=manifest.generation + 1, entries=[*manifest.entries, entry],
    ))  # fmt: skip
    return entry


def _is_sound(path: Path) -> bool:
    """Tell whether a file can be read; what cannot stays as it is, for `verify` to report."""
    try:
        with open_parquet(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group)
    except (OSError, pa.ArrowException):
        return False
    return True


def _merge(path: Path, schema: pa.Schema, sources: list[Path]) -> int:
    """Write the rows of several files into one; return how many there are."""
    waiting: list[pa.Table] = []
    expected = 0
    with Writer(path, schema) as writer:
        for source in sources:
            with open_parquet(source) as file:
                expected += file.metadata.num_rows
                for group in range(file.num_row_groups):
                    waiting.append(fit(file.read_row_group(group), schema))
                    rows = sum(table.num_rows for table in waiting)
                    if rows >= ROW_GROUP_ROWS or _size(waiting) >= ROW_GROUP_BYTES:
                        writer.write(pa.concat_tables(waiting))
                        waiting = []
        if waiting:
            writer.write(pa.concat_tables(waiting))
        assert writer.rows == expected
        return writer.rows


def _size(tables: list[pa.Table]) -> int:
    return sum(table.nbytes for table in tables)


def _remove_orphans(store: Path) -> None:
    """Remove large files that the manifest never came to name, and what was left half written."""
    folder = compact_folder(store)
    if not folder.is_dir():
        return
    remove_unfinished(folder)
    known = {entry_path(store, entry) for entry in read_manifest(store).entries}
    for path in folder.rglob("*.parquet"):
        if path not in known:
            path.unlink()


def sweep(
    store: Path, now_ns: int, is_dry: bool = False, after_ns: int = SWEEP_AFTER
) -> list[Path]:
    """Remove small files that large ones have replaced for long enough; `tidying` must be ours."""
    manifest = read_manifest(store)
    swept: list[Path] = []
    marks = dict(manifest.swept)
    for table in TABLE_NAMES:
        needed, files = floor(store, table), data_files(store, table)
        old = {
            (entry.hour, name)
            for entry in manifest.entries
            if entry.table == table and entry.made_ns + after_ns <= now_ns
            for name in entry.sources
        }
        gone = [
            file
            for file in files
            if (file.hour, file.path.name) in old and (needed is None or file.last < needed)
        ]
        swept += [file.path for file in gone]
        marks[table] = max([marks.get(table, 0), *(file.last + 1 for file in gone)])
    if swept and not is_dry:
        write_manifest(store, msgspec.structs.replace(
            manifest, generation=manifest.generation + 1, swept=marks
        ))  # fmt: skip
        remove_files(swept)
    return swept


def remove_files(paths: list[Path]) -> None:
    """Remove files for good, and the folders that are empty without them."""
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in sorted({path.parent for path in paths}):
        with suppress(OSError):
            folder.rmdir()  # Only if it is empty.
            folder = folder.parent
        if folder.is_dir():
            sync(folder)
