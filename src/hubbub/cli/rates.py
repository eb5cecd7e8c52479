"""What `hubbub hz`, `bw` and `delay` know of each topic: figures that never grow with the traffic.

A topic is one subject of one incarnation of a publisher, because only there do sequence numbers
tell what is missing: a publisher that starts again is a new row.

Messages are added by runs, and a run is worked on by columns: at a million messages a second a line
of Python per message and figure would cost more than the bus itself. Sums are of integers of
nanoseconds or bytes, so they are exact, and a deviation taken from them is, too.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import exp, log, sqrt
from operator import mul, sub
from random import Random
from typing import Final, Generic, TypeVar

from hubbub.limits import SECOND
from hubbub.message import Message, Source

# Told apart; what comes of further ones is counted together. All reservoirs are 80 MB at most.
TOPICS_MAX: Final = 10_000
RESERVOIR_SAMPLES: Final = 1000  # Kept of a topic's latencies, whatever their number.


def percentile(samples: list[int], share: float) -> int:
    """Return the sample that a share of all does not exceed (nearest rank); 0 without samples."""
    if not samples:
        return 0
    samples = sorted(samples)
    return samples[min(len(samples) - 1, int(share * len(samples)))]


class Extent:
    """Count, mean and extremes of numbers that are not kept."""

    __slots__ = ("count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.smallest: int | None = None
        self.largest: int | None = None

    def add(self, values: Sequence[int]) -> None:
        """Take in a run of numbers."""
        if not values:
            return
        smallest, largest = min(values), max(values)
        if self.smallest is None or smallest < self.smallest:
            self.smallest = smallest
        if self.largest is None or largest > self.largest:
            self.largest = largest
        self.count += len(values)
        self.total += sum(values)

    @property
    def mean(self) -> float | None:
        """Return the mean; None without numbers."""
        return self.total / self.count if self.count else None


class Spread(Extent):
    """An extent that knows the deviation as well."""

    __slots__ = ("_squares",)

    def __init__(self) -> None:
        super().__init__()
        self._squares = 0

    def add(self, values: Sequence[int]) -> None:
        """Take in a run of numbers."""
        super().add(values)
        self._squares += sum(map(mul, values, values))

    @property
    def deviation(self) -> float | None:
        """Return the standard deviation of exactly these numbers; None without any."""
        if not self.count:
            return None
        return sqrt(self.count * self._squares - self.total**2) / self.count


class Reservoir:
    """A fair sample of numbers, all of them while they fit (algorithm L of Kim-Hung Li, 1994).

    It knows in advance which number is the next to be taken, so those between cost nothing.
    """

    __slots__ = ("_count", "_limit", "_next", "_random", "_weight", "samples")

    def __init__(self, limit: int = RESERVOIR_SAMPLES, random: Random | None = None) -> None:
        self.samples = array("q")
        self._limit = limit
        self._random = random or _random
        self._count = 0
        self._weight = 1.0
        self._next = limit - 1
        self._skip()

    def add(self, values: Sequence[int]) -> None:
        """Take in a run of numbers."""
        room = self._limit - len(self.samples)
        if room:
            self.samples.extend(values[:room])
        end = self._count + len(values)
        while self._next < end:
            self.samples[self._random.randrange(self._limit)] = values[self._next - self._count]
            self._skip()
        self._count = end

    def _skip(self) -> None:
        """Draw which number is taken next."""
        # 1 - random() is never 0, and a weight of 1 would have no logarithm of what is left.
        self._weight *= exp(log(1 - self._random.random()) / self._limit)
        left = max(1 - self._weight, 1e-300)
        self._next += 1 + int(log(1 - self._random.random()) / log(left))


_random = Random()


class Topic:
    """What was seen of one subject of one publisher."""

    def __init__(self, subject: str, source: Source) -> None:
        self.subject = subject
        self.source = source
        self.messages = 0
        self.lost = 0
        self._newest = 0
        self._first_ns = self._last_ns = 0
        self._since = self._earlier = self._counters()

    def add(self, run: Sequence[Message]) -> None:
        """Count messages that follow each other in order, with or without holes."""
        first, last = run[0], run[-1]
        if not self.messages:
            self._newest = first.sequence - 1
            self._first_ns = _stamp_ns(first)
        lost = last.sequence - self._newest - len(run)
        self._measure(run, has_holes=lost > 0)
        self.messages += len(run)
        self.lost += lost
        self._newest = last.sequence
        self._last_ns = _stamp_ns(last)

    def without_repeats(self, run: Sequence[Message]) -> Sequence[Message]:
        """Leave out what came before: patterns that overlap bring a message once each."""
        new = {one.sequence: one for one in run if one.sequence > self._newest}
        return list(new.values())

    def begin_interval(self) -> None:
        """Count afresh what `rate` is about."""
        self._earlier, self._since = self._since, self._counters()

    def reopen_interval(self) -> None:
        """Let the interval before the present one be part of it."""
        self._since = self._earlier

    def rate(self, seconds: float) -> float:
        """Return the messages per second of this interval, which lasted so long."""
        return (self.messages - self._since[0]) / seconds

    @property
    def rate_in_all(self) -> float | None:
        """Return the messages per second from the first to the last, by the publisher's clock."""
        return self._per_published_second(self.messages - 1)

    def _per_published_second(self, count: int) -> float | None:
        span_ns = self._last_ns - self._first_ns
        return count * SECOND / span_ns if span_ns > 0 else None

    def _counters(self) -> tuple[int, ...]:
        """Return what only grows, the messages first."""
        return (self.messages,)

    def _measure(self, run: Sequence[Message], *, has_holes: bool) -> None:
        """Take in what else is to be known of a run, before it is counted."""


