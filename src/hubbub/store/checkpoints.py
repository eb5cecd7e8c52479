"""How far readers of a store have come: nothing that one of them still needs is compacted or goes.

A reader that comes again registers under a name, says of each table it reads which row it needs
next, and moves that forward when it has kept what it made of the rows before. What it does not name
it does not need. One that will never come again must be removed, or it holds up everything.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from time import time_ns
from typing import Final

import msgspec

from hubbub.errors import StoreError
from hubbub.store.layout import TABLE_NAMES, make_folder, sync, whole_file

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class Checkpoint(msgspec.Struct, frozen=True):
    """A reader, and the first row of each table that it still needs: an offset, or a number."""

    name: str
    needs: dict[str, int]
    updated_ns: int = 0
    is_readable: bool = True


def register(store: Path, name: str, needs: Mapping[str, int]) -> Checkpoint:
    """Say what a reader needs from now on; one of that name that is there is replaced."""
    if not _NAME.match(name):
        raise StoreError(
            f"{name!r} cannot name a checkpoint: at most 64 letters, digits, dots, dashes or"
            " underscores, the first a letter or digit"
        )
    for table, first in needs.items():
        if table not in TABLE_NAMES or first < 0:
            raise StoreError(
                f"a checkpoint needs a row from 0 on of one of {', '.join(TABLE_NAMES)},"
                f" not {table}: {first}"
            )
    checkpoint = Checkpoint(name, dict(needs), time_ns())
    path = _path(store, name)
    make_folder(path.parent)
    with whole_file(path) as temporary:
        temporary.write_bytes(msgspec.json.encode(checkpoint))
    return checkpoint


def advance(store: Path, name: str, needs: Mapping[str, int]) -> Checkpoint:
    """Move a reader forward, never back; one that is not there yet is registered."""
    known = _read(_path(store, name)).needs if _path(store, name).exists() else {}
    merged = {table: max(first, known.get(table, 0)) for table, first in needs.items()}
    return register(store, name, {**known, **merged})


def remove(store: Path, name: str) -> bool:
    """Forget a reader; False: there is none of that name."""
    path = _path(store, name)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync(path.parent)
    return True


def checkpoints(store: Path) -> list[Checkpoint]:
    """Return all readers that have registered, by name."""
    return [_read(path) for path in sorted((store / "checkpoints").glob("*.json"))]


def floor(store: Path, table: str) -> int | None:
    """Return the first row of a table that some reader needs; None: nobody needs any."""
    return min((one.needs[table] for one in checkpoints(store) if table in one.needs), default=None)


def _path(store: Path, name: str) -> Path:
    return store / "checkpoints" / f"{name}.json"


def _read(path: Path) -> Checkpoint:
    """Read a checkpoint; one that cannot be read needs everything: that loses nothing."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except (OSError, msgspec.MsgspecError):
        return Checkpoint(path.stem, dict.fromkeys(TABLE_NAMES, 0), is_readable=False)
