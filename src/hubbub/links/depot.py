"""HOT. Large payloads by reference, over the pipes of one channel: both ends of it.

The writer's end has a store (arena.py) and offers its arenas to peers, by a note with the
descriptor, before the first frame that refers to them; notes and frames keep their order in a pipe.
The first arena is used only once a peer has said that it could map it. The reader's end maps what
it is offered (mapping.py), makes views of references, and gives back what the application has let
go of (returns.py). A writer keeps to little memory, which is warm, as long as its readers get on.

A reader that holds what the writer needs, and gives nothing back for a while, is left behind: the
writer gives up the arenas that it has claims in and never writes them again, so whatever that
reader holds or has yet to read stays as it was. It gets no references until it gives signs of life.

Everything is called under the channel's lock, but for `resolve` of what lies in memory already.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from struct import Struct, error
from typing import Any, Final

from hubbub.errors import LinkError
from hubbub.limits import (
    MS,
    SECOND,
    STORE_BYTES_MAX,
    STORE_PATIENCE,
    STORE_WARM_BYTES,
)
from hubbub.links.arena import Store, StoreStatistics
from hubbub.links.local import LocalLink, Note
from hubbub.links.mapping import Mapping
from hubbub.links.returns import RETURNS, ReturnBox, Returns
from hubbub.protocol.burst import Pipes
from hubbub.wire.batch import decode_reference, encode_reference

MAPPINGS_MAX: Final = 64  # Of one peer.
PINNED_BYTES_MAX: Final = STORE_BYTES_MAX // 2  # Of one peer; beyond it payloads are copied.
_FULL_BYTES: Final = STORE_BYTES_MAX * 3 // 4  # Who publishes large messages waits from here on...
_ROOMY_BYTES: Final = STORE_BYTES_MAX // 2  # ...until here.
_RETIRED_KEPT: Final = 5 * SECOND  # Frames that refer to an arena may still be repaired.
_LOOK_AGAIN: Final = 10 * MS

_HEAD: Final = Struct("!BIQ")  # What it says, an arena, its size.
_OFFER: Final = 1
_TAKEN: Final = 2
_REFUSED: Final = 3
_RETIRED: Final = 4


@dataclass(frozen=True, slots=True)
class DepotStatistics(StoreStatistics):
    """The same with what went wrong between this node and its peers."""

    not_taken: int
    """Offers, references and notes of peers that made no sense, or could not be used."""
    left_behind: int
    """Readers that hold on to what they got, and get nothing fresh for now."""


@dataclass(slots=True)
class _Reader:
    """A peer that reads what we wrote."""

    offered: set[int] = field(default_factory=set)
    returns: Returns | None = None  # Once it has mapped what it was offered.
    has_refused: bool = False
    gave_back_ns: int = 0


@dataclass(slots=True)
class _Writer:
    """A peer that writes what we read."""

    mappings: dict[int, Mapping] = field(default_factory=dict)
    box: ReturnBox = field(default_factory=ReturnBox)
    unanswered: int | None = None  # An offer that was taken, which its writer does not know yet.


class Depot:
    """What this node shares with its peers on this host, and they with it."""

    def __init__(self, link: LocalLink, clock: Callable[[], int]) -> None:
        self._link = link
        self._clock = clock
        self._store = Store(STORE_BYTES_MAX)
        self._readers: dict[bytes, _Reader] = {}
        self._writers: dict[bytes, _Writer] = {}
        self.stuck: set[bytes] = set()  # Readers that were left behind.
        self.is_full = False
        self._full_ns = 0  # Since when.
        self._retired: deque[tuple[int, bytes, int]] = deque()  # When to unmap what.
        self._warm_bytes = STORE_WARM_BYTES  # With so much in use, writing on would be slow.
        self._look_ns = 0  # When to look again what is given back by who was left behind.
        self.refused = 0

    # Writing.

    def refer(self, payload: bytes, route: Pipes) -> bytes | None:
        """Put a payload where all these readers find it; None: it must be sent as it is."""
        store = self._store
        for key in route:
            if not self._is_ready(key):
                return None
        if not store.has_slot(len(payload)):
            self.collect()  # Of readers of other messages.
        reference = store.put(payload, route)
        if reference is None or store.bytes_in_use > _FULL_BYTES:
            self._note_full()
        if reference is None:
            return None
        for key in route:
            reader = self._readers[key]
            is_known = reader.returns is not None and reference.arena in reader.offered
            if not is_known and not self._offer(key, reference.arena):
                for reader_key in route:
                    store.release(reader_key, [reference[:2]])
                return None
        return encode_reference(*reference)

    def _is_ready(self, key: bytes) -> bool:
        """Take what a reader has given back, and tell whether it may be given more.

        At once: what was just read is still in the cache, and is written next.
        """
        reader = self._readers.get(key) or self._reader_of(key)
        returns = reader.returns
        if returns is not None and returns.has_some():
            self._collect(key, reader)
        is_loaded = self._store.claims_of(key) >= RETURNS
        if is_loaded:
            self._note_full()
        return not (is_loaded or reader.has_refused)

    def _reader_of(self, key: bytes) -> _Reader:
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = _Reader(gave_back_ns=self._clock())
        return reader

    def _offer(self, key: bytes, number: int) -> bool:
        """See to it that a reader has an arena; False: it has not, for now."""
        reader = self._readers[key]
        if number not in reader.offered:
            arena = self._store.arenas[number]
            text = _HEAD.pack(_OFFER, number, arena.size_bytes)
            if not self._link.send_note(key, text, arena.fileno):
                return False
            reader.offered.add(number)
        return reader.returns is not None

    def collect(self) -> None:
        """Take what readers have given back."""
        for key, reader in list(self._readers.items()):
            self._collect(key, reader)

    def _collect(self, key: bytes, reader: _Reader) -> None:
        returns = reader.returns
        if returns is None:
            return
        places = returns.take()
        if places:
            self._store.release(key, places)
            reader.gave_back_ns = self._clock()
            self.stuck.discard(key)
            self.is_full = self.is_full and self._store.bytes_in_use > _ROOMY_BYTES
        if returns.is_overrun:
            self._refuse(key, reader)

    def _refuse(self, key: bytes, reader: _Reader) -> None:
        """Share nothing with a reader any more."""
        self._retire(key)
        reader.returns = None
        reader.has_refused = True

    @property
    def is_roomy(self) -> bool:
        """Tell whether there is certainly room; needs no lock."""
        return not self.is_full and self._store.bytes_in_use <= self._warm_bytes

    def has_room(self, route: Pipes) -> bool:
        """Tell whether to write more for these readers, or better to wait until they have read.

        Memory that was just read is still in the cache: a copy of 1 MiB takes a third of the time.
        One reader that keeps up is enough not to wait for the others.
        """
        if self.is_roomy:
            return True
        self.collect()
        in_use = self._store.bytes_in_use
        self._warm_bytes = min(self._warm_bytes, in_use + STORE_WARM_BYTES)
        if self.is_full:
            return False
        least = min(self._store.claimed_bytes(key) for key in route)
        return in_use <= self._warm_bytes or least <= STORE_WARM_BYTES // 2

    def go_on(self) -> None:
        """Use more memory: waiting did not help, so what is in use is held on purpose."""
        self._warm_bytes = self._store.bytes_in_use + STORE_WARM_BYTES

    def _note_full(self) -> None:
        if not self.is_full:
            self.is_full = True
            self._full_ns = self._clock()

    def _relieve(self, now: int) -> None:
        """Leave behind who holds much and gives nothing back."""
        self.collect()
        for key, reader in list(self._readers.items()):
            if now - reader.gave_back_ns >= STORE_PATIENCE and self._store.claimed_bytes(key):
                self._retire(key)
                self.stuck.add(key)
        self.is_full = False

    def _retire(self, key: bytes) -> None:
        for number in self._store.retire(key):
            for other, reader in self._readers.items():
                if number in reader.offered:
                    reader.offered.discard(number)
                    self._link.send_note(other, _HEAD.pack(_RETIRED, number, 0))

    # Reading.

    def resolve(self, key: bytes, references: list[bytes]) -> list[Any] | None:
        """Make payloads of references; None: at least one leads nowhere."""
        writer = self._writers.get(key)
        if writer is None:
            return None
        # All before any: a view that goes again gives its slot back, and a repair of the frame
        # would find there what was written since.
        places = [_locate(writer, packed) for packed in references]
        found = [place for place in places if place is not None]
        if len(found) < len(places):
            self.refused += 1
            return None
        return [_make_payload(*place) for place in found]

    # Both.

    def take(self, note: Note) -> None:
        """Take a note of a peer; what makes no sense is counted."""
        try:
            kind, number, size_bytes = _HEAD.unpack_from(note.text)
        except error:
            kind, number, size_bytes = 0, 0, 0
        if kind == _OFFER and note.fileno is not None:
            self._map(note.key, number, note.fileno, size_bytes)
            return
        if kind == _TAKEN and note.fileno is not None:
            self._take_returns(note.key, note.fileno)
            return
        if note.fileno is not None:
            os.close(note.fileno)
        reader = self._readers.get(note.key)
        if kind == _RETIRED:
            self._retired.append((self._clock() + _RETIRED_KEPT, note.key, number))
        elif kind == _REFUSED and reader is not None:
            self._refuse(note.key, reader)
        else:
            self.refused += 1

    def _take_returns(self, key: bytes, fileno: int) -> None:
        """Look from now on where a reader gives back; it has mapped what it was offered."""
        reader = self._readers.get(key)
        if reader is None or reader.returns is not None:
            os.close(fileno)
            return
        try:
            reader.returns = Returns(fileno)
        except LinkError:
            self.refused += 1
            self._refuse(key, reader)

    def _map(self, key: bytes, number: int, fileno: int, size_bytes: int) -> None:
        writer = self._writer_of(key)
        if writer is None:
            os.close(fileno)
            self.refused += 1
            self._link.send_note(key, _HEAD.pack(_REFUSED, number, 0))
            return
        answer = _TAKEN
        known = writer.mappings.get(number)
        if known is not None or len(writer.mappings) >= MAPPINGS_MAX:
            # Known from an earlier pipe to the same peer: its numbers are never used twice.
            os.close(fileno)
            is_same = known is not None and known.size_bytes == size_bytes
            answer = _TAKEN if is_same else _REFUSED
        else:
            try:
                writer.mappings[number] = Mapping(number, fileno, size_bytes, writer.box)
            except LinkError:
                answer = _REFUSED
        self.refused += answer == _REFUSED
        if answer == _TAKEN:
            self._accept(key, writer, number)
        else:
            self._link.send_note(key, _HEAD.pack(_REFUSED, number, 0))

    def _accept(self, key: bytes, writer: _Writer, number: int) -> None:
        """Say that an offer was taken, and where we give back; again later if it cannot be said."""
        is_said = self._link.send_note(key, _HEAD.pack(_TAKEN, number, 0), writer.box.fileno)
        writer.unanswered = None if is_said else number

    def _writer_of(self, key: bytes) -> _Writer | None:
        """Return what is known of a peer that writes; None: the system grants no more memory."""
        writer = self._writers.get(key)
        if writer is None:
            with contextlib.suppress(LinkError):
                writer = self._writers[key] = _Writer()
        return writer

    def _unmap(self, key: bytes, number: int) -> None:
        writer = self._writers.get(key)
        mapping = None if writer is None else writer.mappings.pop(number, None)
        if mapping is not None:
            mapping.close()

    def pipe_closed(self, key: bytes, *, is_dead: bool) -> None:
        """End with a peer; if it lives, what it may still read or repair stays as it is."""
        if not is_dead:
            self._retire(key)
        self._store.forget(key)
        self._readers.pop(key, None)
        self.stuck.discard(key)
        if is_dead:
            self.forget_writer(key)

    def forget_writer(self, key: bytes) -> None:
        """Let go of what a peer shared; views of it stay until they are let go of."""
        writer = self._writers.pop(key, None)
        if writer is not None:
            for mapping in writer.mappings.values():
                mapping.close()
            writer.box.close()

    def forget_others(self, keys: Collection[bytes]) -> None:
        """Let go of what was shared by peers that are not among these."""
        for key in [key for key in self._writers if key not in keys]:
            self.forget_writer(key)

    def _unanswered(self) -> list[tuple[bytes, _Writer, int]]:
        return [
            (key, writer, writer.unanswered)
            for key, writer in self._writers.items()
            if writer.unanswered is not None
        ]

    def advance(self, now: int) -> None:
        """Do what is due."""
        while self._retired and now >= self._retired[0][0]:
            self._unmap(*self._retired.popleft()[1:])
        if now >= self._look_ns and (self.stuck or self._unanswered()):
            self._look_ns = now + _LOOK_AGAIN
            self.collect()
            for key, writer, number in self._unanswered():
                self._accept(key, writer, number)
        if self.is_full and now >= self._full_ns + STORE_PATIENCE:
            self._relieve(now)

    def deadline(self) -> int | None:
        """Return when `advance` has something to do."""
        times = [self._full_ns + STORE_PATIENCE] if self.is_full else []
        if self.stuck or self._unanswered():
            times.append(self._look_ns)
        if self._retired:
            times.append(self._retired[0][0])
        return min(times, default=None)

    def statistics(self) -> DepotStatistics:
        """Count what is shared."""
        self.collect()
        return DepotStatistics(
            **asdict(self._store.statistics()), not_taken=self.refused, left_behind=len(self.stuck)
        )

    def close(self) -> None:
        """Let go of everything."""
        with contextlib.suppress(LinkError):
            self._store.close()
        for key in list(self._writers):
            self.forget_writer(key)


def _locate(writer: _Writer, packed: bytes) -> tuple[Mapping, int, int] | None:
    """Find where a reference leads; None: nowhere."""
    reference = decode_reference(packed)
    if reference is None:
        return None
    number, offset, size_bytes = reference
    mapping = writer.mappings.get(number)
    if mapping is None or not mapping.holds(offset, size_bytes):
        return None
    return mapping, offset, size_bytes


def _make_payload(mapping: Mapping, offset: int, size_bytes: int) -> memoryview | bytes | None:
    """Make a view of what lies there, or a copy where too much is held already."""
    if mapping.pinned_bytes > PINNED_BYTES_MAX:
        return mapping.read(offset, size_bytes)
    return mapping.lease(offset, size_bytes)