def _stamp_ns(message: Message) -> int:
    """Return when a message was published; by services nobody tells, so when it came."""
    return message.published_ns or message.received_ns


class PacedTopic(Topic):
    """How regularly messages were published."""

    def __init__(self, subject: str, source: Source) -> None:
        super().__init__(subject, source)
        self.gaps_ns = Spread()

    def _measure(self, run: Sequence[Message], *, has_holes: bool) -> None:
        if has_holes:
            self.gaps_ns.add(self._gaps_between_neighbours(run))
            return
        stamps_ns = [self._last_ns] if self.messages else []
        stamps_ns += [_stamp_ns(message) for message in run]
        self.gaps_ns.add(list(map(sub, stamps_ns[1:], stamps_ns)))

    def _gaps_between_neighbours(self, run: Sequence[Message]) -> list[int]:
        """Leave out the time across a hole: it is not one that the publisher made."""
        gaps_ns = [
            _stamp_ns(after) - _stamp_ns(before)
            for before, after in pairwise(run)
            if after.sequence == before.sequence + 1
        ]
        if self.messages and run[0].sequence == self._newest + 1:
            gaps_ns.append(_stamp_ns(run[0]) - self._last_ns)
        return gaps_ns


class SizedTopic(Topic):
    """How large messages were."""

    def __init__(self, subject: str, source: Source) -> None:
        self.sizes_bytes = Extent()
        self._first_bytes = 0
        super().__init__(subject, source)

    def byte_rate(self, seconds: float) -> float:
        """Return the bytes per second of this interval, which lasted so long."""
        return (self.sizes_bytes.total - self._since[1]) / seconds

    @property
    def byte_rate_in_all(self) -> float | None:
        """Return the bytes per second from the first to the last, by the publisher's clock."""
        return self._per_published_second(self.sizes_bytes.total - self._first_bytes)

    def _counters(self) -> tuple[int, ...]:
        return (self.messages, self.sizes_bytes.total)

    def _measure(self, run: Sequence[Message], *, has_holes: bool) -> None:
        if not self.messages:
            self._first_bytes = len(run[0].payload)
        self.sizes_bytes.add([len(message.payload) for message in run])


class DelayedTopic(Topic):
    """How long messages were on their way, by the clocks of both ends."""

    def __init__(self, subject: str, source: Source) -> None:
        super().__init__(subject, source)
        self.negative = 0
        self.latencies_ns = Extent()
        self._changes_ns = 0
        self._reservoir = Reservoir()
        self._last_latency_ns = 0

    @property
    def jitter_ns(self) -> float | None:
        """Return by how much the latency changes from a message to the next, on average."""
        return self._changes_ns / (self.messages - 1) if self.messages > 1 else None

    def percentiles_ns(self, *shares: float) -> list[int]:
        """Return the latencies that these shares of all do not exceed, as far as was sampled."""
        samples = sorted(self._reservoir.samples)
        return [percentile(samples, share) for share in shares]

    def _measure(self, run: Sequence[Message], *, has_holes: bool) -> None:
        latencies_ns = [message.received_ns - message.published_ns for message in run]
        self.latencies_ns.add(latencies_ns)
        self._reservoir.add(latencies_ns)
        if (self.latencies_ns.smallest or 0) < 0:
            self.negative += sum(latency_ns < 0 for latency_ns in latencies_ns)
        before_ns = [self._last_latency_ns, *latencies_ns] if self.messages else latencies_ns
        self._changes_ns += sum(map(abs, map(sub, before_ns[1:], before_ns)))
        self._last_latency_ns = latencies_ns[-1]


T = TypeVar("T", bound=Topic)
_NO_RUN: Final[list[Message]] = []


class Topics(Generic[T]):
    """All topics that were seen, up to a number; the messages of further ones are counted."""

    def __init__(
        self,
        make: Callable[[str, Source], T],
        *,
        can_repeat: bool = False,
        topics_max: int = TOPICS_MAX,
    ) -> None:
        self.others = 0
        self._make = make
        self._can_repeat = can_repeat
        self._topics_max = topics_max
        self._topics: dict[tuple[str, Source], T] = {}

    def add(self, messages: Iterable[Message]) -> None:
        """Count messages, those of each topic in their order."""
        runs: dict[tuple[str, Source], list[Message]] = {}
        subject, source, run = "", None, _NO_RUN
        for message in messages:
            # The bus uses one object for all messages of a topic, so looking it up is rare.
            if message.source is not source or message.subject is not subject:
                subject, source = message.subject, message.source
                run = runs.setdefault((subject, source), [])
            run.append(message)
        for key, run in runs.items():
            self._add_run(key, run)

    def _add_run(self, key: tuple[str, Source], run: Sequence[Message]) -> None:
        topic = self._topics.get(key)
        if topic is None:
            if len(self._topics) >= self._topics_max:
                self.others += len(run)
                return
            topic = self._topics[key] = self._make(*key)
        if self._can_repeat:
            run = topic.without_repeats(run)
        if run:
            topic.add(run)

    def begin_interval(self) -> None:
        """Count afresh what rates are about."""
        for topic in self._topics.values():
            topic.begin_interval()

    def reopen_interval(self) -> None:
        """Let the interval before the present one be part of it."""
        for topic in self._topics.values():
            topic.reopen_interval()

    def forget(self, is_over: Callable[[T], bool]) -> None:
        """Make room: let go of topics that are over, with all that is known of them."""
        self._topics = {key: one for key, one in self._topics.items() if not is_over(one)}

    def __iter__(self) -> Iterator[T]:
        """Yield the topics by subject, those of one subject by publisher, as they were found."""
        return iter(sorted(self._topics.values(), key=lambda one: (one.subject, one.source.name)))

    def __len__(self) -> int:
        return len(self._topics)
