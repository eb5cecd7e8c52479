"""A service in the hand: subscribe, publish, ask one member, see who manages it."""

import inspect
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from hubbub.bare_topics import BareTopic, BareTopics
from hubbub.closing import Closing
from hubbub.errors import ClosedError, ConfigurationError, HubbubError, PayloadError
from hubbub.limits import (
    LANES_MAX,
    QUEUE_MESSAGES,
    SERVICE_NAME_BYTES_MAX,
    SERVICE_PATTERNS_BYTES_MAX,
    SERVICE_PATTERNS_MAX,
    SERVICE_PAYLOAD_BYTES_MAX,
    SERVICE_SUBJECTS_KEPT,
)
from hubbub.message import Message, Served, Source
from hubbub.newcomers import Newcomers
from hubbub.protocol.delivery import new_delivery
from hubbub.protocol.rendezvous.client import NO_ORDER, ORDERS, TOTAL
from hubbub.protocol.rendezvous.publishing import Lane
from hubbub.protocol.rendezvous.seat import Delivered, Settled
from hubbub.runtime.inbox import message_of_one
from hubbub.runtime.logs import logger_of
from hubbub.service_host import ServiceHost
from hubbub.service_sending import Outgoing, Sending
from hubbub.subjects import check_patterns, check_subject, matches
from hubbub.subscription import Subscription
from hubbub.wire.services import (
    ANSWERS,
    ANYCAST,
    NO_LOCAL,
    PASSED,
    RETAIN,
    STATUS_NAMES,
    TAKEN,
    UNAVAILABLE,
    service_key,
)

if TYPE_CHECKING:
    from hubbub.node import Node
    from hubbub.services import Services

_log = logger_of("subscription")
_REQUEST_PATIENCE_S = 10.0
_NO_ANSWER = "the member that was asked has no answer"
CHANNEL = "services"
_BYTES = (bytes, bytearray, memoryview)  # A union would be made anew at each call.
make_served = lru_cache(1024)(Served)


