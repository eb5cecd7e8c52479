"""Whom to ask for a service, and asking: what subscribing and publishing have in common."""

from collections.abc import Callable
from typing import Final

from hubbub.limits import JOIN_PATIENCE, MS, SECOND, SERVICE_LEASE
from hubbub.protocol.rendezvous.manager import Manager
from hubbub.protocol.rendezvous.post import Post
from hubbub.wire.services import (
    NOBODY,
    NOTHING,
    SUBSCRIBE_SERVICE,
    Answer,
    Extra,
    Message,
    Request,
)

_HINT_HOLDS: Final = 5 * SECOND
Done = Callable[[int, Request, Answer | None], None]


class Asking:
    """Sends the requests of this node to whoever is to have them."""

    def __init__(self, post: Post, manager: Manager, *, is_expecting: bool) -> None:
        self.post = post
        self.seat = post.seat
        self.view = post.view
        self.ready_ns = self.seat.now + JOIN_PATIENCE if is_expecting else 0
        self._manager = manager
        self.take = manager.take
        self.everywhere = manager.everywhere
        self.hints: dict[bytes, tuple[bytes, int]] = {}  # Who manages what, and until when.

    def is_ready(self, now: int) -> bool:
        """Tell whether it is time to act: others are known, or there seem to be none."""
        return now >= self.ready_ns or bool(self.view.present())

    def make(
        self, message: Message, sequence: int, flags: int = 0, epoch: int = 0,
        extra: Extra = NOTHING,
    ) -> Request:  # fmt: skip
        """Make a request of this node."""
        is_lease = message.type == SUBSCRIBE_SERVICE
        lease = SERVICE_LEASE // MS if is_lease else 0
        node, life = self.seat.node, self.seat.life
        return Request(0, flags, 0, node, life, sequence, epoch, lease, 0, message, extra)

    def target(self, now: int, key: bytes) -> bytes:
        """Return whom to ask: who was hinted at lately, or whoever is closest."""
        hint, until_ns = self.hints.get(key, (NOBODY, 0))
        if until_ns > now and self.view.is_present(hint):
            return hint
        return self.view.closest_to_ask(key) or self.seat.node

    def send(self, now: int, request: Request, target: bytes, done: Done) -> None:
        """Send a request; to ourselves it takes no frame."""
        if target == self.seat.node:
            done(now, request, self._manager.take(now, request))
        else:
            self.post.send(now, target, request, lambda at, _, answer: done(at, request, answer))

    def hint(self, now: int, key: bytes, manager: bytes) -> None:
        """Note who is said to manage a service."""
        if manager not in (NOBODY, self.seat.node):
            self.hints[key] = (manager, now + _HINT_HOLDS)

    def forget_hint(self, key: bytes) -> None:
        """Ask whoever is closest again."""
        self.hints.pop(key, None)

    def members_changed(self) -> None:
        """Forget the hints at those who are gone."""
        for key in [k for k, (node, _) in self.hints.items() if not self.view.is_present(node)]:
            del self.hints[key]
