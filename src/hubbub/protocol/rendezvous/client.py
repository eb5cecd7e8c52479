"""Subscribe, renew, receive: what a node wants of services, and what comes of it.

A subscription is renewed thrice a lease, by way of whoever is closest as we see it, so any mistake
about who manages what ends with the next renewal at the latest. It ends at the manager that holds
it. What is published is the business of `publishing`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hubbub.limits import SERVICE_LEASE, SERVICE_REQUESTS_MAX
from hubbub.protocol.rendezvous.asking import Asking
from hubbub.protocol.rendezvous.everywhere import EVERYWHERE
from hubbub.protocol.rendezvous.publishing import RESULT_PATIENCE, RETRY, Publishing
from hubbub.protocol.rendezvous.seat import NEVER, Delivered, ManagerNamed, Settled
from hubbub.protocol.rendezvous.seen import Origin, Seen, is_all_new
from hubbub.protocol.rendezvous.sequencers import Sequencers
from hubbub.wire.services import (
    ANSWERS,
    ANYCAST,
    FULL,
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
    Result,
    service_key,
)

NO_ORDER: Final = "none"
FIFO: Final = "fifo"
TOTAL: Final = "total"
ORDERS: Final = (NO_ORDER, FIFO, TOTAL)
_EVERYBODY: Final[Origin] = (NOBODY, 0, "")


@dataclass(slots=True)
class Subscribed:
    """A service that this node has subscribed to: its key, its name and its manager, and more."""

    key: bytes
    name: str
    stamp: int
    flags: int
    order: str
    credentials: bytes
    sequencers: Sequencers[Delivered]
    patterns: tuple[str, ...] = ()
    manager: bytes = NOBODY
    epoch: int = 0
    is_confirmed: bool = False
    is_refused: bool = False
    due_ns: int = 0
    delivered: int = 0
    seen: Seen = field(default_factory=Seen)
    baseline: int | None = None  # The last number of the manager when we came.
    wants_kept: bool = False  # Once more: it may have come to us, but not to all who want it here.


@dataclass(slots=True)
class _Ending:
    """A subscription that is to end."""

    request: Request
    manager: bytes
    due_ns: int
    until_ns: int


class Client:
    """What this node wants of services."""

    def __init__(self, asking: Asking, publishing: Publishing) -> None:
        self.asking = asking
        self.publishing = publishing
        self.seat = asking.seat
        self.view = asking.view
        self.subscribed: dict[bytes, Subscribed] = {}
        self.wild: Subscribed | None = None  # What we want whatever service it is in.
        # What has come on subjects, as what is wanted of a service and everywhere may change over.
        self._seen_on_subjects = Seen()
        self._ending: dict[bytes, _Ending] = {}
        # Requests to any one that came to us, by service, until they are answered.
        self._asked_us: dict[bytes, set[tuple[bytes, int, int]]] = {}
        self.due_ns = NEVER

    # Subscribing.

    def subscribe(
        self, now: int, name: str, *, flags: int = 0, order: str = NO_ORDER,
        credentials: bytes = b"", patterns: Sequence[str] = (),
    ) -> Subscribed:  # fmt: skip
        """Subscribe to a service, and stay subscribed; again: with other options.

        With RETAIN the value that it keeps is asked for, though it came to us before.
        """
        key = service_key(name)
        self._ending.pop(key, None)
        known = self.subscribed.get(key)
        stamp, sequencers = self.seat.stamp(), Sequencers[Delivered](self.seat.counters)
        plain, wanted = flags & ~RETAIN, tuple(patterns)
        one = Subscribed(key, name, stamp, plain, order, credentials, sequencers, wanted)
        one.wants_kept = plain != flags
        if known is not None:
            one.manager, one.epoch, one.seen = known.manager, known.epoch, known.seen
            if known.order == order:
                one.sequencers, one.baseline = known.sequencers, known.baseline
            else:
                self._let_go(known)
        self.subscribed[key] = one
        self._ask(now, one)
        return one

    def unsubscribe(self, now: int, key: bytes) -> None:
        """End a subscription, there where it is held."""
        one = self.subscribed.pop(key, None)
        if one is None:
            return
        if self.wild is not None:
            self._let_go(one)
        message = Message(UNSUBSCRIBE_SERVICE, key)
        extra = Extra(credentials=one.credentials) if one.credentials else NOTHING
        request = self.asking.make(message, self.seat.stamp(), 0, one.epoch, extra)
        ending = _Ending(request, one.manager, now, now + SERVICE_LEASE)
        self._ending[key] = ending
        self._end(now, ending)

    def wants(self, key: bytes) -> bool:
        """Tell whether we subscribe to a service."""
        return key in self.subscribed

    def want_everywhere(self, now: int, patterns: Sequence[str]) -> None:
        """Want what matches these patterns whatever service it is in; none: nothing any more."""
        if not patterns:
            if self.wild is not None:
                self._let_go(self.wild)
            self.wild = None
        elif self.wild is None:
            sequencers = Sequencers[Delivered](self.seat.counters)
            self.wild = Subscribed(EVERYWHERE, "", 0, 0, FIFO, b"", sequencers)
        self.asking.everywhere.want(now, patterns)

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is under way."""
        return self.publishing.is_settled and not self._ending

    def come_again(self, now: int, key: bytes) -> None:
        """Subscribe anew at our own manager, whose list came from elsewhere and lacks us."""
        one = self.subscribed[key]
        if one.is_confirmed:  # By the one before; else it is under way, or was refused.
            self._ask(now, one, self.seat.node)

    def _ask(self, now: int, one: Subscribed, target: bytes | None = None) -> None:
        """Send a SUBSCRIBE_SERVICE to whoever is closest, or to the one that is named."""
        asking = self.asking
        if not asking.is_ready(now):
            one.due_ns = self._plan(asking.ready_ns)
            return
        one.due_ns = self._plan(now + RESULT_PATIENCE + RETRY)
        message = Message(SUBSCRIBE_SERVICE, one.key)
        extra = Extra(name=one.name, credentials=one.credentials, patterns=list(one.patterns))
        flags = one.flags | (RETAIN if one.wants_kept and not one.is_confirmed else 0)
        request = asking.make(message, one.stamp, flags, one.epoch, extra)
        asking.send(now, request, target or asking.target(now, one.key), self._asked)

    def _end(self, now: int, ending: _Ending) -> None:
        key = ending.request.message.key
        ending.due_ns = self._plan(now + RESULT_PATIENCE + RETRY)
        target = ending.manager if self.view.is_present(ending.manager) else None
        if target == NOBODY or target is None:
            target = self.asking.target(now, key)
        ending.manager = NOBODY  # If it does not answer, the closest is asked.
        self.asking.send(now, ending.request, target, self._asked)

    def _asked(self, now: int, request: Request, answer: Answer | None) -> None:
        """Hear what a node says to a subscription, or to the end of one."""
        key, type = request.message.key, request.message.type
        if answer is None:
            self._again(now, key, type, request.sequence)
            return
        if answer.status == PASSED:
            self.asking.hint(now, key, answer.manager)
            return  # The result comes by itself, or it is asked again.
        self.settle(now, key, type, request.sequence, answer)

    def _again(self, now: int, key: bytes, type: int, stamp: int) -> None:
        """Ask again soon."""
        self.asking.forget_hint(key)
        one, ending = self.subscribed.get(key), self._ending.get(key)
        if type == SUBSCRIBE_SERVICE and one is not None and one.stamp == stamp:
            one.due_ns = self._plan(now + RETRY)
        elif ending is not None and ending.request.sequence == stamp:
            ending.due_ns = self._plan(now + RETRY)

    def settle(
        self, now: int, key: bytes, type: int, sequence: int, answer: Answer, subject: str = ""
    ) -> None:
        """Hear from the manager what became of a request."""
        if type == PUBLISH:
            self.publishing.settle(now, (key, subject), sequence, answer)
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
            self._name_manager(one, answer.manager, answer.epoch)
        if one.baseline is None:
            one.baseline = answer.number
            if one.order == TOTAL:
                one.sequencers.begin(_EVERYBODY, answer.number + 1)  # There is no other.
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
            self._name_manager(one, manager, epoch)
        else:
            self.seat.counters["changes_ignored"] += 1

    def _name_manager(self, one: Subscribed, manager: bytes, epoch: int) -> None:
        if (one.manager, one.epoch) != (manager, epoch):
            one.manager, one.epoch = manager, epoch
            self.seat.events.append(ManagerNamed(one.name, manager, epoch))

    def members_changed(self, now: int) -> None:
        """Subscribe anew where the manager is gone."""
        for one in self.subscribed.values():
            if one.is_confirmed and not self.view.is_present(one.manager):
                one.is_confirmed = False
                one.due_ns = self._plan(now + int(self.seat.random.random() * RETRY))
        self.asking.members_changed()
        self.asking.everywhere.tell(now)
        self.publishing.members_changed(now)

    def resubscribe(self, now: int) -> None:
        """Subscribe anew everywhere: we were taken for dead, and struck off."""
        for one in self.subscribed.values():
            one.stamp = self.seat.stamp()
            one.is_confirmed = False
            one.due_ns = self._plan(now)

    def reply(self, now: int, info: Request, payload: bytes | None) -> None:
        """Answer a request that came to us as to any one member; None: there is no answer.

        Who asked need not wait for one, then: the manager is not to ask another, for we took it.
        """
        key, sequence = info.message.key, info.sequence
        self._asked_us.get(key, set()).discard(_id_of(info))
        told = Result(key, PUBLISH, sequence, UNAVAILABLE, info.epoch, 1)
        if info.origin != self.seat.node:
            notice = told if payload is None else Reply(key, sequence, payload)
            self.asking.post.tell(now, info.origin, notice, place=info.extra.place)
        elif payload is None:
            answer = Answer(0, told.status, told.epoch, told.number, self.seat.node)
            self.publishing.settle(now, (key, ""), sequence, answer)
        else:
            self.publishing.take_reply(now, Reply(key, sequence, payload))

    def _may_ask_us(self, one: Subscribed, info: Request) -> bool:
        """Tell whether we take a request: another member does, if too many wait here already."""
        waiting = self._asked_us.setdefault(one.key, set())
        is_known = _id_of(info) in waiting
        return is_known or (bool(one.flags & ANSWERS) and len(waiting) < SERVICE_REQUESTS_MAX)

    # Messages.

    def deliver(self, now: int, info: Request) -> Answer:
        """Take a message of a service; twice it is taken once."""
        one = self.subscribed.get(info.message.key)
        if one is None and info.extra.subject:
            one = self.wild
        if one is None:
            ending = self._ending.get(info.message.key)
            stamp = self.seat.stamp() if ending is None else ending.request.sequence
            return Answer(info.hop, UNKNOWN, 0, stamp)
        is_kept = bool(info.flags & RETAIN)
        is_request = bool(info.flags & ANYCAST)
        if is_kept and one.delivered and not one.wants_kept:
            self.seat.counters["duplicates"] += 1
            return Answer(info.hop, TAKEN)
        if is_request and not self._may_ask_us(one, info):
            self.seat.counters["requests_not_taken"] += 1
            return Answer(info.hop, FULL)
        subject, count = info.extra.subject, info.messages
        new = self._note(now, one, info)
        if new:
            self._pass_over_refused(now, one, info)
            delivered = Delivered(
                info.message.key, one.name, info.payloads, info.origin, info.incarnation,
                info.sequence, info.order, is_kept, info if is_request else None, subject,
                info.epoch,
            )  # fmt: skip
            if is_request:
                self._asked_us[one.key].add(_id_of(info))
            self._take(now, one, delivered, new)
        elif not is_kept and not is_request:
            self._pass_over(now, one, info.order, count)
        if not is_all_new(new, count):
            self.seat.counters["duplicates"] += 1
        return Answer(info.hop, TAKEN)

    def _note(self, now: int, one: Subscribed, info: Request) -> int:
        """Note that messages have come; return which of them are new."""
        seen, publisher, subject = one.seen, info.origin, info.extra.subject
        if subject:
            seen, publisher = self._seen_on_subjects, info.origin + info.message.key
        # Requests are numbered apart, so they have a window of their own.
        origin = (publisher, info.incarnation ^ bool(info.flags & ANYCAST), subject)
        new = seen.take(origin, info.sequence, info.messages, now)
        if info.flags & RETAIN and one.wants_kept:
            one.wants_kept, new = False, 1
        return new

    def deliver_plain(self, now: int, one: Subscribed, delivered: Delivered, new: int) -> None:
        """Take messages of which it is known which are new."""
        if new:
            self._take(now, one, delivered, new)
        if not is_all_new(new, len(delivered.payloads)):
            self.seat.counters["duplicates"] += 1

    def _take(self, now: int, one: Subscribed, delivered: Delivered, new: int) -> None:
        """Hand out messages, those of them that are new."""
        count = len(delivered.payloads)
        if not is_all_new(new, count):
            for place in range(count):
                if new >> count - 1 - place & 1:
                    self._take(now, one, delivered.pick(place), 1)
                else:
                    self._pass_over(now, one, delivered.order + place, 1)
        elif one.order == NO_ORDER or delivered.is_kept or delivered.answer is not None:
            self._hand_out(one, [delivered])
        else:
            self._put_in_order(now, one, delivered)

    def deliver_bare(self, now: int, message: Message, sender: bytes) -> None:
        """Take a message of the first version, which cannot be told from a copy of it."""
        one = self.subscribed.get(message.key)
        if one is not None:
            delivered = Delivered(one.key, one.name, [message.rest], sender, 0, 0, 0, False, None)
            self._hand_out(one, [delivered])

    def _put_in_order(self, now: int, one: Subscribed, delivered: Delivered) -> None:
        is_fifo = one.order == FIFO
        publisher = (delivered.origin, delivered.incarnation, delivered.subject)
        origin = publisher if is_fifo else _EVERYBODY
        number = delivered.sequence if is_fifo else delivered.order
        ready = one.sequencers.push(now, origin, number, delivered, len(delivered.payloads))
        self._hand_out(one, ready)
        self._plan(one.sequencers.due_ns)

    def _pass_over(self, now: int, one: Subscribed, number: int, count: int) -> None:
        """Wait for no message under a number of the manager's if it came under another one."""
        if one.order == TOTAL:
            self._hand_out(one, one.sequencers.pass_over(now, _EVERYBODY, number, count))
            self._plan(one.sequencers.due_ns)

    def _pass_over_refused(self, now: int, one: Subscribed, info: Request) -> None:
        """Wait for no message that the manager refused, as it says of those before this one."""
        first, count = info.sequence - info.lease_ms, info.lease_ms
        if count and one.order == FIFO:
            origin = (info.origin, info.incarnation, info.extra.subject)
            if first == 1:
                one.sequencers.begin(origin, first)
            self._hand_out(one, one.sequencers.pass_over(now, origin, first, count))
            self._plan(one.sequencers.due_ns)

    def _let_go(self, one: Subscribed) -> None:
        """Hand out what waits for its turn: it was noted as taken, so it would not come again."""
        self._hand_out(one, one.sequencers.end())

    def _hand_out(self, one: Subscribed, items: list[Delivered]) -> None:
        one.delivered += sum(len(item.payloads) for item in items)
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
        for one in self._all():
            if one is not self.wild and one.due_ns <= now:
                self._ask(now, one)
            self._hand_out(one, one.sequencers.advance(now))
            self._plan(one.sequencers.due_ns)
        for key, ending in list(self._ending.items()):
            if ending.until_ns <= now:
                del self._ending[key]
            elif ending.due_ns <= now:
                self._end(now, ending)
        self._plan_all()

    def _all(self) -> list[Subscribed]:
        return [*self.subscribed.values(), *([] if self.wild is None else [self.wild])]

    def _plan_all(self) -> None:
        for one in self.subscribed.values():
            self._plan(one.due_ns)
        for ending in self._ending.values():
            self._plan(min(ending.due_ns, ending.until_ns))


def _id_of(info: Request) -> tuple[bytes, int, int]:
    """Return what tells a request to any one from all others."""
    return info.origin, info.incarnation, info.sequence
