"""Requests and notices to other nodes, by id: where they are is looked up here."""

from collections.abc import Callable

from hubbub.protocol.rendezvous.bare import say
from hubbub.protocol.rendezvous.group import Group
from hubbub.protocol.rendezvous.hops import Done, Hops
from hubbub.protocol.rendezvous.seat import Place, Seat
from hubbub.protocol.rendezvous.view import View
from hubbub.wire.header import NOTICE, SERVICE
from hubbub.wire.services import (
    LEAVING,
    TAKEN,
    Answer,
    Message,
    Notice,
    Request,
    encode_message,
    encode_notice,
)


def ignore(now: int, node: bytes, answer: Answer | None) -> None:
    """Leave it at that, whatever became of a frame."""


class Post:
    """Sends to nodes what they acknowledge."""

    def __init__(self, seat: Seat, view: View, hops: Hops, group: Group) -> None:
        self.seat = seat
        self.view = view
        self.hops = hops
        self.group = group

    def send(
        self, now: int, node: bytes, request: Request, done: Done, place: Place | None = None
    ) -> None:
        """Send a request to one node."""
        self.send_all(now, [(node, place)], request, done)

    def send_all(
        self, now: int, targets: list[tuple[bytes, Place | None]], request: Request, done: Done
    ) -> None:
        """Send the same request to some nodes."""
        if self.seat.is_leaving:
            request = request._replace(flags=request.flags | LEAVING)
        found = [(node, self.view.place_of(node) or place) for node, place in targets]
        reached = [(node, place) for node, place in found if place is not None]
        if self.seat.is_first_version and self._say(now, reached, request, done):
            reached = []
        if reached:
            self.group.post(now, reached, request, done)
        for node, place in found:
            if place is None:
                done(now, node, None)

    def _say(
        self, now: int, targets: list[tuple[bytes, Place]], request: Request, done: Done
    ) -> bool:
        """Send a request as the first version did, if it could say it."""
        messages = say(request, self.seat.node)
        if messages is None:
            return False
        for node, place in targets:
            for message in messages:
                self.send_bare(place, message)
            # Nobody will tell what became of it: it is taken for granted.
            done(now, node, Answer(0, TAKEN, request.epoch, 0, node))
        return True

    def is_bare(self, request: Request) -> bool:
        """Tell whether a request goes as the first version sent it."""
        return self.seat.is_first_version and say(request, self.seat.node) is not None

    def send_made(self, now: int, node: bytes, make: Callable[[int], bytes], done: Done) -> None:
        """Send one node a request whose body somebody makes for its number."""
        member = self.view.members.get(node)
        if member is None:
            done(now, node, None)
        else:
            self.hops.post(now, ((node, member.place),), SERVICE, make, done)

    def tell(
        self, now: int, node: bytes, notice: Notice, done: Done = ignore,
        place: Place | None = None,
    ) -> None:  # fmt: skip
        """Send a notice to one node."""
        place = self.view.place_of(node) or place
        if place is None:
            done(now, node, None)
        else:
            self.hops.post(
                now, [(node, place)], NOTICE, lambda hop: encode_notice(hop, notice), done
            )

    def send_bare(self, place: Place, message: Message) -> None:
        """Send a message as the first version did."""
        self.seat.counters["sent_bare"] += 1
        self.seat.out.append((place, encode_message(message)))
