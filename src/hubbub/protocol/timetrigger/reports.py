"""What of time-triggered topics is worth an event, and how often."""

from collections.abc import Callable
from typing import Any, NamedTuple

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
from hubbub.protocol.timetrigger.interests import NEVER
from hubbub.protocol.timetrigger.producer import Producer
from hubbub.protocol.timetrigger.sieve import Miss
from hubbub.wire.timed import Interest, split_origin

_KEYS_MAX = 4096


class Owed(NamedTuple):
    """What happened since it was told last, and how to tell it."""

    times: int
    tell: Callable[[int], None]


class Reports:
    """The events of one gateway: of one kind and cause, one a second, with what came between."""

    def __init__(
        self, endpoint: Endpoint, find_source: Callable[[bytes], Source],
        plan: Callable[["Reports"], None],
    ) -> None:  # fmt: skip
        self.due_ns = NEVER
        self._endpoint = endpoint
        self._find_source = find_source
        self._plan = plan
        self._told_ns: dict[Any, int] = {}
        self._owed: dict[Any, Owed] = {}

    def missed(self, now: int, consumer: Consumer, miss: Miss) -> None:
        """Report slots that stayed empty; the end of a producer at once."""

        def tell(slots: int) -> None:
            node, port = split_origin(miss.origin)
            self._endpoint.events.append(
                DeadlineMissed(
                    self._endpoint.channel, self._find_source(node), port, consumer.subject,
                    consumer.period_us * US / MS, slots, miss.is_lost,
                )
            )  # fmt: skip

        key = "missed", consumer, miss.origin
        self._report(now, key, Owed(miss.slots, tell), is_urgent=miss.is_lost)

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
        asked_us = min((wanted.period_us for wanted in interest.wants), default=0)

        def tell(count: int) -> None:
            self._endpoint.events.append(
                InterestRefused(
                    self._endpoint.channel, producer.subject, count, asked_us * US / MS,
                    producer.options.spacing_us * US / MS, reason,
                )
            )  # fmt: skip

        self._report(now, ("refused", producer, reason), Owed(1, tell))

    def skipped(self, now: int, producer: Producer, count: int) -> None:
        """Report ticks that nobody was there for."""

        def tell(count: int) -> None:
            event = TicksSkipped(self._endpoint.channel, producer.subject, count)
            self._endpoint.events.append(event)

        self._report(now, ("skipped", producer), Owed(count, tell))

    def is_due(self, now: int, key: Any) -> bool:
        """Tell whether something may be reported: not within a second of the last time."""
        told_ns = self._told_ns.get(key)
        if told_ns is not None and now - told_ns < TIMED_REPORT:
            return False
        if len(self._told_ns) >= _KEYS_MAX:
            self._told_ns.clear()
            self._owed.clear()  # The counters know.
        self._told_ns[key] = now
        return True

    def advance(self, now: int) -> None:
        """Report what came within a second of the last time, now that it is over."""
        self.due_ns = NEVER
        for key, owed in list(self._owed.items()):
            del self._owed[key]
            self._report(now, key, owed)

    def _report(self, now: int, key: Any, news: Owed, *, is_urgent: bool = False) -> None:
        """Report so many now, or later, together with others."""
        before = self._owed.pop(key, None)
        owed = news if before is None else Owed(before.times + news.times, news.tell)
        if self.is_due(now, key) or is_urgent:
            owed.tell(owed.times)
            return
        self._owed[key] = owed
        self.due_ns = min(self.due_ns, self._told_ns[key] + TIMED_REPORT)
        self._plan(self)
