"""HOT. What an application holds in the hand to publish.

`publish` appends to the pending messages of the stream without a lock. A quiet stream is sent at
once, in the caller's thread; a busy one when a burst is full, or by the I/O thread when the hold-
back time is over. 0.3 us a message on a busy stream.
"""

from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from time import time_ns as wall_ns
from typing import TYPE_CHECKING, Any, cast

import msgspec

from hubbub.awareness import RemoteSubscriber, list_subscribers
from hubbub.closing import Closing
from hubbub.errors import Backpressure, ClosedError, HubbubError, PayloadError
from hubbub.limits import TIME_MAX
from hubbub.links.loans import draft_of
from hubbub.links.mapping import lasts
from hubbub.loan import Loan
from hubbub.protocol.framing import CELLS
from hubbub.protocol.receipts import Receipt
from hubbub.protocol.topics import OutgoingTopic
from hubbub.publisher_options import (
    check_acknowledgement,
    check_history,
    check_replay,
    check_slow,
)
from hubbub.runtime.driver import Driver
from hubbub.runtime.ownership import owns
from hubbub.schema import Schema, schema_of

if TYPE_CHECKING:
    from hubbub.node import Node

_encode = msgspec.msgpack.Encoder().encode
Payload = bytes | memoryview


class Publisher(Closing):
    """Publish on one subject.

    publisher = node.publisher("/plant/line1/temp")
    publisher.publish(b"21.5")
    """

    def __init__(
        self,
        node: "Node",
        driver: Driver,
        subject: str,
        *,
        is_reliable: bool,
        kind: Any = None,
        history: int = 0,
        acknowledge_ms: float | None = None,
        on_slow: str = "drop",
        replayed_ns: int | None = None,
        links: tuple[str, ...] = (),
    ) -> None:
        check_history(history, is_reliable=is_reliable)
        check_acknowledgement(acknowledge_ms, is_reliable=is_reliable)
        check_slow(on_slow, is_reliable=is_reliable)
        check_replay(replayed_ns)
        schema = schema_of(kind)
        core = driver.core
        topic: OutgoingTopic = driver.call(
            core.publish_on, subject, is_reliable=is_reliable,
            schema_name=schema.name, schema_hash=schema.hash, history=history,
            replayed_ns=replayed_ns or 0, links=links,
        )  # fmt: skip
        self.subject = subject
        self.channel = driver.link.channel
        self.type = None if isinstance(kind, Schema) else kind
        self.is_reliable = is_reliable
        self.links = links
        self.counted: Callable[[], int] | None = None  # By services: what their manager told.
        self._node = node
        self._driver = driver
        self._topic = topic
        self._sender = core.outgoing.sender_of(topic)
        self._framer = self._sender.framer
        self._cells = self._framer.cells
        self._is_closed = False
        self.acknowledge_ms = acknowledge_ms
        self.on_slow = on_slow
        if acknowledge_ms is None and on_slow != "block":
            self.publish = _express_of(self)  # type: ignore[method-assign]

    def publish(self, payload: Any, *, flush: bool = False, time_ns: int | None = None) -> int:
        """Publish a message; return how many receivers it is for (0: nobody, nothing was sent).

        A payload is bytes or another buffer (with `type=`, a value of the type), or a function that
        makes it, which is called only if somebody wants the message (or may want it later, with
        `history`). `time_ns` is when what it tells of happened, if that is not now.

        Receivers are the other nodes that subscribe to the subject, and this one if it does. In a
        node's first 45 ms the message is kept until all have said what they want, and the count is
        what is known so far. `flush` sends a busy stream at once, too. A reliable message waits
        while its receivers have no room, at most `send_timeout`, then raises `Backpressure`.

        With `acknowledge_ms` it is sent at once, and the count is of those that have taken it: it
        waits for that at most so long. An inline callback cannot wait, and raises.
        """
        if self._is_behind():
            self._wait_for_slow()
        if self.acknowledge_ms is not None:
            return self._publish_acknowledged(payload, time_ns)
        return self._publish_carefully(payload, flush, time_ns)

    def _is_behind(self) -> bool:
        """Tell whether we must wait for a receiver that was left behind."""
        core = self._driver.core
        return self.on_slow == "block" and core.outgoing.is_waiting_for(self._topic, core.peers)

    def _wait_for_slow(self) -> None:
        """Wait until receivers that were left behind have caught up; raise if they do not."""
        driver, timeout_s = self._driver, self._driver.core.settings.send_timeout
        driver.publishing_paused()
        if not driver.wait(lambda: not self._is_behind(), timeout_s):
            raise self._not_caught_up()

    def _not_caught_up(self) -> Backpressure:
        return self._too_late(f"a receiver of {self.subject} was left behind and did not catch up")

    def _too_late(self, why: str) -> Backpressure:
        timeout_s = self._driver.core.settings.send_timeout
        return Backpressure(f"{why} within send_timeout={timeout_s} s; this message was not sent")

    def _publish_acknowledged(self, payload: Any, at_ns: int | None) -> int:
        """Publish, and wait for the receivers to say that they have it."""
        assert self.acknowledge_ms is not None
        driver = self._driver
        if driver.loop.is_loop_thread() or owns(driver.lock):
            raise HubbubError(
                f"publishing on {self.subject} waits for acknowledgements, which an inline callback"
                " or a signal handler keeps from coming: publish in another thread"
            )
        receipt = self._send_acknowledged(payload, at_ns)
        if receipt is None:
            return 0
        try:
            driver.wait(lambda: receipt.is_done, self.acknowledge_ms / 1000)
        except BaseException:
            receipt.is_done = True  # Nobody waits any more.
            raise
        return self._count_acknowledged(receipt)

    def _send_acknowledged(self, payload: Any, at_ns: int | None) -> Receipt | None:
        """Publish a message that is to be acknowledged; None: it is for nobody."""
        made = self._make_payload(payload)
        if made is None:
            return None
        framer = self._framer
        if len(made) > framer.message_bytes_max or len(self._cells) >= framer.backlog_cells:
            self._make_room(made)
        if self._is_for_nobody() and self._skip():
            return None
        receipt = self._driver.publish_acknowledged(self._topic, made, _time_of(at_ns))
        _spend(payload)
        return receipt

    def _count_acknowledged(self, receipt: Receipt) -> int:
        taken = receipt.taken
        if not receipt.is_done:
            taken = self._driver.call(lambda _: self._driver.core.outgoing.receipts.close(receipt))
        return taken + self._topic.listeners

    def _publish_carefully(self, payload: Any, is_flushing: bool, at_ns: int | None) -> int:
        """Publish what is more than bytes to append."""
        made = self._make_payload(payload, may_borrow=True)
        if made is None:
            return 0
        count = self._publish_bytes(made, is_flushing, _time_of(at_ns))
        _spend(payload)
        return count

    def make_bytes(self, payload: Any) -> bytes:
        """Make bytes of a payload, whoever wants them."""
        if self._is_closed or self._driver.closed_reason is not None:
            self._refuse(payload)
        made = payload() if self._is_lazy(payload) else payload
        if isinstance(made, Loan):
            made = bytes(self._seal(made))
            _spend(payload)
        return made if type(made) is bytes else self._snapshot(made)

    def publish_own(self, payload: bytes, at_ns: int | None, send: Callable[[], None]) -> int:
        """Publish to this node alone, once it was sent to others in another way.

        That may be refused for want of room: then nobody is to have it.
        """
        time_ns = _time_of(at_ns)
        send()
        return self._publish_bytes(payload, False, time_ns)

    def _make_payload(self, payload: Any, *, may_borrow: bool = False) -> Payload | None:
        """Make bytes of a payload; None: it need not be made, for nobody wants it.

        One that is copied into shared memory at once is borrowed instead, and copied once.
        """
        if self._is_closed or self._driver.closed_reason is not None:
            self._refuse(payload)
        if self._is_lazy(payload):
            if self._is_for_nobody() and self._skip():
                return None
            payload = payload()
        if type(payload) is bytes:
            return payload
        if isinstance(payload, Loan):
            return self._seal(payload)
        if self.type is None and lasts(payload) and self._framer.may_be_referred(payload):
            return cast("memoryview", payload)  # It goes on from where it lies.
        if may_borrow and self.type is None and not self._cells:
            view = _view_of(payload)
            if view is not None and self._framer.goes_by_reference(view):
                return view
        return self._snapshot(payload)

    def _publish_bytes(self, payload: Payload, is_flushing: bool, published_ns: int) -> int:
        """Publish where something is to be decided: to wait, to send now, or not at all."""
        driver, framer, topic = self._driver, self._framer, self._topic
        is_large = len(payload) > framer.message_bytes_max
        if is_large or len(self._cells) >= framer.backlog_cells:
            self._make_room(payload)
        if self._is_for_nobody() and self._skip():
            return 0
        receivers = topic.receivers
        is_next = not self._cells and framer.may_go_alone(payload)
        if is_next and driver.send_single(self._sender, topic, payload, published_ns):
            return receivers
        if type(payload) is not bytes and draft_of(payload) is None and not lasts(payload):
            payload = bytes(payload)  # It was only borrowed.
        if is_large:
            with driver.lock:
                framer.add(topic, payload, published_ns)
        else:
            self._cells += (topic, payload, published_ns)
        if is_flushing:
            framer.hold_until_ns = 0
        is_urgent = is_flushing or (is_large and not framer.may_gather)
        if is_urgent or len(self._cells) > framer.free_cells:
            driver.flush(monotonic_ns())
        return receivers + topic.listeners

    def loan(self, size_bytes: int) -> Loan:
        """Lend memory to write a large message into; `publish(loan)` sends it without a copy.

        Where every receiver is on this host it lies in memory that they share, else it is ordinary
        memory. It is for one message of just this size, and over when that is published.
        """
        if self._is_closed or self._driver.closed_reason is not None:
            self._refuse(None)
        self._refuse_typed()
        bytes_max = self._driver.core.settings.message_bytes
        if type(size_bytes) is not int or not 0 < size_bytes <= bytes_max:
            raise PayloadError(
                f"a loan of {size_bytes!r} bytes: give a whole number from 1 to"
                f" message_bytes={bytes_max}"
            )
        pipes = self._driver.pipes
        draft = None if pipes is None else pipes.lend(self._framer, size_bytes)
        return Loan(bytearray(size_bytes) if draft is None else draft, size_bytes)

    def _seal(self, loan: Loan) -> Payload:
        self._refuse_typed()
        return loan.seal()

    def _refuse_typed(self) -> None:
        if self.type is not None:
            raise PayloadError(
                f"{self.subject} is published with type={self.type!r}, which is encoded:"
                " loans are for publishers without a type"
            )

    def _is_lazy(self, payload: Any) -> bool:
        """Tell whether a payload is a function that makes it."""
        if not callable(payload):
            return False
        return not (isinstance(self.type, type) and isinstance(payload, self.type))

    def _is_for_nobody(self) -> bool:
        topic = self._topic
        is_wanted = topic.receivers or topic.sinks or topic.history is not None
        return not is_wanted and not self._sender.is_held

    def _refuse(self, payload: Any, *, flush: bool = False, time_ns: int | None = None) -> int:
        """Stand in for `publish` once closed, so that publishing need not look."""
        reason = self._driver.closed_reason or "the publisher is closed"
        raise ClosedError(f"cannot publish on {self.subject}: {reason}")

    async def publish_async(self, payload: Any) -> int:
        """Publish without blocking the event loop: what `publish` waits for is awaited."""
        import asyncio  # Here, because it costs 30 ms, and who gets here has it.

        driver, framer = self._driver, self._framer
        if self.is_reliable and not framer.has_room:
            why = self._too_late(f"receivers of {self.subject} did not make room")
            await self._wait_async(lambda: driver.has_room(framer), why)
        if self._is_behind():
            await self._wait_async(lambda: not self._is_behind(), self._not_caught_up())
        if self.acknowledge_ms is None:
            return self.publish(payload)
        receipt = self._send_acknowledged(payload, None)
        if receipt is None:
            return 0
        driver.loop.need()
        try:
            async with asyncio.timeout(self.acknowledge_ms / 1000):
                while not receipt.is_done and driver.closed_reason is None:
                    await driver.changes.wait_async(lambda: receipt.is_done)
        except TimeoutError:
            pass
        except BaseException:
            receipt.is_done = True  # Nobody waits any more.
            raise
        return self._count_acknowledged(receipt)

    async def _wait_async(self, is_so: Callable[[], bool], why: Backpressure) -> None:
        """Wait as a coroutine, at most `send_timeout`; then say why the message was not sent."""
        import asyncio

        driver = self._driver
        driver.publishing_paused()
        driver.loop.need()
        try:
            async with asyncio.timeout(driver.core.settings.send_timeout):
                while not is_so() and driver.closed_reason is None:
                    await driver.changes.wait_async(is_so)
        except TimeoutError:
            raise why from None

    def flush(self) -> None:
        """Send what is held back now."""
        self._driver.flush_all(self._framer)

    def wait_for_subscribers(self, count: int = 1, timeout: float | None = None) -> bool:
        """Wait until so many other nodes subscribe to the subject; False: not in time."""
        if self.counted is not None and self._node._subjects is not None:
            return self._node._subjects.wait_for_receivers(self, count, timeout)
        return self._driver.wait(lambda: self.receivers >= count, timeout)

    def subscribers(self) -> tuple[RemoteSubscriber, ...]:
        """Return the other nodes that the next message is for."""
        return list_subscribers(self._driver, self._topic)

    @property
    def is_connected(self) -> bool:
        """Tell whether another node wants what is published here."""
        return self.receivers > 0

    @property
    def receivers(self) -> int:
        """Return how many other nodes the next message is for; by services: as was told last."""
        if self.counted is not None:
            return self.counted()
        return self._topic.receivers + self._topic.nearby

    @property
    def receiver(self) -> int:
        """Return the index of the only node the next message is for; -2: nobody, -1: many.

        Many are also one whose index is above 63, or not known yet. Nodes of this process get no
        frames, and are not counted here.
        """
        return self._topic.audience.receiver

    @property
    def receivers_bitmap(self) -> int:
        """Return a bit for each node the next message is for: bit i for index i, up to 63.

        0 means nobody only if `receiver` is -2: other nodes have no bit, because of their index.
        """
        return self._topic.audience.bitmap

    @property
    def sequence(self) -> int:
        """Return the sequence of the newest message that was framed; 0 if there is none."""
        return self._topic.next_sequence - 1

    def close(self) -> None:
        """Publish no more; other publishers of the subject go on."""
        if self.close_from_node():
            with suppress(ClosedError):
                self._driver.call(self._driver.core.publish_no_more, self._topic)

    def close_from_node(self) -> bool:
        """End because the node or channel ends, which others hear anyway; False: it was closed."""
        self._is_closed = True
        self.publish = self._refuse  # type: ignore[method-assign]
        return self._node._forget_publisher(self)

    def __repr__(self) -> str:
        return f"<Publisher {self.subject}, {self.receivers} receivers>"

    def _snapshot(self, payload: Any) -> bytes:
        """Make bytes of a payload that are ours alone."""
        if self.type is not None:
            try:
                return _encode(msgspec.convert(payload, self.type, from_attributes=True))
            except (msgspec.ValidationError, TypeError) as error:
                raise PayloadError(f"not a {self.type!r}: {error}") from None
        if isinstance(payload, str):
            raise PayloadError("a payload is bytes: encode the text, or give the publisher a type=")
        try:
            view = memoryview(payload)
            if "O" in view.format:
                raise PayloadError(
                    "an array of objects holds addresses, not values: give it a dtype, or encode it"
                )
            return bytes(view)
        except TypeError:
            raise PayloadError(
                f"a payload is bytes or another buffer, not {type(payload).__name__}:"
                " encode it, or give the publisher a type="
            ) from None

    def _make_room(self, payload: Payload) -> None:
        """Check a large message, and wait if too much is pending."""
        bytes_max = self._driver.core.settings.message_bytes
        if len(payload) > bytes_max:
            raise PayloadError(f"{len(payload)} bytes are more than message_bytes={bytes_max}")
        framer = self._framer
        if self._driver.pipes is not None:
            self._driver.pipes.wait_for_depot(framer)
        if framer.has_room:
            return
        if not self.is_reliable:
            self._drop_oldest()
            return
        self._driver.flush(monotonic_ns())
        if not self._driver.has_room(framer):
            self._driver.wait_for_room(framer)

    def _drop_oldest(self) -> None:
        """Best effort does not wait: what waited longest goes, and is counted."""
        driver = self._driver
        with driver.lock:
            framer = self._framer
            surplus = max(framer.pending_count - framer.backlog_cells // CELLS // 2, 0)
            for topic in self._cells[: CELLS * surplus : CELLS]:
                topic.skip()
            del self._cells[: CELLS * surplus]
            driver.core.endpoint.counters["best_effort_dropped"] += surplus

    def _skip(self) -> bool:
        """Count a message that nobody wants, for the sequence tells of it; False: somebody does.

        Who has just come is owed everything from the next sequence on, so that must be asked again
        under the lock.
        """
        with self._driver.lock:
            if not self._is_for_nobody():
                return False
            self._driver.core.outgoing.skip_message(self._topic)
        return True


def _spend(payload: Any) -> None:
    """End a loan that was published; it can be published again if that failed."""
    if isinstance(payload, Loan):
        payload.spend()


def _view_of(payload: Any) -> memoryview | None:
    """Return the bytes of a buffer where they lie; None: it has none that follow each other."""
    try:
        view = memoryview(payload)
        return view.cast("B") if view.c_contiguous and "O" not in view.format else None
    except TypeError:
        return None


def _time_of(time_ns: int | None) -> int:
    """Return when a message was published.

    A time that no frame can carry is refused; found out later, it would end the stream.
    """
    if time_ns is None:
        return wall_ns()
    if not isinstance(time_ns, int) or not 0 <= time_ns <= TIME_MAX:
        raise PayloadError(f"time_ns={time_ns!r} is none: give nanoseconds since 1970, an int")
    return time_ns


def _express_of(publisher: Publisher) -> Callable[..., int]:
    """Make the way of a message that only has to be appended; others go the careful way.

    A closure, because what it needs then costs one step to find instead of two or three: 0.34 us a
    message against 0.63 us for the same lines in a method. `flush` is not keyword-only as in the
    method it stands for: the interpreter calls such a function 35 ns slower. Whether anybody is to
    receive the message is asked when it is framed. Large messages that wait for others to share a
    frame of references with them go that way, too.
    """
    topic, framer = publisher._topic, publisher._framer
    cells, append = publisher._cells, publisher._cells.extend
    careful, driver = publisher._publish_carefully, publisher._driver
    send = driver.flush

    def publish(payload: Any, flush: bool = False, time_ns: int | None = None) -> int:
        if (
            type(payload) is bytes
            and len(cells) < framer.free_cells
            and len(payload) <= framer.message_bytes_max
            and not flush
            and time_ns is None
        ):
            now_ns = wall_ns()
            append((topic, payload, now_ns))
            if now_ns >= framer.flush_wall_ns:
                send(monotonic_ns())
            return topic.receivers + topic.listeners
        if (
            type(payload) is bytes
            and framer.is_busy
            and len(cells) < framer.free_cells
            and framer.gathers(len(payload))
            and not flush
            and time_ns is None
        ):
            now_ns = wall_ns()
            with driver.lock:
                framer.add(topic, payload, now_ns)
            return topic.receivers + topic.listeners
        return careful(payload, flush, time_ns)

    return publish
