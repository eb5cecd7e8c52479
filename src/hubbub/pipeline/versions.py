"""Tables that change all at once: versions of a folder, and a link to the current one.

    TABLES/gaps          -> .current/gaps            what everybody reads
    TABLES/.current      -> .versions/000000000042   replaced by one rename: that is the commit
    TABLES/.versions/000000000042/gaps/*.parquet     a version: every table, and state.json
    TABLES/.staging/                                 what a run is writing
    TABLES/.lock                                     held (flock) by the one run

A version is made of files that are never changed: those of the version before are linked, not
copied. Whatever a killed run leaves behind is in no version, and the next run removes it. The
version before the current one stays, for who has listed its files and not yet opened them.

Why not a manifest that lists the files: only our own reader would look at it, and any other tool
would read a folder in which old and new rows lie side by side.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from hubbub.errors import ConfigurationError
from hubbub.limits import TABLE_READ_ATTEMPTS
from hubbub.store.layout import sync

STATE: Final = "state.json"
_CURRENT: Final = ".current"
_VERSIONS: Final = ".versions"
_STAGING: Final = ".staging"
_VERSIONS_KEPT: Final = 2
_NUMBERS: Final = "000000000042-0000.parquet"
# A file that has such a name keeps it: files are read in the order of their names.
_PLACED: Final = re.compile(r"(\d{4}(-\d\d){3}-)?\d{12}-\d{4,}\.parquet\Z")


class Versions:
    """The versions of all tables in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._staged = 0

    @property
    def current(self) -> Path | None:
        """Return the folder of the current version; None: there is none yet."""
        try:
            return self.root / os.readlink(self.root / _CURRENT)
        except OSError:
            return None

    def state(self) -> dict[str, Any]:
        """Return what was committed with the current version."""
        current = self.current
        if current is None:
            return {}
        try:
            state = json.loads((current / STATE).read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{self.root} is damaged: {STATE}: {error}") from None
        if not isinstance(state, dict):
            raise ConfigurationError(f"{self.root} is damaged: {STATE} holds no object")
        return state

    def files(self, table: str) -> list[Path]:
        """Return the files of a table in the current version."""
        current = self.current
        if current is None:
            return []
        with suppress(FileNotFoundError):
            return sorted(one for one in (current / table).iterdir() if one.suffix == ".parquet")
        return []

    def read(
        self,
        table: str,
        columns: Any,
        choose: Callable[[list[Path]], list[Path]] = lambda files: files,
    ) -> Any:
        """Read a table with Arrow, or some files of it, all from one version."""
        import pyarrow.parquet as pq

        if self.current is None:
            raise ConfigurationError(
                f"{self.root} holds no tables: make some by"
                " `hubbub pipeline run STORE --out TABLES`"
            )
        # The version may be replaced twice while it is read: then the next one is read instead.
        for attempt in range(TABLE_READ_ATTEMPTS):
            try:
                parts = [pq.read_table(path, schema=columns) for path in choose(self.files(table))]
                break
            except FileNotFoundError:
                if attempt == TABLE_READ_ATTEMPTS - 1:
                    raise
        import pyarrow as pa

        return pa.concat_tables([columns.empty_table(), *parts])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only run that writes here; tidy up after one that was killed."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            opened = (self.root / ".lock").open("w")
        except OSError as error:
            raise ConfigurationError(f"{self.root} cannot be written: {error}") from None
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(f"{self.root} is written by another run") from None
            self.clean()
            if (current := self.current) is not None:  # Who was killed may have shown none yet.
                for table in sorted(one.name for one in current.iterdir() if one.is_dir()):
                    self._show(table)
            yield

    def clean(self) -> None:
        """Remove what belongs to no version that somebody may be reading."""
        shutil.rmtree(self.root / _STAGING, ignore_errors=True)
        current = self.current
        for folder in sorted(self._all())[:-_VERSIONS_KEPT]:
            if folder != current:
                shutil.rmtree(folder, ignore_errors=True)
        for folder in self._all():
            if current is None or folder.name > current.name:
                shutil.rmtree(folder, ignore_errors=True)

    def staging(self, table: str) -> Path:
        """Return a folder that is not there yet, to write rows of a table to."""
        self._staged += 1
        folder = self.root / _STAGING / f"{self._staged:06}-{table}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        return folder

    def commit(self, tables: Mapping[str, Iterable[Path]], state: dict[str, Any]) -> None:
        """Make these files, and no others, the tables."""
        number = int(self.current.name) + 1 if self.current else 1
        folder = self.root / _VERSIONS / f"{number:012}"
        shutil.rmtree(folder, ignore_errors=True)
        for table, files in tables.items():
            (folder / table).mkdir(parents=True)
            for index, file in enumerate(files):
                name = f"{_hour_of(file)}{number:012}-{index:04}.parquet"
                if _PLACED.match(file.name):
                    name = file.name
                if file.parents[2].name != _VERSIONS:
                    sync(file)
                os.link(file, folder / table / name)
        (folder / STATE).write_text(json.dumps(state))
        for path in (folder / STATE, *(folder / table for table in tables), folder, folder.parent):
            sync(path)
        self._point_at(folder)
        for table in tables:
            self._show(table)
        shutil.rmtree(self.root / _STAGING, ignore_errors=True)
        for old in sorted(self._all())[:-_VERSIONS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _point_at(self, folder: Path) -> None:
        fresh = self.root / f"{_CURRENT}-new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder.relative_to(self.root))
        fresh.replace(self.root / _CURRENT)
        sync(self.root)

    def _show(self, table: str) -> None:
        """Give a table its name in the folder that people see."""
        link = self.root / table
        if table.startswith(".") or link.is_symlink():
            return
        if link.exists():
            raise ConfigurationError(f"{link} is in the way of a table: choose another folder")
        link.symlink_to(Path(_CURRENT) / table)

    def _all(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return [one for one in (self.root / _VERSIONS).iterdir() if one.name.isdigit()]
        return []


def hour_of(file: Path) -> str:
    """Return the hour that the name of a file says all its rows are of; empty: of any."""
    return file.name[: -len(_NUMBERS)].rstrip("-")


def _hour_of(staged: Path) -> str:
    """Return the beginning of the name of a file that Spark wrote, in a folder of its hour."""
    _, is_hour, hour = staged.parent.name.partition("hour=")
    return f"{hour}-" if is_hour else ""
