"""What the files of a store are called, and how a file comes to lie there whole.

A Parquet file is named by the segment it was made of and by the first and last row in it. Its
folder is an hour, in UTC. A name that begins with a dot is not there yet: readers pass over it.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from hubbub.limits import DAMAGE_NUMBER, DAMAGES_PER_SEGMENT_MAX, SECOND

TABLE_NAMES: Final = ("messages", "events", "announcements", "counters")
HOUR_NS: Final = 3600 * SECOND
_HOUR_FORMAT: Final = "%Y-%m-%d-%H"
_TIME_MAX_S: Final = 253_402_300_799  # The last second of the year 9999.
_NAME: Final = re.compile(r"(\d{12,})-(\d{16,})-(\d{16,})\.parquet\Z")
_DAMAGE: Final = re.compile(r"(\d{12,})-damage\.parquet\Z")
_HOUR: Final = re.compile(r"hour=(\d{4}-\d\d-\d\d-\d\d)\Z")


class DataFile(NamedTuple):
    """A Parquet file of a store, and what its name says; rows are offsets, or numbers."""

    path: Path
    table: str
    hour: str
    segment: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Return how many rows it has, unless some are missing."""
        return self.last - self.first + 1


def hour_of(time_ns: int) -> str:
    """Name the hour that a time lies in."""
    seconds = min(max(time_ns, 0) // SECOND, _TIME_MAX_S)
    return datetime.fromtimestamp(seconds, UTC).strftime(_HOUR_FORMAT)


def hour_start_ns(hour: str) -> int:
    """Return when an hour began."""
    start = datetime.strptime(hour, _HOUR_FORMAT).replace(tzinfo=UTC)
    return int(start.timestamp()) * SECOND


def file_name(segment: int, first: int, last: int) -> str:
    """Name the file of a segment that holds these rows."""
    if first >= DAMAGE_NUMBER:
        return f"{segment:012}-damage.parquet"
    return f"{segment:012}-{first:016}-{last:016}.parquet"


def damage_number(segment: int) -> int:
    """Return the first number of the rows that tell what of a segment could not be read.

    It is beyond all that a recorder gives, so their file is not named by it: a recorder goes on
    behind the highest number that it finds in a name.
    """
    return DAMAGE_NUMBER + segment * DAMAGES_PER_SEGMENT_MAX


def hour_folder(store: Path, table: str, hour: str) -> Path:
    """Return where the files of an hour lie."""
    return store / table / f"hour={hour}"


def parse_name(path: Path) -> DataFile | None:
    """Read the name of a Parquet file; None: it is none of a store's."""
    hour = _HOUR.match(path.parent.name)
    if hour is None:
        return None
    if name := _NAME.match(path.name):
        segment, first, last = map(int, name.groups())
    elif name := _DAMAGE.match(path.name):
        segment = int(name[1])
        first = damage_number(segment)
        last = first + DAMAGES_PER_SEGMENT_MAX - 1
    else:
        return None
    return DataFile(path, path.parents[1].name, hour[1], segment, first, last)


def data_files(store: Path, table: str) -> list[DataFile]:
    """Return the files of a table as segments were converted, in the order of their rows.

    A folder may vanish while it is looked at: then nobody needs what was in it.
    """
    found = []
    for hour in list_folder(store / table):
        for path in list_folder(hour):
            file = parse_name(path)
            if file is not None:
                found.append(file)
    return sorted(found, key=lambda file: (file.first, file.segment))


def list_folder(folder: Path) -> list[Path]:
    """Return what lies in a folder; nothing, if there is none."""
    try:
        return [folder / name for name in os.listdir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def size_of(path: Path) -> int:
    """Return how many bytes a file has; none, if it was converted, compacted or pruned since."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def sync(path: Path) -> None:
    """Let what a file holds, or the names in a folder, survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, to last."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    sync(folder.parent)


def publish(temporary: Path, final: Path) -> None:
    """Give a finished file its name, once it is on the disk for certain."""
    sync(temporary)
    temporary.rename(final)
    sync(final.parent)


@contextmanager
def whole_file(final: Path) -> Iterator[Path]:
    """Let a file be written beside its place; it has its name only if nothing went wrong."""
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        publish(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> int:
    """Remove what a killed process left half written below a folder; return how much there was."""
    left = [path for path in folder.rglob(".*.tmp") if path.is_file()]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)
