"""Bring a message to the subscribers of a service: straight, or by a tree of those who pass it on.

Each node answers for what it received, and the one above it repeats, or goes round it. A request to
any one member goes to one after the other, until one has taken it.
"""

from collections.abc import Callable, Sequence

from hubbub.limits import DIRECT_FAN_OUT
from hubbub.protocol.rendezvous.fanout import Branch, plan, plan_below
from hubbub.protocol.rendezvous.listing import Line
from hubbub.protocol.rendezvous.post import Post
from hubbub.protocol.rendezvous.seat import Place
from hubbub.protocol.rendezvous.service import Service
from hubbub.wire.services import (
    ANSWERS,
    BARE,
    HEARS_GROUP,
    INFO,
    NOTHING,
    TAKEN,
    UNKNOWN,
    Answer,
    Extra,
    Message,
    Request,
)

Gone = Callable[[int, bytes, bytes, int, str], None]  # Somebody has forgotten that it subscribed.


class Spread:
    """Sends messages of services on."""

    def __init__(self, post: Post, gone: Gone) -> None:
        self.post = post
        self.seat = post.seat
        self._gone = gone

    def send(self, now: int, lines: list[Line], info: Request) -> None:
        """Send a message to all subscribers but ourselves."""
        for line in lines:
            if line.flags & BARE and line.place is not None:
                self._send_bare(line.place, info)
        others = {line.node: line for line in lines if not line.flags & BARE}
        others.pop(self.seat.node, None)
        nodes = list(others)
        straight = self._unknown(nodes) if len(nodes) > DIRECT_FAN_OUT else []
        branches = plan([node for node in nodes if node not in straight] if straight else nodes)
        branches += [(node, []) for node in straight]
        single = [(node, others[node].place) for node, below in branches if not below]
        if single:
            self.post.send_all(now, single, info, self.done(info))
        for branch in branches:
            if branch[1]:
                self._send_branch(now, branch, info)

    def _unknown(self, nodes: list[bytes]) -> list[bytes]:
        """Return who is in nobody's view, as guests are: only we know where they can be reached."""
        view = self.post.view
        return [node for node in nodes if not view.is_present(node)]

    def _send_bare(self, place: Place, info: Request) -> None:
        for payload in info.payloads:
            if payload:
                self.post.send_bare(place, info.message._replace(rest=payload))
            else:  # The first version refuses a message that has none.
                self.seat.counters["empty_for_first_version"] += 1

    def pass_on(self, now: int, info: Request, below: list[bytes]) -> None:
        """Pass a message on to those below us in the tree."""
        for branch in plan_below(below):
            self._send_branch(now, branch, info)

    def _send_branch(self, now: int, branch: Branch, info: Request) -> None:
        node, below = branch
        place, subject = info.extra.place, info.extra.subject
        is_plain = not below and not subject
        extra = NOTHING if is_plain else Extra(place=place, nodes=below, subject=subject)
        self.post.send(now, node, info._replace(extra=extra), self.done(info, below))

    def done(
        self, info: Request, below: Sequence[bytes] = ()
    ) -> Callable[[int, bytes, Answer | None], None]:
        """Return what is to be done once it is known what became of a message at a node."""

        def done(now: int, node: bytes, answer: Answer | None) -> None:
            if answer is None and below:
                self.seat.counters["branches_repaired"] += 1
                for branch in plan_below(list(below)):
                    self._send_branch(now, branch, info)
            if answer is not None and answer.status == UNKNOWN:
                self._gone(now, info.message.key, node, answer.number, info.extra.subject)
            elif answer is not None and answer.number == HEARS_GROUP:
                self.post.group.believe(now, node)

        return done

    def ask_one(
        self, now: int, service: Service, info: Request, own: Callable[[], bool],
        failed: Callable[[int], None],
    ) -> None:  # fmt: skip
        """Bring a request to one member that answers such, trying one after the other."""
        lines = [line for line in service.listing if line.flags & ANSWERS]
        service.turn += 1
        start = service.turn % len(lines) if lines else 0
        waiting = lines[start:] + lines[:start]

        def try_next(now: int) -> None:
            while waiting:
                line = waiting.pop(0)
                if line.node != self.seat.node:
                    self.post.send(now, line.node, info, done, line.place)
                    return
                if own():
                    return
            failed(now)

        def done(now: int, node: bytes, answer: Answer | None) -> None:
            if answer is None or answer.status != TAKEN:
                try_next(now)

        try_next(now)


def make_info(epoch: int, request: Request, order: int, extra: Extra | None = None) -> Request:
    """Make the message for subscribers of one that was published."""
    if extra is None:
        subject = request.extra.subject
        extra = Extra(subject=subject) if subject else NOTHING
    message = Message(INFO, request.message.key, request.message.rest)
    return request._replace(hops=0, epoch=epoch, order=order, message=message, extra=extra)
