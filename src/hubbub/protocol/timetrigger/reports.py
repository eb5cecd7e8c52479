"""What of time-triggered topics is worth an event, and how often."""

from collections.abc import Callable
from typing import Any

from hubbub.events import (
    DeadlineMissed,
    InterestRefused,
    NothingProduced,
    PeriodGranted,
    TicksSkipped,
)
from hubbub.limits import MS, PRODUCERS_HEARD_MAX, TIMED_REPORT, US
from hubbub.message import Source
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.producer import Producer
from hubbub.protocol.timetrigger.sieve import Miss
from hubbub.wire.timed import Interest, split_origin

_KEYS_MAX = 4096


class Reports:
    """The events of one gateway: of one kind and cause, one a second, with what came between."""

    def __init__(self, endpoint: Endpoint, find_source: Callable[[bytes], Source]) -> None:
        self._endpoint = endpoint
        self._find_source = find_source
        self._told_ns: dict[Any, int] = {}
        self._owed: dict[Any, int] = {}

    def missed(self, now: int, consumer: Consumer, miss: Miss) -> None:
        """Report slots that stayed empty; the end of a producer at once."""
        slots = self._due(
            now, ("missed", consumer, miss.origin), miss.slots, is_urgent=miss.is_lost
        )
        if slots or miss.is_lost:
            node, port = split_origin(miss.origin)
            self._endpoint.events.append(
                DeadlineMissed(
                    self._endpoint.channel, self._find_source(node), port, consumer.subject,
                    consumer.period_us * US / MS, slots, miss.is_lost,
                )
            )  # fmt: skip

    def vacant(self, consumer: Consumer) -> None:
        """Report that nobody makes what a consumer wants, once until somebody does."""
        if consumer.is_vacancy_told:
            return
        consumer.is_vacancy_told = True
        period_ms = consumer.period_us * US / MS
        event = NothingProduced(self._endpoint.channel, consumer.subject, period_ms)
        self._endpoint.events.append(event)

    def granted(self, consumer: Consumer, origin: bytes, granted_us: int) -> None:
        """Report that a producer serves a consumer at a longer period, once for each."""
        if consumer.grants.get(origin) == granted_us:
            return
        if len(consumer.grants) >= PRODUCERS_HEARD_MAX:
            consumer.grants.clear()
        consumer.grants[origin] = granted_us
        node, port = split_origin(origin)
        self._endpoint.events.append(
            PeriodGranted(
                self._endpoint.channel, self._find_source(node), port, consumer.subject,
                consumer.period_us * US / MS, granted_us * US / MS,
            )
        )  # fmt: skip

    def refused(self, now: int, producer: Producer, interest: Interest, reason: str) -> None:
        """Report an interest that is not served as it is."""
        count = self._due(now, ("refused", producer, reason), 1)
        if count:
            asked_us = min((wanted.period_us for wanted in interest.wants), default=0)
            self._endpoint.events.append(
                InterestRefused(
                    self._endpoint.channel, producer.subject, count, asked_us * US / MS,
                    producer.options.spacing_us * US / MS, reason,
                )
            )  # fmt: skip

    def skipped(self, now: int, producer: Producer, count: int) -> None:
        """Report ticks that nobody was there for."""
        owed = self._due(now, ("skipped", producer), count)
        if owed:
            event = TicksSkipped(self._endpoint.channel, producer.subject, owed)
            self._endpoint.events.append(event)

    def is_due(self, now: int, key: Any) -> bool:
        """Tell whether something may be reported: not within a second of the last time."""
        return bool(self._due(now, key, 1))

    def _due(self, now: int, key: Any, count: int, *, is_urgent: bool = False) -> int:
        """Return how many to report now; 0: later, together with others."""
        owed = self._owed.pop(key, 0) + count
        told_ns = self._told_ns.get(key)
        if told_ns is not None and now - told_ns < TIMED_REPORT and not is_urgent:
            self._owed[key] = owed
            return 0
        if len(self._told_ns) >= _KEYS_MAX:
            self._told_ns.clear()
            self._owed.clear()  # The counters know.
        self._told_ns[key] = now
        return owed
