"""What consumers of one type and period have had: a stream for each producer of that type.

Streams are filtered apart, as two producers have two clocks and two schedules. With mode ONE only
the producer of the lowest address counts that is not silent; with NEAREST that of the shortest way,
also if it comes later.

Consumers that want the same share a sieve, so that a sample costs as much for ten of them as for
one. A consumer that is new has a sieve of its own until both have come to the same slots; what it
has had before, and the other has, is in its own books (`Consumer.move`).
"""

from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hubbub.limits import PRODUCERS_HEARD_MAX, US, VACANCY_TOLD
from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.interests import NEVER
from hubbub.protocol.timetrigger.slots import STALE, TAKEN, Stream
from hubbub.wire.timed import ALL, NEAREST, OBSERVE, ONE, SYNCHRONISED, Response, Tag, decode_tag

if TYPE_CHECKING:
    from hubbub.protocol.timetrigger.consumer import Consumer

UNCHOSEN: Final = "unchosen"
FOREIGN: Final = "foreign"
NOBODY: Final = b""  # The origin of nothing.


_UNMARKED: Final = bytes(4)


class Miss(NamedTuple):
    """Slots of a producer that stayed empty; without one, nobody has made anything for a while."""

    origin: bytes
    slots: int
    is_lost: bool  # It was silent for so long that it is not waited for any more.


class Wish(NamedTuple):
    """What samples are wanted; a type of 0 is every type."""

    type: int
    tag: Tag
    within: bytes = b""  # Only those whose origin begins so: of one node.

    def is_met_by(self, origin: bytes, type: int, tag: Tag) -> bool:
        """Tell whether such samples are what is wanted."""
        if not origin.startswith(self.within):
            return False
        if not self.type:
            return True
        is_inside = not self.tag.scope or tag.scope in (0, self.tag.scope)
        return type == self.type and is_inside and tag.mark in (self.tag.mark, _UNMARKED)


