"""Where large payloads lie for the processes of one host, and who may still read them.

A payload is copied once, into a slot of an arena that all readers map; what travels is a reference.
Payloads of one frame lie together in one slot: it is given, claimed and given back once for all of
them (decision 46). Invariants: a slot is written only while nobody has a claim on it; a claim is
dropped by the reader who has it or by the writer, never by somebody else; an arena neither grows
nor shrinks nor can be written through another descriptor, because seals forbid it. So a hostile
reader can waste the slots it was given, and that is all it can do. What is lent (loans.py) has a
claim of the writer itself, which is dropped when nothing leads there any more.

Why not a ring: one view that is held for long would block all that comes after it. Slots are taken
last in, first out instead, in classes of four sizes an octave: less than a quarter is wasted, and
what was just read is still in the cache and in the page tables. An arena that nobody reads is cut
up anew when there is no room otherwise, or the sizes of yesterday would keep today's out.

Measured: a hot slot takes a payload of 64 KiB in 3.2 us (20 GB/s) and of 1 MiB in 32 us (33 GB/s),
1.5 us of it for the ledger; a release takes 0.3 us in a batch and 0.6 us alone. Fresh memory takes
1 GB/s, because the kernel clears it. MAP_POPULATE makes that 15 % faster, but stops the writer for
15 ms with the first arena, so pages are touched when they are needed.
"""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hubbub.errors import LinkError

FIRST_ARENA_BYTES: Final = 16 << 20
# A message of 1 GiB fits; a reader maps no more at a peer's word.
ARENA_BYTES_MAX: Final = 2 << 30
_ALIGNMENT_SHIFT: Final = 12
SLOT_ALIGNMENT_BYTES: Final = 1 << _ALIGNMENT_SHIFT
CACHE_LINE_BYTES: Final = 64

# F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_FUTURE_WRITE; `fcntl` lacks the last one.
SEALS: Final = 0x01 | 0x02 | 0x04 | 0x10


_WRITER: Final = "writer"  # Its own claims, beside those of readers.


class Block(NamedTuple):
    """Where payloads lie together."""

    arena: int
    slot: int
    places: list[tuple[int, int]]  # Offset in the arena, and size, of each.


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A snapshot of what a store holds and of what it refused."""

    arenas: int
    bytes_total: int
    slots_in_use: int
    bytes_in_use: int
    """Whole slots, with what their payloads leave empty."""
    refused: int
    """Releases of what the reader had no claim on."""
    retired: int
    """Arenas given up because of a reader that held on to them."""
    failed: int
    """Arenas that the system did not grant."""


class Arena:
    """Sealed shared memory of a fixed size, and how much of it has been cut into slots."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.fileno, self.memory = create_sealed(size_bytes)
        self._carved_bytes = 0

    def carve(self, slot_bytes: int) -> int | None:
        """Cut a slot off and return its offset, None if too little is left."""
        offset = self._carved_bytes
        if slot_bytes > self.size_bytes - offset:
            return None
        self._carved_bytes += slot_bytes
        return offset

    def join(self) -> None:
        """Undo all carving; nobody reads it."""
        self._carved_bytes = 0

    def close(self) -> None:
        """Let go of the memory; the kernel keeps it for those who map it."""
        with contextlib.suppress(BufferError):  # Some of it is lent: it goes with the last loan.
            self.memory.close()
        os.close(self.fileno)


@dataclass(slots=True, eq=False)
class Slot:
    """A piece of an arena; it waits in the pool of its size while it has no claims."""

    arena: Arena
    place: tuple[int, int]
    size_bytes: int
    pool: "list[Slot]"
    claims: int = 0


