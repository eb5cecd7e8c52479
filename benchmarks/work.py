"""What the processes of a measurement do, the same for every peer.

Throughput. The publisher probes until the subscriber has heard it, so that connecting is not
measured. Then, once without and once with reading, it publishes as fast as it can for the given
time and repeats an end mark until the subscriber has seen it. The subscriber counts what arrives in
between; the time runs from the first publish to the arrival of the end mark (Linux has one
monotonic clock for all processes). Control payloads are known by their length alone, which costs
every peer the same.

Fan-out. The same with many subscribers: the publisher probes until each has heard it, and repeats
the end mark until each has seen it.

Round trip. Ping publishes, pong publishes back what it received, ping publishes again from where it
got the answer, so exactly one message is on its way. After `STALL_SECONDS` without an answer the
round trip counts as lost and ping tries again: a peer without repair would stop for ever.
"""

import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy

from benchmarks.endpoint import Endpoint

PROBE = b"p"
END_MARKS = (b"e0", b"e1")
# Kind -> the measures that come of its two phases, without and with reading.
PHASES = {
    "throughput": ("unread", "read"),
    "fan-out": ("unread", "fan-out"),
    "veth": ("unread", "veth"),
}
REPEAT_SECONDS = 0.02
STALL_SECONDS = 1.0
WARM_UP_ROUND_TRIPS = 50
CACHE_LINE_BYTES = 64
# The publisher looks at the clock once per block of messages.
BLOCK_MESSAGES = 64
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Task:
    """One measurement of one peer."""

    row: str
    kind: str
    size_bytes: int
    seconds: float
    token: str

    def topic(self, direction: str) -> str:
        """Name a topic that no other measurement uses; no direction, no topic."""
        return f"bench{self.token}{direction}" if direction else ""


class AllOf:
    """Events of many processes as one, which is set when they all are."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def is_set(self) -> bool:
        return all(event.is_set() for event in self._events)

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        return all(event.wait(max(0.0, deadline - time.monotonic())) for event in self._events)


@dataclass(frozen=True)
class Signals:
    """What a subscriber tells the publisher beside the peer: multiprocessing events."""

    heard: Any
    ended: tuple[Any, Any]


def touch(view: Any) -> int:
    """Read one byte of every cache line of a payload, by the cheapest call numpy has for it."""
    return int(numpy.count_nonzero(numpy.frombuffer(view, numpy.uint8)[::CACHE_LINE_BYTES]))


def publish(endpoint: Endpoint, task: Task, signals: Signals) -> dict[str, Any]:
    """Publish as fast as the peer lets us, in two phases."""
    payload = _payload(task.size_bytes)
    block = max(1, min(BLOCK_MESSAGES, BLOCK_BYTES // task.size_bytes))
    _repeat_until(signals.heard, endpoint, PROBE)
    phases = []
    for mark, ended in zip(END_MARKS, signals.ended, strict=True):
        send, sent = endpoint.send, 0
        start_ns = time.monotonic_ns()
        deadline_ns = start_ns + int(task.seconds * 1e9)
        while time.monotonic_ns() < deadline_ns:
            for _ in repeat(None, block):
                send(payload)
            sent += block
        _repeat_until(ended, endpoint, mark)
        phases.append({"sent": sent, "start_ns": start_ns})
    return {"phases": phases, "cpu_seconds": _cpu_seconds()}


def subscribe(endpoint: Endpoint, task: Task, signals: Signals) -> dict[str, Any]:
    """Count what arrives; read it in the second phase only."""
    size_bytes, view = task.size_bytes, endpoint.view
    expected = touch(_payload(size_bytes))
    phases: list[dict[str, int]] = []
    count = damaged = 0
    reading = False

    def on_control(mark: bytes) -> bool:
        nonlocal count, reading
        signals.heard.set()
        awaited = END_MARKS[len(phases) :]
        if awaited and mark == awaited[0]:
            phases.append({"received": count, "end_ns": time.monotonic_ns()})
            count, reading = 0, True
            signals.ended[len(phases) - 1].set()
        return len(phases) == len(END_MARKS)

    def on_payload(payload: Any) -> bool:
        nonlocal count, damaged
        if len(payload) != size_bytes:
            return on_control(bytes(view(payload)))
        count += 1
        if reading and touch(view(payload)) != expected:
            damaged += 1
        return False

    endpoint.serve(on_payload)
    if damaged:
        raise ValueError(f"{damaged} payloads arrived damaged")
    return {"phases": phases, "cpu_seconds": _cpu_seconds()}


def ping(endpoint: Endpoint, task: Task, signals: Signals) -> dict[str, Any]:
    """Measure round trips for the given time, after a warm-up."""
    payload, send, now_ns = _payload(task.size_bytes), endpoint.send, time.monotonic_ns
    finished = threading.Event()
    samples_ns: list[int] = []
    trips = lost = sent_ns = deadline_ns = 0

    def launch() -> None:
        nonlocal sent_ns
        sent_ns = now_ns()
        send(payload)

    def on_payload(answer: Any) -> bool:
        nonlocal trips, deadline_ns
        arrived_ns = now_ns()
        if len(answer) != len(payload):
            signals.heard.set()
            return False
        trips += 1
        if trips == WARM_UP_ROUND_TRIPS:
            deadline_ns = arrived_ns + int(task.seconds * 1e9)
        elif trips > WARM_UP_ROUND_TRIPS:
            samples_ns.append(arrived_ns - sent_ns)
            if arrived_ns > deadline_ns:
                return True
        launch()
        return False

    def start_and_restart() -> None:
        nonlocal lost, payload
        _repeat_until(signals.heard, endpoint, PROBE)
        launch()
        seen = 0
        while not finished.wait(STALL_SECONDS):
            if trips == seen:
                # One byte less tells a late answer from the one to come.
                lost, payload = lost + 1, payload[:-1]
                launch()
            seen = trips

    starter = threading.Thread(target=start_and_restart, daemon=True)
    starter.start()
    endpoint.serve(on_payload)
    finished.set()
    starter.join()
    _repeat_until(signals.ended[0], endpoint, END_MARKS[0])
    return {"samples_ns": samples_ns, "lost": lost, "cpu_seconds": _cpu_seconds()}


def pong(endpoint: Endpoint, task: Task, signals: Signals) -> dict[str, Any]:
    """Send everything back until the end mark."""
    send, mark_bytes = endpoint.send, len(END_MARKS[0])

    def on_payload(payload: Any) -> bool:
        if len(payload) == mark_bytes:
            return True
        send(payload)
        return False

    endpoint.serve(on_payload)
    signals.ended[0].set()
    return {"cpu_seconds": _cpu_seconds()}


def _payload(size_bytes: int) -> bytes:
    """Make the same unremarkable bytes in all processes."""
    return numpy.random.default_rng(size_bytes).bytes(size_bytes)


def _repeat_until(signal: Any, endpoint: Endpoint, payload: bytes) -> None:
    """Publish a control payload until the other side says that it arrived."""
    while not signal.is_set():
        endpoint.send(payload)
        signal.wait(REPEAT_SECONDS)


def _cpu_seconds() -> float:
    """Say what this process has used so far, all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