class Sieve:
    """One sample a slot of each producer, for all who want just that."""

    def __init__(
        self, wish: Wish, clock: SlotClock, period_us: int, mode: int, age_ns_max: int
    ) -> None:
        self.wish = wish
        self.clock = clock
        self.period_us = period_us
        self.mode = mode
        self.age_ns_max = age_ns_max  # 0: however old.
        self.is_once = mode != OBSERVE and not period_us  # One sample, and then no more.
        self.is_plain = mode == ALL and bool(period_us) and not age_ns_max  # Only slots decide.
        self.due_ns = NEVER
        self.streams: dict[bytes, Stream] = {}
        self.counts: Counter[str] = Counter()  # Of samples, by what they were.
        self.members: list[Consumer] = []
        # Replaced when members change: who is handing out has what was right for its samples.
        self.takers: list[Callable[[Any], None]] = []
        self._vacancy_ns = NEVER  # When to tell that there is no producer.
        self._served = 0  # Of streams that have ended,
        self._missed = 0
        self._chosen: bytes | None = None
        self._chosen_steps = 0  # How far away that is.
        self._quickest: dict[bytes, int] = {}  # From sample to arrival, where clocks differ.

    @property
    def served(self) -> int:
        """Return how many slots have had a sample."""
        return self._served + sum(stream.served for stream in self.streams.values())

    @property
    def missed(self) -> int:
        """Return how many slots have had none."""
        return self._missed + sum(stream.missed for stream in self.streams.values())

    def looks_for(self, response: Response) -> bool:
        """Look at a sample that may be of any type; count it if it is not ours."""
        is_ours = self.wish.is_met_by(response.origin, response.type, decode_tag(response.tag))
        self.counts[FOREIGN] += not is_ours
        return is_ours

    def take(self, now: int, response: Response, steps: int = 0) -> str:
        """Take a sample of a producer that is so far away, or say and count why not."""
        outcome = self._take(now, response, steps)
        if outcome != TAKEN:
            self.counts[outcome] += 1
        return outcome

    def _take(self, now: int, response: Response, steps: int) -> str:
        origin = response.origin
        if self.age_ns_max and self._age(now, response) > self.age_ns_max:
            return STALE
        if self.mode in (ONE, NEAREST) and not self._choose(now, origin, steps):
            return UNCHOSEN
        stream = self.streams.get(origin)
        if stream is None:
            stream = self._open(now, origin)
        if self.is_once:
            return stream.take_once(now, response)
        outcome = (
            stream.take(now, response) if self.mode != OBSERVE else stream.observe(now, response)
        )
        if outcome == TAKEN and stream.deadline_ns < self.due_ns:
            self.due_ns = stream.deadline_ns
        return outcome

    def advance(self, now: int) -> list[Miss]:
        """Judge the slots that are over."""
        misses = []
        for origin, stream in list(self.streams.items()):
            count = stream.judge(now)
            is_lost = stream.is_lost(now) and not self.is_once
            if is_lost:
                self._close(now, origin)
            if count or (is_lost and self.mode != OBSERVE):
                misses.append(Miss(origin, count, is_lost))
        if now >= self._vacancy_ns:
            self._vacancy_ns = NEVER
            misses.append(Miss(NOBODY, 0, is_lost=False))
        self._set_due()
        return misses

    def look_out(self, now: int) -> None:
        """Wait for a producer, where there is none; tell when that takes long."""
        is_content = self.is_once and self.served
        if not self.streams and self.mode != OBSERVE and not is_content:
            for member in self.members:
                member.begin_vacancy(now)
            self._vacancy_ns = now + max(VACANCY_TOLD, 2 * self.period_us * US)
            self._set_due()

    def forget_node(self, now: int, node: bytes) -> list[Miss]:
        """Let go of the producers of a node that has left."""
        gone = [origin for origin in self.streams if origin.startswith(node)]
        for origin in gone:
            self._close(now, origin)
        return [Miss(origin, 0, True) for origin in gone if not self.is_once]

    def forget_producer(self, now: int, origin: bytes) -> None:
        """Let go of a producer that has stopped."""
        if origin in self.streams:
            self._close(now, origin)

    # Who has it.

    def enter(self, consumer: "Consumer") -> None:
        """Let a consumer have what is taken from now on."""
        self.members = [*self.members, consumer]
        self.takers = [*self.takers, consumer.taker]

    def leave(self, consumer: "Consumer") -> None:
        """Let it have nothing more."""
        self.members = [one for one in self.members if one is not consumer]
        self.takers = [one.taker for one in self.members]

    def is_like(self, other: "Sieve") -> bool:
        """Tell whether both take the same samples from now on."""
        if not (self.is_plain and other.is_plain) or self.period_us != other.period_us:
            return False
        if self.wish != other.wish:
            return False
        if self.streams.keys() != other.streams.keys():
            return False
        return all(one.is_like(other.streams[origin]) for origin, one in self.streams.items())

    def absorb(self, other: "Sieve") -> None:
        """Take over the members of a sieve that is like this one."""
        for origin, stream in self.streams.items():
            stream.note_quicker(other.streams[origin])
        self._vacancy_ns = min(self._vacancy_ns, other._vacancy_ns)
        self._set_due()
        for member in other.members:
            member.move(self)

    def split(self, now: int, wish: Wish, period_us: int) -> "Sieve":
        """Return a sieve of another period or wish that begins with the slots of this one."""
        other = Sieve(wish, self.clock, period_us, self.mode, self.age_ns_max)
        other.streams = {origin: copy(stream) for origin, stream in self.streams.items()}
        other.counts = self.counts.copy()
        other._served, other._missed = self._served, self._missed
        other._vacancy_ns = self._vacancy_ns
        other._chosen, other._chosen_steps = self._chosen, self._chosen_steps
        other._quickest = dict(self._quickest)
        for stream in other.streams.values():
            if stream.asked_ns != period_us * US:
                stream.change_period(now, period_us * US)
        other._set_due()
        return other

    def _open(self, now: int, origin: bytes) -> Stream:
        if len(self.streams) >= PRODUCERS_HEARD_MAX:
            self._close(now, min(self.streams, key=lambda one: self.streams[one].heard_ns))
        for member in self.members if not self.streams else ():
            member.end_vacancy(now)
        self._vacancy_ns = NEVER
        stream = self.streams[origin] = Stream(now, self.period_us * US)
        return stream

    def _close(self, now: int, origin: bytes) -> None:
        stream = self.streams.pop(origin)
        self._quickest.pop(origin, None)
        self._served += stream.served
        self._missed += stream.missed
        if self._chosen == origin:
            self._chosen = None
        self.look_out(now)

    def _choose(self, now: int, origin: bytes, steps: int) -> bool:
        """Tell whether this producer is the one to take samples from."""
        if origin == self._chosen:
            self._chosen_steps = steps
            return True
        if self.is_once and self.served:
            return False
        chosen = None if self._chosen is None else self.streams.get(self._chosen)
        # Of those that begin together the lowest is chosen; later, whoever is nearer, or there when
        # the one we had leaves a slot empty.
        if self._chosen is not None and chosen is not None:
            is_nearer = steps < self._chosen_steps
            is_lower = steps == self._chosen_steps and origin < self._chosen
            if not (is_nearer or (is_lower and chosen.served <= 1) or chosen.is_silent(now)):
                return False
            self._close(now, self._chosen)
        self._chosen, self._chosen_steps = origin, steps
        return True

    def _age(self, now: int, response: Response) -> int:
        """Return how old a sample is; where clocks differ, by how much more than at the best."""
        age_ns = self.clock.at(now) - response.sampled_ns
        if response.flags & SYNCHRONISED and self.clock.is_synchronised:
            return age_ns
        quickest = min(age_ns, self._quickest.get(response.origin, age_ns))
        if len(self._quickest) >= PRODUCERS_HEARD_MAX:
            self._quickest.clear()  # Of producers that are not chosen, too.
        self._quickest[response.origin] = quickest
        return age_ns - quickest

    def _set_due(self) -> None:
        deadlines = [stream.deadline_ns for stream in self.streams.values()]
        self.due_ns = min([*deadlines, self._vacancy_ns])
