"""Which files a batch reader reads: each row from exactly one tree.

`compact/manifest.json` names each large file and the small ones that it was made of, which are then
passed over, whether they are still there or not. It is replaced in one step, so a reader sees what
was before or what is after, and never both.
"""

from pathlib import Path
from typing import Final

import msgspec

from hubbub.errors import StoreError
from hubbub.store.layout import DataFile, data_files, make_folder, parse_name, whole_file

_TRIES: Final = 100


class Entry(msgspec.Struct, frozen=True):
    """A large file, and the small files of its table and hour that it stands for."""

    table: str
    hour: str
    name: str
    rows: int
    sources: list[str]
    made_ns: int


class Manifest(msgspec.Struct, frozen=True):
    """All large files; the generation changes with every change."""

    generation: int = 0
    entries: list[Entry] = []
    # Before these rows the small files of a table may be gone: a stream begins there, not earlier.
    swept: dict[str, int] = {}


def compact_folder(store: Path) -> Path:
    """Return where the large files lie."""
    return store / "compact"


def entry_path(store: Path, entry: Entry) -> Path:
    """Return where a large file lies."""
    return compact_folder(store) / entry.table / f"hour={entry.hour}" / entry.name


def read_manifest(store: Path) -> Manifest:
    """Read which large files there are; none if nothing was compacted yet."""
    path = compact_folder(store) / "manifest.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}): restore it, for the files beside it may hold rows"
            " that are nowhere else"
        ) from None


def write_manifest(store: Path, manifest: Manifest) -> None:
    """Put a manifest in the place of the one before."""
    make_folder(compact_folder(store))
    with whole_file(compact_folder(store) / "manifest.json") as temporary:
        temporary.write_bytes(msgspec.json.encode(manifest))


def sources_of(manifest: Manifest, table: str) -> set[tuple[str, str]]:
    """Return hour and name of the small files that large ones stand for."""
    return {
        (entry.hour, name)
        for entry in manifest.entries
        if entry.table == table
        for name in entry.sources
    }


def readable(store: Path, table: str) -> list[DataFile]:
    """Return the files that hold each converted row of a table once, in the order of their rows.

    Small files go only after the manifest has named what stands for them. So if it is the same
    before and after they are listed, none has gone unnoticed.
    """
    for _ in range(_TRIES):
        manifest = read_manifest(store)
        replaced = sources_of(manifest, table)
        small = [
            file for file in data_files(store, table) if (file.hour, file.path.name) not in replaced
        ]
        if read_manifest(store).generation == manifest.generation:
            break
    else:
        raise StoreError(f"{store} was compacted {_TRIES} times while its files were listed")
    large = [parse_name(entry_path(store, entry)) for entry in manifest.entries
             if entry.table == table]  # fmt: skip
    files = small + [file for file in large if file is not None]
    return sorted(files, key=lambda file: (file.first, file.segment))


def readable_files(store: Path, table: str) -> list[Path]:
    """Return the paths of the files that hold each converted row of a table once."""
    return [file.path for file in readable(store, table)]
