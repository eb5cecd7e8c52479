"""HOT. Payloads of other writers, handed on to readers of ours where they lie, without a copy.

A gateway reads in one network what it writes in another, and any node may publish what it received.
What came by reference lies in memory of its writer, which readers beyond can map as we did (also
the writer itself): that arena is offered to them under a number of ours. We hold the lease of a
slot until all of them have given it back; then its writer gets it.

Invariant: a slot that somebody beyond may still read is never given back, so it is never written.
- Who dies reads no more, so its claims end. Who lives while its pipe ends may go on reading: its
  claims stay, under another name, until it gives back (by its ring, without a pipe) or dies.
- If we die, the writer gives up the arenas that we have claims in (depot.py), and never writes them
  again. It must know for that: only a writer that says it does so is handed on from, and only after
  we have told it that we hand on. For the same reason nobody may hand on what was handed on.
- If the writer dies, or gives up an arena, nobody writes there any more.

What is held beyond counts at the writer as held by us. So it is bounded, and whatever goes beyond
the bounds is copied: a reader that stops keeps some slots of the writer, and no more. When a writer
gives an arena up because of that, all we hold there is given back at once: it stays as it is.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import repeat
from typing import Final

from hubbub.links.arena import SLOT_ALIGNMENT_BYTES
from hubbub.links.mapping import Lease, Mapping

ONWARD_BYTES_MAX: Final = 64 << 20  # Of all readers, and
READER_BYTES_MAX: Final = 16 << 20  # of one: twice what a writer has in use while all get on.
READER_SLOTS_MAX: Final = 4096
ARENAS_MAX: Final = 24  # A reader maps only so many of one peer, and then takes none at all.

Place = tuple[int, int]  # Arena and offset of a slot.
Parts = tuple[int, int, list[tuple[int, int]]]  # Arena, slot, and offset and size of each payload.
NOTHING: Final[Parts] = (-1, 0, [])


class _Claims(dict[Place, Lease]):
    """What one reader has been given, by place; a lease ends with the last claim on it."""

    __slots__ = ("again", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.again: dict[Place, int] = {}  # How often more: a frame each, and each is given back.


class Onward:
    """The ledger of what was handed on. The caller has the lock."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        self._next_number = next_number
        self.arenas: dict[int, Mapping] = {}  # Of others, by our number.
        self._numbers: dict[Mapping, int] = {}
        self._claims: dict[bytes, _Claims] = {}
        self.bytes_in_use = 0  # What several readers have counts several times.
        self.messages = 0

    def put(self, payloads: Sequence[bytes | memoryview], readers: Collection[bytes]) -> Parts:
        """Let readers have payloads where they lie, as many from the first on as share a slot.

        None of them: they do not lie so, or too much of what does is held beyond.
        """
        whole = _whole_of(payloads[0])
        mapping = None if whole is None else whole.mapping
        if whole is None or mapping is None:
            return NOTHING
        if not mapping.may_be_handed_on:
            mapping.want_to_hand_on()
            return NOTHING
        # Who gives back names whole pages.
        if whole.offset % SLOT_ALIGNMENT_BYTES:
            return NOTHING
        places = list(_places_in(whole, payloads))
        number = self._numbers.get(mapping)
        if number is None:
            if len(self.arenas) >= ARENAS_MAX:
                return NOTHING
            number = self._enter(mapping)
        size_bytes, place = whole.size_bytes, (number, whole.offset)
        is_too_much = self.bytes_in_use + len(readers) * size_bytes > ONWARD_BYTES_MAX
        if not places or is_too_much or not all(map(self._has_room, readers, repeat(size_bytes))):
            return NOTHING
        for reader in readers:
            claims = self._claims[reader]
            if place in claims:
                claims.again[place] = claims.again.get(place, 0) + 1
            claims[place] = whole
            claims.size_bytes += size_bytes
            self.bytes_in_use += size_bytes
        self.messages += len(places)
        return number, whole.offset, places

    def _has_room(self, reader: bytes, size_bytes: int) -> bool:
        claims = self._claims.get(reader)
        if claims is None:
            claims = self._claims[reader] = _Claims()
        is_room = claims.size_bytes + size_bytes <= READER_BYTES_MAX
        return is_room and len(claims) < READER_SLOTS_MAX

    def _enter(self, mapping: Mapping) -> int:
        number = self._numbers[mapping] = self._next_number()
        self.arenas[number] = mapping
        mapping.ledgers.add(self)
        return number

    def release(self, reader: bytes, places: list[Place]) -> list[Place]:
        """Drop a reader's claims, and return the places that it had none on here."""
        claims = self._claims.get(reader)
        if not claims:
            return places
        others: list[Place] = []
        size_bytes = 0
        for place in places:
            more = claims.again.pop(place, 0) if claims.again else 0
            if more > 1:
                claims.again[place] = more - 1
            lease = claims.get(place) if more else claims.pop(place, None)
            if lease is None:
                others.append(place)
            else:
                size_bytes += lease.size_bytes
        claims.size_bytes -= size_bytes
        self.bytes_in_use -= size_bytes
        return others

    def forget(self, reader: bytes) -> None:
        """Drop all claims of a reader that is dead."""
        claims = self._claims.pop(reader, None)
        if claims is not None:
            self.bytes_in_use -= claims.size_bytes

    def rename(self, reader: bytes, name: bytes) -> list[int]:
        """Keep the claims of a reader that lives, though its pipe has ended, under this name.

        Return the arenas that it has claims in: their numbers are not used again, for it may come
        back, and we would read again what it gave back before.
        """
        claims = self._claims[name] = self._claims.pop(reader)
        numbers = {number for number, _ in claims}
        return [number for number in sorted(numbers) if self.retire(number)]

    def retire(self, number: int) -> bool:
        """Offer an arena no more under this number; False: it was not any more."""
        mapping = self.arenas.pop(number, None)
        if mapping is not None:
            del self._numbers[mapping]
        return mapping is not None

    def given_up(self) -> list[int]:
        """Return the arenas that their writers have given up, or left behind."""
        return [number for number, one in self.arenas.items() if not one.may_be_handed_on]

    def claims_of(self, reader: bytes) -> int:
        """Return how many slots a reader has claims on."""
        return len(self._claims.get(reader, ()))

    def leases(self) -> list[Lease]:
        """Return all that is held."""
        return [lease for claims in list(self._claims.values()) for lease in list(claims.values())]


def _whole_of(payload: bytes | memoryview) -> Lease | None:
    """Return the lease of the slot that a payload lies in; None: it lies in none."""
    lease = payload.obj if type(payload) is memoryview else None
    if type(lease) is not Lease:
        return None
    return lease if lease.whole is None else lease.whole


def _places_in(whole: Lease, payloads: Sequence[bytes | memoryview]) -> Iterator[tuple[int, int]]:
    """Say where payloads lie, as long as they lie in this slot and are all that was put there."""
    for payload in payloads:
        lease = payload.obj if type(payload) is memoryview else None
        if type(lease) is not Lease or (lease is not whole and lease.whole is not whole):
            return
        if len(payload) != lease.size_bytes:
            return
        yield lease.offset, lease.size_bytes
