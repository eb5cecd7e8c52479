"""Bring a message to the subscribers of a service: straight, or by a tree of those who pass it on.

Each node answers for what it received, and the one above it repeats, or goes round it. A request to
any one member goes to one after the other, until one has taken it.
"""

from collections.abc import Callable
from typing import Final

from hubbub.limits import DIRECT_FAN_OUT
from hubbub.protocol.rendezvous.fanout import Branch, cut, plan, plan_below
from hubbub.protocol.rendezvous.hops import Done
from hubbub.protocol.rendezvous.listing import Line
from hubbub.protocol.rendezvous.post import Post
from hubbub.protocol.rendezvous.seat import Place
from hubbub.protocol.rendezvous.service import Service
from hubbub.protocol.rendezvous.view import State
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
Lane = tuple[bytes, int, bytes, str]  # Of whom, in which life, in which service, on what subject.
_PASSED_ON_MAX: Final = 4096


class Spread:
    """Sends messages of services on."""

    def __init__(self, post: Post, gone: Gone) -> None:
        self.post = post
        self.seat = post.seat
        self._gone = gone
        self._passed_on: dict[tuple[Lane, int, bytes], None] = {}
        post.hops.late = self._late

    def send(self, now: int, lines: list[Line], info: Request) -> None:
        """Send a message to all subscribers but ourselves."""
        for line in lines:
            if line.flags & BARE and line.place is not None:
                self._send_bare(line.place, info)
        others = {line.node: line for line in lines if not line.flags & BARE}
        others.pop(self.seat.node, None)
        nodes = list(others)
        is_many = len(nodes) > DIRECT_FAN_OUT
        straight = set(self._unknown(nodes)) if is_many else set()
        known = [node for node in nodes if node not in straight] if straight else nodes
        branches = plan(self.order(known) if is_many else known)
        branches += [(node, []) for node in straight]
        single = [(node, others[node].place) for node, below in branches if not below]
        if single:
            self.post.send_all(now, single, info, self.done(info))
        self._send_branches(now, [branch for branch in branches if branch[1]], info)

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

    def is_new(self, info: Request) -> bool:
        """Tell whether a frame is to be passed on: not when it comes again.

        There may be several of one message, each of which names others.
        """
        lane = (info.origin, info.incarnation, info.message.key, info.extra.subject)
        mark = (lane, info.sequence, b"".join(info.extra.nodes))
        if mark in self._passed_on:
            return False
        self._passed_on[mark] = None
        if len(self._passed_on) > _PASSED_ON_MAX:
            del self._passed_on[next(iter(self._passed_on))]
        return True

    def pass_on(self, now: int, info: Request, below: list[bytes]) -> None:
        """Pass a message on to those below us in the tree."""
        nodes = self.order([*dict.fromkeys(below)])  # Who is named twice would follow itself.
        self._send_branches(now, plan_below(nodes, is_part=bool(info.hops)), info)

    def order(self, nodes: list[bytes]) -> list[bytes]:
        """Put those last who do not answer, or cannot be reached: they are to pass nothing on."""
        members, silent = self.post.view.members, self.post.hops.silent
        last = {
            node
            for node in nodes
            if node in silent or node not in members or members[node].state is not State.ALIVE
        }
        return sorted(nodes, key=last.__contains__) if last else nodes

    def _send_branches(self, now: int, branches: list[Branch], info: Request) -> None:
        followers: dict[bytes, bytes] = {}
        for node, below in branches:
            frames = cut(below)
            for nodes in frames:
                charge = Charge(self, info, nodes, followers, is_part=len(frames) > 1)
                self.leave_to(now, node, charge)

    def leave_to(self, now: int, node: bytes, charge: "Charge") -> None:
        """Send a message to one who is to pass it on, if there is anybody below it."""
        info, below = charge.info, charge.below
        place, subject = info.extra.place, info.extra.subject
        is_plain = not below and not subject
        extra = NOTHING if is_plain else Extra(place=place, nodes=below, subject=subject)
        hops = int(charge.is_part and bool(below))
        self.post.send(now, node, info._replace(hops=hops, extra=extra), charge)

    def _late(self, now: int, node: bytes, done: Done) -> None:
        """Hear that a node does not acknowledge a frame in time."""
        if isinstance(done, Charge):
            done.go_round(now, node)

    def done(self, info: Request) -> Done:
        """Return what is to be done once it is known what became of a message at a node."""
        return lambda now, node, answer: self.take_answer(now, info, node, answer)

    def take_answer(self, now: int, info: Request, node: bytes, answer: Answer | None) -> None:
        """Hear what became of a message at a node."""
        if answer is not None and answer.status == UNKNOWN:
            self._gone(now, info.message.key, node, answer.number, info.extra.subject)
        elif answer is not None and answer.number == HEARS_GROUP:
            self.post.group.believe(now, node)

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


class Charge:
    """A message at the head of a branch, and those to whom it is to pass it on.

    A head that does not answer in time may have lost the frame, its answer may be lost, or it
    stands still. Whichever it is, those below it do not wait: the next of them takes its place, and
    who has the message twice takes it once. One more node is sent to for each that is late, not one
    for each below it, so that what is lost here and there costs little.
    """

    def __init__(
        self, spread: Spread, info: Request, below: list[bytes], followers: dict[bytes, bytes], *,
        is_part: bool,
    ) -> None:  # fmt: skip
        self.info = info
        self.below = below
        self.is_part = is_part  # Of what the head has to pass on: it leaves it to one of them.
        self._spread = spread
        self._followers = followers  # Who took whose place, in all frames of the message.
        self._is_round = False

    def __call__(self, now: int, node: bytes, answer: Answer | None) -> None:
        """Hear what became of it."""
        if answer is None:
            self.go_round(now, node)
        self._spread.take_answer(now, self.info, node, answer)

    def go_round(self, now: int, node: bytes) -> None:
        """Leave those below a node to another one, once."""
        spread, followers = self._spread, self._followers
        if self._is_round or all(spread.post.view.place_of(one) is None for one in self.below):
            return
        self._is_round = True
        spread.seat.counters["branches_repaired"] += 1
        if node not in followers:
            followers[node] = spread.order(self.below)[0]
        while node in followers:
            node = followers[node]
        rest = [one for one in self.below if one != node]
        charge = Charge(spread, self.info, rest, followers, is_part=self.is_part)
        spread.leave_to(now, node, charge)


def make_info(epoch: int, request: Request, order: int, extra: Extra | None = None) -> Request:
    """Make the message for subscribers of one that was published."""
    if extra is None:
        subject = request.extra.subject
        extra = Extra(subject=subject) if subject else NOTHING
    message = Message(INFO, request.message.key, request.message.rest)
    return request._replace(hops=0, epoch=epoch, order=order, message=message, extra=extra)
