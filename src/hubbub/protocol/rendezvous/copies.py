"""Warm copies: the next two nodes know each list, so a crash costs no more than noticing it.

Under any placement the successor of a manager is the one that comes next, so it is there that a
copy is of use. A manager sends what has changed, and a digest now and then; who finds that its copy
differs says so, and gets all of it. A node that finds itself the manager of a service it knows
nothing of asks the next ones before it says so.
"""

from collections.abc import Callable, Iterable
from itertools import takewhile

from hubbub.limits import (
    COPIES,
    COPY_DELAY,
    COPY_INTERVAL,
    HAND_OVER_PATIENCE,
    LIST_PART_ENTRIES,
    PULL_NODES_MAX,
    PULL_PATIENCE,
    PULL_WIDER,
    SERVICE_LEASE,
)
from hubbub.protocol.rendezvous.handover import HandOvers
from hubbub.protocol.rendezvous.post import Post
from hubbub.protocol.rendezvous.roles import Happening, Role
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.protocol.rendezvous.service import Pull, Service
from hubbub.protocol.rendezvous.view import State
from hubbub.wire.services import (
    PASSED,
    TAKEN,
    UNAVAILABLE,
    UNKNOWN,
    Answer,
    Copy,
    Entry,
    Kept,
    Known,
    Query,
)


