"""Look after services: those whose key is closest to ours, as far as we know.

A request that comes to the wrong node is passed on to one that is strictly closer, and whoever
asked is told; so requests cannot go in circles, and none is dropped without a word. One that comes
before the list does is held. Everything that a subscriber asked for carries a stamp, everything
published an id: what is done twice is done once.

Invariants: at most one node of a component that agrees on who is there serves a service; epochs
only grow; what is acknowledged as taken is in the list.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from hubbub.limits import (
    BARE_LEASE,
    INVENTORY_SERVICES,
    MS,
    ORDER_LEAP,
    RETAIN_MS,
    SERVICE_HOPS_MAX,
    SERVICE_LEASE,
    SERVICES_MAX,
)
from hubbub.protocol.rendezvous.absent import Absent
from hubbub.protocol.rendezvous.copies import Copies
from hubbub.protocol.rendezvous.doubts import Doubts
from hubbub.protocol.rendezvous.everywhere import EVERYWHERE, Everywhere
from hubbub.protocol.rendezvous.handover import HandOvers
from hubbub.protocol.rendezvous.listing import Line, leave_out
from hubbub.protocol.rendezvous.own import Own
from hubbub.protocol.rendezvous.post import Post
from hubbub.protocol.rendezvous.roles import Happening, Role
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.protocol.rendezvous.service import Service
from hubbub.protocol.rendezvous.spread import Spread, make_info
from hubbub.wire.services import (
    ANYCAST,
    BARE,
    BATCH,
    FULL,
    INFO,
    LOOPED,
    NOBODY,
    PASSED,
    PUBLISH,
    REFUSED,
    RETAIN,
    STALE,
    SUBSCRIBE_SERVICE,
    TAKEN,
    UNAVAILABLE,
    UNSUBSCRIBE_SERVICE,
    Answer,
    Copy,
    Extra,
    Kept,
    Known,
    ListTaken,
    Managed,
    Message,
    Request,
    Result,
)

_NOTHING_MAX: Final = 4096
_ENDED_NS: Final = 5000 * MS  # So long it is told what was ours, to who looks each second.
_NOTHING_NS: Final = 1000 * MS  # So long it is believed that nobody knows a service.


class Manager:
    """All services of which this node is more than a subscriber."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.seat = post.seat
        self.view = post.view
        self.services: dict[bytes, Service] = {}
        self.own: Own  # Set by who joins the two.
        self.hand_overs = HandOvers(post, self._begun, self._manager_changed)
        self.copies = Copies(post, self.hand_overs)
        self.spread = Spread(post, self.forgotten)
        self.absent = Absent(post, self.spread.done)
        self.everywhere = Everywhere(post)
        self.doubts = Doubts(self.view)
        self.due_ns = NEVER
        self._nothing: dict[bytes, int] = {}  # Services that nobody knew lately.
        self._ended: deque[tuple[int, Managed]] = deque(maxlen=INVENTORY_SERVICES)

    # Requests.

    def take(self, now: int, request: Request) -> Answer:
        """Take a request of ours or of another node, and say what became of it so far."""
        if request.message.key == EVERYWHERE:
            return self._take_everywhere(now, request)
        answer = self._take(now, request)
        self._plan(request.message.key)
        return answer

    def _take_everywhere(self, now: int, request: Request) -> Answer:
        if request.message.type == PUBLISH:
            return Answer(request.hop, UNAVAILABLE)
        if not self._is_allowed(request, request.extra.name):
            return Answer(request.hop, REFUSED)
        return self.everywhere.take(now, request)

    def _plan(self, key: bytes) -> None:
        """Note when a service that something happened to is due."""
        service = self.services.get(key)
        if service is not None and service.due_ns < self.due_ns:
            self.due_ns = service.due_ns

    def _take(self, now: int, request: Request) -> Answer:
        key = request.message.key
        service = self.services.get(key)
        target = self._route(key, service)
        if target is not None:
            return self._pass(now, request, target)
        if self.view.closest(key) is None:
            return self._answer(now, request, None, UNAVAILABLE)
        if service is None or service.role in (Role.ABSENT, Role.PULLING):
            return self._hold(now, service, request)
        if not service.is_served:
            if self.copies.doubt(now, service):
                return self._hold(now, service, request)
            self._take_over(now, service, Happening.ASKED)
        return self._serve(now, service, request)

    def _route(self, key: bytes, service: Service | None) -> bytes | None:
        """Return who is to have a request; None: we do."""
        if service is not None and service.is_served:
            return None
        best = self.view.closest(key)
        manager = None if service is None else service.manager
        if service is not None and manager is not None and self.hand_overs.is_alive(service):
            is_forwarder = service.role is Role.FORWARDING
            if is_forwarder or self.view.is_closer(key, manager, best or self.seat.node):
                return manager
        return best if best != self.seat.node else None

    def _pass(self, now: int, request: Request, target: bytes) -> Answer:
        """Pass a request on to a closer node."""
        if request.hops >= SERVICE_HOPS_MAX:
            self.seat.counters["looped"] += 1
            return Answer(request.hop, LOOPED)
        self.seat.counters["passed"] += 1
        passed = request._replace(hops=request.hops + 1)

        def done(now: int, node: bytes, answer: Answer | None) -> None:
            if answer is None and self._route(passed.message.key, self._get(passed)) != target:
                self.take(now, passed)  # Else the origin asks again.

        self.post.send(now, target, passed, done)
        return Answer(request.hop, PASSED, 0, 0, target)

    def _get(self, request: Request) -> Service | None:
        return self.services.get(request.message.key)

    def _hold(self, now: int, service: Service | None, request: Request) -> Answer:
        """Hold a request until it is known whether there is a list somewhere."""
        key = request.message.key
        is_publish = request.message.type == PUBLISH
        if is_publish and self._nothing.get(key, 0) > now and not request.flags & RETAIN:
            return self._unheard(now, request)
        if service is None:
            if len(self.services) >= SERVICES_MAX:
                return self._answer(now, request, None, FULL)
            service = self.services[key] = Service(key)
        if service.role is Role.ABSENT:
            service.happen(Happening.ASKED)
            if not self.copies.pull(now, service):
                service.hold(request)
                return self._end_pull(now, service) or Answer(request.hop, PASSED)
        if not service.hold(request._replace(hops=max(1, request.hops))):
            return self._answer(now, request, None, FULL)
        return Answer(request.hop, PASSED)

    def _end_pull(self, now: int, service: Service) -> Answer | None:
        """Begin to manage a service, or let it be; return the last answer to what was held."""
        gathered_ns = self.copies.gathered_ns(service)
        if service.pull is not None and now < gathered_ns:
            service.pull.until_ns = gathered_ns
            return None
        service.pull = None
        wanted = any(one.message.type == SUBSCRIBE_SERVICE for one in service.held)
        is_kept = any(one.flags & RETAIN for one in service.held)
        if wanted or is_kept or service.kept is not None or service.listing.lines:
            service.happen(Happening.FOUND_NOBODY)
            service.epoch += 1
            service.order += ORDER_LEAP if service.listing.count else 0
            service.listing.renew_all(now)
            if service.listing.count:
                self.hand_overs.announce(now, service, self.seat.node)
            return self._begun(now, service)
        held = service.release()
        self._give_up(service)
        if len(self._nothing) >= _NOTHING_MAX:
            self._nothing.clear()
        self._nothing[service.key] = now + _NOTHING_NS
        answer = None
        for request in held:
            answer = self._unheard(now, request)
        return answer

    def _unheard(self, now: int, request: Request) -> Answer:
        """Answer a message of a service that nobody subscribes to, unless by a wildcard."""
        lines = self._wanting(None, request.extra.subject, request.origin)
        if request.message.type != PUBLISH or not lines:
            return self._answer(now, request, None, UNAVAILABLE)
        if not self._is_allowed(request, request.extra.name):
            return self._answer(now, request, None, REFUSED)
        plain = request._replace(flags=request.flags & BATCH, lease_ms=0)
        self._send(now, lines, make_info(0, plain, 0))
        return self._answer(now, request, None, TAKEN, len(lines))

    def _begun(self, now: int, service: Service) -> Answer | None:
        """Serve what was held, now that we are the manager."""
        service.pull = None
        service.until_ns = NEVER
        service.manager = None
        service.copies.clear()
        self._look_through(now, service)
        self._nothing.pop(service.key, None)
        self.copies.changed(now, service)
        # Who subscribes while a message is held is to have it.
        held = sorted(service.release(), key=lambda request: request.message.type == PUBLISH)
        answer = None
        for request in held:
            answer = self._serve(now, service, request)
        return answer

    def _look_through(self, now: int, service: Service) -> None:
        is_ours = self.own.wants(service.key)
        self.doubts.look_through(now, service.listing, are_we_on_it=is_ours)
        if is_ours and service.listing.find(self.seat.node) is None:
            self.own.come_again(now, service.key)

    def _take_over(self, now: int, service: Service, happening: Happening) -> None:
        """Manage a service whose list we have a copy of."""
        if service.happen(happening):
            self.seat.counters["taken_over"] += 1
            service.epoch += 1
            service.order += ORDER_LEAP
            service.listing.renew_all(now)
            self._begun(now, service)
            self.hand_overs.announce(now, service, self.seat.node)

    def _serve(self, now: int, service: Service, request: Request) -> Answer:
        """Do what is asked."""
        name = service.name or request.extra.name
        if not self._is_allowed(request, name):
            if request.message.type == PUBLISH and not request.flags & (ANYCAST | BARE):
                lane = (request.origin, request.incarnation, request.extra.subject)
                service.refusals.note(lane, request.sequence, request.messages)
            self._drop_if_unused(service)
            return self._answer(now, request, service, REFUSED)
        service.name = name
        _, serve = _SERVE[request.message.type]
        status, number = serve(self, now, service, request)
        return self._answer(now, request, service, status, number)

    def _is_allowed(self, request: Request, name: str) -> bool:
        """Ask the policy; every way by which anything is done leads by here."""
        (type, key, _), extra = request.message, request.extra
        action, _ = _SERVE[type]
        is_allowed = self.seat.policy(action, key, name, request.origin, extra.credentials)
        if not is_allowed:
            self.seat.counters["refused"] += 1
        return is_allowed

    def _answer(
        self, now: int, request: Request, service: Service | None, status: int, number: int = 0
    ) -> Answer:
        """Answer a request; one that came by others, or was held, by a notice to its origin."""
        epoch = 0 if service is None else service.epoch
        answer = Answer(request.hop, status, epoch, number, self.seat.node)
        if not request.hops or request.flags & BARE:
            return answer
        key, type = request.message.key, request.message.type
        if request.origin == self.seat.node:
            subject = request.extra.subject
            self.own.settle(now, key, type, request.sequence, answer, subject)
        else:
            result = Result(
                key, type, request.sequence, status, epoch, number, request.extra.subject
            )
            self.post.tell(now, request.origin, result, place=request.extra.place)
        return answer

    def _subscribe(self, now: int, service: Service, request: Request) -> tuple[int, int]:
        lease_ns = request.lease_ms * MS or SERVICE_LEASE
        if request.flags & BARE:
            lease_ns = BARE_LEASE
        if request.epoch > service.epoch:  # It knew a manager that we never heard of.
            self.hand_overs.catch_up(service, request.epoch)
            service.epoch += 1
        listing = service.listing
        status, is_new = listing.subscribe(
            now, request.origin, request.sequence, request.flags, request.extra.place, lease_ns,
            request.extra.patterns,
        )  # fmt: skip
        if status == STALE:
            return status, listing.lines[request.origin].stamp
        if listing.changed:
            self.copies.changed(now, service)
        if (is_new or request.flags & RETAIN) and service.kept is not None:
            self._send_kept(now, service, request.origin)
        return status, service.order

    def _unsubscribe(self, now: int, service: Service, request: Request) -> tuple[int, int]:
        status = service.listing.unsubscribe(now, request.origin, request.sequence)
        if status == STALE:
            return status, service.listing.lines[request.origin].stamp
        self.copies.changed(now, service)
        return status, service.listing.count

    def _publish(self, now: int, service: Service, request: Request) -> tuple[int, int]:
        if request.flags & ANYCAST:
            return self._ask_one(now, service, request)
        subject = request.extra.subject
        wanting = self._wanting(service, subject, request.origin)
        count = len(wanting)
        missing = self._missing(now, service, subject, request.origin)
        if not count and not missing and not request.flags & RETAIN:
            return UNAVAILABLE, 0
        messages = request.messages
        origin = (request.origin, request.incarnation, subject)
        new = service.seen.take(origin, request.sequence, messages, now)
        if not new:
            return TAKEN, count
        # A batch of which some had come goes on whole: subscribers take what is new to them.
        first = service.order + 1
        service.order += messages
        if request.flags & RETAIN:
            self._keep(now, service, request)
        refused = service.refusals.take_before(origin, request.sequence)
        plain = request._replace(flags=request.flags & BATCH, lease_ms=refused)
        info = make_info(service.epoch, plain, first)
        self._send(now, wanting, info)
        self._send_missing(now, missing, info)
        return TAKEN if count else UNAVAILABLE, count

    def _wanting(self, service: Service | None, subject: str, publisher: bytes) -> list[Line]:
        """Return who is to have a message of a node, and is there."""
        lines = [] if service is None else service.listing.wanting(subject)
        wild = self.everywhere.wanting(subject)
        if wild:
            lines = [*{line.node: line for line in (*wild, *lines)}.values()]
        return leave_out(publisher, lines)

    def _missing(self, now: int, service: Service, subject: str, publisher: bytes) -> list[Line]:
        """Return who would have a message, and is not there to take it."""
        wild = self.everywhere.missing(now, subject)
        lines = service.listing.missing(now, subject)
        lines = [*{line.node: line for line in (*wild, *lines)}.values()] if wild else lines
        return leave_out(publisher, lines)

    def _send_missing(self, now: int, lines: list[Line], info: Request) -> None:
        """Keep a message for those who may come back; who has, and did not say more, gets it."""
        back = [line for line in lines if self.view.is_present(line.node)]
        if back:
            self._send(now, back, info)
        for line in lines:
            if line not in back:
                self.absent.keep(now, line.node, info)

    def count_receivers(self, key: bytes, subject: str, publisher: bytes) -> int:
        """Return how many would have a message of a node, if it were published now."""
        service = self.services.get(key)
        served = service if service is not None and service.is_served else None
        return len(self._wanting(served, subject, publisher))

    def _send(self, now: int, lines: list[Line], info: Request) -> None:
        """Send a message to those who want it, ourselves included."""
        if any(line.node == self.seat.node for line in lines):
            self.own.deliver(now, info)
        self.spread.send(now, lines, info)

    def pass_on(self, now: int, info: Request) -> None:
        """Pass a message on to those below us in a tree; keep it for those who are not there."""
        if not self.spread.is_new(info):
            return
        for node in info.extra.nodes:
            if self.view.is_dead(node):
                self.absent.keep(now, node, info)
        below = [node for node in info.extra.nodes if not self.view.is_dead(node)]
        self.spread.pass_on(now, info, below)

    def _ask_one(self, now: int, service: Service, request: Request) -> tuple[int, int]:
        # As at members, requests are numbered apart, so they have a window of their own.
        origin = (request.origin, request.incarnation ^ True, request.extra.subject)
        if not service.seen.is_new(origin, request.sequence):
            return TAKEN, service.listing.count  # Else the next member would do it, too.
        place = self.view.place_of(request.origin) or request.extra.place
        plain, extra = request._replace(lease_ms=0), Extra(place=place)
        info = make_info(service.epoch, plain, service.order, extra)

        def own() -> bool:
            return self.own.deliver(now, info).status == TAKEN

        def failed(then: int) -> None:
            late = request._replace(hops=max(1, request.hops))
            self._answer(then, late, service, UNAVAILABLE)

        self.spread.ask_one(now, service, info, own, failed)
        return TAKEN, service.listing.count

    # Values that are kept.

    def _keep(self, now: int, service: Service, request: Request) -> None:
        before, publisher = service.kept, (request.origin, request.incarnation)
        is_same = before is not None and (before.origin, before.incarnation) == publisher
        if before is not None and is_same and before.sequence > request.sequence:
            return  # This one was lost on its way, and repeated.
        service.kept = Kept(
            service.key, service.epoch, service.order, request.origin, request.incarnation,
            request.sequence, RETAIN_MS, request.message.rest,
        )  # fmt: skip
        service.kept_until_ns = now + RETAIN_MS * MS
        self.copies.keep(now, service)
        self.copies.changed(now, service)

    def _send_kept(self, now: int, service: Service, node: bytes) -> None:
        """Send the last value to somebody who is new."""
        kept, line = service.kept, service.listing.find(node)
        assert kept is not None and line is not None
        if line.patterns:
            return  # The value has no subject.
        message = Message(INFO, service.key, kept.payload)
        info = Request(
            0, RETAIN, 0, kept.origin, kept.incarnation, kept.sequence, service.epoch, 0,
            kept.order, message, Extra(),
        )  # fmt: skip
        if node == self.seat.node:
            self.own.deliver(now, info)
        else:
            self.spread.send(now, [line], info)

    # What others tell.

    def take_list(self, now: int, sender: bytes, request: Request) -> None:
        """Take a part of a list that we are to manage."""
        service = self._open(request.message.key)
        if service is not None:
            if service.role is Role.ABSENT:
                service.until_ns = now + SERVICE_LEASE
            self.hand_overs.take(now, sender, request, service)
            self._look_at(now, service)
            self._plan(service.key)

    def take_copy(self, now: int, sender: bytes, copy: Copy) -> int:
        """Take a copy of a list, or what has changed in it."""
        service = self._open(copy.key)
        if service is None:
            return FULL
        status = self.copies.take(now, sender, copy, service)
        if service.is_served:
            self._look_through(now, service)
        is_closer = self.view.is_closer(copy.key, sender, self.seat.node)
        if service.role is Role.MANAGING and is_closer and now >= service.retry_ns:
            self.hand_overs.start(now, service, sender)  # Two manage it, and it is the right one.
        self._plan(copy.key)
        return status

    def take_kept(self, now: int, kept: Kept) -> int:
        """Take the value that a service keeps."""
        service = self._open(kept.key)
        if service is not None:
            if service.role is Role.ABSENT:
                service.until_ns = now + SERVICE_LEASE  # The list is on its way.
            self.copies.take_kept(now, kept, service)
            self._plan(kept.key)
        return TAKEN

    def take_known(self, now: int, sender: bytes, known: Known) -> None:
        """Hear what one who was asked knows of a service."""
        service = self.services.get(known.key)
        if service is None:
            return
        manager = self.copies.take_known(now, sender, known, service)
        if manager is not None:
            self._pass_held(now, service, manager)
        elif service.pull is not None and not service.pull.waiting:
            self._end_pull(now, service)
        self._plan(known.key)

    def take_list_taken(self, now: int, sender: bytes, taken: ListTaken) -> None:
        """Hear that the new manager has the list."""
        service = self.services.get(taken.key)
        if service is not None:
            term = describe(service)
            self.hand_overs.finish(now, sender, taken, service)
            if not service.is_served:
                self._ended.append((now, term))
            self._plan(taken.key)

    def answer_query(self, now: int, sender: bytes, key: bytes) -> None:
        """Tell one who seems to be a manager what we know."""
        self.copies.answer(now, sender, key, self.services.get(key))
        self._plan(key)

    def _open(self, key: bytes) -> Service | None:
        service = self.services.get(key)
        if service is None and len(self.services) < SERVICES_MAX:
            service = self.services[key] = Service(key)
        return service

    def forgotten(self, now: int, key: bytes, node: bytes, stamp: int, subject: str = "") -> None:
        """Hear that a subscriber knows nothing of it: it was started anew, or has left."""
        if subject:  # Without one it says nothing of what is wanted everywhere.
            self.everywhere.drop(now, node, stamp)
        service = self.services.get(key)
        line = None if service is None else service.listing.find(node)
        if service is not None and line is not None and line.stamp <= stamp:
            service.listing.drop(now, node)
            self.copies.changed(now, service)
            self._plan(key)

    def stamp_after(self, key: bytes, node: bytes) -> int:
        """Return a stamp that is newer than what the list has of one who stamps nothing itself."""
        service = self.services.get(key)
        line = None if service is None else service.listing.lines.get(node)
        return 0 if line is None else line.stamp + 1

    def _manager_changed(
        self, now: int, key: bytes, sender: bytes, manager: bytes, epoch: int
    ) -> None:
        self.own.manager_changed(now, key, sender, manager, epoch)

    # Who is there, and time.

    def look(self, now: int) -> None:
        """Look again who is closest to what: members have come or gone."""
        for service in list(self.services.values()):
            self._look_at(now, service)
        self._plan_all()

    def _plan_all(self) -> None:
        self.due_ns = min((service.due_ns for service in self.services.values()), default=NEVER)

    def _look_at(self, now: int, service: Service) -> None:
        best = self.view.closest(service.key)
        if service.role is Role.PULLING and best not in (None, self.seat.node):
            assert best is not None
            self._pass_held(now, service, best)
        elif service.role is Role.HANDING:
            self._check_hand_over(now, service)
        elif service.role is Role.MANAGING and best == self.seat.node:
            self.copies.look(now, service)
        elif service.role is Role.MANAGING and best is not None:
            self._give_away(now, service, best)
        elif best == self.seat.node and service.role in (Role.COPY, Role.FORWARDING):
            self._inherit(now, service)

    def _inherit(self, now: int, service: Service) -> None:
        """Manage what nobody manages any more, unless nobody wants it."""
        if self.hand_overs.is_alive(service):
            return
        if service.is_empty:
            service.until_ns = min(service.until_ns, now)
        elif service.role is Role.FORWARDING and self.view.has_left(service.manager or NOBODY):
            self._ask_first(now, service)  # The list was given to somebody, who may not be us.
        elif not self.copies.doubt(now, service):
            self._take_over(now, service, Happening.CLOSER_WENT)

    def _ask_first(self, now: int, service: Service) -> None:
        """Serve a list of ours only when those who come next know of no manager."""
        if service.happen(Happening.DOUBTED):
            self.seat.counters["doubted"] += 1
            service.hand_over, service.until_ns = None, NEVER
            if not self.copies.pull(now, service):
                self._end_pull(now, service)

    def _check_hand_over(self, now: int, service: Service) -> None:
        hand_over = service.hand_over
        if hand_over is not None and not self.view.is_present(hand_over.target):
            self.hand_overs.give_up(now, service, Happening.CLOSER_WENT)
            self._look_at(now, service)

    def _give_away(self, now: int, service: Service, best: bytes) -> None:
        if service.is_empty and not service.listing.lines:
            self._give_up(service)
        elif now >= service.retry_ns:
            self.hand_overs.start(now, service, best)
        else:
            service.copy_ns = min(service.copy_ns, service.retry_ns)

    def _pass_held(self, now: int, service: Service, manager: bytes) -> None:
        """Give what was held to one who turned out to be closer, and what we know of the list."""
        held = service.release()
        if service.listing.lines:
            self.copies.leave_to(now, service, manager)
        else:
            self._give_up(service)
        for request in held:
            self._pass(now, request, manager)

    def _give_up(self, service: Service) -> None:
        if service.is_served and service.listing.lines:
            self._ended.append((self.seat.now, describe(service)))
        service.happen(Happening.GIVEN_UP)
        service.pull = None
        self.services.pop(service.key, None)

    def _drop_if_unused(self, service: Service) -> None:
        if service.role is Role.MANAGING and service.is_empty and not service.listing.lines:
            self._give_up(service)

    def member_gone(self, now: int, node: bytes) -> None:
        """Take one who is dead, or began anew, off all lists."""
        wild = self.everywhere.listing.find(node)
        if wild is not None and self.view.is_gone(node, wild.stamp):
            self.everywhere.drop(now, node, wild.stamp)
        for service in self.services.values():
            line = service.listing.find(node) if service.is_served else None
            if line is not None and self.view.is_gone(node, line.stamp):
                self.doubts.strike_off(now, service.listing, node)
                self.copies.changed(now, service)
            if service.pull is not None and not self.view.is_present(node):
                service.pull.waiting.discard(node)
        self._plan_all()

    def stood_still(self, now: int) -> None:
        """Ask whether another has our place: what we number would come late, below its numbers."""
        for service in list(self.services.values()):
            if not service.is_empty and service.is_served:
                self._ask_first(now, service)
        self._plan_all()

    def heard(self, now: int, node: bytes) -> None:
        """Hear a node of which it was not known whether it lives."""
        self.doubts.heard(now, node, [service.listing for service in self.services.values()])

    def advance(self, now: int) -> None:
        """Do what is due."""
        if now < self.due_ns:
            return
        for service in list(self.services.values()):
            if service.due_ns <= now:
                self._advance(now, service)
        self._plan_all()

    def _advance(self, now: int, service: Service) -> None:
        if service.kept is not None and service.kept_until_ns <= now:
            service.kept = None
        pull = service.pull
        if pull is not None and pull.wider_ns <= now:
            self.copies.widen(now, service, pull)
        if pull is not None and pull.until_ns <= now:
            self._end_pull(now, service)
        if service.hand_over is not None and service.hand_over.until_ns <= now:
            self.hand_overs.give_up(now, service, Happening.REFUSED)
        ended = service.listing.expire(now) if service.is_served else []
        if ended:
            self.doubts.ended(ended)
            self.copies.changed(now, service)
        if service.until_ns <= now:
            self._expire(now, service)
        if service.copy_ns <= now:
            service.copy_ns = NEVER
            self._look_at(now, service)
            if service.role is Role.MANAGING:
                self.copies.update(now, service)
        self._drop_if_unused(service)

    def _expire(self, now: int, service: Service) -> None:
        """End a copy, or the grace of a forwarder."""
        service.happen(Happening.EXPIRED)
        # No longer than others remember who unsubscribed since: it would bring them back.
        since_ns = service.copied_ns if service.role is Role.COPY else now
        service.until_ns = since_ns + SERVICE_LEASE
        if service.role is Role.ABSENT:
            self.services.pop(service.key, None)

    def list_ended(self, now: int) -> list[Managed]:
        """Return the services that were ours until lately: who looks on may have missed that."""
        return [term for ended_ns, term in self._ended if now - ended_ns < _ENDED_NS]

    @property
    def has_services(self) -> bool:
        """Tell whether anybody depends on us still."""
        return any(one.is_served and one.listing.count for one in self.services.values())


def describe(service: Service) -> Managed:
    """Say of a service what others are told who look on."""
    messages = service.order % ORDER_LEAP
    return Managed(service.key, service.name, service.epoch, messages, service.listing.count)


_Serve = Callable[[Manager, int, Service, Request], tuple[int, int]]
_SERVE: Final[dict[int, tuple[str, _Serve]]] = {
    SUBSCRIBE_SERVICE: ("subscribe", Manager._subscribe),
    UNSUBSCRIBE_SERVICE: ("unsubscribe", Manager._unsubscribe),
    PUBLISH: ("publish", Manager._publish),
}
