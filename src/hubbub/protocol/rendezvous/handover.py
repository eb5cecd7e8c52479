"""The list goes to another manager in two steps, so that there is one at every moment.

The old manager sends the whole list, in parts, and goes on serving. When the new one says that it
has all of it, that one is the manager; the old one tells the subscribers, sends what has changed
meanwhile, and passes on what still comes to it. If nothing is said in time, the old one stays.
"""

from collections.abc import Callable
from typing import Final

from hubbub.limits import (
    FORWARDER_GRACE,
    HAND_OVER_PATIENCE,
    HAND_OVER_RETRY,
    LIST_PART_ENTRIES,
    LIST_PARTS_MAX,
    ORDER_LEAP,
)
from hubbub.protocol.rendezvous.post import Post, ignore
from hubbub.protocol.rendezvous.roles import Happening
from hubbub.protocol.rendezvous.service import Arriving, HandOver, Service
from hubbub.wire.services import (
    BARE,
    CHANGE_SERVICE_MANAGER,
    NOBODY,
    Copy,
    Entry,
    Extra,
    ListTaken,
    Message,
    Request,
    join_ids,
    split_ids,
)

BARE_EPOCH: Final = 1  # The first version counts none.


class HandOvers:
    """Gives lists away, and takes them."""

    def __init__(
        self, post: Post, begin: Callable[[int, Service], object],
        tell_own: Callable[[int, bytes, bytes, bytes, int], None],
    ) -> None:  # fmt: skip
        self.post = post
        self.seat = post.seat
        self.view = post.view
        self._begin = begin  # What is to be done once the list is here.
        self._tell_own = tell_own  # Told of a new manager: the client of this node.

    def catch_up(self, service: Service, epoch: int, order: int = 0) -> None:
        """Go on from what another has counted; what leaps is counted as dropped."""
        if not service.catch_up(epoch, order):
            self.seat.drops["leap"] += 1

    def believe(self, service: Service, manager: bytes) -> None:
        """Take another node, in the life it has now, for the manager."""
        member = self.view.members.get(manager)
        service.manager, service.manager_life = manager, 0 if member is None else member.life

    def is_alive(self, service: Service) -> bool:
        """Tell whether the manager that we know of is there, in the same life."""
        member = self.view.members.get(service.manager or NOBODY)
        if member is None or not member.is_present:
            return False
        return not service.manager_life or member.life == service.manager_life

    # Giving.

    def start(self, now: int, service: Service, target: bytes) -> None:
        """Send the list to a closer node."""
        assert service.happen(Happening.CLOSER_CAME)
        epoch = service.epoch + 1
        service.hand_over = HandOver(target, epoch, now + HAND_OVER_PATIENCE)
        service.listing.changed.clear()
        if service.kept is not None:
            self.post.tell(now, target, service.kept)
        entries = service.listing.entries()
        parts = [
            entries[at : at + LIST_PART_ENTRIES]
            for at in range(0, len(entries) or 1, LIST_PART_ENTRIES)
        ][:LIST_PARTS_MAX]
        for part, some in enumerate(parts):
            extra = Extra(
                name=service.name, part=part, parts=len(parts), entries=some,
                last_order=service.order,
            )  # fmt: skip
            request = self._change(service, target, epoch, some, extra)
            if self.post.is_bare(request):
                service.hand_over.epoch = BARE_EPOCH
            self.post.send(now, target, request, ignore)

    def _change(
        self, service: Service, manager: bytes, epoch: int, entries: list[Entry], extra: Extra
    ) -> Request:
        ids = join_ids(manager, [entry.node for entry in entries if entry.is_in])
        message = Message(CHANGE_SERVICE_MANAGER, service.key, ids)
        node, life = self.seat.node, self.seat.life
        return Request(0, 0, 0, node, life, self.seat.stamp(), epoch, 0, 0, message, extra)

    def finish(self, now: int, node: bytes, taken: ListTaken, service: Service) -> None:
        """Hear that the new manager has the list."""
        hand_over = service.hand_over
        if hand_over is None or hand_over.target != node or hand_over.epoch != taken.offered:
            return
        assert service.happen(Happening.HANDED)
        service.hand_over = None
        self.catch_up(service, taken.epoch)
        self.believe(service, node)
        service.copied_ns = now
        service.until_ns = now + FORWARDER_GRACE
        service.copies.clear()
        self._send_late(now, service, node)
        self.announce(now, service, node)

    def pass_late(self, now: int, service: Service) -> None:
        """Pass on to its manager what came of a list from somebody else."""
        if service.manager is not None:
            self._send_late(now, service, service.manager)

    def _send_late(self, now: int, service: Service, node: bytes) -> None:
        """Send what has changed since the list was."""
        listing = service.listing
        late = listing.entries(sorted(listing.changed))
        listing.changed.clear()
        for at in range(0, len(late), LIST_PART_ENTRIES):
            copy = Copy(
                service.key, service.name, service.epoch, service.order, listing.count,
                listing.digest, True, late[at : at + LIST_PART_ENTRIES],
            )  # fmt: skip
            self.post.tell(now, node, copy)

    def announce(self, now: int, service: Service, manager: bytes) -> None:
        """Tell all subscribers who manages the service now."""
        request = self._change(service, manager, service.epoch, [], Extra())
        others = [line for line in service.listing if line.node not in (self.seat.node, manager)]
        told = [(line.node, line.place) for line in others if not line.flags & BARE]
        self.post.send_all(now, told, request, ignore)
        for line in others:
            if line.flags & BARE and line.place is not None:
                self.post.send_bare(line.place, request.message)
        self._tell_own(now, service.key, self.seat.node, manager, service.epoch)

    def give_up(self, now: int, service: Service, happening: Happening) -> None:
        """Stay the manager: the other did not take the list, or is gone."""
        service.hand_over = None
        service.retry_ns = now + HAND_OVER_RETRY
        service.happen(happening)
        service.copy_ns = min(service.copy_ns, now)

    # Taking.

    def take(self, now: int, sender: bytes, request: Request, service: Service) -> None:
        """Take a part of a list; with the last one this node manages the service."""
        extra, epoch = request.extra, request.epoch
        if extra.part >= extra.parts:
            self.seat.drops["part"] += 1
            return
        arriving = self._find_arriving(sender, request, service)
        if arriving is None:
            return  # Of an earlier try.
        if not arriving.is_taken:
            is_bare = request.flags & BARE
            ids = split_ids(request.message.rest)[1] if is_bare else []
            arriving.parts[extra.part] = self._read_bare(ids) if is_bare else extra.entries
            if len(arriving.parts) < arriving.count:
                return
            self._commit(now, service, request, arriving)
        self.post.tell(now, sender, ListTaken(service.key, epoch, service.epoch))

    def _find_arriving(self, sender: bytes, request: Request, service: Service) -> Arriving | None:
        """Return the list that a part belongs to; None: to one that is sent again already."""
        epoch, count, known = request.epoch, request.extra.parts, service.arriving
        if known is not None and known.sender == sender and not request.flags & BARE:
            if known.epoch > epoch:
                return None
            # The same epoch is offered again if nobody said in time that it was taken.
            if (known.epoch, known.count) == (epoch, count):
                return known
        # Of bare lists one cannot be told from the next, so each counts.
        service.arriving = Arriving(sender, epoch, count)
        return service.arriving

    def _read_bare(self, nodes: list[bytes]) -> list[Entry]:
        """Make lines of ids: as old as those nodes are, so that whatever they say counts more."""
        members = [(node, self.view.members.get(node)) for node in nodes]
        return [
            Entry(node, self.seat.stamp() if one is None else one.incarnation, True)
            for node, one in members
        ]

    def _commit(self, now: int, service: Service, request: Request, arriving: Arriving) -> None:
        was_manager = service.is_served
        for entries in arriving.parts.values():
            service.listing.merge(now, entries)
        arriving.is_taken = True
        arriving.parts.clear()
        service.listing.renew_all(now)
        service.name = service.name or request.extra.name
        epoch, before = request.epoch, service.epoch
        self.catch_up(service, epoch, request.extra.last_order)
        service.epoch = max(service.epoch, before + 1)
        # The other goes on numbering until it hears that we have the list, or managed beside us.
        service.order += ORDER_LEAP
        service.happen(Happening.LISTED)
        self._begin(now, service)
        if was_manager or service.epoch != epoch:
            self.announce(now, service, self.seat.node)
        else:
            self._tell_own(now, service.key, arriving.sender, self.seat.node, service.epoch)
