"""What a recording holds: from when to when, of which topics, in which files."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import SECOND
from hubbub.store.checkpoints import Checkpoint, checkpoints
from hubbub.store.convert import damaged_folder
from hubbub.store.identity import read_identity
from hubbub.store.journal import Segment, open_segment, segments
from hubbub.store.layout import TABLE_NAMES, DataFile, data_files, size_of
from hubbub.store.manifest import entry_path, read_manifest, readable
from hubbub.store.parquet import read_end
from hubbub.store.reading import read_table
from hubbub.store.records import End, PackedRun, Run

_COLUMNS = ("recorder", "offset", "subject", "source_id", "schema", "size", "received_ns")


@dataclass(slots=True)
class TopicInfo:
    """What was recorded of one subject."""

    subject: str
    messages: int = 0
    size_bytes: int = 0
    start_ns: int = 0
    end_ns: int = 0
    sources: set[str] = field(default_factory=set)
    schemas: set[str] = field(default_factory=set)

    @property
    def rate(self) -> float | None:
        """Return messages a second while they came; None: there are too few to say."""
        span_ns = self.end_ns - self.start_ns
        return (self.messages - 1) * SECOND / span_ns if self.messages > 1 and span_ns > 0 else None


@dataclass(slots=True)
class StoreInfo:
    """What a recording holds. Times are those of receiving, sizes of messages those of payloads."""

    path: Path
    recorder: str
    created_ns: int
    recorder_pid: int | None = None  # Who records just now.
    recorders: set[str] = field(default_factory=set)
    messages: int = 0
    size_bytes: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    first_offset: int | None = None
    next_offset: int = 0
    acknowledged: int = 0  # The offset before which everything is on the disk for certain.
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)  # Of the other tables.
    segments_open: int = 0
    segments_closed: int = 0  # Waiting to be converted.
    segments_damaged: int = 0  # Kept aside.
    journal_bytes: int = 0
    files: int = 0
    files_compacted: int = 0
    file_bytes: int = 0  # Of everything but the journal.
    checkpoints: list[Checkpoint] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def look_at(store: Path, on_rows: Callable[[int], object] | None = None) -> StoreInfo:
    """Look at everything; `on_rows` hears how many messages were looked at so far."""
    identity = read_identity(store)
    info = StoreInfo(store, identity.recorder, identity.created_ns)
    info.recorder_pid = recorder_pid(store)
    info.checkpoints = checkpoints(store)
    _look_at_files(info)
    _look_at_journal(info)
    pieces = read_table(store, "messages", columns=_COLUMNS, on_fault=info.faults.append)
    for piece in pieces:
        _count(info, piece)
        if on_rows is not None:
            on_rows(info.messages)
    for table in TABLE_NAMES[1:]:
        numbers = read_table(store, table, columns=["number"], on_fault=info.faults.append)
        info.rows[table] = sum(piece.num_rows for piece in numbers)
    info.acknowledged = max(info.acknowledged, _converted_end(store))
    info.next_offset = max(info.next_offset, info.acknowledged)
    return info


def converted_messages(store: Path) -> int:
    """Return about how many messages there are, from the names of files alone."""
    return sum(file.rows for file in readable(store, "messages"))


def span_of(store: Path) -> tuple[int | None, int | None]:
    """Return when the first and the last message was received; None: there is none.

    Of files only what they say of themselves is looked at.
    """
    first_ns: int | None = None
    last_ns: int | None = None
    files = readable(store, "messages")
    for piece in (*_time_ranges(files), *_journal_times(store)):
        first_ns = _least(first_ns, piece[0])
        last_ns = max(last_ns or 0, piece[1])
    return first_ns, last_ns


def _time_ranges(files: list[DataFile]) -> Iterator[tuple[int, int]]:
    for file in files:
        try:
            metadata = read_end(file.path)
        except (OSError, pa.ArrowException):
            continue
        place = metadata.schema.names.index("received_ns")
        for group in range(metadata.num_row_groups):
            times = metadata.row_group(group).column(place).statistics
            yield times.min, times.max


def _journal_times(store: Path) -> Iterator[tuple[int, int]]:
    for path in segments(store):
        with suppress(FileNotFoundError), open_segment(path) as segment:
            for entry in segment.packed():
                if isinstance(entry, PackedRun):
                    yield entry.received_ns, entry.received_ns


def recorder_pid(store: Path) -> int | None:
    """Return who holds the lock of a store; None: nobody, or it cannot be known.

    Asking the kernel does not disturb; trying to take the lock could refuse a recorder.
    """
    try:
        inode = (store / "lock").stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        is_held = len(words) > 5 and words[1] == "FLOCK" and words[3] == "WRITE"
        if is_held and words[5].rpartition(":")[2] == str(inode):
            return int(words[4])
    return None


def _look_at_files(info: StoreInfo) -> None:
    for table in TABLE_NAMES:
        small = [file.path for file in data_files(info.path, table)]
        info.files += len(small)
        info.file_bytes += sum(map(size_of, small))
    large = [entry_path(info.path, entry) for entry in read_manifest(info.path).entries]
    info.files_compacted = len(large)
    info.file_bytes += sum(map(size_of, large))


def _look_at_journal(info: StoreInfo) -> None:
    paths = segments(info.path)
    info.journal_bytes = sum(map(size_of, paths))
    info.segments_damaged = len(list(damaged_folder(info.path).glob("*.journal")))
    for place, path in enumerate(paths, 1):
        try:
            with open_segment(path) as segment:
                if segment.is_closed or place < len(paths):
                    info.segments_closed += 1
                else:
                    info.segments_open += 1
                info.acknowledged = max(info.acknowledged, synced_offset(segment))
        except FileNotFoundError:
            continue  # Converted meanwhile.


def synced_offset(segment: Segment) -> int:
    """Return the offset up to which a segment is on the disk for certain.

    Each record tells how much of the segment was synced before it was written.
    """
    entries = list(segment.entries())
    synced = max((entry.head.synced for entry in entries), default=0)
    offset = segment.first_offset
    for entry in entries:
        if isinstance(entry.value, End):
            return entry.value.end_offset
        if entry.position < synced and isinstance(entry.value, Run | PackedRun):
            offset = max(offset, entry.value.end_offset)
    return offset


def _converted_end(store: Path) -> int:
    return max((file.last + 1 for file in readable(store, "messages")), default=0)


def _count(info: StoreInfo, piece: pa.Table) -> None:
    times = pc.min_max(piece["received_ns"]).as_py()
    offsets = pc.min_max(piece["offset"]).as_py()
    info.messages += piece.num_rows
    info.size_bytes += pc.sum(piece["size"]).as_py() or 0
    info.start_ns = _least(info.start_ns, times["min"])
    info.end_ns = max(info.end_ns or 0, times["max"])
    info.first_offset = _least(info.first_offset, offsets["min"])
    info.next_offset = max(info.next_offset, offsets["max"] + 1)
    info.recorders |= set(pc.unique(piece["recorder"]).to_pylist())
    groups = piece.group_by(["subject", "source_id", "schema"]).aggregate(
        [("size", "count"), ("size", "sum"), ("received_ns", "min"), ("received_ns", "max")]
    )
    for group in groups.to_pylist():
        _count_topic(info, group)


def _least(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _count_topic(info: StoreInfo, group: dict[str, Any]) -> None:
    subject, start_ns = group["subject"], group["received_ns_min"]
    topic = info.topics.setdefault(subject, TopicInfo(subject, start_ns=start_ns))
    topic.messages += group["size_count"]
    topic.size_bytes += group["size_sum"]
    topic.start_ns = min(topic.start_ns, start_ns)
    topic.end_ns = max(topic.end_ns, group["received_ns_max"])
    topic.sources.add(group["source_id"])
    if group["schema"] is not None:
        topic.schemas.add(group["schema"])
