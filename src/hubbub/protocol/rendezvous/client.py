"""Subscribe, renew, publish: what a node asks of managers, until it is known what came of it.

A subscription is renewed thrice a lease, by way of whoever is closest as we see it, so any mistake
about who manages what ends with the next renewal at the latest. It ends at the manager that holds
it. What was published is kept until the manager has taken it; a manager that dies meanwhile costs
time, not the message.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hubbub.limits import (
    HOP_TIMEOUT,
    JOIN_PATIENCE,
    MS,
    PUBLISH_PATIENCE,
    PUBLISHES_MAX,
    SECOND,
    SERVICE_LEASE,
)
from hubbub.protocol.rendezvous.manager import Manager
from hubbub.protocol.rendezvous.post import Post
from hubbub.protocol.rendezvous.profile import Profile
from hubbub.protocol.rendezvous.seat import NEVER, Delivered, Settled
from hubbub.protocol.rendezvous.seen import Seen
from hubbub.protocol.rendezvous.sequencer import Sequencer
from hubbub.wire.services import (
    ANYCAST,
    LOOPED,
    NOBODY,
    NOTHING,
    PASSED,
    PUBLISH,
    REFUSED,
    RETAIN,
    STALE,
    SUBSCRIBE_SERVICE,
    TAKEN,
    UNAVAILABLE,
    UNKNOWN,
    UNSUBSCRIBE_SERVICE,
    Answer,
    Extra,
    Message,
    Reply,
    Request,
    service_key,
)

NO_ORDER: Final = "none"
FIFO: Final = "fifo"
TOTAL: Final = "total"
ORDERS: Final = (NO_ORDER, FIFO, TOTAL)
_RETRY: Final = 2 * HOP_TIMEOUT
_RESULT_PATIENCE: Final = 1 * SECOND  # For what becomes of a request that was passed on.
_REQUESTS: Final = 1 << 62  # Requests to any one are counted from here on, apart from messages.
_HINT_HOLDS: Final = 5 * SECOND
Done = Callable[[int, Request, Answer | None], None]


@dataclass(slots=True)
class Subscribed:
    """A service that this node has subscribed to: its key, its name and its manager, and more."""

    key: bytes
    name: str
    stamp: int
    flags: int
    order: str
    credentials: bytes
    manager: bytes = NOBODY
    epoch: int = 0
    is_confirmed: bool = False
    is_refused: bool = False
    due_ns: int = 0
    delivered: int = 0
    seen: Seen = field(default_factory=Seen)
    sequencers: dict[tuple[bytes, int], Sequencer[Delivered]] = field(default_factory=dict)
    baseline: int | None = None  # The last number of the manager when we came.


@dataclass(slots=True)
class _Ending:
    """A subscription that is to end."""

    request: Request
    manager: bytes
    due_ns: int
    until_ns: int


@dataclass(slots=True)
class _Published:
    """A message whose end is not known."""

    request: Request
    due_ns: int
    until_ns: int


class Client:
    """What this node wants of services."""

    def __init__(
        self, post: Post, manager: Manager, profile: Profile, *, is_expecting: bool
    ) -> None:
        self.post = post
        self.seat = post.seat
        self.view = post.view
        self.manager = manager
        self.subscribed: dict[bytes, Subscribed] = {}
        self.ready_ns = self.seat.now + JOIN_PATIENCE if is_expecting else 0
        self._patience_ns = max(PUBLISH_PATIENCE, 2 * profile.detection_ns)
        self._ending: dict[bytes, _Ending] = {}
        self._published: dict[tuple[bytes, int], _Published] = {}
        self._sequences: dict[tuple[bytes, int], int] = {}
        self._hints: dict[bytes, tuple[bytes, int]] = {}  # Who manages what, and until when.
        self.due_ns = NEVER

    # Subscribing.

    def subscribe(
        self, now: int, name: str, *, flags: int = 0, order: str = NO_ORDER,
        credentials: bytes = b"",
    ) -> Subscribed:  # fmt: skip
        """Subscribe to a service, and stay subscribed; again: with other options."""
        key = service_key(name)
        self._ending.pop(key, None)
        known = self.subscribed.get(key)
        one = Subscribed(key, name, self.seat.stamp(), flags, order, credentials)
        if known is not None:
            one.manager, one.epoch, one.seen = known.manager, known.epoch, known.seen
        self.subscribed[key] = one
        self._ask(now, one)
        return one

    def unsubscribe(self, now: int, key: bytes) -> None:
        """End a subscription, there where it is held."""
        one = self.subscribed.pop(key, None)
        if one is None:
            return
        message = Message(UNSUBSCRIBE_SERVICE, key)
        request = self._make(message, self.seat.stamp(), 0, one.epoch, one.credentials, "")
        ending = _Ending(request, one.manager, now, now + SERVICE_LEASE)
        self._ending[key] = ending
        self._end(now, ending)

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is under way."""
        return not self._published and not self._ending

    def _ask(self, now: int, one: Subscribed) -> None:
        """Send a SUBSCRIBE_SERVICE to whoever is closest."""
        if not self._is_ready(now):
            one.due_ns = self._plan(self.ready_ns)
            return
        one.due_ns = self._plan(now + _RESULT_PATIENCE + _RETRY)
        message = Message(SUBSCRIBE_SERVICE, one.key)
        request = self._make(message, one.stamp, one.flags, one.epoch, one.credentials, one.name)
        self._send(now, request, self._target(now, one.key), self._asked)

    def _end(self, now: int, ending: _Ending) -> None:
        key = ending.request.message.key
        ending.due_ns = self._plan(now + _RESULT_PATIENCE + _RETRY)
        target = ending.manager if self.view.is_present(ending.manager) else None
        if target == NOBODY or target is None:
            target = self._target(now, key)
        ending.manager = NOBODY  # If it does not answer, the closest is asked.
        self._send(now, ending.request, target, self._asked)

    def _make(
        self, message: Message, sequence: int, flags: int, epoch: int, credentials: bytes,
        name: str,
    ) -> Request:  # fmt: skip
        is_lease = message.type == SUBSCRIBE_SERVICE
        lease = SERVICE_LEASE // MS if is_lease else 0
        extra = Extra(name=name, credentials=credentials) if name or credentials else NOTHING
        node, life = self.seat.node, self.seat.life
        return Request(0, flags, 0, node, life, sequence, epoch, lease, 0, message, extra)

    def _target(self, now: int, key: bytes) -> bytes:
        """Return whom to ask: who was hinted at lately, or whoever is closest."""
        hint, until_ns = self._hints.get(key, (NOBODY, 0))
        if until_ns > now and self.view.is_present(hint):
            return hint
        return self.view.closest_to_ask(key) or self.seat.node

    def _send(self, now: int, request: Request, target: bytes, done: Done) -> None:
        if target == self.seat.node:
            done(now, request, self.manager.take(now, request))
        else:
            self.post.send(now, target, request, lambda at, _, answer: done(at, request, answer))

    def _is_ready(self, now: int) -> bool:
        """Tell whether it is time to act: others are known, or there seem to be none."""
        return now >= self.ready_ns or any(True for _ in self.view.present())

    def _asked(self, now: int, request: Request, answer: Answer | None) -> None:
        """Hear what a node says to a subscription, or to the end of one."""
        key, type = request.message.key, request.message.type
        if answer is None:
            self._again(now, key, type, request.sequence)
            return
        if answer.status == PASSED:
            self._hint(now, key, answer.manager)
            return  # The result comes by itself, or it is asked again.
        self.settle(now, key, type, request.sequence, answer)

    def _again(self, now: int, key: bytes, type: int, stamp: int) -> None:
        """Ask again soon."""
        self._hints.pop(key, None)
        one, ending = self.subscribed.get(key), self._ending.get(key)
        if type == SUBSCRIBE_SERVICE and one is not None and one.stamp == stamp:
            one.due_ns = self._plan(now + _RETRY)
        elif ending is not None and ending.request.sequence == stamp:
            ending.due_ns = self._plan(now + _RETRY)

    def settle(self, now: int, key: bytes, type: int, sequence: int, answer: Answer) -> None:
        """Hear from the manager what became of a request."""
        if type == PUBLISH:
            self._settle_publish(now, key, sequence, answer)
        elif type == SUBSCRIBE_SERVICE:
            self._settle_subscribe(now, key, sequence, answer)
        else:
            ending = self._ending.get(key)
            if ending is None or ending.request.sequence != sequence:
                return
            if answer.status in (TAKEN, UNAVAILABLE, REFUSED):
                del self._ending[key]
            else:
                self._again(now, key, type, sequence)

    def _settle_subscribe(self, now: int, key: bytes, stamp: int, answer: Answer) -> None:
        one = self.subscribed.get(key)
        if one is None or one.stamp != stamp:
            return
        if answer.status == TAKEN:
            self._confirm(now, one, answer)
        elif answer.status == STALE:
            one.stamp = max(self.seat.stamp(), answer.number + 1)
            self._ask(now, one)
        elif answer.status == REFUSED:
            one.is_refused = True
            one.due_ns = self._plan(now + SERVICE_LEASE)
            self.seat.settled.append(Settled(key, stamp, REFUSED, 0))
        else:
            self._again(now, key, SUBSCRIBE_SERVICE, stamp)

    def _confirm(self, now: int, one: Subscribed, answer: Answer) -> None:
        one.is_refused = False
        one.is_confirmed = True
        if answer.epoch >= one.epoch:
            one.manager, one.epoch = answer.manager, answer.epoch
        if one.baseline is None:
            one.baseline = answer.number
            if one.order == TOTAL:
                self._sequencer(one, (NOBODY, 0)).begin(answer.number + 1)
        third = SERVICE_LEASE // 3
        one.due_ns = self._plan(now + int(third * (0.9 + 0.2 * self.seat.random.random())))

    def manager_changed(
        self, now: int, key: bytes, sender: bytes, manager: bytes, epoch: int
    ) -> None:
        """Hear of a new manager of a service; what is old, or from anybody, is not believed."""
        one = self.subscribed.get(key)
        if one is None:
            return
        is_newer = epoch > one.epoch or (
            epoch == one.epoch and self.view.is_closer(key, manager, one.manager)
        )
        is_known = sender == one.manager or not self.view.is_present(one.manager)
        if is_newer and (is_known or self.view.is_closer(key, manager, one.manager)):
            one.manager, one.epoch = manager, epoch
        else:
            self.seat.counters["changes_ignored"] += 1

    def members_changed(self, now: int) -> None:
        """Subscribe anew where the manager is gone, and look again where messages go."""
        for one in self.subscribed.values():
            if one.is_confirmed and not self.view.is_present(one.manager):
                one.is_confirmed = False
                one.due_ns = self._plan(now + int(self.seat.random.random() * _RETRY))
        for key in [k for k, (node, _) in self._hints.items() if not self.view.is_present(node)]:
            del self._hints[key]
        for published in self._published.values():
            published.due_ns = self._plan(min(published.due_ns, now + _RETRY))

    def resubscribe(self, now: int) -> None:
        """Subscribe anew everywhere: we were taken for dead, and struck off."""
        for one in self.subscribed.values():
            one.stamp = self.seat.stamp()
            one.is_confirmed = False
            one.due_ns = self._plan(now)

    def _hint(self, now: int, key: bytes, manager: bytes) -> None:
        if manager not in (NOBODY, self.seat.node):
            self._hints[key] = (manager, now + _HINT_HOLDS)

    # Publishing.

    def publish(
        self, now: int, name: str, payload: bytes, *, flags: int = 0, credentials: bytes = b""
    ) -> int | None:
        """Publish a message; return its number, or None: too many are under way."""
        if not self.has_room:
            return None
        key = service_key(name)
        first = _REQUESTS if flags & ANYCAST else 0
        sequence = self._sequences.get((key, first), first) + 1
        self._sequences[key, first] = sequence
        request = self._make(
            Message(PUBLISH, key, payload), sequence, flags, 0, credentials,
            name if flags & RETAIN else "",
        )  # fmt: skip
        published = _Published(request, now, now + self._patience_ns)
        self._published[key, sequence] = published
        self._try(now, published)
        return sequence

    @property
    def has_room(self) -> bool:
        """Tell whether one more message may be under way."""
        return len(self._published) < PUBLISHES_MAX

    def _try(self, now: int, published: _Published) -> None:
        """Send a message to the manager."""
        if not self._is_ready(now):
            published.due_ns = self._plan(self.ready_ns)
            return
        published.due_ns = NEVER  # Until it is acknowledged, or given up.
        key = published.request.message.key
        self._send(now, published.request, self._target(now, key), self._tried)

    def _tried(self, now: int, request: Request, answer: Answer | None) -> None:
        key = request.message.key
        published = self._published.get((key, request.sequence))
        if published is None:
            return
        if answer is None:
            self._hints.pop(key, None)
            published.due_ns = self._plan(now + _RETRY)
        elif answer.status == PASSED:
            self._hint(now, key, answer.manager)
            published.due_ns = self._plan(now + _RESULT_PATIENCE)
        else:
            self._settle_publish(now, key, request.sequence, answer)

    def _settle_publish(self, now: int, key: bytes, sequence: int, answer: Answer) -> None:
        published = self._published.get((key, sequence))
        if published is None:
            return
        is_asking = published.request.flags & ANYCAST
        if answer.status == TAKEN and is_asking:
            published.due_ns = self._plan(published.until_ns)  # The reply is the end of it.
        elif answer.status in (TAKEN, UNAVAILABLE, REFUSED):
            self._finish(key, sequence, answer.status, answer.number)
        else:
            if answer.status == LOOPED:
                self._hints.pop(key, None)
            published.due_ns = self._plan(now + _RETRY)

    def _finish(
        self, key: bytes, sequence: int, status: int, number: int, payload: bytes | None = None
    ) -> None:
        del self._published[key, sequence]
        self.seat.settled.append(Settled(key, sequence, status, number, payload))

    def take_reply(self, now: int, reply: Reply) -> None:
        """Take the answer of the member that a request came to."""
        if (reply.key, reply.sequence) in self._published:
            self._finish(reply.key, reply.sequence, TAKEN, 1, reply.payload)

    def reply(self, now: int, info: Request, payload: bytes) -> None:
        """Answer a request that came to us as to any one member."""
        reply = Reply(info.message.key, info.sequence, payload)
        if info.origin == self.seat.node:
            self.take_reply(now, reply)
        else:
            self.post.tell(now, info.origin, reply, place=info.extra.place)

    # Messages.

    def deliver(self, now: int, info: Request) -> Answer:
        """Take a message of a service; twice it is taken once."""
        one = self.subscribed.get(info.message.key)
        if one is None:
            ending = self._ending.get(info.message.key)
            stamp = self.seat.stamp() if ending is None else ending.request.sequence
            return Answer(info.hop, UNKNOWN, 0, stamp)
        is_kept = bool(info.flags & RETAIN)
        is_request = bool(info.flags & ANYCAST)
        # Requests are numbered apart, so they have a window of their own.
        origin = (info.origin, info.incarnation ^ is_request)
        if (is_kept and one.delivered) or not one.seen.is_new(origin, info.sequence):
            self.seat.counters["duplicates"] += 1
            return Answer(info.hop, TAKEN)
        delivered = Delivered(
            one.key, one.name, info.message.rest, info.origin, info.incarnation, info.sequence,
            info.order, is_kept, info if is_request else None,
        )  # fmt: skip
        if one.order == NO_ORDER or is_kept or delivered.answer is not None:
            self._hand_out(one, [delivered])
        else:
            self._put_in_order(now, one, delivered, info)
        return Answer(info.hop, TAKEN)

    def deliver_bare(self, now: int, message: Message, sender: bytes) -> None:
        """Take a message of the first version, which cannot be told from a copy of it."""
        one = self.subscribed.get(message.key)
        if one is not None:
            delivered = Delivered(one.key, one.name, message.rest, sender, 0, 0, 0, False, None)
            self._hand_out(one, [delivered])

    def _put_in_order(self, now: int, one: Subscribed, delivered: Delivered, info: Request) -> None:
        is_fifo = one.order == FIFO
        origin = (info.origin, info.incarnation) if is_fifo else (NOBODY, 0)
        number = info.sequence if is_fifo else info.order
        sequencer = self._sequencer(one, origin)
        self._hand_out(one, sequencer.push(now, number, delivered))
        self._plan(sequencer.due_ns)

    def _sequencer(self, one: Subscribed, origin: tuple[bytes, int]) -> Sequencer[Delivered]:
        sequencer = one.sequencers.get(origin)
        if sequencer is None:
            sequencer = one.sequencers[origin] = Sequencer()
            if len(one.sequencers) > PUBLISHES_MAX:
                del one.sequencers[next(iter(one.sequencers))]
        return sequencer

    def _hand_out(self, one: Subscribed, items: list[Delivered]) -> None:
        one.delivered += len(items)
        self.seat.deliveries.extend(items)

    # Time.

    def _plan(self, due_ns: int) -> int:
        self.due_ns = min(self.due_ns, due_ns)
        return due_ns

    def advance(self, now: int) -> None:
        """Renew, and ask again what was not answered."""
        if now < self.due_ns:
            return
        self.due_ns = NEVER
        for one in list(self.subscribed.values()):
            if one.due_ns <= now:
                self._ask(now, one)
            for sequencer in one.sequencers.values():
                self._hand_out(one, sequencer.advance(now))
                self._plan(sequencer.due_ns)
        for key, ending in list(self._ending.items()):
            if ending.until_ns <= now:
                del self._ending[key]
            elif ending.due_ns <= now:
                self._end(now, ending)
        self._advance_published(now)
        self._plan_all()

    def _advance_published(self, now: int) -> None:
        for (key, sequence), published in list(self._published.items()):
            if published.until_ns <= now:
                self._finish(key, sequence, PASSED, 0)  # Nobody said what became of it.
            elif published.due_ns <= now:
                self._try(now, published)

    def _plan_all(self) -> None:
        for one in self.subscribed.values():
            self._plan(one.due_ns)
        for ending in self._ending.values():
            self._plan(min(ending.due_ns, ending.until_ns))
        for published in self._published.values():
            self._plan(min(published.due_ns, published.until_ns))