class _Claims(dict[tuple[int, int], Slot]):
    """What one reader has been given, by place."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class Store:
    """The writer's arenas and the ledger of who reads what in them. The caller has the lock."""

    def __init__(self, bytes_max: int) -> None:
        self.arenas: dict[int, Arena] = {}
        self.bytes_in_use = 0  # Whole slots that anybody has a claim on.
        self._bytes_max = bytes_max
        self._next_number = 0
        self._pools: dict[int, list[Slot]] = {}
        self._size_bytes = 0  # Of the payload that came last, and where its slots are free:
        self._pool: list[Slot] = []  # one is mostly like the one before it.
        self._claims: dict[Hashable, _Claims] = {}
        self._refused = 0
        self._retired = 0
        self._failed = 0

    def has_slot(self, size_bytes: int) -> bool:
        """Tell whether a slot of just this size is free."""
        return bool(self._pool if size_bytes == self._size_bytes else self._pool_of(size_bytes))

    def put(
        self, payloads: Sequence[bytes | memoryview], readers: Collection[Hashable]
    ) -> Block | None:
        """Copy flat bytes into one slot on which each reader has a claim; None if there is no room.

        Nothing has changed if the copy raises: the slot leaves its pool afterwards.
        """
        assert all(payloads) and readers
        size_bytes = block_bytes(payloads)
        slot = self._free_slot(size_bytes)
        if slot is None:
            return None
        number, offset = place = slot.place
        memory, places = slot.arena.memory, []
        for payload in payloads:
            payload_bytes = len(payload)
            end = offset + payload_bytes
            memory[offset:end] = payload
            places.append((offset, payload_bytes))
            offset = end + CACHE_LINE_BYTES - 1 & -CACHE_LINE_BYTES  # As `_aligned`.
        self._use(slot)
        for reader in readers:
            self._claim(slot, reader)
        return Block(number, place[1], places)

    def _use(self, slot: Slot) -> None:
        assert slot.pool[-1] is slot
        slot.pool.pop()
        self.bytes_in_use += slot.size_bytes

    def _claim(self, slot: Slot, reader: Hashable) -> None:
        claims = self._claims.get(reader)
        if claims is None:
            claims = self._claims[reader] = _Claims()
        assert slot.place not in claims
        claims[slot.place] = slot
        claims.size_bytes += slot.size_bytes
        slot.claims += 1

    def lend(self, size_bytes: int) -> Slot | None:
        """Give the writer itself a claim on a slot; None if there is no room."""
        slot = self._free_slot(size_bytes)
        if slot is not None:
            self._use(slot)
            self._claim(slot, _WRITER)
        return slot

    def share(self, slot: Slot, readers: Collection[Hashable]) -> bool:
        """Give readers claims on a slot that is lent; False: it must be copied instead.

        It was given up with its arena, or a reader has a claim on it, which it gives back once.
        """
        place = slot.place
        if not self._is_lent(slot):
            return False
        if any(place in self._claims.get(reader, ()) for reader in readers):
            return False
        for reader in readers:
            self._claim(slot, reader)
        return True

    def end_loan(self, slot: Slot) -> None:
        """Drop the writer's own claim."""
        if self._is_lent(slot):
            self.release(_WRITER, [slot.place])

    def _is_lent(self, slot: Slot) -> bool:
        """Tell whether the writer still has its claim; it has not where an arena was given up."""
        claims = self._claims.get(_WRITER)
        return claims is not None and claims.get(slot.place) is slot

    @property
    def lent_bytes(self) -> int:
        """Return the size of all slots that are lent."""
        return self.claimed_bytes(_WRITER)

    def _free_slot(self, size_bytes: int) -> Slot | None:
        """Return the slot that was freed last, or a fresh one; it is still in its pool."""
        pool = self._pool if size_bytes == self._size_bytes else self._pool_of(size_bytes)
        return pool[-1] if pool else self._find(slot_bytes_for(size_bytes))

    def _pool_of(self, size_bytes: int) -> "list[Slot]":
        """Return the free slots of just the size that a payload takes; the next is mostly alike."""
        self._size_bytes = size_bytes
        self._pool = self._pools.setdefault(slot_bytes_for(size_bytes), [])
        return self._pool

    def release(self, reader: Hashable, places: Iterable[tuple[int, int]]) -> None:
        """Drop a reader's claims on slots, each named by arena and offset."""
        claims = self._claims.get(reader) or _Claims()
        for place in places:
            slot = claims.pop(place, None)
            if slot is None:
                self._refuse(place[0])
                continue
            claims.size_bytes -= slot.size_bytes
            self._drop_claim(slot)

    def forget(self, reader: Hashable) -> None:
        """Drop all claims of a reader that is gone; if it may still have views, retire it first."""
        for slot in self._claims.pop(reader, _Claims()).values():
            self._drop_claim(slot)

    def retire(self, reader: Hashable) -> list[int]:
        """Give up the arenas in which a reader has claims, and return their numbers.

        They are never written again, so all views stay as they are. Their memory no longer counts
        here, though it is in use until the last reader unmaps it.
        """
        numbers = sorted({number for number, _ in self._claims.get(reader, ())})
        given_up: dict[tuple[int, int], Slot] = {}
        for claims in self._claims.values():
            for place in [place for place in claims if place[0] in numbers]:
                slot = given_up[place] = claims.pop(place)
                claims.size_bytes -= slot.size_bytes
        self.bytes_in_use -= sum(slot.size_bytes for slot in given_up.values())
        for number in numbers:
            arena = self.arenas.pop(number)
            self._drain(arena)
            arena.close()
        self._retired += len(numbers)
        return numbers

    def claims_of(self, reader: Hashable) -> int:
        """Return how many slots a reader has claims on."""
        return len(self._claims.get(reader, ()))

    def claimed_bytes(self, reader: Hashable) -> int:
        """Return the size of all slots that a reader has claims on."""
        claims = self._claims.get(reader)
        return claims.size_bytes if claims else 0

    def statistics(self) -> StoreStatistics:
        """Count what is held, and what was refused."""
        arenas = self.arenas.values()
        return StoreStatistics(
            arenas=len(arenas),
            bytes_total=self._bytes_total(),
            slots_in_use=len(self._places_in_use()),
            bytes_in_use=self.bytes_in_use,
            refused=self._refused,
            retired=self._retired,
            failed=self._failed,
        )

    def close(self) -> None:
        """Let go of everything; there is no room any more."""
        self._bytes_max = 0
        for arena in self.arenas.values():
            arena.close()
        self.arenas.clear()
        self.bytes_in_use = 0
        for pool in self._pools.values():
            pool.clear()
        self._claims.clear()

    def _places_in_use(self) -> set[tuple[int, int]]:
        return {place for claims in self._claims.values() for place in claims}

    def _drop_claim(self, slot: Slot) -> None:
        slot.claims -= 1
        if not slot.claims:
            self.bytes_in_use -= slot.size_bytes
            slot.pool.append(slot)

    def _find(self, slot_bytes: int) -> Slot | None:
        """Put a free slot of this size, or of the next larger ones, at the end of its pool."""
        return (
            self._carve(slot_bytes)
            or self._borrow(slot_bytes)
            or self._carve_anew(slot_bytes)
            or self._extend(slot_bytes)
        )

    def _carve(self, slot_bytes: int) -> Slot | None:
        for number, arena in self.arenas.items():
            offset = arena.carve(slot_bytes)
            if offset is not None:
                pool = self._pools.setdefault(slot_bytes, [])
                pool.append(Slot(arena, (number, offset), slot_bytes, pool))
                return pool[-1]
        return None

    def _borrow(self, slot_bytes: int) -> Slot | None:
        """Find a slot of up to twice the size."""
        larger_bytes = slot_bytes
        while larger_bytes < 2 * slot_bytes:
            larger_bytes = slot_bytes_for(larger_bytes + 1)
            if pool := self._pools.get(larger_bytes):
                return pool[-1]
        return None

    def _carve_anew(self, slot_bytes: int) -> Slot | None:
        """Cut up an arena again of which no slot is in use."""
        read = {number for number, _ in self._places_in_use()}
        for number, arena in self.arenas.items():
            if number not in read and arena.size_bytes >= slot_bytes:
                self._drain(arena)
                arena.join()
                return self._carve(slot_bytes)
        return None

    def _extend(self, slot_bytes: int) -> Slot | None:
        """Add an arena twice as large as the largest, or as there is room for."""
        room_bytes = min(self._bytes_max - self._bytes_total(), ARENA_BYTES_MAX)
        room_bytes -= room_bytes % SLOT_ALIGNMENT_BYTES
        if slot_bytes > room_bytes:
            return None
        largest_bytes = max((arena.size_bytes for arena in self.arenas.values()), default=0)
        wanted_bytes = max(slot_bytes, 2 * largest_bytes, FIRST_ARENA_BYTES)
        try:
            arena = Arena(min(wanted_bytes, room_bytes))
        except LinkError:
            self._failed += 1
            return None
        self.arenas[self.next_number()] = arena
        return self._carve(slot_bytes)

    def next_number(self) -> int:
        """Number an arena, of ours or of somebody else; no number is used twice."""
        number = self._next_number
        self._next_number = number + 1
        return number

    def _drain(self, arena: Arena) -> None:
        """Take the slots of an arena out of the pools."""
        for pool in self._pools.values():
            pool[:] = [slot for slot in pool if slot.arena is not arena]

    def _refuse(self, number: int) -> None:
        """Count a release that is wrong; for an arena that was given up it is merely late."""
        was_retired = 0 <= number < self._next_number and number not in self.arenas
        if not was_retired:
            self._refused += 1

    def _bytes_total(self) -> int:
        return sum(arena.size_bytes for arena in self.arenas.values())


