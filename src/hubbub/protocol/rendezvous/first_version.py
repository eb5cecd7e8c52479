"""What comes bare, in the words of the first version: who sent it is known by its address alone.

Who is no member has an id that is derived from its address. A member that was not known as one when
it subscribed would have two lines, so one that is derived becomes the member's when it is known.

The first version numbers nothing. Who takes a bare message from its publisher counts for it, each
service apart, in an incarnation that nobody else counts in: stamps would do for at most once, but
those who ask for order would wait for all the numbers between two of them.
"""

from collections.abc import Callable
from typing import Final

from hubbub.limits import BARE_PUBLISHERS_MAX, SERVICE_LEASE
from hubbub.protocol.rendezvous.client import Client
from hubbub.protocol.rendezvous.handover import BARE_EPOCH
from hubbub.protocol.rendezvous.listing import Line
from hubbub.protocol.rendezvous.manager import Manager
from hubbub.protocol.rendezvous.seat import Place
from hubbub.protocol.rendezvous.service import Service
from hubbub.protocol.rendezvous.swim import Swim
from hubbub.protocol.rendezvous.view import Member
from hubbub.wire.services import (
    BARE,
    CHANGE_SERVICE_MANAGER,
    INFO,
    NODE_BYTES,
    PUBLISH,
    Extra,
    Message,
    Request,
    node_key,
    split_ids,
)

_LIFE_BITS: Final = (1 << 64) - 1


def stranger_at(place: Place) -> bytes:
    """Return the id of who is at a place and is no member."""
    return node_key(repr(place).encode())[:NODE_BYTES]


class FirstVersion:
    """Those who send bare messages, as this node knows them."""

    def __init__(
        self, manager: Manager, client: Client, swim: Swim, follow: Callable[[int], None]
    ) -> None:
        self._manager = manager
        self._client = client
        self._swim = swim
        self._follow = follow  # Lets the others know who has come and gone.
        self._seat = manager.seat
        self._view = manager.view
        # Who published in which service: its incarnation, and the last number. Who was heard last
        # is last.
        self._counts: dict[tuple[bytes, bytes], tuple[int, int]] = {}
        self._begun = 0

    def take(self, now: int, message: Message, place: Place) -> None:
        """Take a bare message."""
        member = self._view.at(place)
        node = stranger_at(place) if member is None else member.node
        if message.type == INFO:
            self._client.deliver_bare(now, message, node)
        elif message.type == CHANGE_SERVICE_MANAGER:
            self._change(now, node, message)
        elif message.type == PUBLISH:
            incarnation, number = self._count(node, message.key)
            extra = Extra(place=place)
            request = Request(0, BARE, 0, node, incarnation, number, 0, 0, 0, message, extra)
            self._manager.take(now, request)
        else:
            self._ask(now, message, place, node, member)

    def _ask(
        self, now: int, message: Message, place: Place, node: bytes, member: Member | None
    ) -> None:
        """Take a subscription, or the end of one; who stamps nothing itself is never late."""
        flags, incarnation = (BARE, 0) if member is None else (0, member.incarnation)
        stamp = max(self._seat.stamp(), self._manager.stamp_after(message.key, node), incarnation)
        life, extra = self._seat.life, Extra(place=place)
        request = Request(0, flags, 0, node, life, stamp, 0, 0, 0, message, extra)
        self._manager.take(now, self.recognise(now, request))

    def _count(self, node: bytes, key: bytes) -> tuple[int, int]:
        """Return the incarnation and the number of the next message of one who counts nothing."""
        incarnation, last = self._counts.pop((node, key), (0, 0))
        if not last:
            self._begun += 1
            # Even steps: the lowest bit tells requests from messages.
            incarnation = self._seat.life + 2 * self._begun & _LIFE_BITS
        self._counts[node, key] = (incarnation, last + 1)
        if len(self._counts) > BARE_PUBLISHERS_MAX:
            del self._counts[next(iter(self._counts))]
        return incarnation, last + 1

    def _change(self, now: int, node: bytes, message: Message) -> None:
        manager, _ = split_ids(message.rest)
        if manager == self._seat.node:
            if self._view.is_closer(message.key, node, manager):
                self._swim.note_leaving(now, node)  # Why else should it give a list away?
                self._follow(now)
            request = Request(0, BARE, 0, node, 0, 0, BARE_EPOCH, 0, 0, message, Extra())
            self._manager.take_list(now, node, request)
        else:
            one = self._client.subscribed.get(message.key)
            epoch = 1 if one is None else one.epoch + 1
            self._client.manager_changed(now, message.key, node, manager, epoch)

    # Strangers that are members.

    def recognise(self, now: int, request: Request) -> Request:
        """Return a subscription, or the end of one, as that of the member at its place.

        It may have come bare to a node that does not know the member, and be passed on by that one.
        """
        place = request.extra.place
        member = self._view.at(place) if place is not None and request.flags & BARE else None
        if member is not None:
            stamp = max(request.sequence, member.incarnation)
            flags = request.flags & ~BARE
            request = request._replace(origin=member.node, flags=flags, sequence=stamp)
        if place is not None and not request.flags & BARE:
            self._forget_stranger(now, request.message.key, place)
        return request

    def _forget_stranger(self, now: int, key: bytes, place: Place) -> None:
        """End the line that was derived from the place of a member, which speaks for itself."""
        service = self._manager.services.get(key)
        is_held = service is not None and service.is_served and service.listing.special
        if service is not None and is_held and service.listing.drop(now, stranger_at(place)):
            self._manager.copies.changed(now, service)

    def adopt(self, now: int, member: Member) -> None:
        """Give the lines of whoever was at the place of a member to it: that was the member."""
        stranger = stranger_at(member.place)
        for service in self._manager.services.values():
            if service.is_served and service.listing.special:
                line = service.listing.find(stranger)
                if line is not None:
                    self._give(now, service, line, member)

    def _give(self, now: int, service: Service, line: Line, member: Member) -> None:
        listing = service.listing
        before = listing.lines.get(member.node)
        listing.drop(now, line.node)
        if before is None or before.stamp < line.stamp:  # Else it has ended, or is there already.
            stamp = max(line.stamp, member.incarnation)
            listing.subscribe(now, member.node, stamp, 0, member.place, SERVICE_LEASE)
        self._manager.copies.changed(now, service)
