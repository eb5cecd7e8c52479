"""What an application holds in the hand to produce: samples are made when somebody is due one."""

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hubbub.closing import Closing
from hubbub.data_types import find_data_type
from hubbub.errors import ClosedError, ConfigurationError, PayloadError
from hubbub.events import SampleFailed
from hubbub.given import is_number, is_whole
from hubbub.limits import CAP_HZ_MAX, COPIES_MAX, MS, PERIOD_US_MAX, STOP_PATIENCE_S, US
from hubbub.protocol.timetrigger.plan import DUE, HARMONISED, STRICT
from hubbub.protocol.timetrigger.producer import Due, ProducerOptions

if TYPE_CHECKING:
    from hubbub.connection import Connection
    from hubbub.node import Node

Read = Callable[[], Any]
SCHEDULES = (DUE, STRICT, HARMONISED)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """What a producer is asked for, and what it did.

    `ticks_hz` is what its plan comes to now, `periods_ms` what live consumers ask for.
    """

    subject: str
    data_type: int
    port: int
    schedule: str
    interests: int
    periods_ms: tuple[float, ...]
    tick_ms: float
    granted_ms: float
    ticks_hz: float
    sent: int
    skipped: int
    failed: int
    refused: int


class Producer(Closing):
    """Make samples of one type, when and as often as live consumers want them.

    with node.produce("/vehicle/speed", read_speed) as producer: ...
    """

    def __init__(
        self, node: "Node", connection: "Connection", what: str | int, read: Read, *,
        options: ProducerOptions, inline: bool = False, type: Any = None, port: int | None = None,
    ) -> None:  # fmt: skip
        _check_read(read)
        number, self.subject = find_data_type(what)
        self.type = type
        self._node = node
        self._connection = connection
        self._driver = connection.driver
        self._gateway = connection.driver.core.timed
        self._read = read
        self._inline = inline
        self._is_stopped = False
        self._turn = threading.Lock()
        self._turn_of = 0  # The thread that is in `read`.
        self._due: deque[Due] = deque()
        self._lane = node._pool.lane(self._sample_next)
        self._machine = self._driver.call(
            self._gateway.produce, number, self.subject, options, self._take, port
        )
        self.port: int = self._machine.port

    def stop(self) -> None:
        """Make nothing any more: after this nothing is sent, and `read` is not called again.

        Returns within 100 ms, also if `read` is running just then: what it returns is not sent.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        with suppress(ClosedError):
            self._driver.call(self._gateway.stop, self._machine)
        self._node._components.discard(self)
        is_inside = self._turn_of == threading.get_ident()
        if not is_inside and self._turn.acquire(timeout=STOP_PATIENCE_S):
            self._turn.release()

    close = stop

    @property
    def data_type(self) -> int:
        """Return the number of its type: the registered one, as soon as it is heard of."""
        return int(self._machine.type)

    @property
    def is_stopped(self) -> bool:
        """Tell whether it has ended."""
        return self._is_stopped

    @property
    def is_wanted(self) -> bool:
        """Tell whether anybody has an interest in its samples."""
        return bool(self._machine.is_wanted)

    def statistics(self) -> ProducerStatistics:
        """Return what it is asked for, and what it did."""
        machine = self._machine
        with self._driver.lock:
            plan = machine.plan
            return ProducerStatistics(
                subject=self.subject,
                data_type=int(machine.type),
                port=self.port,
                schedule=machine.options.schedule,
                interests=len(machine.interests.leases),
                periods_ms=tuple(us * US / MS for us in sorted(machine.interests.periods) if us),
                tick_ms=plan.tick_ns / MS,
                granted_ms=plan.granted_us * US / MS,
                ticks_hz=plan.millihertz / 1000,
                sent=machine.sent,
                skipped=machine.skipped,
                failed=machine.failed,
                refused=machine.interests.refused + machine.refused_periods,
            )

    def __repr__(self) -> str:
        state = "stopped" if self._is_stopped else f"port {self.port}"
        return f"<Producer {self.subject} {state}>"

    def _take(self, due: Due) -> None:
        """Hear that a tick is due; no lock is held."""
        if self._is_stopped:
            return
        if self._inline:
            self._sample(due)
        else:
            self._due.append(due)
            self._lane.notify()

    def _sample_next(self) -> bool:
        try:
            due = self._due.popleft()
        except IndexError:
            return False
        self._sample(due)
        return bool(self._due)

    def _sample(self, due: Due) -> None:
        """Make a sample and send it; whatever goes wrong, the next tick follows."""
        data, sampled_ns = None, 0
        try:
            with self._turn:
                if not self._is_stopped:
                    sampled_ns = self._gateway.clock.at(time.monotonic_ns())
                    data = self._read_one()
        finally:
            if not self._is_stopped:
                self._finish(due, data, sampled_ns)

    def _read_one(self) -> bytes | None:
        """Make a sample; None: there is none, and what went wrong is reported."""
        self._turn_of = threading.get_ident()
        try:
            value = self._read()
            return None if value is None else self._pack(value)
        except KeyboardInterrupt:  # Ctrl-C is meant for the program, wherever it hits.
            raise
        except BaseException as error:
            event = SampleFailed(self._connection.name, self.subject, error)
            self._connection._emit(event, self)
            return None
        finally:
            self._turn_of = 0

    def _finish(self, due: Due, data: bytes | None, sampled_ns: int) -> None:
        try:
            if data is None:
                self._driver.call(self._gateway.abandon, due)
            else:
                self._driver.call(self._gateway.respond, due, data, max(0, sampled_ns))
        except ClosedError:
            self._is_stopped = True  # The channel was closed meanwhile.

    def _pack(self, value: Any) -> bytes:
        if self.type is not None:
            data = _encode(value)
        elif isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
        else:
            raise PayloadError(f"{value!r} is no bytes: give `type=` to produce values")
        if len(data) > self._gateway.value_bytes_max:
            raise PayloadError(
                f"a sample of {len(data)} bytes: at most {self._gateway.value_bytes_max} fit into a"
                " frame; publish larger things"
            )
        return data


def make_options(
    schedule: str, floor_ms: float, cap_hz: int, stagger: bool, scope: int, inside: bool = False,
    copies: int = 1, links: tuple[str, ...] = (),
) -> ProducerOptions:  # fmt: skip
    """Check the options of a producer."""
    if schedule not in SCHEDULES:
        raise ConfigurationError(f"schedule={schedule!r}: choose one of {', '.join(SCHEDULES)}")
    floor_us = _whole(floor_ms * 1000 if is_number(floor_ms) else None)
    if floor_us is None or not 1 <= floor_us <= PERIOD_US_MAX:
        raise ConfigurationError(
            f"floor_ms={floor_ms!r} must be from 0.001 to {PERIOD_US_MAX / 1e3}"
        )
    if not is_whole(cap_hz) or not 1 <= cap_hz <= CAP_HZ_MAX:
        raise ConfigurationError(f"cap_hz={cap_hz!r} must be a number from 1 to {CAP_HZ_MAX}")
    check_scope(scope)
    if not is_whole(copies) or not 1 <= copies <= COPIES_MAX:
        raise ConfigurationError(f"copies={copies!r} must be a number from 1 to {COPIES_MAX}")
    return ProducerOptions(
        schedule, floor_us, cap_hz, bool(stagger), scope, bool(inside), copies, links
    )


def check_scope(scope: Any) -> None:
    """Refuse a scope that no interest can carry."""
    if not is_whole(scope) or not 0 <= scope <= 0xFFFF_FFFF:
        raise ConfigurationError(f"scope={scope!r} must be a number from 0 to 2^32 - 1")


def _whole(value: float | None) -> int | None:
    return None if value is None or value != value or abs(value) > 1e18 else round(value)


def _check_read(read: Any) -> None:
    if not callable(read):
        raise ConfigurationError(f"read={read!r}: give a function that returns a sample")
    if inspect.iscoroutinefunction(read):
        raise ConfigurationError("an async function would never be awaited: give a plain one")