class Service(Closing):
    """One service, found by its name wherever its manager is; `node.service` makes it.

    news = node.service("hype-news")
    news.subscribe(print)
    news.publish(b"21.5")
    """

    def __init__(self, node: "Node", services: "Services", name: str) -> None:
        self.name = check_name(name)
        self.key = service_key(name)
        self._node = node
        self._services = services
        self._driver = services.driver
        self._machine = services.driver.machine
        self._subscriptions: dict[Subscription, tuple[str, ...]] = {}  # And what each wants.
        self._newcomers = Newcomers()
        self._host = ServiceHost(node, name, self._closed)
        self._answer: Callable[[Message], Any] | None = None
        self._lane = node._pool.lane(self._answer_next)
        self._asked: deque[tuple[Delivered, Message]] = deque()
        self._options: dict[str, Any] = {"flags": 0, "order": NO_ORDER, "credentials": b""}
        self._patterns: tuple[str, ...] = ()  # What our subscriptions want together.
        self._lock = Lock()
        self._sending = Sending(self._driver, name, node.settings.send_timeout)
        self._lanes: dict[str, Lane] = {}
        # The only subscription of this node, if it has an inline callback, and its context.
        self._sole: tuple[Callable[[Message], bool], Any] | None = None
        self._passage = make_served(CHANNEL, -1, 0, name, 0)  # Of the last message.
        self._topics: BareTopics[tuple[bytes, int, str]] = BareTopics(
            SERVICE_SUBJECTS_KEPT, self._make_topic
        )

    # Subscribing.

    def subscribe(
        self,
        callback: Callable[[Message], object] | None = None,
        *,
        context: Any = None,
        queue: int = QUEUE_MESSAGES,
        overflow: str = "drop_oldest",
        order: str = "none",
        no_local: bool = False,
        credentials: bytes = b"",
        patterns: str | Iterable[str] = (),
        inline: bool = False,
    ) -> Subscription:
        """Receive what is published here: iterate over the result, or give a callback.

        It is a subscription like any other. With `patterns` only what is published on a subject
        that matches one of them comes; the manager sees to that. `order` is `none`, `fifo` (each
        publisher's, subject by subject) or `total` (the same for everybody, and with everything:
        neither patterns nor `no_local`). It and `credentials` are those of the whole node: the
        last call decides.
        """
        wanted = _check_patterns(patterns, order)
        if no_local and order == TOTAL:
            raise ConfigurationError(
                "order='total' counts the messages of this node, too: leave out no_local, and pass"
                " over those whose source is this node"
            )
        if order not in ORDERS:
            raise ConfigurationError(f"order={order!r}: choose one of {', '.join(ORDERS)}")
        if order != NO_ORDER and self._machine.seat.is_first_version:
            raise ConfigurationError(f"order={order!r}: services='v1' counts no messages")
        subscription = Subscription(
            self._host, callback=callback, context=context, queue=queue, overflow=overflow,
            inline=inline, no_local=no_local, channel=CHANNEL,
        )  # fmt: skip
        flags = ANSWERS if self._answer else 0
        self._options = {"flags": flags, "order": order, "credentials": credentials}
        self._enter(subscription, wanted)
        return subscription

    def _enter(self, subscription: Subscription, wanted: tuple[str, ...] = ()) -> None:
        """Let a subscription have what comes, with the options of the others."""
        self._host.enter(subscription)
        subscription.add(self.name)
        with self._lock:
            self._subscriptions[subscription] = wanted
            self._sole = self._find_sole()
        is_on_the_list = self.key in self._machine.client.subscribed
        if not wanted:
            self._newcomers.add(subscription)
        self._join(RETAIN if is_on_the_list and not wanted else 0)

    def _find_sole(self) -> tuple[Callable[[Message], bool], Any] | None:
        """Return how to call back at once, where one subscription gets everything so."""
        if len(self._subscriptions) != 1:
            return None
        [(subscription, wanted)] = self._subscriptions.items()
        at_once = None if wanted or subscription.no_local else subscription.at_once
        return None if at_once is None else (at_once, subscription.context)

    create = subscribe

    def answer(self, function: Callable[[Message], Any]) -> None:
        """Answer requests to any one member: the function returns the reply, as bytes."""
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"{function!r}: give a plain function that returns bytes")
        with self._lock:
            self._answer = function
            self._options["flags"] |= ANSWERS
        self._join()

    def _join(self, also: int = 0) -> None:
        self._services.listen()
        self._driver.call(self._ask, also)

    def _ask(self, now: int, also: int = 0) -> None:
        """Tell the machine what is wanted here now.

        Under its lock: of two threads, one that ends the last subscription and one that begins the
        next, the later one says how things are.
        """
        with self._lock:
            is_over = not self._subscriptions and self._answer is None
            self._patterns = patterns = unite(list(self._subscriptions.values()))
            options = {**self._options, "flags": self._options["flags"] | also | self._no_local()}
        if is_over:
            self._machine.unsubscribe(now, self.name)
        else:
            self._machine.subscribe(now, self.name, patterns=patterns, **options)

    def _no_local(self) -> int:
        """Return the flag that leaves out what this node publishes, if nobody here wants that."""
        is_everybody = all(one.no_local for one in self._subscriptions)
        is_left_out = self._subscriptions and is_everybody and self._options["order"] != TOTAL
        return NO_LOCAL if is_left_out else 0

    def _closed(self, subscription: Subscription) -> None:
        with self._lock:
            before = self._no_local()
            self._subscriptions.pop(subscription, None)
            self._newcomers.discard(subscription)
            self._sole = self._find_sole()
            is_over = not self._subscriptions and self._answer is None
            is_less = unite(list(self._subscriptions.values())) != self._patterns
            is_less = is_less or self._no_local() != before
        if is_over or is_less:
            with suppress(ClosedError):
                self._driver.call(self._ask)

    def wait_until_subscribed(self, timeout: float | None = None) -> bool:
        """Wait until the manager has us on its list; False: not in time."""
        return self._driver.wait(self._is_confirmed, timeout)

    async def wait_until_subscribed_async(self) -> bool:
        """Wait until the manager has us on its list; False: the node was closed."""
        return await self._driver.wait_async(self._is_confirmed, None)

    def _is_confirmed(self) -> bool:
        one = self._machine.client.subscribed.get(self.key)
        return one is not None and one.is_confirmed

    def close(self) -> None:
        """End all subscriptions of this node to the service."""
        self._answer = None
        for subscription in list(self._subscriptions):
            subscription.close()
        if self.key in self._machine.client.subscribed:
            with suppress(ClosedError):
                self._driver.call(self._ask)

    def _end(self, reason: str) -> None:
        for subscription in list(self._subscriptions):
            subscription.close_from_node(reason)
            self._host.leave(subscription)

    def _forked(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.forked()

    # Publishing.

    def publish(
        self, payload: Any, *, wait: float | None = None, retain: bool = False,
        credentials: bytes = b"", subject: str = "",
    ) -> int | None:  # fmt: skip
        """Publish to all subscribers, subscribed or not.

        With `wait` return how many subscribers the manager sent it to, None: it did not say so in
        time. `retain` keeps the message for those who subscribe later. With a `subject` it is for
        those whose patterns match, and for those who have none. Raises `Backpressure` when
        16,384 messages or 2 MiB wait for a manager and none is taken within `send_timeout`.
        """
        # Without a subject there is nothing to check, and no call to be made for it.
        lane = None if subject else self._lanes.get("")
        lane = lane or self._check_lane(subject, retain=retain)
        if wait is None and not retain and not credentials:
            is_plain = type(payload) is bytes and len(payload) <= SERVICE_PAYLOAD_BYTES_MAX
            data = payload if is_plain else check_payload(payload)
            if not self._driver.publish(lane, data):
                self.publish_plain(lane, data)
            return None
        flags = RETAIN if retain else 0
        return _count(self._sending.send(_outgoing(lane, payload, flags, credentials, wait)))

    async def publish_async(
        self, payload: Any, *, wait: float | None = None, retain: bool = False,
        credentials: bytes = b"", subject: str = "",
    ) -> int | None:  # fmt: skip
        """Publish without blocking the event loop: what `publish` waits for is awaited."""
        lane = self._check_lane(subject, retain=retain)
        flags = RETAIN if retain else 0
        one = _outgoing(lane, payload, flags, credentials, wait)
        if wait is not None or flags or credentials:
            return _count(await self._sending.send_async(one))
        while not self._driver.publish(lane, one.payload):
            await self._sending.wait_for_room_async(lane)
        return None

    def request_any(
        self, payload: Any, *, timeout: float = _REQUEST_PATIENCE_S, credentials: bytes = b""
    ) -> bytes:
        """Ask any one member that answers, and return its reply.

        Raises `HubbubError` at once when nobody takes it, or when who took it has no answer.
        """
        one = _outgoing(self.lane_of(""), payload, ANYCAST, credentials, timeout)
        return self._check_reply(self._sending.send(one), timeout)

    async def request_any_async(
        self, payload: Any, *, timeout: float = _REQUEST_PATIENCE_S, credentials: bytes = b"",  # noqa: ASYNC109
    ) -> bytes:  # fmt: skip
        """Ask any one member without blocking the event loop; the request, too, ends in time."""
        one = _outgoing(self.lane_of(""), payload, ANYCAST, credentials, timeout)
        return self._check_reply(await self._sending.send_async(one), timeout)

    def _check_reply(self, settled: Settled | None, timeout: float) -> bytes:
        """Return the reply to a request, or say why there is none."""
        if settled is not None and settled.payload is not None:
            return settled.payload
        if settled is not None and settled.number:
            raise HubbubError(f"service {self.name}: {_NO_ANSWER}")
        status = PASSED if settled is None else settled.status
        how = "did not answer in time" if status == PASSED else STATUS_NAMES[status]
        raise HubbubError(f"nobody answered in service {self.name} within {timeout} s: {how}")

    def _check_lane(self, subject: str, *, retain: bool) -> Lane:
        if subject:
            check_subject(subject)
            if retain:
                raise ConfigurationError("a service keeps its last value without a subject")
        return self.lane_of(subject)

    def lane_of(self, subject: str) -> Lane:
        """Return what this node publishes on a subject of the service."""
        lane = self._lanes.get(subject)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                self._lanes.clear()  # Those that are in use are found again.
            lane = self._lanes[subject] = self._machine.publishing.lane(self.name, subject)
        return lane

    def publish_plain(self, lane: Lane, payload: bytes) -> None:
        """Publish what nothing else is asked of, waiting for room."""
        while not self._driver.publish(lane, payload):
            self._sending.wait_for_room(lane)

    # What is known.

    @property
    def manager(self) -> str:
        """Return the id of the node that manages this service, as far as this node knows."""
        with self._driver.lock:
            return self._machine.manager_of(self.key).hex()

    @property
    def epoch(self) -> int:
        """Return how often the service changed managers, as far as this node knows."""
        with self._driver.lock:
            return self._machine.epoch_of(self.key)

    @property
    def subscribers(self) -> tuple[str, ...] | None:
        """Return the ids of all subscribers, if this node manages the service; None: it does not.

        Only the manager keeps the list.
        """
        with self._driver.lock:
            service = self._machine.manager.services.get(self.key)
            if service is None or not service.is_served:
                return None
            return tuple(sorted(line.node.hex() for line in service.listing))

    def __repr__(self) -> str:
        return f"<Service {self.name}>"

    # What comes from the machine; no lock is held.

    def _take(self, delivered: Delivered, received_ns: int) -> None:
        subject, payloads = delivered.subject, delivered.payloads
        topic = self._topics[delivered.origin, delivered.incarnation, subject]
        passage = self._passage
        if passage.epoch != delivered.epoch:
            passage = self._passage = make_served(CHANNEL, -1, 0, self.name, delivered.epoch)
        if self._newcomers.waiting and not delivered.is_kept:
            self._newcomers.note(delivered.order)
        sole = None if delivered.is_kept else self._sole
        if sole is not None and len(payloads) == 1 and delivered.answer is None:
            at_once, context = sole
            first = delivered.sequence
            message = Message(
                topic.subject, payloads[0], topic.source, first, 0, received_ns, passage, context
            )
            if at_once(message):
                return
        times = (0,) * len(payloads)
        delivery = new_delivery((topic, delivered.sequence, payloads, times, received_ns, passage))
        if delivered.answer is not None:
            self._asked.append((delivered, message_of_one(delivery, None)))
            self._lane.notify()
            return
        if delivered.is_kept:
            for subscription in self._newcomers.take(delivered.order):
                subscription.deliver(delivery, subscription.context)
            return
        is_own = delivered.origin == self._node.id
        for subscription, patterns in list(self._subscriptions.items()):
            is_wanted = not patterns or (subject and any(matches(one, subject) for one in patterns))
            if is_wanted and not (is_own and subscription.no_local):
                subscription.deliver(delivery, subscription.context)

    def _make_topic(self, origin: bytes, incarnation: int, subject: str) -> BareTopic:
        return BareTopic(subject or self.name, Source("", origin, incarnation))

    def _settle(self, settled: Settled) -> None:
        if not self._sending.settle(settled) and settled.status != TAKEN:
            reason = STATUS_NAMES[settled.status]
            if settled.status == UNAVAILABLE:
                reason = _NO_ANSWER if settled.number else "nobody subscribes"
            self._services.report(self.name, "no manager took it" if reason == "passed" else reason)

    def _answer_next(self) -> bool:
        """Answer one request, on a delivery thread; True: there are more."""
        if not self._asked:
            return False
        delivered, message = self._asked.popleft()
        with suppress(ClosedError):
            self._driver.call(self._machine.reply, delivered.answer, self._reply_to(message))
        return bool(self._asked)

    def _reply_to(self, message: Message) -> bytes | None:
        """Return the answer to a request; None: there is none."""
        function = self._answer
        try:
            return None if function is None else check_payload(function(message))
        except BaseException:  # Also `sys.exit()`: others have asked, too.
            _log.exception("service %s has no answer", self.name)
            return None


def _outgoing(
    lane: Lane, payload: Any, flags: int, credentials: bytes, wait: float | None
) -> Outgoing:
    deadline = None if wait is None else monotonic() + wait
    return Outgoing(lane, check_payload(payload), flags, credentials, deadline)


def _count(settled: Settled | None) -> int | None:
    """Return how many subscribers a message was sent to; None: that is not known."""
    if settled is None:
        return None
    return settled.number if settled.status == TAKEN else 0


def check_name(name: Any) -> str:
    """Return the name of a service, or say what is wrong with it."""
    if not isinstance(name, str) or not name.isprintable():
        raise ConfigurationError(f"{name!r} is no name of a service: give printable text")
    size = len(name.encode())
    if not 0 < size <= SERVICE_NAME_BYTES_MAX:
        raise ConfigurationError(
            f"a service name of {size} bytes: it must have 1 to {SERVICE_NAME_BYTES_MAX}"
        )
    return name


def _check_patterns(patterns: str | Iterable[str], order: str) -> tuple[str, ...]:
    wanted = tuple(check_patterns(patterns))
    if wanted and order == TOTAL:
        raise ConfigurationError("order='total' counts all messages: leave out patterns")
    return wanted


def unite(wanted: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return what the manager is asked for: everything, if somebody wants that, or too much."""
    if not all(wanted):
        return ()
    patterns = tuple(dict.fromkeys(pattern for some in wanted for pattern in some))
    size_bytes = sum(len(pattern.encode()) for pattern in patterns)
    is_short = len(patterns) <= SERVICE_PATTERNS_MAX and size_bytes <= SERVICE_PATTERNS_BYTES_MAX
    return patterns if is_short else ()


def check_payload(payload: Any) -> bytes:
    """Return a payload as bytes, or say what is wrong with it."""
    if not isinstance(payload, _BYTES):
        raise PayloadError(f"{payload!r} is no bytes")
    data = bytes(payload)
    if len(data) > SERVICE_PAYLOAD_BYTES_MAX:
        raise PayloadError(
            f"a message of {len(data)} bytes: a service takes {SERVICE_PAYLOAD_BYTES_MAX} at most;"
            " publish larger ones on a subject"
        )
    return data
