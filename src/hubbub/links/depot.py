"""HOT. Large payloads by reference, over the pipes of one channel: both ends of it.

The writer's end has a store (arena.py) and offers its arenas to peers, by a note with the
descriptor, before the first frame that refers to them; notes and frames keep their order in a pipe.
The first arena is used only once a peer has said that it could map it. The reader's end maps what
it is offered (mapping.py), makes views of references, and gives back what the application has let
go of (returns.py). A writer keeps to little memory, which is warm, as long as its readers get on.

Who publishes what it has read, a gateway or any node, hands it on to its own readers without a copy
(onward.py). If it dies, the arenas it has claims in are given up, as those of a reader that lives
while its pipe ends. So it tells its writer: a gateway at once, others when they first want to; then
they are offered again what they had mapped without keeping a descriptor (decision 52).

A reader that holds what the writer needs, and gives nothing back for a while, is left behind: the
writer gives up the arenas that it has claims in and never writes them again, so whatever that
reader holds or has yet to read stays as it was. It gets no references until it gives signs of life.

Everything is called under the channel's lock, but for `resolve` of what lies in memory already.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from struct import Struct, error
from typing import Any, Final

from hubbub.errors import LinkError
from hubbub.limits import (
    BLOCK_BYTES_MAX,
    MS,
    SECOND,
    STORE_BYTES_MAX,
    STORE_PATIENCE,
    STORE_WARM_BYTES,
)
from hubbub.links.arena import (
    SLOT_ALIGNMENT_BYTES,
    Arena,
    Block,
    Slot,
    Store,
    StoreStatistics,
    block_bytes,
)
from hubbub.links.loans import LOANS_BYTES_MAX, Draft, draft_at, draft_of
from hubbub.links.local import LocalLink, Note
from hubbub.links.mapping import Lease, Mapping
from hubbub.links.onward import READER_SLOTS_MAX, Onward
from hubbub.links.returns import RETURNS, ReturnBox, Returns
from hubbub.protocol.burst import Pipes
from hubbub.wire.batch import Reference, decode_references, encode_parts

MAPPINGS_MAX: Final = 64  # Of one peer.
PINNED_BYTES_MAX: Final = STORE_BYTES_MAX // 2  # Of one peer; beyond it payloads are copied.
_FULL_BYTES: Final = STORE_BYTES_MAX * 3 // 4  # Who publishes large messages waits from here on...
_ROOMY_BYTES: Final = STORE_BYTES_MAX // 2  # ...until here.
_RETIRED_KEPT: Final = 5 * SECOND  # Frames that refer to an arena may still be repaired.
_LOOK_AGAIN: Final = 10 * MS
_LOOK_SOON: Final = 2 * MS  # So soon for what was handed on, then after twice as long, until
_LOOK_SELDOM: Final = 100 * MS  # so seldom: our writer must not take us for one that holds on.

_NOWHERE: Final = (-1, 0, 0, 0)
Placed = tuple[
    Mapping, int, list[tuple[int, int]]
]  # A slot's offset, and those and the sizes in it.

_HEAD: Final = Struct("!BIQ")  # What it says, an arena, its size.
_OFFER: Final = 1
_TAKEN: Final = 2
_REFUSED: Final = 3
_RETIRED: Final = 4
# Behind an offer: if a reader dies that hands on, nobody writes there again.
_MAY_BE_HANDED_ON: Final = b"\x01"
_HANDS_ON: Final = 1  # Instead of a size, of who takes an offer.


@dataclass(frozen=True, slots=True)
class DepotStatistics(StoreStatistics):
    """The same with what went wrong between this node and its peers."""

    not_taken: int
    """Offers, references and notes of peers that made no sense, or could not be used."""
    left_behind: int
    """Readers that hold on to what they got, and get nothing fresh for now."""
    handed_on: int
    """Messages of other writers that went on to readers of ours without a copy."""


@dataclass(slots=True)
class _Reader:
    """A peer that reads what we wrote."""

    offered: set[int] = field(default_factory=set)
    returns: Returns | None = None  # Once it has mapped what it was offered.
    has_refused: bool = False
    hands_on: bool = False  # Others may read what it got, also when it is dead.
    gave_back_ns: int = 0


@dataclass(slots=True)
class _Writer:
    """A peer that writes what we read."""

    mappings: dict[int, Mapping] = field(default_factory=dict)
    box: ReturnBox = field(default_factory=ReturnBox)
    unanswered: int | None = None  # An offer that was taken, which its writer does not know yet.
    is_handed_on: bool = False  # What it writes goes on to readers of ours, or shall.


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
        self._bound_claims(RETURNS)
        self._hands_on = False  # Whatever anybody writes.
        self._wanted: deque[bytes] = deque()  # Whose payloads somebody would like to hand on.
        self._onward: Onward | None = None  # What was handed on,
        self._is_looking = False  # whether to look again what is given back of it,
        self._onward_ns = 0  # when,
        self._onward_wait_ns = _LOOK_SOON  # after how long;
        self.on_look: Callable[[], None] = lambda: None  # Called when `deadline` was None before.
        self._departed: dict[bytes, Returns] = {}  # also by those whose pipe has ended.
        self._returned: deque[Slot] = deque()  # What was lent, and is over.
        self.refused = 0

    def hand_on(self) -> None:
        """Be ready to hand on whatever comes, from now on."""
        self._hands_on = True
        self._open_onward()

    def _open_onward(self) -> Onward:
        if self._onward is None:
            self._onward = Onward(self._store.next_number)
            self._bound_claims(RETURNS - READER_SLOTS_MAX)
        return self._onward

    def _bound_claims(self, claims_max: int) -> None:
        self._claims_max = claims_max
        # With less in use nobody can have so many, for a slot has at least so many bytes.
        self._loaded_bytes = claims_max * SLOT_ALIGNMENT_BYTES

    # Writing.

    def refer(self, payloads: Sequence[bytes | memoryview], route: Pipes) -> list[bytes]:
        """Put payloads where all these readers find them, as many as lie together.

        None of them, from the first on: there is no room, and they must be sent as they are.
        """
        readers = self._readers
        for key in route:
            reader = readers.get(key) or self._reader_of(key)
            returns = reader.returns
            # At once: what was just read is still in the cache, and is written next.
            if returns is not None and returns.has_some():
                self._collect(key, reader)
            if reader.has_refused or self._is_loaded(key):
                return []
        if type(payloads[0]) is memoryview and (made := self._refer_in_place(payloads, route)):
            return made
        block = self._copy(payloads[: _count_together(payloads)], route)
        if block is None:
            return []
        if not self._show(block.arena, route):
            for key in route:
                self._store.release(key, [block[:2]])
            return []
        return encode_parts(*block)

    def _refer_in_place(self, payloads: Sequence[bytes | memoryview], route: Pipes) -> list[bytes]:
        """Refer to payloads that lie in shared memory already; none: they must be copied."""
        first = payloads[0]
        if type(first) is memoryview and type(first.obj) is Lease:
            return self._hand_on(self._onward or self._open_onward(), payloads, route)
        draft = draft_of(first)
        if draft is None or not self._share(draft, route):
            return []
        number, offset = draft.slot.place
        return encode_parts(number, offset, [(offset, draft.size_bytes)])

    def lend(self, size_bytes: int, route: Pipes) -> Draft | None:
        """Lend memory for a payload that all these readers can find; None: they cannot yet."""
        self._end_loans()
        readers = [self._readers.get(key) for key in route]
        if not all(one and one.returns and not one.has_refused for one in readers):
            return None
        if self.is_full or self._store.lent_bytes + size_bytes > LOANS_BYTES_MAX:
            return None
        if not self._store.has_slot(size_bytes):
            self.collect()
        slot = self._store.lend(size_bytes)
        return None if slot is None else draft_at(slot, size_bytes, self._returned)

    def _share(self, draft: Draft, route: Pipes) -> bool:
        """Let readers have what lies in a slot of ours already; False: it must be copied."""
        slot = draft.slot
        if draft.returned is not self._returned or not self._store.share(slot, route):
            return False
        if self._show(slot.place[0], route):
            return True
        for key in route:
            self._store.release(key, [slot.place])
        return False

    def _end_loans(self) -> None:
        while self._returned:
            self._store.end_loan(self._returned.popleft())

    def _copy(self, payloads: Sequence[bytes | memoryview], route: Pipes) -> Block | None:
        """Copy payloads into one slot, at least the first of them; None: there is no room."""
        store = self._store
        if not store.has_slot(block_bytes(payloads)):
            self.collect()  # Of readers of other messages.
        block = store.put(payloads, route)
        if block is None and len(payloads) > 1:
            block = store.put(payloads[:1], route)
        if block is None or store.bytes_in_use > _FULL_BYTES:
            self._note_full()
        return block

    def _show(self, number: int, route: Pipes) -> bool:
        """See to it that readers have an arena; False: at least one has not, for now."""
        for key in route:
            reader = self._readers[key]
            is_known = reader.returns is not None and number in reader.offered
            if not is_known and not self._offer(key, number):
                return False
        return True

    def _hand_on(
        self, onward: Onward, payloads: Sequence[bytes | memoryview], route: Pipes
    ) -> list[bytes]:
        """Refer to payloads where they lie already; none: they must be copied."""
        number, slot, places = onward.put(payloads, route)
        if not places:
            return []
        if not self._show(number, route):
            for key in route:
                onward.release(key, [(number, slot)])
            return []
        if not self._is_looking:
            self._is_looking = True
            self._onward_wait_ns = _LOOK_SOON
            self._onward_ns = self._clock() + _LOOK_SOON
            self.on_look()
        return encode_parts(number, slot, places)

    def _is_loaded(self, key: bytes) -> bool:
        """Tell whether a reader has as many slots as it could give back at once."""
        if self._store.bytes_in_use < self._loaded_bytes:
            return False
        is_loaded = self._store.claims_of(key) >= self._claims_max
        if is_loaded:
            self._note_full()
        return is_loaded

    def _reader_of(self, key: bytes) -> _Reader:
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = _Reader(gave_back_ns=self._clock())
        return reader

    def _offer(self, key: bytes, number: int) -> bool:
        """See to it that a reader has an arena; False: it has not, for now."""
        reader = self._readers[key]
        if number not in reader.offered:
            if not self._send_offer(key, number):
                return False
            reader.offered.add(number)
        return reader.returns is not None

    def _send_offer(self, key: bytes, number: int) -> bool:
        arena: Arena | Mapping | None = self._store.arenas.get(number)
        may_be_handed_on = arena is not None
        if arena is None and self._onward is not None:
            arena = self._onward.arenas.get(number)
        assert arena is not None
        text = _HEAD.pack(_OFFER, number, arena.size_bytes) + bytes([may_be_handed_on])
        return self._link.send_note(key, text, arena.fileno)

    def collect(self) -> None:
        """Take what readers have given back, and what was lent."""
        self._end_loans()
        for key, reader in list(self._readers.items()):
            self._collect(key, reader)
        onward = self._onward
        if onward is None:
            return
        for name, departed in list(self._departed.items()):
            onward.release(name, departed.take())
            if not onward.claims_of(name):
                del self._departed[name]

    def _collect(self, key: bytes, reader: _Reader) -> None:
        returns = reader.returns
        if returns is None:
            return
        places = returns.take()
        if places:
            rest = places if self._onward is None else self._onward.release(key, places)
            self._store.release(key, rest)
            reader.gave_back_ns = self._clock()
            self._onward_wait_ns = _LOOK_SOON
            self._onward_ns = reader.gave_back_ns + _LOOK_SOON
            self.stuck.discard(key)
            self.is_full = self.is_full and self._store.bytes_in_use > _ROOMY_BYTES
        if returns.is_overrun:
            self._refuse(key, reader)

    def _refuse(self, key: bytes, reader: _Reader) -> None:
        """Share nothing with a reader any more."""
        self._retire(key)
        reader.returns = None
        reader.has_refused = True

    def is_read(self, route: Pipes) -> bool:
        """Tell whether these readers wait for more; a hint, which needs no lock.

        Each may have one slot still: who iterates holds a message until it has the next one.
        """
        for key in route:
            unread, reader = self._store.claims_of(key) - 1, self._readers.get(key)
            if unread > 0 and not (reader and reader.returns and reader.returns.has(unread)):
                return False
        return True

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
        self._tell_retired(self._store.retire(key))

    def _tell_retired(self, numbers: list[int]) -> None:
        for number in numbers:
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
        slots = _sort_by_slot(writer.mappings, decode_references(references) or [_NOWHERE])
        if slots is None:
            self.refused += 1
            return None
        if len(slots) == 1:
            return _make_payloads(*slots[0])
        return [payload for slot in slots for payload in _make_payloads(*slot)]

    # Both.

    def take(self, note: Note) -> None:
        """Take a note of a peer; what makes no sense is counted."""
        try:
            kind, number, size_bytes = _HEAD.unpack_from(note.text)
        except error:
            kind, number, size_bytes = 0, 0, 0
        if kind == _OFFER and note.fileno is not None:
            may_be_handed_on = note.text[_HEAD.size :] == _MAY_BE_HANDED_ON
            self._map(note.key, number, note.fileno, size_bytes, may_be_handed_on)
            return
        if kind == _TAKEN and note.fileno is not None:
            self._take_returns(note.key, note.fileno, hands_on=size_bytes == _HANDS_ON)
            return
        if note.fileno is not None:
            os.close(note.fileno)
        reader = self._readers.get(note.key)
        if kind == _RETIRED:
            self._note_retired(note.key, number)
        elif kind == _REFUSED and reader is not None:
            self._refuse(note.key, reader)
        else:
            self.refused += 1

    def _note_retired(self, key: bytes, number: int) -> None:
        self._retired.append((self._clock() + _RETIRED_KEPT, key, number))
        writer = self._writers.get(key)
        mapping = None if writer is None else writer.mappings.get(number)
        if mapping is not None:
            mapping.retire()

    def _take_returns(self, key: bytes, fileno: int, *, hands_on: bool) -> None:
        """Look from now on where a reader gives back; it has mapped what it was offered."""
        reader = self._readers.get(key)
        if reader is None or reader.returns is not None:
            os.close(fileno)
            if reader is not None and hands_on and not reader.hands_on:
                reader.hands_on = True
                for number in reader.offered & self._store.arenas.keys():
                    self._send_offer(key, number)  # It has kept no descriptor of what it mapped.
            return
        reader.hands_on = hands_on
        try:
            reader.returns = Returns(fileno)
        except LinkError:
            self.refused += 1
            self._refuse(key, reader)

    def _map(
        self, key: bytes, number: int, fileno: int, size_bytes: int, may_be_handed_on: bool
    ) -> None:
        writer = self._writer_of(key)
        if writer is None:
            os.close(fileno)
            self.refused += 1
            self._link.send_note(key, _HEAD.pack(_REFUSED, number, 0))
            return
        answer = _TAKEN
        keeps_descriptor = may_be_handed_on and (self._hands_on or writer.is_handed_on)
        want = partial(self._wanted.append, key) if may_be_handed_on else None
        known = writer.mappings.get(number)
        if known is not None and known.size_bytes == size_bytes:
            # Known from an earlier pipe to the same peer: its numbers are never used twice. Or it
            # was told that we hand on.
            known.adopt(fileno) if keeps_descriptor else os.close(fileno)
        elif known is not None or len(writer.mappings) >= MAPPINGS_MAX:
            os.close(fileno)
            answer = _REFUSED
        else:
            try:
                writer.mappings[number] = Mapping(
                    number, fileno, size_bytes, writer.box,
                    keeps_descriptor=keeps_descriptor, want=want,
                )  # fmt: skip
            except LinkError:
                answer = _REFUSED
        self.refused += answer == _REFUSED
        if answer == _TAKEN:
            self._accept(key, writer, number)
        else:
            self._link.send_note(key, _HEAD.pack(_REFUSED, number, 0))

    def _accept(self, key: bytes, writer: _Writer, number: int) -> None:
        """Say that an offer was taken, and where we give back; again later if it cannot be said."""
        how = _HANDS_ON if self._hands_on or writer.is_handed_on else 0
        is_said = self._link.send_note(key, _HEAD.pack(_TAKEN, number, how), writer.box.fileno)
        writer.unanswered = None if is_said else number
        if is_said and how:
            for mapping in writer.mappings.values():
                mapping.may_be_handed_on = mapping.fileno >= 0

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
        reader = self._readers.get(key)
        if not is_dead or (reader is not None and reader.hands_on):
            self._retire(key)
        self._store.forget(key)
        self._readers.pop(key, None)
        if self._onward is not None:
            self._part(self._onward, key, reader, is_dead=is_dead)
        self.stuck.discard(key)
        if is_dead:
            self.forget_writer(key)

    def _part(self, onward: Onward, key: bytes, reader: _Reader | None, *, is_dead: bool) -> None:
        """End with a reader, but not with what was handed on to it while it lives."""
        if is_dead:
            for name in [key, *(one for one in self._departed if one.startswith(key))]:
                onward.forget(name)
                self._departed.pop(name, None)
        elif not onward.claims_of(key):
            onward.forget(key)
        elif reader is not None and reader.returns is not None:
            name = key + self._store.next_number().to_bytes(8, "big")
            self._tell_retired(onward.rename(key, name))
            self._departed[name] = reader.returns

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
        if self._onward is not None:
            self._tell_retired([one for one in self._onward.given_up() if self._onward.retire(one)])

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
        while self._wanted:
            self._tell_wanted(self._wanted.popleft())
        if self._is_looking and now >= self._onward_ns:
            self._onward_wait_ns = min(2 * self._onward_wait_ns, _LOOK_SELDOM)
            self._onward_ns = now + self._onward_wait_ns
            self.collect()
            self._is_looking = self._onward is not None and self._onward.bytes_in_use > 0
        if self.is_full and now >= self._full_ns + STORE_PATIENCE:
            self._relieve(now)

    def _tell_wanted(self, key: bytes) -> None:
        """Tell a writer that what it writes shall go on to readers of ours."""
        writer = self._writers.get(key)
        if writer is not None and not writer.is_handed_on and writer.mappings:
            writer.is_handed_on = True
            self._accept(key, writer, next(iter(writer.mappings)))

    def deadline(self) -> int | None:
        """Return when `advance` has something to do."""
        times = [self._full_ns + STORE_PATIENCE] if self.is_full else []
        if self.stuck or self._unanswered():
            times.append(self._look_ns)
        if self._retired:
            times.append(self._retired[0][0])
        if self._is_looking:
            times.append(self._onward_ns)
        if self._wanted:
            times.append(0)
        return min(times, default=None)

    def statistics(self) -> DepotStatistics:
        """Count what is shared."""
        self.collect()
        return DepotStatistics(
            **asdict(self._store.statistics()),
            not_taken=self.refused,
            left_behind=len(self.stuck),
            handed_on=0 if self._onward is None else self._onward.messages,
        )

    def close(self) -> None:
        """Let go of everything."""
        with contextlib.suppress(LinkError):
            self._store.close()
        for key in list(self._writers):
            self.forget_writer(key)


def _count_together(payloads: Sequence[bytes | memoryview]) -> int:
    """Return how many payloads, from the first on, share a slot."""
    count = room_bytes = 0
    for payload in payloads:
        room_bytes += len(payload)
        if room_bytes > BLOCK_BYTES_MAX and count:
            break
        if type(payload) is not bytes and count and draft_of(payload) is not None:
            break
        count += 1
    return count


def _sort_by_slot(mappings: dict[int, Mapping], references: list[Reference]) -> list[Placed] | None:
    """Say which mapping holds what, slot by slot; None: at least one reference leads nowhere."""
    slots: list[Placed] = []
    latest: tuple[int, int] | None = None
    end = 0
    for number, offset, size_bytes, slot in references:
        if (number, slot) != latest:
            mapping, latest, end = mappings.get(number), (number, slot), slot
            if mapping is None:
                return None
            places: list[tuple[int, int]] = []
            slots.append((mapping, slot, places))
        if offset < end or not slots[-1][0].holds(offset, size_bytes):
            return None
        end = offset + size_bytes
        places.append((offset, size_bytes))
    return slots


def _make_payloads(mapping: Mapping, slot: int, places: list[tuple[int, int]]) -> list[Any]:
    """Make views of what lies there, or copies where too much is held already."""
    if mapping.pinned_bytes > PINNED_BYTES_MAX:
        return mapping.read_all(slot, places)
    return mapping.lease_all(slot, places)
