"""A recording opened for reading: what the commands do, for programs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from hubbub.errors import StoreError
from hubbub.given import is_whole
from hubbub.limits import SECOND, US
from hubbub.store.checkpoints import Checkpoint, checkpoints
from hubbub.store.identity import Identity, read_identity
from hubbub.store.manifest import readable_files
from hubbub.store.reading import Fault, Selection, read_table, refuse

if TYPE_CHECKING:
    from hubbub.store.info import StoreInfo

Time = int | datetime | None


class Store:
    """A recording.

    for batch in Store("recording").messages(subjects=["/plant/..."]):
        print(batch["subject"], batch["payload"])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.identity: Identity = read_identity(self.path)

    def messages(
        self,
        subjects: str | Iterable[str] = (),
        start: Time = None,
        end: Time = None,
        columns: Sequence[str] | None = None,
        on_fault: Fault = refuse,
    ) -> Iterator[pa.RecordBatch]:
        """Yield messages in the order they were recorded, also those that are still in the journal.

        `subjects` are patterns; `start` and `end` (before which it ends) are receive times, in
        nanoseconds since 1970 or as datetimes.
        """
        return self.rows("messages", subjects, start, end, columns, on_fault)

    def rows(
        self,
        table: str,
        subjects: str | Iterable[str] = (),
        start: Time = None,
        end: Time = None,
        columns: Sequence[str] | None = None,
        on_fault: Fault = refuse,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of any table: messages, events, announcements or counters."""
        patterns = (subjects,) if isinstance(subjects, str) else tuple(subjects)
        selection = Selection(patterns, to_ns(start), to_ns(end)).check()
        for piece in read_table(self.path, table, selection, columns, on_fault):
            yield from piece.combine_chunks().to_batches()

    def files(self, table: str = "messages") -> list[Path]:
        """Return the Parquet files that hold each converted row of a table once."""
        return readable_files(self.path, table)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the readers that have registered."""
        return checkpoints(self.path)

    def info(self) -> "StoreInfo":
        """Return what the recording holds: from when to when, of which topics, in which files."""
        from hubbub.store.info import look_at

        return look_at(self.path)

    def __repr__(self) -> str:
        return f"<Store {self.path}>"


def to_ns(time: Time) -> int | None:
    """Return a time in nanoseconds since 1970; a datetime without a zone is in UTC."""
    if time is None or is_whole(time):
        return time
    if not isinstance(time, datetime):
        raise StoreError(f"{time!r} is no time: give nanoseconds since 1970, or a datetime")
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    passed = aware - epoch
    return (passed.days * 86_400 + passed.seconds) * SECOND + passed.microseconds * US
