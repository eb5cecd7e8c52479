"""What the report shows, as plain values: each picture and each finding is made of these alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Numbers = tuple[float, ...]
SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that the report is about, cut into equal columns. All times are microseconds.

    Windows of the tables begin at full multiples of their length, recordings anywhere: of the first
    and the last column only what was recorded counts.
    """

    first_us: int = 0
    last_us: int = 0
    column_us: int = 1
    columns: int = 0
    window_us: int = 1
    """How long a window of the tables is; a column is one or several of them."""
    grid_us: int = 0
    """Where the first column would begin if it were whole."""

    def begin_us(self, column: int) -> int:
        """Say when a column begins, or, of the one behind the last, when all ends."""
        return max(self.first_us, min(self.grid_us + column * self.column_us, self.last_us))

    def length_us(self, column: int) -> int:
        """Say how long a column is: the first and the last may be cut off."""
        return self.begin_us(column + 1) - self.begin_us(column)

    def counted_us(self, column: int) -> int:
        """Say what a rate is of: a second at least, or one message would be a thousand a second."""
        return max(self.length_us(column), min(SECOND_US, self.column_us))


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of how long messages were on their way; None where there were none."""

    p50_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    max_us: float | None = None
    deviation_us: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One topic in one column of time."""

    messages: int = 0
    bytes: int = 0
    lost: int = 0
    repairs: int = 0
    """Frames of its publisher, whatever was in them."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One subject of one publisher, over the whole time."""

    subject: str
    source: str
    source_id: str
    messages: int = 0
    bytes: int = 0
    lost: int = 0
    duplicates: int = 0
    latency: Latency = Latency()
    cells: tuple[Cell, ...] = ()
    """One a column; empty for a topic that no picture shows."""
    is_shared: bool = False
    """Whether others publish this subject, too."""

    @property
    def full_name(self) -> str:
        """Name the subject and its publisher."""
        return f"{self.subject} · {self.source}"

    @property
    def label(self) -> str:
        """Name the topic in few letters."""
        return self.full_name if self.is_shared else self.subject


@dataclass(frozen=True, slots=True)
class Series:
    """One line or layer of a picture: a value a column."""

    label: str
    values: Numbers
    is_rest: bool = False
    """Whether it sums up what has no layer of its own."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One hole in the sequence of a topic."""

    subject: str
    source: str
    source_id: str
    incarnation: int
    first: int
    last: int
    count: int
    after_us: int | None
    before_us: int | None
    reported_as: str | None
    """The event by which the bus or the recorder told of it; None: nobody did."""
    lost_by: str


@dataclass(frozen=True, slots=True)
class Loss:
    """All holes of one topic that have one cause."""

    subject: str
    source: str
    lost_by: str
    reported_as: str | None
    messages: int
    gaps: int
    first_us: int | None
    last_us: int | None

    @property
    def is_pause(self) -> bool:
        """Tell whether the recorder did not run meanwhile: that is nobody's loss."""
        return self.reported_as == PAUSED


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Rows that are in no other table, for one reason."""

    reason: str
    rows: int
    subjects: tuple[str, ...]
    first_us: int | None
    last_us: int | None
    example: str


@dataclass(frozen=True, slots=True)
class Period:
    """How a time-triggered topic kept its period, or what a consumer got of it."""

    subject: str
    source: str
    period_ns: int
    slots: int
    met: int
    missed: int
    late: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a node."""

    time_us: int
    kind: str
    detail: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Stay:
    """A node was here: from when to when, and how it ended (None: it was still here)."""

    first_us: int | None
    last_us: int | None
    ended: str | None
    was_there: bool = False
    """Whether it was here before the recorder, which met it at `first_us`."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The life of one node."""

    node: str
    node_id: str
    stays: tuple[Stay, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Slow:
    """A consumer that could not keep up, and what was done about it (`policy`)."""

    node: str
    policy: str
    subscription: str
    dropped: int
    reports: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What another node told that it lost; the recorder may have had it."""

    node: str
    messages: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Flow:
    """What one node sent to another."""

    source: str
    receiver: str
    messages: int
    bytes: int
    subjects: tuple[str, ...]
    """The first of them by name."""
    subjects_in_all: int


@dataclass(frozen=True, slots=True)
class Manager:
    """Who managed a service, and since when."""

    service: str
    epoch: int
    manager: str
    since_us: int | None
    until_us: int | None
    messages: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that a report shows."""

    path: str = ""
    clock: Clock = Clock()
    span_us: tuple[int, int] | None = None
    """When the first and the last message were received; None: only their windows are known."""
    nodes: int = 0
    subjects: int = 0
    messages: int = 0
    bytes: int = 0
    lost: int = 0
    duplicates: int = 0
    """Messages that are in the recording twice."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """What the recorder's node and the recorder counted themselves."""
    repairs: Mapping[str, int] = field(default_factory=dict)
    """Frames that were lost on the way and sent again, by publisher; the most first."""
    topics: tuple[Topic, ...] = ()
    """Those that lost most come first, then the busiest."""
    topics_in_all: int = 0
    latency: Latency = Latency()
    latencies: tuple[Latency, ...] = ()
    """One a column."""
    message_rates: tuple[Series, ...] = ()
    byte_rates: tuple[Series, ...] = ()
    gaps: tuple[Gap, ...] = ()
    """The largest of them."""
    gaps_in_all: int = 0
    losses: tuple[Loss, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    periods: tuple[Period, ...] = ()
    consumers: tuple[Period, ...] = ()
    lanes: tuple[Lane, ...] = ()
    lanes_in_all: int = 0
    slow: tuple[Slow, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    flows: tuple[Flow, ...] = ()
    managers: tuple[Manager, ...] = ()
    open_windows: int = 0
    late: int = 0
    missing: tuple[str, ...] = ()


BY_BUS: Final = "bus"
BY_RECORDER: Final = "recorder"
PAUSED: Final = "RecorderStarted"
