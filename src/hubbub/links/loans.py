"""Memory that is lent to who publishes, in the slot where its readers will find it (decision 50).

A draft is a slot that somebody writes into before it is a message. The writer itself has a claim on
it (arena.py) until the draft goes; once published it is read-only, and whatever keeps the payload
(a stream, a subscription of this process) keeps the draft, and so the slot, as a view of a reader
keeps its lease (mapping.py). It goes in any thread, also inside the collector, where no lock may be
taken: so it only leaves its slot in a queue, which the depot looks through when it needs room.

A draft lies at an address inside the mapping of its arena and keeps that mapping from being closed:
a node that ends, or gives the arena up, lets go of it, and the memory goes with the last draft.
"""

import ctypes
from collections import deque
from typing import Any, Final

from hubbub.links.arena import ARENA_BYTES_MAX, Slot
from hubbub.links.mapping import Byte

LOANS_BYTES_MAX: Final = 64 << 20  # Of one node on one channel; beyond it memory is not shared.


class Draft(ctypes.Array[Byte]):
    """A slot that is lent; `memoryview(draft)` reaches further than its payload, `view` does not.

    It has the largest length, as leases have, because a type for each takes 60 us to make.
    """

    _type_ = Byte
    _length_ = ARENA_BYTES_MAX
    __slots__ = ("anchor", "returned", "size_bytes", "slot")
    __hash__ = object.__hash__

    anchor: ctypes.c_char  # Keeps the mapping open.
    returned: "deque[Slot]"
    size_bytes: int
    slot: Slot

    def __del__(self) -> None:
        returned = getattr(self, "returned", None)  # Ctrl-C may come before it is filled in.
        if returned is not None:
            returned.append(self.slot)

    def view(self) -> memoryview:
        """Return the payload, to be written."""
        return memoryview(self)[: self.size_bytes]

    def finish(self) -> memoryview:
        """Return the payload, to be read."""
        return self.view().toreadonly()


def draft_at(slot: Slot, size_bytes: int, returned: "deque[Slot]") -> Draft:
    """Lend a slot that has the writer's claim; it is appended to `returned` when it is over."""
    anchor = ctypes.c_char.from_buffer(slot.arena.memory, slot.place[1])
    draft = Draft.from_address(ctypes.addressof(anchor))
    draft.anchor = anchor
    draft.size_bytes = size_bytes
    draft.slot = slot
    draft.returned = returned
    return draft


def draft_of(payload: bytes | memoryview) -> Draft | None:
    """Return the draft that a payload is all of; None: it is another one, or a part."""
    if type(payload) is not memoryview:
        return None
    draft: Any = payload.obj
    is_whole = type(draft) is Draft and len(payload) == draft.size_bytes
    return draft if is_whole else None
