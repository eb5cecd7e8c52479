"""One process of `hubbub bench`: `python -m hubbub.cli.bench_worker ROLE PLAN`.

It says `ready` on standard output, does its part, and says its outcome; both are a line. The
parent holds its standard input: a line `stop` ends the measurement, and its end (the parent is
gone, however it went) ends the process. So nothing stays behind.
"""

import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

import hubbub
from hubbub.cli.bench_plan import DATAGRAM, LATENCY, Outcome, Plan, quantiles
from hubbub.cli.pace import Pace
from hubbub.cli.session import set_up_log

DATA, PING, PONG = "/bench/data", "/bench/ping", "/bench/pong"
END = b""  # The last message of a run is empty: order makes it the last to arrive.
MEETING_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 5.0
FLUSH_TIMEOUT_S = 10.0
QUEUED_BYTES = 64 << 20
_SAMPLE_EVERY = 16  # Messages: a sample of each would slow down what it measures.
_BLOCK_MESSAGES = 16  # Small messages between two looks at the clock, for the same reason.
_SMALL_BYTES = 4096
_ENDS = 20  # A receiver that is behind has the time to make room for one of them.
_END_PAUSE_S = 0.05

Part = Callable[[hubbub.Node, Plan, threading.Event, Callable[[], None]], Outcome]
"""What a role does with its node until told to stop; it says when it is ready."""


