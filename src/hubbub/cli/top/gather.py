"""Look at a bus: what nodes declare, what flows, who makes samples, who manages services.

It takes part as any subscriber does. A thread counts messages as they come; everything else is
looked up when it is asked for.
"""

import time
from collections import deque
from itertools import islice
from threading import Lock, Thread
from typing import Final, NamedTuple

import hubbub
from hubbub.awareness import RemotePeer
from hubbub.cli.session import QUEUE_MESSAGES
from hubbub.cli.top.traffic import TopicFigures, Traffic
from hubbub.closing import Closing
from hubbub.errors import ConfigurationError
from hubbub.service_statistics import FoundService
from hubbub.services import Services
from hubbub.statistics import NodeStatistics

_BATCH_MESSAGES: Final = 10_000
_WAIT_S: Final = 0.1
EVENTS_KEPT: Final = 500


class Told(NamedTuple):
    """An event, and when it came."""

    number: int
    time_ns: int
    event: hubbub.Event


class Look(NamedTuple):
    """Everything that was seen at one moment; `before` is what this node counted a look ago."""

    seconds: float
    own: NodeStatistics
    before: NodeStatistics
    peers: tuple[RemotePeer, ...]
    topics: tuple[TopicFigures, ...]
    producers: tuple[hubbub.ScheduledProducer, ...]
    unserved: tuple[hubbub.ScheduledConsumer, ...]
    services: tuple[FoundService, ...]
    events: tuple[Told, ...]
    dropped: int  # Messages that came too fast to be counted here.
    pattern: str  # What was asked for.


class Gatherer(Closing):
    """Watch a bus through a node, until closed."""

    def __init__(self, node: hubbub.Node, pattern: str) -> None:
        self._node = node
        self._pattern = pattern
        self._traffic = Traffic()
        self._lock = Lock()
        self._events: deque[Told] = deque(maxlen=EVENTS_KEPT)
        self._told = 0
        self._subscription = node.subscribe(pattern, queue=QUEUE_MESSAGES)
        self._samples = node.observe(queue=QUEUE_MESSAGES)
        self._schedule = node.schedule()
        self._services = _find_services(node)
        self._end_events = node.on_event(self._hear)
        self._own = node.statistics()
        self._looked_s = time.monotonic()
        self._is_closed = False
        self._counter = Thread(target=self._count, name="hubbub-top", daemon=True)
        self._counter.start()

    def look(self) -> Look:
        """Return all there is to see, with rates since the look before."""
        services = () if self._services is None else self._services.find()
        before, self._own = self._own, self._node.statistics()
        now_s = time.monotonic()
        seconds, self._looked_s = max(now_s - self._looked_s, 1e-3), now_s
        with self._lock:
            topics = self._traffic.end_interval(seconds)
        return Look(
            seconds, self._own, before, self._node.peers(), topics, self._schedule.producers(),
            self._schedule.unserved(), services, tuple(self._events),
            self._subscription.dropped + self._samples.statistics().dropped, self._pattern,
        )  # fmt: skip

    def close(self) -> None:
        """Look on no more."""
        self._is_closed = True
        self._counter.join()
        self._end_events()
        self._schedule.close()
        self._samples.stop()
        self._subscription.close()

    def _count(self) -> None:
        """Count messages in batches: what is there already costs less to take."""
        subscription = self._subscription
        while not self._is_closed and not subscription.is_closed:
            message = subscription.receive(_WAIT_S)
            samples = list(islice(self._samples, self._samples.pending))
            with self._lock:
                self._traffic.add_samples(samples)
                if message is not None:
                    more = islice(subscription, min(subscription.pending, _BATCH_MESSAGES))
                    self._traffic.add_messages([message, *more])

    def _hear(self, event: hubbub.Event) -> None:
        if isinstance(event, hubbub.Starved):
            return  # Drawing tables is what holds us up; it says nothing of the bus.
        with self._lock:
            self._told += 1
            self._events.append(Told(self._told, time.time_ns(), event))


def _find_services(node: hubbub.Node) -> Services | None:
    """Return the services of a bus; None where it has no network to share them by."""
    try:
        return node.services
    except ConfigurationError:
        return None
