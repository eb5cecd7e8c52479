"""What `hubbub top` knows of each topic: figures of the last interval, and how they went before.

`hubbub hz` and its like tell of everything since they began; here old figures give way, because who
looks at a bus wants to see that it is well again.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hubbub.cli.rates import Reservoir, SizedTopic, Topics, percentile
from hubbub.message import Message, Source

TREND_INTERVALS: Final = 120  # Two minutes, at one a second.
PREVIEW_BYTES: Final = 4096  # Copied of the newest payload: a view would hold on to its memory.


class Newest(NamedTuple):
    """The message that came last, and the beginning of its payload."""

    sequence: int
    published_ns: int
    size_bytes: int
    link: str
    preview: bytes


class TopicFigures(NamedTuple):
    """One subject of one publisher: what came in the last interval, and in all."""

    subject: str
    source: Source
    is_sampled: bool  # Time-triggered: whether a sample is missing, its consumers know.
    messages: int
    lost: int
    rate: float
    byte_rate: float
    latencies_ns: Sequence[int]  # Sorted, of the last interval that had any.
    trend: tuple[float, ...]  # Messages a second, interval by interval.
    newest: Newest

    def percentile_ns(self, share: float) -> int:
        """Return the latency that a share of all does not exceed."""
        return percentile(list(self.latencies_ns), share)


class LiveTopic(SizedTopic):
    """How much came of a topic, interval by interval, and how late."""

    is_sampled = False

    def __init__(self, subject: str, source: Source) -> None:
        super().__init__(subject, source)
        self._latencies_ns = Reservoir()
        self._shown_ns: Sequence[int] = ()
        self._trend: deque[float] = deque(maxlen=TREND_INTERVALS)
        self._last: Newest | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether nothing came for as long as is remembered."""
        return len(self._trend) == TREND_INTERVALS and not any(self._trend)

    def end_interval(self, seconds: float) -> TopicFigures:
        """Describe the interval that is over, and begin the next."""
        assert self._last is not None
        rate, byte_rate = self.rate(seconds), self.byte_rate(seconds)
        self._trend.append(rate)
        if self._latencies_ns.samples:
            self._shown_ns = sorted(self._latencies_ns.samples)
            self._latencies_ns = Reservoir()
        self.begin_interval()
        return TopicFigures(
            self.subject, self.source, self.is_sampled, self.messages, self.lost, rate, byte_rate,
            self._shown_ns, tuple(self._trend), self._last,
        )  # fmt: skip

    def _measure(self, run: Sequence[Message], *, has_holes: bool) -> None:
        super()._measure(run, has_holes=has_holes)
        self._latencies_ns.add([one.received_ns - one.published_ns for one in run])
        last = run[-1]
        preview = bytes(memoryview(last.payload)[:PREVIEW_BYTES])
        self._last = Newest(last.sequence, last.published_ns, len(last.payload), last.link, preview)


class SampledTopic(LiveTopic):
    """The same of a time-triggered topic, whose numbers say nothing about what is missing here."""

    is_sampled = True

    def add(self, run: Sequence[Message]) -> None:
        """Count samples."""
        super().add(run)
        self.lost = 0


class Traffic:
    """All that came, topic by topic."""

    def __init__(self) -> None:
        self._messages = Topics(LiveTopic)
        self._samples = Topics(SampledTopic)

    def add_messages(self, messages: Iterable[Message]) -> None:
        """Count what a subscription brought."""
        self._messages.add(messages)

    def add_samples(self, samples: Iterable[Message]) -> None:
        """Count what an observer of time-triggered topics brought."""
        self._samples.add(samples)

    def end_interval(self, seconds: float) -> tuple[TopicFigures, ...]:
        """Describe all topics in the interval that is over; forget those that are long silent."""
        topics = (*self._messages, *self._samples)
        figures = tuple(topic.end_interval(seconds) for topic in topics)
        for some in (self._messages, self._samples):
            some.forget(lambda topic: topic.is_over)
        return figures
