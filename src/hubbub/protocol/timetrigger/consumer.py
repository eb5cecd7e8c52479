"""One consumer: a type, a period, and a stream for each producer of that type.

Streams are filtered apart, as two producers have two clocks and two schedules. With mode ONE only
the producer of the lowest address counts that is not silent.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

from hubbub.limits import PRODUCERS_HEARD_MAX, US
from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.interests import NEVER
from hubbub.protocol.timetrigger.slots import STALE, TAKEN, Stream
from hubbub.wire.timed import ALL, OBSERVE, ONE, SYNCHRONISED, Response

UNCHOSEN: Final = "unchosen"


class Miss(NamedTuple):
    """Slots of a producer that stayed empty."""

    origin: bytes
    slots: int
    is_lost: bool  # It was silent for so long that it is not waited for any more.


class Consumer:
    """What a component wants, and has had."""

    def __init__(
        self, port: int, type: int, subject: str, clock: SlotClock, *, period_us: int,
        mode: int = 0, scope: int = 0, age_ns_max: int = 0,
    ) -> None:  # fmt: skip
        self.port = port
        self.type = type
        self.subject = subject
        self.clock = clock
        self.mode = mode
        self.scope = scope
        self.period_us = period_us
        self.age_ns_max = age_ns_max  # 0: however old.
        self.is_open = True
        self.due_ns = NEVER
        self.streams: dict[bytes, Stream] = {}
        self.counts: Counter[str] = Counter()  # Of samples, by what they were.
        self.taker: Callable[[Any], None] = lambda sample: None  # Set by the shell.
        self.granted_us = 0  # More than `period_us`: a producer serves us no faster.
        self._served = 0  # Of streams that have ended,
        self._missed = 0
        self._chosen: bytes | None = None
        self.is_plain = mode == ALL and not age_ns_max  # Only slots decide.
        self._quickest: dict[bytes, int] = {}  # From sample to arrival, where clocks differ.

    @classmethod
    def observer(cls, type: int, subject: str, clock: SlotClock) -> Self:
        """Make one that gets a copy of every sample of a type, or of all types (0)."""
        return cls(0, type, subject, clock, period_us=0, mode=OBSERVE)

    @property
    def served(self) -> int:
        """Return how many slots have had a sample."""
        return self._served + sum(stream.served for stream in self.streams.values())

    @property
    def missed(self) -> int:
        """Return how many slots have had none."""
        return self._missed + sum(stream.missed for stream in self.streams.values())

    def take(self, now: int, response: Response) -> Stream | None:
        """Take a sample, or count why not."""
        origin = response.origin
        if self.age_ns_max and self._age(now, response) > self.age_ns_max:
            self.counts[STALE] += 1
            return None
        if self.mode == ONE and not self._choose(now, origin):
            self.counts[UNCHOSEN] += 1
            return None
        stream = self.streams.get(origin)
        if stream is None:
            stream = self._open(now, origin)
        outcome = (
            stream.take(now, response) if self.mode != OBSERVE else stream.observe(now, response)
        )
        if outcome != TAKEN:
            self.counts[outcome] += 1
            return None
        if stream.deadline_ns < self.due_ns:
            self.due_ns = stream.deadline_ns
        return stream

    def set_period(self, period_us: int) -> None:
        """Want samples at another period from now on."""
        self.period_us = period_us
        for stream in self.streams.values():
            stream.change_period(period_us * US)
        self._set_due()

    def advance(self, now: int) -> list[Miss]:
        """Judge the slots that are over."""
        misses = []
        for origin, stream in list(self.streams.items()):
            count = stream.judge(now)
            is_lost = stream.is_lost(now)
            if is_lost:
                self._close(origin)
            if count or (is_lost and self.mode != OBSERVE):
                misses.append(Miss(origin, count, is_lost))
        self._set_due()
        return misses

    def forget_node(self, node: bytes) -> list[Miss]:
        """Let go of the producers of a node that has left."""
        gone = [origin for origin in self.streams if origin.startswith(node)]
        for origin in gone:
            self._close(origin)
        return [Miss(origin, 0, True) for origin in gone]

    def forget_producer(self, origin: bytes) -> None:
        """Let go of a producer that has stopped."""
        if origin in self.streams:
            self._close(origin)

    def stop(self) -> None:
        """Want nothing any more."""
        self.is_open = False
        self.due_ns = NEVER

    def _open(self, now: int, origin: bytes) -> Stream:
        if len(self.streams) >= PRODUCERS_HEARD_MAX:
            self._close(min(self.streams, key=lambda one: self.streams[one].heard_ns))
        stream = self.streams[origin] = Stream(now, self.period_us * US)
        return stream

    def _close(self, origin: bytes) -> None:
        stream = self.streams.pop(origin)
        self._quickest.pop(origin, None)
        self._served += stream.served
        self._missed += stream.missed
        if self._chosen == origin:
            self._chosen = None

    def _choose(self, now: int, origin: bytes) -> bool:
        """Tell whether this producer is the one to take samples from."""
        if origin == self._chosen:
            return True
        chosen = None if self._chosen is None else self.streams.get(self._chosen)
        # Of those that begin together the lowest is chosen; later, whoever is there when the one we
        # had leaves a slot empty.
        if self._chosen is not None and chosen is not None:
            is_lower = chosen.served <= 1 and origin < self._chosen
            if not (is_lower or chosen.is_silent(now)):
                return False
            self._close(self._chosen)
        self._chosen = origin
        return True

    def _age(self, now: int, response: Response) -> int:
        """Return how old a sample is; where clocks differ, by how much more than at the best."""
        age_ns = self.clock.at(now) - response.sampled_ns
        if response.flags & SYNCHRONISED and self.clock.is_synchronised:
            return age_ns
        quickest = min(age_ns, self._quickest.get(response.origin, age_ns))
        self._quickest[response.origin] = quickest
        return age_ns - quickest

    def _set_due(self) -> None:
        deadlines = [stream.deadline_ns for stream in self.streams.values()]
        self.due_ns = min(deadlines, default=NEVER)