def is_supported() -> bool:
    """Tell whether this system has sealed shared memory."""
    try:
        Arena(SLOT_ALIGNMENT_BYTES).close()
    except LinkError:
        return False
    return True


def block_bytes(payloads: Sequence[bytes | memoryview]) -> int:
    """Return how much these take together, each beginning with a cache line."""
    sizes = list(map(len, payloads))
    first = sizes[0]
    if len(sizes) == 1:
        return first
    if sizes.count(first) == len(sizes):  # As mostly: images of one camera.
        return _aligned(first) * len(sizes)
    return sum(map(_aligned, sizes))


def _aligned(size_bytes: int) -> int:
    return size_bytes + CACHE_LINE_BYTES - 1 & -CACHE_LINE_BYTES


def slot_bytes_for(size_bytes: int) -> int:
    """Return the size of the slots for a payload: 1 to 8 pages, then four sizes an octave."""
    shift = max((size_bytes - 1).bit_length() - 3, _ALIGNMENT_SHIFT)
    return ((size_bytes - 1 >> shift) + 1) << shift


def create_sealed(size_bytes: int) -> tuple[int, mmap.mmap]:
    """Make a memfd and map it, then seal it, which leaves this as the only writable mapping."""
    if not (hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")):
        raise LinkError("this system has no sealed memfd: send payloads through the socket")
    try:
        fileno = os.memfd_create("hubbub", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fileno, size_bytes)
            memory = mmap.mmap(fileno, size_bytes)
            fcntl.fcntl(fileno, fcntl.F_ADD_SEALS, SEALS)
        except OSError:
            os.close(fileno)
            raise
    except OSError as error:
        raise LinkError(
            f"no arena of {size_bytes} bytes: {error}; send payloads through the socket"
        ) from error
    return fileno, memory
