"""What an application holds in the hand to consume: one sample a period of each producer."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from hubbub.addresses import read_device
from hubbub.bare_topics import BareTopic
from hubbub.closing import Closing
from hubbub.data_types import find_data_type, subject_of
from hubbub.errors import ClosedError, ConfigurationError
from hubbub.given import is_number
from hubbub.limits import MS, PERIOD_US_MAX, PRODUCERS_HEARD_MAX, QUEUE_MESSAGES, US
from hubbub.message import Message, Source, Tick
from hubbub.producer import check_scope
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.timetrigger import consumer as machines
from hubbub.protocol.timetrigger.passing import Sample
from hubbub.protocol.timetrigger.sieve import UNCHOSEN
from hubbub.protocol.timetrigger.slots import DUPLICATE, EARLY, LATE, STALE
from hubbub.subscription import Subscription
from hubbub.wire.timed import ALL, INTEREST_MODES, NEAREST, OBSERVE, ONE, SYNCHRONISED

if TYPE_CHECKING:
    from hubbub.connection import Connection
    from hubbub.node import Node

_MODES = {INTEREST_MODES[mode]: mode for mode in (ALL, ONE, NEAREST)}


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """What a consumer wants, and what came.

    A slot of a producer is served or missed, from its first sample until it stops or is given up;
    slots without any producer are `vacant`. `discarded_early` are samples of a slot that has one
    already, `late` those of a slot that was given up, `stale` those that were too old.
    """

    subject: str
    data_type: int
    port: int
    period_ms: float
    granted_ms: float
    producers: int
    served: int
    missed: int
    vacant: int
    discarded_early: int
    duplicates: int
    late: int
    stale: int
    unchosen: int
    pending: int
    dropped: int


class Consumer(Closing):
    """Receive one sample a period of each producer of one type, in any thread or event loop.

    for message in node.consume("/vehicle/speed", period_ms=100): ...
    async for message in consumer: ...
    message = consumer.receive(timeout=1.0)

    `message.tick_ns` is the tick it was made for, `published_ns` when it was sampled.
    """

    def __init__(
        self, node: "Node", connection: "Connection", what: str | int | None, *,
        period_us: int, callback: Callable[[Message], object] | None = None, context: Any = None,
        mode: str = "all", scope: int = 0, max_age_ms: float | None = None,
        queue: int = QUEUE_MESSAGES, overflow: str = "drop_oldest", inline: bool = False,
        type: Any = None, port: int | None = None, inside: bool = False, of: Any = None,
        is_observer: bool = False,
    ) -> None:  # fmt: skip
        data_type, self.subject = (0, "/...") if what is None else find_data_type(what)
        number = OBSERVE if is_observer else _check_mode(mode)
        age_ns_max = _check_age(max_age_ms)
        check_scope(scope)
        self.context = context
        self._node = node
        self._driver = connection.driver
        self._gateway = connection.driver.core.timed
        self._topics: dict[bytes, BareTopic] = {}
        self._lock = threading.Lock()
        self._is_stopped = False
        self._subscription = Subscription(
            node._host, callback=callback, context=context, queue=queue, overflow=overflow,
            inline=inline, type=type, channel=connection,
        )  # fmt: skip
        self._machine = machines.Consumer(
            0, data_type, self.subject, self._gateway.clock, period_us=period_us,
            mode=number, scope=scope, age_ns_max=age_ns_max,
            within=self._read_origin(of, inside), is_inside=inside,
        )  # fmt: skip
        node._host.enter(self._subscription)
        try:
            self._driver.call(self._gateway.consume, self._machine, self._take, port)
        except BaseException:
            self._subscription.close()
            raise
        self.port: int = self._machine.port

    def set_interest(self, *, period_ms: float | None = None, period_us: int | None = None) -> None:
        """Want samples at another period, from now on."""
        wanted_us = read_period(period_ms, period_us)
        if self.is_stopped:
            raise ClosedError(f"the consumer of {self.subject} was stopped: make another")
        self._driver.call(self._gateway.set_period, self._machine, wanted_us)

    @property
    def data_type(self) -> int:
        """Return the number of its type: the registered one, as soon as it is heard of."""
        return int(self._machine.type)

    @property
    def period_ms(self) -> float:
        """Return how often a sample is wanted."""
        return float(self._machine.period_us * US / MS)

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next sample, waiting at most `timeout` seconds for it; None: none came."""
        return self._subscription.receive(timeout)

    async def receive_async(self) -> Message:
        """Await the next sample; cancelling loses none."""
        return await self._subscription.receive_async()

    def __iter__(self) -> Iterator[Message]:
        """Yield samples as they come, until the consumer is stopped."""
        return iter(self._subscription)

    def __aiter__(self) -> Self:
        """Iterate under asyncio."""
        return self

    async def __anext__(self) -> Message:
        """Await the next sample; the iteration ends when the consumer is stopped."""
        return await self._subscription.__anext__()

    @property
    def pending(self) -> int:
        """Return how many samples are not yet handed out."""
        return self._subscription.pending

    @property
    def is_stopped(self) -> bool:
        """Tell whether it has ended."""
        return self._is_stopped or self._subscription.is_closed

    def stop(self) -> None:
        """Want nothing any more. Callbacks end at once; readers get what is queued, then end."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
        with suppress(ClosedError):
            self._driver.call(self._gateway.stop, self._machine)
        self._node._components.discard(self)
        self._node._telling.end_counting(self)
        self._subscription.close()

    close = stop

    def statistics(self) -> ConsumerStatistics:
        """Return what it wants, and what came."""
        with self._driver.lock:
            machine = self._machine
            counts = machine.counts
            return ConsumerStatistics(
                subject=self.subject,
                data_type=int(machine.type),
                port=self.port,
                period_ms=machine.period_us * US / MS,
                granted_ms=max(machine.granted_us, machine.period_us) * US / MS,
                producers=len(machine.streams),
                served=machine.served,
                missed=machine.missed,
                vacant=machine.vacant(time.monotonic_ns()),
                discarded_early=counts[EARLY],
                duplicates=counts[DUPLICATE],
                late=counts[LATE],
                stale=counts[STALE],
                unchosen=counts[UNCHOSEN],
                pending=self._subscription.pending,
                dropped=self._subscription.dropped,
            )

    def _read_origin(self, of: Any, inside: bool) -> bytes:
        """Return with what the origin of each sample must begin."""
        own: bytes = self._gateway.node if inside else b""
        device = own if of is None else read_device(of)
        if not device.startswith(own):
            raise ConfigurationError(
                f"of={of!r} is not of this node, and inside=True wants no other"
            )
        return device

    def __repr__(self) -> str:
        how = f"each {self.period_ms:g} ms" if self.period_ms else "once"
        state = "stopped" if self.is_stopped else f"{how}, port {self.port}"
        return f"<Consumer {self.subject} {state}>"

    def _take(self, sample: Sample) -> None:
        """Take a sample from the gateway; no lock is held.

        Consumers of one subject share what is made of it: ten callbacks take 31 us, not 51.
        """
        for delivery in sample.wrapped:
            if delivery.topic.subject == self.subject:
                break
        else:
            delivery = self._wrap(sample)
            sample.wrapped.append(delivery)
        self._subscription.deliver(delivery, self.context)

    def _wrap(self, sample: Sample) -> Delivery:
        """Make of a sample what subscriptions know."""
        response = sample.response
        topic = self._topics.get(response.origin)
        if topic is None or topic.source != sample.source:
            if len(self._topics) >= PRODUCERS_HEARD_MAX:
                self._topics.clear()  # Each is made again with its next sample.
            topic = self._topics[response.origin] = self._make_topic(response.type, sample.source)
        is_synchronised = bool(response.flags & SYNCHRONISED)
        tick = Tick(
            sample.link, -1, 0, response.tick_ns, response.granted_us * US, sample.port,
            response.era, is_synchronised,
        )  # fmt: skip
        return Delivery(
            topic, response.sequence, [response.value], (response.sampled_ns,),
            sample.received_ns, tick,
        )  # fmt: skip

    def _make_topic(self, number: int, source: Source) -> BareTopic:
        if self.data_type:
            return BareTopic(self.subject, source)
        subject = subject_of(number) or self._gateway.names.get(number) or f"/type/{number}"
        return BareTopic(subject, source)


def read_period(
    period_ms: float | None, period_us: int | None, *, may_be_once: bool = False
) -> int:
    """Return a period in microseconds, given in one of two units; 0: once, where that may be."""
    if (period_ms is None) == (period_us is None):
        raise ConfigurationError("give one of period_ms and period_us")
    what = f"period_ms={period_ms!r}" if period_us is None else f"period_us={period_us!r}"
    value = period_us if period_ms is None else period_ms
    if not is_number(value) or value != value:
        raise ConfigurationError(f"{what} is no number")
    period = value if period_ms is None else value * 1000
    if not 1 <= period <= PERIOD_US_MAX and not (may_be_once and period == 0):
        or_once = ", or 0 for one sample" if may_be_once else ""
        raise ConfigurationError(f"{what} must be from 1 us to a day{or_once}")
    return round(period)


def _check_mode(mode: Any) -> int:
    if mode not in _MODES:
        raise ConfigurationError(f"mode={mode!r}: choose one of {', '.join(_MODES)}")
    return _MODES[mode]


def _check_age(max_age_ms: Any) -> int:
    if max_age_ms is None:
        return 0
    if not is_number(max_age_ms) or not 0 < max_age_ms < 1e12:
        raise ConfigurationError(f"max_age_ms={max_age_ms!r} must be more than 0, or None")
    return int(max_age_ms * MS)
