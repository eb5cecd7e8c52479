"""What happened among processes that share services, and what it must have been like.

All times are those of the monotonic clock, which the processes of a machine share. Nothing here
opens a node: a story is told by others, and judged when it is over.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from typing import Final, NamedTuple

from hubbub.limits import HAND_OVER_PATIENCE, SECOND
from hubbub.protocol.rendezvous.profile import FAST
from hubbub.wire.services import distance, node_key, service_key

DETECTION_S: Final = FAST.detection_ns / SECOND
STABLE_S: Final = FAST.stable_ns / SECOND  # Then newcomers count.
# A round trip takes less than a millisecond, and as much longer as a process waits for one of two
# cores, of which twenty others want some; a frame that found no room is repeated after 0.1 s, and
# again after 0.2 s.
MARGIN_S: Final = 0.5
BLACKOUT_S: Final = DETECTION_S + MARGIN_S
GATHER_S: Final = STABLE_S / 3  # So long a manager without a list waits for subscribers.
# A death must be noticed; a manager that came after it, and has the dead one's name from an old
# copy, doubts it for twice the time in which newcomers count.
CONVERGENCE_S: Final = DETECTION_S + 2 * STABLE_S + MARGIN_S
HAND_OVER_S: Final = HAND_OVER_PATIENCE / SECOND + MARGIN_S  # The same where nobody dies.
# What was sent to somebody and not acknowledged is sent for the fourth time after 0.7 s. If it
# leaves meanwhile, or the sender is killed, it does without.
UNDER_WAY_S: Final = 0.7 + MARGIN_S


List = tuple[str, str, frozenset[str]]  # A service, who has its list, and who is on it.


class Silence(NamedTuple):
    """Nothing of a service came to somebody for a while."""

    name: str
    from_s: float
    to_s: float


@dataclass
class Member:
    """A node, what it wants, when it was there, and what it had."""

    id: str
    names: list[str]
    opened_s: float
    joined_s: float  # All of its subscriptions are confirmed.
    parting_s: float = inf  # It is killed, or asked to leave.
    gone_s: float = inf
    had: Counter[int] | None = None  # How often each message; None: it cannot tell any more.
    silences: list[Silence] = field(default_factory=list)


class Told(NamedTuple):
    """A list, as a node told of it that manages the service, or has a copy; None: neither."""

    member: str
    name: str
    at_s: float
    is_copy: bool = False
    epoch: int = 0
    subscribers: frozenset[str] | None = None

    @property
    def served(self) -> frozenset[str] | None:
        """Return the list, if the node manages the service."""
        return None if self.is_copy else self.subscribers


class Term(NamedTuple):
    """A list that was the same for a while."""

    member: str
    name: str
    begun_s: float  # Since then it manages the service.
    from_s: float
    to_s: float
    subscribers: frozenset[str]


class Kill(NamedTuple):
    """A manager was killed: these services it served, or was next to serve."""

    at_s: float  # The signal is sent,
    dead_s: float  # and the process has ended.
    member: str
    names: frozenset[str]


class Loss(NamedTuple):
    """A subscriber never had a message."""

    member: Member
    name: str
    published_s: float


@dataclass
class Story:
    """All that happened."""

    names: list[str]
    members: dict[str, Member] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    published: list[float] = field(default_factory=list)  # When, by number.
    planned: int = 0  # So many messages.
    kills: list[Kill] = field(default_factory=list)
    over_s: float = inf

    def name_of(self, number: int) -> str:
        """Return the service of a message: they take turns."""
        return self.names[number % len(self.names)]

    # Who manages what.

    def latest(self, at_s: float = inf) -> dict[tuple[str, str], Told]:
        """Return what nodes told last of each service."""
        return {(one.member, one.name): one for one in self.told if one.at_s <= at_s}

    def lists(self, *, is_copy: bool) -> set[List]:
        """Return what is managed now, or the copies of it."""
        there = {one.id for one in self.members.values() if one.parting_s == inf}
        return {
            (one.name, one.member, one.subscribers)
            for one in self.latest().values()
            if one.member in there and one.subscribers is not None and one.is_copy is is_copy
        }

    def served_by(self, member: str) -> set[str]:
        """Return what a node said that it manages."""
        latest = [one for one in self.latest().values() if one.member == member]
        return {one.name for one in latest if one.served is not None}

    def rank(self, name: str, at_s: float) -> list[Member]:
        """Return who was there, the closest to a service first."""
        members = self.members.values()
        return self._order(name, [one for one in members if one.opened_s <= at_s < one.parting_s])

    def _order(self, name: str, members: list[Member]) -> list[Member]:
        key = service_key(name)
        return sorted(members, key=lambda one: distance(node_key(bytes.fromhex(one.id)), key))

    def kills_of(self, name: str, from_s: float, to_s: float) -> list[float]:
        """Return when managers of a service were killed within a time."""
        return [one.at_s for one in self.kills if name in one.names and from_s < one.at_s < to_s]

    def is_lost(self, subscriber: str, name: str, kill: Kill) -> bool:
        """Tell whether nobody who lived on had a copy of the last list with a subscriber on it.

        Who dies before the end of its manager was noticed does not live on.
        """
        told = [one for one in self.latest(kill.at_s).values() if one.name == name]
        epoch = max((one.epoch for one in told), default=0)
        until_s = kill.at_s + DETECTION_S
        return not any(
            one.is_copy and one.epoch == epoch and subscriber in (one.subscribers or ())
            for one in told
            if self.members[one.member].gone_s > until_s
        )

    def terms(self) -> list[Term]:
        """Return all lists, each for as long as its manager was there and told of no other."""
        found: list[Term] = []
        order = sorted(self.told, key=lambda one: (one.member, one.name, one.at_s))
        for (member, name), some in groupby(order, key=lambda one: (one.member, one.name)):
            lists, begun_s = list(some), inf
            end_s = min(self.members[member].parting_s, self.over_s)
            ends = [*(one.at_s for one in lists[1:]), end_s]
            for one, to_s in zip(lists, ends, strict=True):
                begun_s = inf if one.served is None else min(begun_s, one.at_s)
                if one.served is not None and one.at_s < to_s:
                    found.append(Term(member, name, begun_s, one.at_s, to_s, one.served))
        return found

    # What is demanded of lists.

    def convergences(self) -> Iterator[tuple[float, str]]:
        """Tell of each event and service how long after it the list was right; inf: never.

        Right: who was there before the event and still is stands on it, and nobody who was gone. If
        its manager is killed meanwhile, that is another event, and the time counts from there.
        """
        terms = self.terms()
        events = [one.joined_s for one in self.members.values()]
        events += [one.gone_s for one in self.members.values() if one.gone_s < inf]
        for name in self.names:
            some = [one for one in terms if one.name == name]
            for event_s in sorted(events):
                right_s = self._right_after(name, event_s, some)
                began_s = max([event_s, *self.kills_of(name, event_s, right_s)])
                yield right_s - began_s, f"{name}, {event_s - events[0]:.2f} s after the first"

    def _right_after(self, name: str, event_s: float, terms: list[Term]) -> float:
        moments = {one.from_s for one in terms} | {one.to_s for one in terms}
        moments |= {one.parting_s for one in self.members.values()}
        for at_s in [event_s, *sorted(one for one in moments if event_s < one < self.over_s)]:
            lists = [one.subscribers for one in terms if one.from_s <= at_s < one.to_s]
            if lists and all(self._is_right(name, event_s, at_s, one) for one in lists):
                return at_s
        return inf

    def _is_right(self, name: str, event_s: float, at_s: float, listed: frozenset[str]) -> bool:
        wanting = [one for one in self.members.values() if name in one.names]
        here = {one.id for one in wanting if one.joined_s <= event_s and one.parting_s > at_s}
        gone = {one.id for one in wanting if one.gone_s <= event_s}
        return here <= listed and not gone & listed

    def phantoms(self) -> Iterator[tuple[float, str]]:
        """Tell how long after its end a member stood on a list.

        To a manager that came after that end its node is a stranger, which an old copy may name:
        the time counts from when it began to manage the service.
        """
        for term in self.terms():
            for member in sorted(term.subscribers & self.members.keys()):
                gone_s = self.members[member].gone_s
                is_stranger = self.members[term.member].opened_s > gone_s
                since_s = max(gone_s, term.begun_s) if is_stranger else gone_s
                yield term.to_s - since_s, f"{member} in {term.name} at {term.member}"

    def absences(self) -> Iterator[tuple[float, str]]:
        """Tell how long members that were there were missing from a list, in one stretch."""
        order = sorted(self.terms(), key=lambda one: (one.member, one.name, one.begun_s))
        for _, some in groupby(order, key=lambda one: (one.member, one.name, one.begun_s)):
            terms = list(some)
            for member in self.members.values():
                if terms[0].name in member.names:
                    yield from self._absences_of(member, terms)

    def _absences_of(self, member: Member, terms: list[Term]) -> Iterator[tuple[float, str]]:
        since_s = inf
        for term in terms:
            from_s, to_s = max(term.from_s, member.joined_s), min(term.to_s, member.parting_s)
            if from_s < to_s:
                since_s = inf if member.id in term.subscribers else min(since_s, from_s)
                yield to_s - since_s, f"{member.id} in {term.name} at {term.member}"

    # What is demanded of messages.

    def duplicates(self) -> list[tuple[str, int]]:
        """Return who had what more than once."""
        return [
            (one.id, number)
            for one in self.members.values()
            for number, count in (one.had or {}).items()
            if count > 1
        ]

    def losses(self) -> list[Loss]:
        """Return what subscribers never had, but for what was under way to one that left."""
        return [
            Loss(member, self.name_of(number), at_s)
            for member in self.members.values()
            if member.had is not None
            for number, at_s in enumerate(self.published)
            if self.name_of(number) in member.names
            and member.joined_s < at_s < member.parting_s - UNDER_WAY_S
            and number not in member.had
        ]

    def is_excused(self, loss: Loss) -> bool:
        """Tell whether a message may be lost: because of a kill of its manager, and for a reason.

        - The manager had it, and had not handed it on to everybody.
        - Those died, too, who had copies of the list, or none of them had this subscription on it
          yet: then the subscriber must come again, and may miss what is published until then.
        """
        for kill in self.kills:
            since_s = loss.published_s - kill.at_s
            if loss.name not in kill.names or abs(since_s) > BLACKOUT_S + GATHER_S:
                continue
            is_after = since_s > -MARGIN_S and self.is_lost(loss.member.id, loss.name, kill)
            if is_after or self._is_in_hand(loss, kill):
                return True
        return False

    def _is_in_hand(self, loss: Loss, kill: Kill) -> bool:
        """Tell whether a manager took a message just before it was killed.

        What waited for it, since the one before was killed, it takes when it begins.
        """
        begun_s = inf
        for one in self.told:
            if (one.member, one.name) == (kill.member, loss.name):
                begun_s = inf if one.served is None else min(begun_s, one.at_s)
        taken_s = max(loss.published_s, begun_s)
        return kill.at_s - UNDER_WAY_S < taken_s < kill.dead_s

    def blackouts(self) -> Iterator[tuple[float, str]]:
        """Tell how long nothing came to somebody since the manager was killed.

        If the next one is killed, too, before anything came, it counts from there. Where the list
        was lost with the manager, it takes as much longer as the next one waits for subscribers.
        """
        for member in self.members.values():
            for one in member.silences:
                lost = [kill for kill in self.kills if one.from_s - MARGIN_S < kill.at_s < one.to_s]
                kills = [kill for kill in lost if one.name in kill.names]
                began_s = max((kill.at_s for kill in kills), default=one.from_s)
                is_lost = any(self.is_lost(member.id, one.name, kill) for kill in kills)
                waited_s = GATHER_S if is_lost else 0.0
                yield one.to_s - began_s - waited_s, f"{one}, {len(kills)} killed"


def worst(found: Iterable[tuple[float, str]]) -> tuple[float, str]:
    """Return the longest time, and of what."""
    return max([(0.0, ""), *found])
