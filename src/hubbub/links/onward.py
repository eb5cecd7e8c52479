"""HOT. Payloads of other writers, handed on to readers of ours where they lie, without a copy.

A gateway reads in one network what it writes in another. What came by reference lies in memory of
its writer, which readers beyond can map as we did: that arena is offered to them under a number of
ours. We hold the lease of a slot until all of them have given it back; then its writer gets it.

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

from collections.abc import Callable, Collection
from typing import Final

from hubbub.links.arena import SLOT_ALIGNMENT_BYTES
from hubbub.links.mapping import Lease, Mapping

ONWARD_BYTES_MAX: Final = 64 << 20  # Of all readers, and
READER_BYTES_MAX: Final = 16 << 20  # of one: twice what a writer has in use while all get on.
READER_SLOTS_MAX: Final = 4096
ARENAS_MAX: Final = 24  # A reader maps only so many of one peer, and then takes none at all.

Place = tuple[int, int]  # Arena and offset.


class _Claims(dict[Place, Lease]):
    """What one reader has been given, by place; a lease ends with the last claim on it."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class Onward:
    """The ledger of what was handed on. The caller has the lock."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        self._next_number = next_number
        self.arenas: dict[int, Mapping] = {}  # Of others, by our number.
        self._numbers: dict[Mapping, int] = {}
        self._claims: dict[bytes, _Claims] = {}
        self.bytes_in_use = 0  # What several readers have counts several times.
        self.messages = 0

    def put(self, payload: bytes | memoryview, readers: Collection[bytes]) -> Place | None:
        """Let readers have a payload where it lies; None: it is not such a one, or too much is."""
        lease = payload.obj if type(payload) is memoryview else None
        mapping = lease.mapping if type(lease) is Lease else None
        if mapping is None or not mapping.may_be_handed_on:
            return None
        assert isinstance(lease, Lease)
        size_bytes, offset = lease.size_bytes, lease.offset
        # Who gives back names whole pages.
        if len(payload) != size_bytes or offset % SLOT_ALIGNMENT_BYTES:
            return None
        number = self._numbers.get(mapping)
        if number is None:
            if len(self.arenas) >= ARENAS_MAX:
                return None
            number = self._enter(mapping)
        if self.bytes_in_use + len(readers) * size_bytes > ONWARD_BYTES_MAX:
            return None
        place = number, offset
        for reader in readers:
            if not self._may_have(reader, place, size_bytes):
                return None
        for reader in readers:
            claims = self._claims[reader]
            claims[place] = lease
            claims.size_bytes += size_bytes
            self.bytes_in_use += size_bytes
        self.messages += 1
        return place

    def _may_have(self, reader: bytes, place: Place, size_bytes: int) -> bool:
        claims = self._claims.get(reader)
        if claims is None:
            claims = self._claims[reader] = _Claims()
        return (
            place not in claims
            and claims.size_bytes + size_bytes <= READER_BYTES_MAX
            and len(claims) < READER_SLOTS_MAX
        )

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
            lease = claims.pop(place, None)
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
