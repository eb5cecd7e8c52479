"""Makes a journal fit to go on after whatever ended it: cuts torn tails, and finds where to begin.

Of a segment that was not closed, everything up to where it was synced for certain (each record says
so of what was written before it) is kept, damaged or not: what is damaged there is rot, and readers
pass over it. Behind that point the journal is kept as long as it is whole. The first record that is
not ends it, and what follows was never acknowledged.
"""

from pathlib import Path
from typing import NamedTuple

from hubbub.limits import DAMAGE_NUMBER
from hubbub.store import records
from hubbub.store.disk import Disk, write_whole
from hubbub.store.identity import (
    Identity,
    encode_identity,
    identity_path,
    make_identity,
    read_identity,
)
from hubbub.store.journal import Segment, journal_folder, open_segment, segments
from hubbub.store.layout import parse_name
from hubbub.store.records import Begin, Chain, End, PackedRun, Row, Run
from hubbub.store.writing import Start


class Torn(NamedTuple):
    """What was cut from a segment, because its writing had never ended."""

    segment: int
    size_bytes: int


class Recovered(NamedTuple):
    """Where to go on, and what had to be cut for that."""

    start: Start
    torn: tuple[Torn, ...]
    damaged: int
    """Records of the last segment that are damaged though they were synced: bytes of them."""


def recover(store: Path, now_ns: int, disk: Disk) -> Recovered:
    """Make a store fit to be recorded into, a new one if there is none; its lock must be held."""
    store.mkdir(parents=True, exist_ok=True)
    identity = _identify(store, now_ns, disk)
    folder = journal_folder(store)
    folder.mkdir(exist_ok=True)
    disk.sync_folder(store)
    end = _find_converted(store)
    torn: list[Torn] = []
    damaged = 0
    for path in reversed(segments(store)):
        with open_segment(path) as segment:
            tail = _measure(segment)
            end = Start(
                b"",
                max(end.segment, segment.number + 1),
                max(end.offset, tail.end.end_offset),
                max(end.number, tail.end.end_number),
            )
            if tail.torn_bytes:
                torn.append(Torn(segment.number, tail.torn_bytes))
            damaged += tail.damaged_bytes
            if segment.id is not None:
                _finish(segment, segment.id, tail, disk)
                break
        disk.remove(path)  # It was only just being made.
    disk.sync_folder(folder)
    return Recovered(end._replace(recorder=bytes.fromhex(identity.recorder)), tuple(torn), damaged)


class _Tail(NamedTuple):
    """How a segment ends: where to cut it, and how far it goes up to there."""

    cut: int
    end: End
    torn_bytes: int
    damaged_bytes: int


def _measure(segment: Segment) -> _Tail:
    """Find where a segment ends."""
    synced = 0
    reached = [(0, End(segment.first_offset, segment.first_number))]
    for entry in segment.entries(is_thorough=True):
        synced = max(synced, entry.head.synced)
        reached.append((entry.position, _reach(reached[-1][1], entry.value)))
    cut = segment.position
    damaged = 0
    for begin, end in segment.damaged:
        if end > synced and not segment.is_closed:
            cut = max(begin, synced)
            break
        damaged += end - begin
    end_of_all = next(end for position, end in reversed(reached) if position < cut or not position)
    return _Tail(cut, end_of_all, segment.size_of_data(cut), damaged)


def _reach(end: End, value: Run | PackedRun | Row | Begin | End) -> End:
    """Return how far a journal goes with one more record."""
    if isinstance(value, Run | PackedRun):
        return End(max(end.end_offset, value.end_offset), end.end_number)
    if isinstance(value, Row):
        return End(end.end_offset, max(end.end_number, value.number + 1))
    return value if isinstance(value, End) else end


def _finish(segment: Segment, segment_id: int, tail: _Tail, disk: Disk) -> None:
    """Cut a segment where it ends, and say that it does."""
    chain = Chain(segment_id)
    chain.position = chain.synced = tail.cut
    record = chain.add(records.END, records.encode_end(tail.end))
    if segment.is_closed:
        record = []
    fd = disk.open(segment.path)
    try:
        disk.cut(fd, tail.cut)  # First: a crash must not leave a piece of the tail behind the end.
        disk.write(fd, record, tail.cut)
        disk.sync(fd)
    finally:
        disk.close(fd)


def _identify(store: Path, now_ns: int, disk: Disk) -> Identity:
    """Read who records here, or give a new store its name."""
    if identity_path(store).exists():
        return read_identity(store)
    identity = make_identity(now_ns)
    write_whole(disk, identity_path(store), encode_identity(identity))
    disk.sync_folder(store.parent)
    return identity


def _find_converted(store: Path) -> Start:
    """Return what follows everything that was turned into files already, which say so by name."""
    segment = offset = number = 0
    for path in store.rglob("*.parquet"):
        file = parse_name(path)
        if file is None or file.first >= DAMAGE_NUMBER:
            continue
        segment = max(segment, file.segment + 1)
        if file.table == "messages":
            offset = max(offset, file.last + 1)
        else:
            number = max(number, file.last + 1)
    return Start(b"", segment, offset, number)
