"""Who makes and wants what how often, all over a channel: as producers offer and consumers ask."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubbub.closing import Closing
from hubbub.limits import MS, US
from hubbub.message import Source
from hubbub.protocol.timetrigger.watch import SeenInterest, SeenOffer, Watch
from hubbub.wire.timed import INTEREST_MODES, SCHEDULES

if TYPE_CHECKING:
    from hubbub.connection import Connection
    from hubbub.node import Node


@dataclass(frozen=True, slots=True)
class ScheduledConsumer:
    """A consumer, as its node told last."""

    source: Source
    port: int
    subject: str
    data_type: int
    mode: str
    period_ms: float
    served: int
    missed: int


@dataclass(frozen=True, slots=True)
class ScheduledProducer:
    """A producer, as it told last, and the consumers of its type.

    `tick_ms` is the grid that all its ticks are on, `ticks_hz` how many of them there are.
    """

    source: Source
    port: int
    subject: str
    data_type: int
    schedule: str
    tick_ms: float
    granted_ms: float
    ticks_hz: float
    sent: int
    skipped: int
    consumers: tuple[ScheduledConsumer, ...]


class Schedule(Closing):
    """What a node that looks on knows of time-triggered topics; producers tell it each second.

    with node.schedule() as schedule:
        for producer in schedule.producers(): ...
    """

    def __init__(self, node: "Node", connection: "Connection") -> None:
        self._driver = connection.driver
        self._gateway = connection.driver.core.timed
        office = self._gateway.office
        self._watch = office.watch = office.watch or Watch()
        # Producers tell who observes them; the samples themselves are of no use here.
        self._observer = node.observe(channel=connection, callback=_let_go, inline=True)

    def close(self) -> None:
        """Look on no more."""
        self._observer.stop()

    def producers(self) -> tuple[ScheduledProducer, ...]:
        """Return all producers that are known, by subject and name, with their consumers."""
        with self._driver.lock:
            now = time.monotonic_ns()
            offers, interests = self._watch.offers(now), self._watch.interests(now)
        consumers = [one for seen in interests for one in _consumers(seen)]
        found = [_producer(seen, consumers) for seen in offers]
        return tuple(sorted(found, key=lambda one: (one.subject, one.source.name, one.port)))

    def unserved(self) -> tuple[ScheduledConsumer, ...]:
        """Return the consumers of types that nobody makes."""
        with self._driver.lock:
            now = time.monotonic_ns()
            offers, interests = self._watch.offers(now), self._watch.interests(now)
        made = {seen.offer.type for seen in offers}
        return tuple(
            one for seen in interests if seen.interest.type not in made for one in _consumers(seen)
        )


def _let_go(sample: object) -> None:
    """Take a sample: one that nobody takes would be told of as dropped."""


def _consumers(seen: SeenInterest) -> list[ScheduledConsumer]:
    interest = seen.interest
    return [
        ScheduledConsumer(
            seen.source, wanted.port, interest.subject, interest.type,
            INTEREST_MODES[interest.mode], wanted.period_us * US / MS, wanted.served, wanted.missed,
        )
        for wanted in interest.wants
    ]  # fmt: skip


def _producer(seen: SeenOffer, consumers: list[ScheduledConsumer]) -> ScheduledProducer:
    offer = seen.offer
    return ScheduledProducer(
        seen.source, offer.port, offer.subject, offer.type, SCHEDULES[offer.schedule],
        offer.tick_us * US / MS, offer.granted_us * US / MS, offer.millihertz / 1000, offer.sent,
        offer.skipped, tuple(one for one in consumers if one.data_type == offer.type),
    )  # fmt: skip
