"""A closed journal segment -> Parquet files.

What is made depends on nothing but the segment: converted again after a crash, it gives the same
files under the same names, so a file that is there already is left alone. Only when all files of a
segment are on the disk does the segment go: away, or to `journal/damaged/` if not all of it could
be read. What is missing is an event like any other, so that it is never taken for a loss of the
bus; its number is beyond all that a recorder gives.
"""

from json import dumps
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from hubbub.limits import DAMAGES_PER_SEGMENT_MAX, ROW_GROUP_BYTES, ROW_GROUP_ROWS
from hubbub.store.columns import MessageColumns, cut_run, row_table
from hubbub.store.journal import Segment, journal_folder, open_segment
from hubbub.store.layout import (
    HOUR_NS,
    damage_number,
    file_name,
    hour_folder,
    hour_of,
    make_folder,
    publish,
    sync,
)
from hubbub.store.parquet import Writer
from hubbub.store.records import PackedRun, Row
from hubbub.store.schema import TABLES

DAMAGED: Final = "RecordingDamaged"
TORN: Final = "RecorderTorn"
MESSAGES: Final = "messages"
_NO_HOUR: Final = -1


class Conversion(NamedTuple):
    """What became of a segment."""

    segment: int
    files: list[Path]
    messages: int
    rows: int
    damaged: list[tuple[int, int]]  # Bytes of the segment,
    missing: list[tuple[int, int]]  # and the offsets that were lost with them.
    torn_bytes: int

    @property
    def is_whole(self) -> bool:
        """Tell whether all of it could be read."""
        return not (self.damaged or self.missing or self.torn_bytes)


class _RowColumns:
    """Collects rows of one of the other tables."""

    def __init__(self, table: str, recorder: str) -> None:
        self._table, self._recorder = table, recorder
        self._rows: list[Row] = []
        self.size_bytes = 0

    @property
    def rows(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        self._rows.append(row)

    def take(self) -> pa.Table:
        rows, self._rows = self._rows, []
        return row_table(self._table, self._recorder, rows)


class _Output:
    """The file of one table that is being made; an hour that changes ends it."""

    def __init__(self, store: Path, table: str, segment: int, columns: Any) -> None:
        self._store, self._table, self._segment = store, table, segment
        self.columns = columns
        self.files: list[Path] = []
        self.total = 0
        self._writer: Writer | None = None
        self._temporary = Path()
        self._hour = _NO_HOUR
        self._first = self._last = 0

    def place(self, time_ns: int, first: int, last: int) -> None:
        """Make room for rows that are added next, and say where they belong."""
        hour = time_ns // HOUR_NS
        if hour != self._hour:
            self.finish()
            self._hour, self._first = hour, first
        elif self.columns.rows >= ROW_GROUP_ROWS or self.columns.size_bytes >= ROW_GROUP_BYTES:
            self._write()
        self._last = last
        self.total += last - first + 1

    def finish(self) -> None:
        """Write what is left, and give the file its name."""
        if self._writer is None and not self.columns.rows:
            return
        self._write()
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        name = file_name(self._segment, self._first, self._last)
        final = self._temporary.with_name(name)
        if final.exists():  # Made before a crash, and whole: it had its name.
            self._temporary.unlink()
        else:
            publish(self._temporary, final)
        self.files.append(final)
        self._hour = _NO_HOUR

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._writer is not None:
            self._writer.close()
            self._temporary.unlink(missing_ok=True)

    def _write(self) -> None:
        table = self.columns.take()
        if self._writer is None:
            folder = hour_folder(self._store, self._table, hour_of(self._hour * HOUR_NS))
            make_folder(folder)
            self._temporary = folder / f".{self._segment:012}-{self._first:016}.tmp"
            self._writer = Writer(self._temporary, table.schema)
        self._writer.write(table)


def convert_segment(store: Path, path: Path, cut_bytes: int = 0) -> Conversion:
    """Make Parquet files of a segment that nobody writes to, and let the segment go.

    `cut_bytes` were cut off its end just before: nobody else will tell of them.
    """
    with open_segment(path) as segment:
        conversion = write_files(store, segment, cut_bytes)
    _retire(path, conversion)
    return conversion


def write_files(store: Path, segment: Segment, cut_bytes: int = 0) -> Conversion:
    """Make the Parquet files of a segment."""
    number, recorder = segment.number, segment.recorder
    outputs = {
        name: _Output(store, name, number, _RowColumns(name, recorder)) for name in TABLES
    } | {MESSAGES: _Output(store, MESSAGES, number, MessageColumns(recorder))}
    try:
        last_ns = _fill(outputs, segment)
        for output in outputs.values():
            output.finish()
        _report_damage(outputs["events"], segment, last_ns, cut_bytes)
    except BaseException:
        for output in outputs.values():
            output.abandon()
        raise
    return Conversion(
        number, [file for output in outputs.values() for file in output.files],
        outputs[MESSAGES].total,
        sum(output.total for name, output in outputs.items() if name != MESSAGES),
        list(segment.damaged), list(segment.missing), segment.torn_bytes,
    )  # fmt: skip


def _fill(outputs: dict[str, _Output], segment: Segment) -> int:
    """Take everything that can be read; return the time of the last of it."""
    last_ns = segment.created_ns
    messages = outputs[MESSAGES]
    for entry in segment.packed():
        if isinstance(entry, PackedRun):
            last_ns = entry.received_ns
            is_large = len(entry.payloads) > ROW_GROUP_BYTES
            for run in cut_run(entry) if is_large else (entry,):
                messages.place(last_ns, run.offset, run.offset + run.size - 1)
                messages.columns.add(run)
        elif (output := outputs.get(entry.table)) is not None and entry.table != MESSAGES:
            time_ns = entry.values.get("time_ns")
            last_ns = time_ns if isinstance(time_ns, int) else last_ns
            output.place(last_ns, entry.number, entry.number)
            output.columns.add(entry)
    return last_ns


def _report_damage(events: _Output, segment: Segment, time_ns: int, cut_bytes: int) -> None:
    """Write what could not be read as rows of a file of their own."""
    damages: list[dict[str, Any]] = [
        {"what": "damaged", "first_byte": first, "end_byte": end} for first, end in segment.damaged
    ]
    damages += [
        {"what": "missing", "first_offset": first, "end_offset": end}
        for first, end in segment.missing
    ]
    if segment.torn_bytes:
        damages.append({"what": "torn", "bytes": segment.torn_bytes})
    if cut_bytes:
        damages.append({"what": "cut", "bytes": cut_bytes})
    base = damage_number(segment.number)
    for place, damage in enumerate(damages[:DAMAGES_PER_SEGMENT_MAX]):
        detail = {"segment": segment.path.name, "damages": len(damages), **damage}
        values = {
            "time_ns": time_ns,
            "kind": TORN if damage["what"] == "cut" else DAMAGED,
            "count": damage.get("end_offset", 0) - damage.get("first_offset", 0) or None,
            "detail": dumps(detail),
        }
        events.place(time_ns, base + place, base + place)
        events.columns.add(Row(base + place, "events", values))
    events.finish()


def _retire(path: Path, conversion: Conversion) -> None:
    """Let a segment go whose files are all on the disk; what could not be read is kept aside."""
    if conversion.is_whole:
        path.unlink()
    else:
        aside = damaged_folder(path.parents[1])
        make_folder(aside)
        path.rename(aside / path.name)
        sync(aside)
    sync(path.parent)


def damaged_folder(store: Path) -> Path:
    """Return where segments lie that could not be read whole."""
    return journal_folder(store) / "damaged"
