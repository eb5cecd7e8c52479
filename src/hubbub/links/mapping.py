"""A reader's side of an arena: views of another process's payloads that say when they are gone.

A view is exported by a lease, and whatever is made of it, a slice or a numpy array, keeps that
lease alive; when the last one goes, the lease tells that its slot may be returned. Why not a
weak reference to the view: it dies while its slices live, and they would change under the reader.

The writer is not trusted. An arena that it could still shrink would kill who reads it (SIGBUS), so
the seals come first, then the size, which is final once it is sealed, and only then the mapping.

A lease is a ctypes array of the largest length, placed at the slot and cut to the payload, because
a type for each length takes 60 us to make. Its elements are unions, because these give a view the
format "B"; `c_ubyte` gives "<B", which cannot be indexed and compares 80 times slower. The mapping
is made by the C library: `mmap` tells no address of read-only memory and keeps a descriptor open.

Measured: a lease takes 0.6 us and 0.3 us to go, whatever its size.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from hubbub.errors import LinkError
from hubbub.links.arena import ARENA_BYTES_MAX, SEALS

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FAILED: Final = ctypes.c_void_p(-1).value


class ArenaRefused(LinkError):
    """What a peer offers as an arena could harm who maps it."""


class Released(Protocol):
    """Takes the places of slots that nobody reads any more, in any thread."""

    def append(self, place: tuple[int, int], /) -> None:
        """Take one, arena and offset."""


class Ledger(Protocol):
    """Knows what readers of ours were given."""

    def leases(self) -> "list[Lease]":
        """Return all that is held."""


class Mapping:
    """An arena of another process, mapped to be read; it takes the descriptor over."""

    def __init__(
        self,
        number: int,
        fileno: int,
        size_bytes: int,
        released: Released,
        *,
        keeps_descriptor: bool = False,
        want: Callable[[], None] | None = None,
    ) -> None:
        self.number = number
        self.size_bytes = size_bytes
        self.released = released
        # Leased and not yet released. Leases end without a lock, so it may be off by a few.
        self.pinned_bytes = 0
        # Who has given what of it to readers of ours (onward.py), whether that may be, and the
        # descriptor that they are given.
        self.ledgers: set[Ledger] = set()
        self.may_be_handed_on = False
        self._want = want  # Says once that somebody would like to.
        self.fileno = -1
        if keeps_descriptor:
            with contextlib.suppress(OSError):  # Without one more, payloads are copied.
                self.fileno = os.dup(fileno)
        try:
            self._pages: _Pages | None = map_sealed(fileno, size_bytes)
        except BaseException:
            self._close_descriptor()
            raise

    def want_to_hand_on(self) -> None:
        """Say that payloads could be handed on, if the writer knew of it."""
        want, self._want = self._want, None
        if want is not None:
            want()

    def adopt(self, fileno: int) -> None:
        """Take the descriptor over that readers of ours are given, or close it.

        It need not lead to this very memory: its writer can write there whatever it likes anyway,
        and readers check what they are given as we do.
        """
        if self.fileno >= 0 or self._pages is None:
            os.close(fileno)
        else:
            self.fileno = fileno

    def lease_all(self, slot: int, places: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return read-only views of ranges that it `holds`, all of one slot.

        The slot is appended to `released` when the last view, or what was made of it, has gone.
        """
        lease = self._lease(slot, places)
        if len(places) == 1 and places[0][0] == slot:
            return [_view(lease)]
        if not self.may_be_handed_on:
            whole = _view(lease)
            return [whole[at - slot : at - slot + size_bytes] for at, size_bytes in places]
        # Who hands on must know where each of them lies, which a slice does not tell.
        return [_view(self._part(lease, *place)) for place in places]

    def _lease(self, slot: int, places: Sequence[tuple[int, int]]) -> "Lease":
        pages = self._pages
        assert pages is not None
        lease = _lease_at(pages.address + slot)
        lease.pages = pages
        lease.offset = slot
        lease.size_bytes = sum(places[-1]) - slot
        lease.whole = None
        self.pinned_bytes += lease.size_bytes
        lease.mapping = self
        return lease

    @staticmethod
    def _part(whole: "Lease", offset: int, size_bytes: int) -> "Lease":
        part = _lease_at(whole.pages.address + offset)
        part.mapping = None
        part.whole = whole
        part.offset = offset
        part.size_bytes = size_bytes
        return part

    def read_all(self, slot: int, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return copies of ranges that it `holds`, and release their slot at once."""
        pages = self._pages
        assert pages is not None
        payloads = [ctypes.string_at(pages.address + at, size_bytes) for at, size_bytes in places]
        self.released.append((self.number, slot))
        return payloads

    def retire(self) -> None:
        """Give back at once what readers of ours have: it is never written again."""
        self.may_be_handed_on = False
        self._close_descriptor()
        for lease in self._handed_on():
            lease.give_back()

    def close(self) -> None:
        """Grant no more leases; the memory goes with the last view of it.

        What readers of ours have is not given back: they may still read it.
        """
        self._pages = None
        self.may_be_handed_on = False
        self._close_descriptor()
        for lease in self._handed_on():
            lease.mapping = None
        self.ledgers.clear()

    def _handed_on(self) -> list["Lease"]:
        held = [lease for ledger in tuple(self.ledgers) for lease in ledger.leases()]
        return [lease for lease in held if lease.mapping is self]

    def _close_descriptor(self) -> None:
        fileno, self.fileno = self.fileno, -1
        if fileno >= 0:
            os.close(fileno)

    def holds(self, offset: int, size_bytes: int) -> bool:
        """Tell whether all of a range can be read."""
        is_inside = size_bytes > 0 and 0 <= offset <= self.size_bytes - size_bytes
        return is_inside and self._pages is not None


class _Pages:
    """Mapped memory, for as long as a mapping or a lease refers to it."""

    __slots__ = ("_size_bytes", "address")
    _munmap = _libc.munmap  # Still there when the interpreter exits and the module is empty.

    def __init__(self, address: int, size_bytes: int) -> None:
        self.address = address
        self._size_bytes = size_bytes

    def __del__(self) -> None:
        self._munmap(self.address, self._size_bytes)


class Byte(ctypes.Union):
    """A byte, of which views have the format "B"."""

    _fields_ = (("value", ctypes.c_ubyte),)


class Lease(ctypes.Array[Byte]):
    """A claim on a slot. It may end in any thread, inside the collector and at the very last."""

    _type_ = Byte
    _length_ = ARENA_BYTES_MAX
    __slots__ = ("mapping", "offset", "pages", "size_bytes", "whole")
    __hash__ = object.__hash__  # Or views of it had no hash, unlike those of `bytes`.

    mapping: Mapping | None  # None: nothing is to be given back any more.
    pages: _Pages
    offset: int
    size_bytes: int
    whole: "Lease | None"  # Of the slot that this is a part of, which goes with the last of them.

    def give_back(self) -> None:
        """Tell that the slot is not needed any more; a second call does nothing."""
        # Ctrl-C may come before a lease is filled in.
        mapping = getattr(self, "mapping", None)
        if mapping is not None:
            self.mapping = None
            mapping.released.append((mapping.number, self.offset))
            mapping.pinned_bytes -= self.size_bytes

    __del__ = give_back


def lasts(payload: object) -> bool:
    """Tell whether this is all of a payload that came by reference: nobody writes what is held."""
    if type(payload) is not memoryview:
        return False
    lease = payload.obj
    is_whole = type(lease) is Lease and len(payload) == lease.size_bytes
    return is_whole and payload.format == "B" and payload.c_contiguous


_lease_at: Final = Lease.from_address


def _view(lease: Lease) -> memoryview:
    return memoryview(lease)[: lease.size_bytes].toreadonly()


def map_sealed(fileno: int, size_bytes: int) -> _Pages:
    """Map what a peer shares, if it cannot harm us; the descriptor is closed in any case."""
    try:
        _check(fileno, size_bytes)
        return _map(fileno, size_bytes)
    finally:
        os.close(fileno)


def _check(fileno: int, size_bytes: int) -> None:
    if not 0 < size_bytes <= ARENA_BYTES_MAX:
        raise ArenaRefused(f"arena of {size_bytes} bytes: must be from 1 to {ARENA_BYTES_MAX}")
    try:
        seals = fcntl.fcntl(fileno, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ArenaRefused(f"arena is no memfd: {error}") from error
    if seals & SEALS != SEALS:
        raise ArenaRefused(f"arena has seals {seals:#x}: must have all of {SEALS:#x}")
    actual_bytes = os.fstat(fileno).st_size
    if actual_bytes != size_bytes:
        raise ArenaRefused(f"arena has {actual_bytes} bytes: must have {size_bytes} as announced")


def _map(fileno: int, size_bytes: int) -> _Pages:
    address = _libc.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, fileno, 0)
    if address == _MAP_FAILED:
        raise ArenaRefused(f"arena cannot be mapped: {os.strerror(ctypes.get_errno())}")
    return _Pages(address, size_bytes)