def main() -> None:
    """Play the role of the first argument in the plan of the second."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent hears Ctrl-C and ends us.
    set_up_log(is_wanted="HUBBUB_LOG" in os.environ)
    role, plan = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Plan)
    stop = threading.Event()
    threading.Thread(target=_listen_to_parent, args=(stop,), daemon=True).start()
    try:
        outcome = _play(role, plan, stop)
    except hubbub.HubbubError as error:
        outcome = Outcome(error=str(error))
    _say(msgspec.json.encode(outcome).decode())


def _listen_to_parent(stop: threading.Event) -> None:
    for _ in sys.stdin:
        stop.set()
    os._exit(1)


def _say(line: str) -> None:
    print(line, flush=True)


def _play(role: str, plan: Plan, stop: threading.Event) -> Outcome:
    faults = hubbub.Faults(loss=plan.loss, direction="in") if plan.loss else None
    with hubbub.open(
        f"bench-{role}", domain=plan.domain, interface=plan.interface, faults=faults,
        **_links(role, plan),
    ) as node:  # fmt: skip
        gc.collect()
        gc.freeze()
        return part_of(role, plan)(node, plan, stop, lambda: _say("ready"))


def _links(role: str, plan: Plan) -> dict[str, Any]:
    """Name the links of a plan; by TCP the publisher calls its subscribers."""
    if plan.link == DATAGRAM:
        return {"links": ["datagram", "multicast"]}
    if plan.link != "tcp":
        return {"links": ["multicast"] if plan.link == "multicast" else ["local", "multicast"]}
    if role == "publisher":
        return {"links": ["tcp"], "peers": plan.peers, "listen": 0}
    index = int(role.rpartition("-")[2])
    return {"links": ["tcp"], "peers": [], "listen": plan.peers[index]}


def part_of(role: str, plan: Plan) -> Part:
    """Say what a role does in a plan."""
    if role == "publisher":
        return _ping if plan.benchmark == LATENCY else _publish
    return _answer if plan.benchmark == LATENCY and role == "subscriber-0" else _subscribe


def _publish(
    node: hubbub.Node, plan: Plan, stop: threading.Event, ready: Callable[[], None]
) -> Outcome:
    """Publish for the time of the plan, then wait until everybody has everything."""
    publisher = _meet(node, plan, DATA)
    ready()
    payload = bytes(range(256)) * (plan.size // 256 + 1)
    payload = payload[: plan.size]
    pace = Pace(plan.rate) if plan.rate else None
    block = _BLOCK_MESSAGES if pace is None and plan.size <= _SMALL_BYTES else 1
    messages = 0
    cpu_s, start_s = time.process_time(), time.monotonic()
    end_s = start_s + plan.seconds
    while time.monotonic() < end_s and not stop.is_set():
        if pace is not None:
            pace.wait()
        for _ in range(block):
            publisher.publish(payload)
        messages += block
    _end(node, plan, publisher)
    statistics = node.statistics().channels[0]
    return Outcome(
        messages=messages,
        seconds=time.monotonic() - start_s,
        repairs=statistics.repairs_sent,
        naks=statistics.naks_sent,
        cpu_seconds=time.process_time() - cpu_s,
    )


def _end(node: hubbub.Node, plan: Plan, publisher: hubbub.Publisher) -> None:
    """Publish the last message; where it may be lost for good, often enough to arrive."""
    publisher.publish(END)
    node.flush(FLUSH_TIMEOUT_S)
    for _ in range(_ENDS if plan.link == DATAGRAM else 0):
        time.sleep(_END_PAUSE_S)
        publisher.publish(END, flush=True)


def _publisher(node: hubbub.Node, plan: Plan, subject: str) -> hubbub.Publisher:
    """Publish over the link of the plan; what that does not repair is best effort."""
    if plan.link == DATAGRAM:
        return node.publisher(subject, reliable=False, links=[DATAGRAM])
    return node.publisher(subject)


def _meet(node: hubbub.Node, plan: Plan, subject: str) -> hubbub.Publisher:
    publisher = _publisher(node, plan, subject)
    if not publisher.wait_for_subscribers(plan.subscribers, MEETING_TIMEOUT_S):
        raise hubbub.LinkError(
            f"{publisher.receivers} of {plan.subscribers} subscribers after {MEETING_TIMEOUT_S} s;"
            f" see `hubbub doctor --interface {plan.interface}`"
        )
    return publisher


class Count:
    """Check and count what one subscriber gets."""

    def __init__(self) -> None:
        self.messages = 0
        self.duplicates = 0
        self.samples_ns: list[int] = []
        self.first_ns = 0
        self.last_ns = 0
        self._newest = 0

    def take(self, message: hubbub.Message) -> bool:
        """Take a message; True: it was the last."""
        if message.sequence <= self._newest:
            self.duplicates += 1
            return False
        self._newest = message.sequence
        if not self.messages:
            self.first_ns = message.received_ns
        if not message.payload:
            self.last_ns = message.received_ns
            return True
        self.messages += 1
        if not self.messages % _SAMPLE_EVERY or self.messages < _SAMPLE_EVERY:
            self.last_ns = message.received_ns
            self.samples_ns.append(message.received_ns - message.published_ns)
        return False


def _subscribe(
    node: hubbub.Node, plan: Plan, stop: threading.Event, ready: Callable[[], None]
) -> Outcome:
    """Receive until the last message, or until told to stop."""
    count = Count()
    losses: Counter[str] = Counter()
    node.on_event(lambda event: _add_loss(losses, event))
    cpu_s = time.process_time()
    subject = PING if plan.benchmark == LATENCY else DATA
    dropped = _receive(node, plan, subject, count.take, stop, ready)
    statistics = node.statistics().channels[0]
    unrepaired = sum(one.lost for one in statistics.topics if not (one.is_own or one.is_reliable))
    if unrepaired:
        losses["not repaired"] += unrepaired
    return Outcome(
        messages=count.messages,
        duplicates=count.duplicates,
        dropped=dropped,
        seconds=(count.last_ns - count.first_ns) / 1e9,
        repairs=statistics.repairs_sent,
        naks=statistics.naks_sent,
        cpu_seconds=time.process_time() - cpu_s,
        quantiles_ns=quantiles(count.samples_ns),
        longest_ns=max(count.samples_ns, default=0),
        losses=losses,  # Not a copy: what is reported while the node closes counts, too.
    )


def _add_loss(losses: Counter[str], event: hubbub.Event) -> None:
    if isinstance(event, hubbub.GapAbandoned):
        losses[event.reason] += event.last - event.first + 1
    elif isinstance(event, hubbub.SlowConsumer):
        losses[event.policy] += event.dropped


def _receive(
    node: hubbub.Node,
    plan: Plan,
    subject: str,
    take: Callable[[hubbub.Message], bool],
    stop: threading.Event,
    ready: Callable[[], None],
) -> int:
    """Receive in the way of the plan until `take` says it was the last; return what was dropped."""
    queue = max(1024, min(1_000_000, QUEUED_BYTES // max(1, plan.size)))
    if plan.mode == "inline":
        subscription = node.subscribe(
            subject, lambda message: stop.set() if take(message) else None, inline=True, queue=queue
        )
        ready()
        stop.wait()
        return subscription.dropped
    subscription = node.subscribe(subject, queue=queue)

    def close_when_told() -> None:
        stop.wait()
        subscription.close()

    threading.Thread(target=close_when_told, daemon=True).start()
    ready()
    for message in subscription:
        if take(message):
            break
    return subscription.dropped


def _answer(
    node: hubbub.Node, plan: Plan, stop: threading.Event, ready: Callable[[], None]
) -> Outcome:
    """Send every message back."""
    publisher = _publisher(node, plan, PONG)
    cpu_s = time.process_time()
    answered = 0

    def take(message: hubbub.Message) -> bool:
        nonlocal answered
        if not message.payload:
            return True
        publisher.publish(message.payload)
        answered += 1
        return False

    _receive(node, plan, PING, take, stop, ready)
    statistics = node.statistics().channels[0]
    return Outcome(
        messages=answered,
        repairs=statistics.repairs_sent,
        naks=statistics.naks_sent,
        cpu_seconds=time.process_time() - cpu_s,
    )


def _ping(
    node: hubbub.Node, plan: Plan, stop: threading.Event, ready: Callable[[], None]
) -> Outcome:
    """Measure round trips, one after the other."""
    pongs: hubbub.Subscription | None = None
    if plan.mode == "receive":
        pongs = node.subscribe(PONG)
    pinger = Pinger(plan, stop)
    if pongs is None:
        node.subscribe(PONG, pinger.take, inline=True)
    publisher = pinger.publisher = _meet(node, plan, PING)
    ready()
    cpu_s, start_s = time.process_time(), time.monotonic()
    pinger.run(pongs)
    seconds = time.monotonic() - start_s
    _end(node, plan, publisher)
    statistics = node.statistics().channels[0]
    return Outcome(
        messages=pinger.sent,
        dropped=pinger.sent - len(pinger.samples_ns),
        duplicates=pinger.duplicates,
        seconds=seconds,
        repairs=statistics.repairs_sent,
        naks=statistics.naks_sent,
        cpu_seconds=time.process_time() - cpu_s,
        quantiles_ns=quantiles(pinger.samples_ns),
        longest_ns=max(pinger.samples_ns, default=0),
    )


class Pinger:
    """Send a message, wait for its answer, send the next."""

    publisher: hubbub.Publisher

    def __init__(self, plan: Plan, stop: threading.Event) -> None:
        self.sent = 0
        self.duplicates = 0
        self.samples_ns: list[int] = []
        self._payload = bytes(plan.size)
        self._pace = Pace(plan.rate) if plan.rate else None
        self._end_s = time.monotonic() + plan.seconds + MEETING_TIMEOUT_S
        self._seconds = plan.seconds
        self._stop = stop
        self._answered = threading.Event()
        self._sent_ns = 0
        self._newest = 0

    def run(self, pongs: hubbub.Subscription | None) -> None:
        """Go on until the time is over, or an answer does not come."""
        self._end_s = time.monotonic() + self._seconds
        while not self._is_over():
            if self._pace is not None:
                self._pace.wait()
            self._answered.clear()
            self._send()
            if pongs is None:
                if not self._wait_inline():
                    return
            elif (message := pongs.receive(ANSWER_TIMEOUT_S)) is None:
                return
            else:
                self._count(message)

    def take(self, message: hubbub.Message) -> None:
        """Take an answer on the I/O thread; unless paced, send the next from there as well."""
        self._count(message)
        if self._pace is None and not self._is_over():
            self._send()
        else:
            self._answered.set()

    def _wait_inline(self) -> bool:
        """Wait for the end of a chain of round trips; False: it broke."""
        sent = -1
        while not self._answered.wait(ANSWER_TIMEOUT_S):
            if sent == self.sent:
                return False
            sent = self.sent
        return True

    def _is_over(self) -> bool:
        return time.monotonic() >= self._end_s or self._stop.is_set()

    def _send(self) -> None:
        self.sent += 1
        self._sent_ns = time.perf_counter_ns()
        self.publisher.publish(self._payload)

    def _count(self, message: hubbub.Message) -> None:
        if message.sequence <= self._newest:
            self.duplicates += 1
            return
        self._newest = message.sequence
        self.samples_ns.append(time.perf_counter_ns() - self._sent_ns)


if __name__ == "__main__":
    main()
