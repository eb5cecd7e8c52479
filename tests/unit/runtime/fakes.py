"""A node's edge as the runtime sees it: patterns, events and time, all in the test's hand."""

from collections.abc import Callable, Iterable
from typing import Any

from hubbub.errors import ClosedError
from hubbub.events import Event
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.runtime.pool import Pool
from hubbub.subscription import Subscription

LIDAR = Source("lidar", b"\x01" * 12, 1)
RADAR = Source("radar", b"\x02" * 12, 1)


class FakeTopic:
    def __init__(self, subject: str = "/plant/temp", source: Source = LIDAR) -> None:
        self.subject = subject
        self.source = source
        self.sinks: tuple[Any, ...] = ()
        self.generation = 0
        self.schema_name = ""
        self.schema_hash = 0
        self.replayed_ns = 0


TEMP = FakeTopic()


def run(
    first: int, count: int, topic: FakeTopic = TEMP, payloads: Iterable[bytes] | None = None
) -> Delivery:
    """Return the messages `first` .. `first + count - 1`, each with its sequence as payload."""
    sequences = range(first, first + count)
    return Delivery(
        topic,
        first,
        [b"%d" % sequence for sequence in sequences] if payloads is None else list(payloads),
        [sequence + 1000 for sequence in sequences],
        77,
        "multicast",
    )


class FakeTime:
    """A clock that stands still, and calls to be made later."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000
        self.calls: list[tuple[int, Callable[[], object]]] = []
        self.is_closed = False

    def clock_ns(self) -> int:
        return self.now_ns

    def call_at(self, deadline_ns: int, function: Callable[[], object]) -> None:
        if self.is_closed:
            raise ClosedError("no I/O thread")
        self.calls.append((deadline_ns, function))

    def make_calls(self) -> None:
        calls, self.calls = self.calls, []
        for _, function in calls:
            function()


class FakeNode:
    def __init__(self) -> None:
        self.time = FakeTime()
        self.events: list[Event] = []
        self.patterns: dict[int, tuple[Subscription, str, Any]] = {}
        self.forgotten: list[Subscription] = []
        self._handles = iter(range(1, 1_000_000))
        self.pool = Pool(self.time.call_at)

    def add_pattern(self, subscription: Subscription, pattern: str, context: Any) -> int:
        handle = next(self._handles)
        self.patterns[handle] = (subscription, pattern, context)
        return handle

    def remove_pattern(self, handle: int) -> None:
        del self.patterns[handle]

    def forget(self, subscription: Subscription) -> None:
        self.forgotten.append(subscription)

    def emit(self, event: Event, subscription: Subscription) -> None:
        self.events.append(event)

    def call_at(self, deadline_ns: int, function: Callable[[], object]) -> None:
        self.time.call_at(deadline_ns, function)

    def nudge(self) -> None:
        return

    def lead_until(self, is_ready: Callable[[], bool], deadline_ns: int | None) -> bool:
        return False