class Copies:
    """Sends copies of the lists that this node manages, keeps those of others, and finds lists."""

    def __init__(self, post: Post, hand_overs: HandOvers) -> None:
        self.post = post
        self.view = post.view
        self.seat = post.seat
        self._hand_overs = hand_overs

    # Sending.

    def changed(self, now: int, service: Service) -> None:
        """Note that a list has changed."""
        service.copy_ns = min(service.copy_ns, now + COPY_DELAY)

    def look(self, now: int, service: Service) -> None:
        """Note that other nodes may come next."""
        if set(self._next(service)) != set(service.copies):
            service.copy_ns = min(service.copy_ns, now)

    def _next(self, service: Service) -> list[bytes]:
        ranked = self.view.rank(service.key, COPIES + 1)
        return [node for node in ranked if node != self.seat.node][:COPIES]

    def update(self, now: int, service: Service) -> None:
        """Send what those who come next do not know."""
        service.copy_ns = NEVER if service.is_empty else now + COPY_INTERVAL
        if service.role is Role.HANDING:
            return  # What changes is sent with the end of it.
        listing = service.listing
        changed = sorted(listing.changed)
        listing.changed.clear()
        targets = self._next(service)
        service.copies = {node: service.copies.get(node, True) for node in targets}
        for node, needs_all in service.copies.items():
            service.copies[node] = False
            self._send(now, service, node, None if needs_all else changed)

    def _send(
        self, now: int, service: Service, node: bytes, changed: Iterable[bytes] | None
    ) -> None:
        """Send a list, or what has changed in it, or only its digest."""
        listing = service.listing
        entries: list[Entry] = listing.entries(changed)
        count, digest = listing.count, listing.digest
        for at in range(0, len(entries) or 1, LIST_PART_ENTRIES):
            copy = Copy(
                service.key, service.name, service.epoch, service.order, count, digest,
                changed is None, entries[at : at + LIST_PART_ENTRIES],
            )  # fmt: skip
            self.post.tell(now, node, copy, self._sent(service))
        if changed is None and service.kept is not None:
            self.post.tell(now, node, service.kept)

    def _sent(self, service: Service) -> Callable[[int, bytes, Answer | None], None]:
        def done(now: int, node: bytes, answer: Answer | None) -> None:
            is_wrong = answer is None or answer.status == UNKNOWN
            if is_wrong and node in service.copies and self.view.is_present(node):
                service.copies[node] = True
                self.changed(now, service)

        return done

    def keep(self, now: int, service: Service) -> None:
        """Send a value that is kept to those who hold copies."""
        for node in service.copies:
            if service.kept is not None:
                self.post.tell(now, node, service.kept)

    # Keeping.

    def take(self, now: int, sender: bytes, copy: Copy, service: Service) -> int:
        """Take what a manager sends of its list; return the status of the answer."""
        is_changed = service.listing.merge(now, copy.entries)
        service.name = service.name or copy.name
        if service.role in (Role.PULLING, Role.MANAGING, Role.HANDING):
            if is_changed:
                self.changed(now, service)
            if service.role is Role.PULLING:
                self._hand_overs.catch_up(service, copy.epoch, copy.order)
            return PASSED if service.is_served else TAKEN
        is_second = self._is_second(service, sender)
        if is_changed and is_second:
            self._hand_overs.pass_late(now, service)
        if copy.epoch < service.epoch:
            return PASSED  # Of one who was the manager before.
        service.happen(Happening.COPIED)
        self._hand_overs.catch_up(service, copy.epoch, copy.order)
        if not is_second:
            self._hand_overs.believe(service, sender)
        if service.role is Role.COPY:
            service.until_ns = now + SERVICE_LEASE
        service.listing.changed.clear()
        is_same = (service.listing.count, service.listing.digest) == (copy.count, copy.digest)
        if not (is_same or copy.is_full):
            return UNKNOWN
        if not (is_same or is_second):
            self._object(now, service, copy)
        service.copied_ns = now
        return TAKEN

    def _is_second(self, service: Service, sender: bytes) -> bool:
        """Tell whether another manages the service, too, and is the right one.

        The sender does not know it, or gave it the list, or knows before we do that it is dead.
        """
        manager = service.manager
        if manager in (None, sender) or not self._hand_overs.is_alive(service):
            return False
        return self.view.is_closer(service.key, manager or sender, sender)

    def _object(self, now: int, service: Service, copy: Copy) -> None:
        """Send the manager what we have beside its whole list, which may be older than ours.

        It takes it, or finds that those are dead, and says so with the next change.
        """
        listed = {entry.node for entry in copy.entries}
        if sum(entry.is_in for entry in copy.entries) == copy.count:  # All of it is in this part.
            service.listing.changed.update(line.node for line in service.listing)
            service.listing.changed -= listed
            self._hand_overs.pass_late(now, service)

    def take_kept(self, now: int, kept: Kept, service: Service) -> None:
        """Take the value that a service keeps, if it is newer than ours."""
        if service.kept is None or (kept.epoch, kept.order) > (
            service.kept.epoch, service.kept.order,
        ):  # fmt: skip
            service.kept = kept
            service.kept_until_ns = now + kept.lease_ms * 1_000_000

    # Finding.

    def pull(self, now: int, service: Service) -> bool:
        """Ask those who come next for a list; False: there is nobody."""
        ranked = self.view.rank(service.key, COPIES + 1, is_settled=False)
        nodes = {node for node in ranked if node != self.seat.node}
        until_ns, wider_ns = now + PULL_PATIENCE, now + PULL_WIDER
        patience_ns = now + 3 * self.view.stable_ns  # Who is dead is known to be so before that.
        pull = Pull(nodes, {*nodes, self.seat.node}, until_ns, wider_ns, patience_ns)
        service.pull = pull if nodes else None
        for node in sorted(nodes):
            self._ask(now, service, node)
        return bool(nodes)

    def _ask(self, now: int, service: Service, node: bytes) -> None:
        def done(then: int, node: bytes, answer: Answer | None) -> None:
            if answer is None and service.pull is not None and not self.view.is_present(node):
                service.pull.waiting.discard(node)

        self.post.tell(now, node, Query(service.key), done)

    def _ask_further(self, now: int, service: Service, pull: Pull, count: int = 1) -> None:
        """Ask some more: one that has just come may stand between those with copies and us."""
        ranked = self.view.rank(service.key, PULL_NODES_MAX, is_settled=False)
        for node in [node for node in ranked if node not in pull.asked][:count]:
            pull.asked.add(node)
            pull.waiting.add(node)
            pull.until_ns = max(pull.until_ns, now + 2 * PULL_WIDER)
            self._ask(now, service, node)

    def widen(self, now: int, service: Service, pull: Pull) -> None:
        """Ask one more for each that says nothing: it may be dead, though nobody knows yet."""
        pull.wider_ns = now + PULL_WIDER
        self._ask_further(now, service, pull, len(pull.waiting - {self.seat.node}))

    def answer(self, now: int, asker: bytes, key: bytes, service: Service | None) -> None:
        """Tell somebody who seems to be a manager what we know of the service."""
        status, manager = UNAVAILABLE, self.seat.node
        if service is None or service.role is Role.ABSENT:
            pass
        elif service.is_served:
            status = PASSED
            if self.view.is_closer(key, asker, self.seat.node):
                manager = asker  # The list is coming.
                if service.role is Role.MANAGING:
                    self._hand_overs.start(now, service, asker)
        else:
            known = service.manager or asker
            if service.role is not Role.PULLING and known != asker and self.view.is_present(known):
                status, manager = PASSED, known
            if service.listing.lines:  # That one may be dead, and we do not know it yet.
                self._send(now, service, asker, None)
        self.post.tell(now, asker, Known(key, status, manager, self.view.is_sure))

    def take_known(self, now: int, sender: bytes, known: Known, service: Service) -> bytes | None:
        """Hear what somebody knows; return who is the manager, if it is closer than we are."""
        pull = service.pull
        if pull is None:
            return None
        pull.waiting.discard(sender)
        if known.status != PASSED:
            if not known.is_sure:
                pull.unsure.add(sender)
                self._ask_further(now, service, pull)
            return None
        manager = known.manager
        if manager == self.seat.node:
            pull.waiting.add(manager)  # The list comes by itself.
            pull.until_ns = max(pull.until_ns, now + HAND_OVER_PATIENCE)
        elif self.view.is_closer(service.key, manager, self.seat.node):
            return manager if self.view.is_present(manager) else None
        elif manager not in pull.asked:
            pull.asked.add(manager)
            pull.waiting.add(manager)
            self._ask(now, service, manager)
        return None

    def leave_to(self, now: int, service: Service, manager: bytes) -> None:
        """Give a list that was to be ours to one who turned out to be closer.

        A copy stays here: it may be dead, though nobody knows yet.
        """
        self._send(now, service, manager, None)
        service.happen(Happening.CLOSER_CAME)
        service.pull = None
        self._hand_overs.believe(service, manager)
        service.until_ns = service.copied_ns + SERVICE_LEASE

    # Gathering.

    def gathered_ns(self, service: Service) -> int:
        """Return when all who want a service may have said so, if its list has died lately.

        Where a manager dies together with those who have copies, each subscriber has to notice that
        and to subscribe anew. Until then what is published is held, and not said to be for nobody,
        nor sent to those alone who stand on an old list: ours is one if more have died since it was
        copied than a manager and who had a copy beside us.
        """
        silent, limit, since_ns = 0, self.seat.node, service.copied_ns
        is_list = bool(service.listing.lines or service.copied_ns)
        if not is_list:
            silent, limit = self._silent(service)
            since_ns = self.seat.now - 2 * self.view.stable_ns  # Before, it went to the next.
        died_ns = [
            member.changed_ns
            for member in self.view.members.values()
            if member.state is State.DEAD
            and member.changed_ns >= since_ns
            and self.view.is_closer(service.key, member.node, limit)
        ]
        is_lost = silent + len(died_ns) > COPIES
        if silent and is_lost:
            return self.seat.now + PULL_WIDER
        if not died_ns or (is_list and not is_lost):
            return 0
        return max(died_ns) + self.view.stable_ns // 3

    def _silent(self, service: Service) -> tuple[int, bytes]:
        """Return how many that may have a list say nothing, and who is the next behind them.

        A newcomer may be closer than all who have one, and these may be dead, which nobody knows
        yet: it would serve those alone who have come since. One of them that answers knows of none.
        """
        pull, own = service.pull, self.seat.node
        if pull is None or self.view.is_sure:
            return 0, own
        ranked = self.view.rank(service.key, PULL_NODES_MAX)
        counting = [node for node in ranked if node != own and node not in pull.unsure]
        silent = list(takewhile(pull.waiting.__contains__, counting))
        limit = counting[len(silent)] if len(silent) < len(counting) else own
        return len(silent) if self.seat.now < pull.patience_ns else 0, limit

    def doubt(self, now: int, service: Service) -> bool:
        """Begin to gather a list of ours before it is served, if it may be an old one."""
        gathered_ns = self.gathered_ns(service)
        if now >= gathered_ns or not service.happen(Happening.DOUBTED):
            return False
        self.seat.counters["doubted"] += 1
        service.until_ns = NEVER
        service.pull = Pull(set(), set(), gathered_ns)
        return True
