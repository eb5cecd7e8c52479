"""What is wanted of every service there is: patterns that begin with a wildcard.

No manager can be found by such a pattern, so every node is told of it, and keeps a list of its own:
whoever manages a service, or would, adds those who want its messages. Newcomers are told as they
come, everybody again thrice a lease. That costs a frame for each node and pattern-bearing node, and
what nobody else wants is sent all the same; patterns that begin with a name cost one manager.
"""

from collections.abc import Sequence
from typing import Final

from hubbub.limits import HOP_TIMEOUT, MS, SERVICE_LEASE
from hubbub.protocol.rendezvous.listing import Line, Listing
from hubbub.protocol.rendezvous.post import Post
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.wire.services import (
    NO_LOCAL,
    STALE,
    SUBSCRIBE_SERVICE,
    UNSUBSCRIBE_SERVICE,
    Answer,
    Extra,
    Message,
    Request,
    service_key,
)

EVERYWHERE: Final = service_key("")  # No service has this name.
_RETRY: Final = 2 * HOP_TIMEOUT


class Everywhere:
    """What others want of all services, and what we do."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.seat = post.seat
        self.listing = Listing()  # Of all nodes, this one included.
        self.patterns: tuple[str, ...] = ()
        self.due_ns = NEVER
        self._stamp = 0
        self._renew_ns = NEVER
        self._told: set[bytes] = set()  # Who was told of our patterns, in this third of a lease.

    # Ours.

    def want(self, now: int, patterns: Sequence[str]) -> None:
        """Want what matches these, and nothing else, whatever service it is in."""
        self.patterns = tuple(patterns)
        self._stamp = self.seat.stamp()
        self.take(now, self._request())
        self._renew(now)

    def _renew(self, now: int) -> None:
        self._told.clear()
        self.tell(now)
        self._renew_ns = NEVER
        if self.patterns:
            self.take(now, self._request())
            self._renew_ns = now + SERVICE_LEASE // 3
            self._plan(self._renew_ns)

    def tell(self, now: int) -> None:
        """Tell those who have not heard yet."""
        if not self._stamp:
            return
        for member in self.post.view.present():
            if member.node not in self._told:
                self._told.add(member.node)
                self.post.send(now, member.node, self._request(), self._answered)

    def _request(self) -> Request:
        kind = SUBSCRIBE_SERVICE if self.patterns else UNSUBSCRIBE_SERVICE
        extra = Extra(patterns=list(self.patterns))
        node, life, lease = self.seat.node, self.seat.life, SERVICE_LEASE // MS
        message = Message(kind, EVERYWHERE)
        return Request(0, NO_LOCAL, 0, node, life, self._stamp, 0, lease, 0, message, extra)

    def _answered(self, now: int, node: bytes, answer: Answer | None) -> None:
        if answer is None:
            self._told.discard(node)
            self._plan(now + _RETRY)
        elif answer.status == STALE:  # It knows a later life of ours than we do.
            self._stamp = max(self.seat.stamp(), answer.number + 1)
            self._told.discard(node)
            self._plan(now + _RETRY)

    # Others'.

    def take(self, now: int, request: Request) -> Answer:
        """Take what a node wants everywhere, or no more."""
        listing, origin, stamp = self.listing, request.origin, request.sequence
        if request.message.type == UNSUBSCRIBE_SERVICE:
            status = listing.unsubscribe(now, origin, stamp)
        else:
            lease_ns = request.lease_ms * MS or SERVICE_LEASE
            status, _ = listing.subscribe(
                now, origin, stamp, request.flags, request.extra.place, lease_ns,
                request.extra.patterns,
            )  # fmt: skip
            self._plan(listing.expires_ns)
        number = listing.lines[origin].stamp if status == STALE else 0
        return Answer(request.hop, status, 0, number, self.seat.node)

    def wanting(self, subject: str) -> list[Line]:
        """Return who wants a subject whatever service it is in."""
        return self.listing.wanting(subject) if subject and self.listing.count else []

    def missing(self, now: int, subject: str) -> list[Line]:
        """Return who would want a subject, was struck off lately, and may come back."""
        return self.listing.missing(now, subject) if subject else []

    def drop(self, now: int, node: bytes, stamp: int) -> None:
        """Strike off one who is gone, or has forgotten that it wanted anything."""
        line = self.listing.find(node)
        if line is not None and line.stamp <= stamp and node != self.seat.node:
            self.listing.drop(now, node, is_absent=self.post.view.is_dead(node))

    # Time.

    def _plan(self, due_ns: int) -> None:
        self.due_ns = min(self.due_ns, due_ns)

    def advance(self, now: int) -> None:
        """Tell again, and strike off who did not."""
        if now < self.due_ns:
            return
        self.due_ns = self._renew_ns
        if now >= self._renew_ns:
            self._renew(now)
        else:
            self.tell(now)
        self.listing.expire(now)
        self._plan(self.listing.expires_ns)
