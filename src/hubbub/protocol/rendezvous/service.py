"""One service at one node: what it is to us, its list, and what is under way for it."""

from dataclasses import dataclass, field

from hubbub.limits import (
    HELD_REQUESTS_BYTES_MAX,
    HELD_REQUESTS_MAX,
    ORDER_LEAP,
    SERVICE_EPOCH_LEAP,
    SERVICE_EPOCH_TOLD_MAX,
    SERVICE_NUMBER_TOLD_MAX,
)
from hubbub.protocol.rendezvous.listing import Listing
from hubbub.protocol.rendezvous.refusals import Refusals
from hubbub.protocol.rendezvous.roles import Happening, Role, follow
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.protocol.rendezvous.seen import Seen
from hubbub.wire.services import Entry, Kept, Request, encode_extra

SERVED = (Role.MANAGING, Role.HANDING)


@dataclass(slots=True)
class HandOver:
    """A list on its way to the next manager."""

    target: bytes
    epoch: int
    until_ns: int


@dataclass(slots=True)
class Pull:
    """A search for the list among those who come next."""

    waiting: set[bytes]
    asked: set[bytes]
    until_ns: int
    wider_ns: int = NEVER  # Then others are asked in place of those who say nothing.
    patience_ns: int = 0  # Until when those are waited for who may all be dead with the list.
    unsure: set[bytes] = field(default_factory=set)  # Who knows nothing, but came lately itself.


@dataclass(slots=True)
class Arriving:
    """A list that comes in parts."""

    sender: bytes
    epoch: int
    count: int  # Of the parts, as announced.
    parts: dict[int, list[Entry]] = field(default_factory=dict)
    is_taken: bool = False  # And the parts are let go.


class Service:
    """What a node knows of a service that it manages, did, or may have to."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.name = ""
        self.role = Role.ABSENT
        self.epoch = 0
        self.order = 0  # The number of the last message that was handed on.
        self.listing = Listing()
        self.seen = Seen()
        self.refusals = Refusals()
        self.kept: Kept | None = None
        self.kept_until_ns = 0
        self.held: list[Request] = []
        self.held_bytes = 0
        self.manager: bytes | None = None  # Who sends us copies, or was handed the list.
        self.manager_life = 0
        self.until_ns = NEVER  # When a copy, or the grace of a forwarder, ends.
        self.retry_ns = 0  # No hand-over is tried before this.
        self.hand_over: HandOver | None = None
        self.pull: Pull | None = None
        self.arriving: Arriving | None = None
        self.copies: dict[bytes, bool] = {}  # Who holds one, and whether it needs all of it.
        self.copy_ns = NEVER
        self.copied_ns = 0  # When our list was last the same as that of the manager.
        self.turn = 0  # Of the members that answer requests.

    @property
    def is_served(self) -> bool:
        """Tell whether this node is the manager."""
        return self.role in SERVED

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to look after."""
        return not self.listing.count and self.kept is None

    def happen(self, happening: Happening) -> bool:
        """Follow the table of roles; True: the role has changed."""
        before, self.role = self.role, follow(self.role, happening)
        return self.role is not before

    def hold(self, request: Request) -> bool:
        """Hold a request until the list is there; False: that would be too many."""
        size_bytes = len(request.message.rest) + len(encode_extra(request.extra))
        is_too_much = self.held_bytes + size_bytes > HELD_REQUESTS_BYTES_MAX
        if is_too_much or len(self.held) >= HELD_REQUESTS_MAX:
            return False
        self.held.append(request)
        self.held_bytes += size_bytes
        return True

    def release(self) -> list[Request]:
        """Return all that was held, and hold it no more."""
        held, self.held, self.held_bytes = self.held, [], 0
        return held

    def catch_up(self, epoch: int, order: int = 0) -> bool:
        """Go on from what another manager has counted; False: it leaps, and we follow in part.

        One frame with the highest epoch there is would leave no other for who comes next.
        """
        epoch_max = min(self.epoch + SERVICE_EPOCH_LEAP, SERVICE_EPOCH_TOLD_MAX)
        order_max = min(self.order + SERVICE_EPOCH_LEAP * ORDER_LEAP, SERVICE_NUMBER_TOLD_MAX)
        self.epoch = max(self.epoch, min(epoch, epoch_max))
        self.order = max(self.order, min(order, order_max))
        return epoch <= epoch_max and order <= order_max

    @property
    def due_ns(self) -> int:
        """Return when there is something to do for it."""
        due_ns = min(self.until_ns, self.copy_ns)
        if self.is_served:
            due_ns = min(due_ns, self.listing.expires_ns)
        if self.hand_over is not None:
            due_ns = min(due_ns, self.hand_over.until_ns)
        if self.pull is not None:
            due_ns = min(due_ns, self.pull.until_ns, self.pull.wider_ns)
        if self.kept is not None:
            due_ns = min(due_ns, self.kept_until_ns)
        return due_ns
