"""The samples of time-triggered topics, as a recorder looks on.

A recorder asks for copies of what is sent to consumers, and makes nobody sample anything. Each
sample is recorded as a message with its tick, and the first of each slot with its period.
"""

from collections.abc import Iterable
from contextlib import suppress
from time import monotonic_ns
from typing import NamedTuple

from hubbub.bare_topics import BareTopic
from hubbub.connection import Connection
from hubbub.data_types import find_data_type, subject_of
from hubbub.errors import ClosedError
from hubbub.limits import PRODUCERS_HEARD_MAX
from hubbub.message import Passage, Source
from hubbub.node import Node
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.gateway import Gateway
from hubbub.protocol.timetrigger.passing import Sample
from hubbub.protocol.timetrigger.series import Series
from hubbub.recorder.intake import Intake
from hubbub.subjects import is_subject, matches

_EVERYTHING = 0
_UNKNOWN = -1


class Slotted(Passage, frozen=True, gc=False):
    """How a sample came, and what it is in its recording."""

    tick_ns: int
    period_ns: int  # 0: it opens no slot.
    epoch_ns: int
    clock_offset_ns: int
    clock_error_ns: int  # -1: not known.


class Observer:
    """Puts the samples that match a recorder's patterns into its intake, on all channels."""

    def __init__(self, node: Node, patterns: tuple[str, ...], intake: Intake) -> None:
        self._node = node
        self._patterns = patterns
        self._types = _types_of(patterns)
        self._intake = intake
        self._looking: dict[Connection, tuple[_Look, list[Consumer]]] = {}

    def look(self) -> None:
        """Observe the channels that the node is on, also those that it joined since."""
        for connection in self._node.channels:
            if connection in self._looking:
                continue
            gateway = connection.driver.core.timed
            look = _Look(gateway, self._patterns, self._intake)
            consumers = []
            for number, subject in self._types.items():
                consumer = Consumer.observer(number, subject, gateway.clock)
                connection.driver.call(gateway.consume, consumer, look.take)
                consumers.append(consumer)
            self._looking[connection] = look, consumers

    def close(self) -> None:
        """Observe no more."""
        for connection, (look, consumers) in self._looking.items():
            look.is_open = False
            driver = connection.driver
            with suppress(ClosedError):
                for consumer in consumers:
                    driver.call(driver.core.timed.stop, consumer)


class _Known(NamedTuple):
    """A producer that was heard."""

    source: Source
    topic: BareTopic
    is_named: bool  # False: what its type is called may still be told.
    is_wanted: bool
    series: Series


class _Look:
    """What is observed on one channel."""

    def __init__(self, gateway: Gateway, patterns: tuple[str, ...], intake: Intake) -> None:
        self.is_open = True
        self._gateway = gateway
        self._patterns = patterns
        self._intake = intake
        self._known: dict[tuple[bytes, int], _Known] = {}
        self._first_ports: dict[tuple[bytes, int], int] = {}

    def take(self, sample: Sample) -> None:
        """Take a sample; no lock is held."""
        response = sample.response
        known = self._known.get((response.origin, response.type))
        if known is None or known.source != sample.source or not known.is_named:
            known = self._open(sample)
        place = known.series.place(response)
        if known.is_wanted and self.is_open:
            slotted = Slotted(sample.link, -1, 0, response.tick_ns, *place, *self._clock())
            self._intake.put_run(
                Delivery(
                    known.topic, response.sequence, [response.value], (response.sampled_ns,),
                    sample.received_ns, slotted,
                )
            )  # fmt: skip

    def _clock(self) -> tuple[int, int]:
        """Return how far the clock of ticks is ahead of ours, and how wrong it may be."""
        now, clock = monotonic_ns(), self._gateway.clock
        offset_ns = clock.at(now) - now - self._gateway.endpoint.wall_offset_ns
        return offset_ns, _UNKNOWN if clock.error_ns is None else clock.error_ns

    def _open(self, sample: Sample) -> _Known:
        """Enter a producer, or name it anew: who and what it is may be told after its samples."""
        response = sample.response
        subject = subject_of(response.type) or self._gateway.names.get(response.type, "")
        topic = BareTopic(subject or f"/type/{response.type}", self._source_of(sample))
        is_wanted = any(matches(pattern, topic.subject) for pattern in self._patterns)
        key = response.origin, response.type  # A port may be given to another producer later.
        before = self._known.get(key)
        if before is None and len(self._known) >= PRODUCERS_HEARD_MAX:
            self._known.clear()
            self._first_ports.clear()
        series = Series() if before is None else before.series
        known = _Known(sample.source, topic, bool(subject), is_wanted, series)
        self._known[key] = known
        return known

    def _source_of(self, sample: Sample) -> Source:
        """Say who made a sample: of two producers of one type at a node the second is another.

        Their sequences have nothing to do with each other, and a topic has one.
        """
        source, port = sample.source, sample.port
        first = self._first_ports.setdefault((source.id, sample.response.type), port)
        if first == port:
            return source
        return Source(source.name, source.id, source.incarnation ^ port)


def _types_of(patterns: Iterable[str]) -> dict[int, str]:
    """Return the types to observe, with their subjects; a pattern may mean any of them."""
    if all(is_subject(pattern) for pattern in patterns):
        return dict(find_data_type(pattern) for pattern in patterns)
    return {_EVERYTHING: "/..."}
