"""Full speed, small buffers, stopped and starved receivers, many threads: complete and bounded."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hubbub import GapAbandoned, Node, SlowConsumer, Starved
from tests.integration.bus import IS_SOAK, Events, Place, acting, fresh_place, hear, say, wait_until

SMALL_BUFFER_BYTES = 104 * 1024  # Linux makes it twice as much.
MESSAGES = 1_000_000 if IS_SOAK else 100_000
STOP_S = 60 if IS_SOAK else 3
THREADS = 8
MESSAGES_PER_THREAD = 100_000 if IS_SOAK else 5_000
LONG = pytest.mark.timeout(900 if IS_SOAK else 120)


def resident_bytes() -> int:
    """Return how much memory this process occupies."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def check_numbers(place: list[Any], count: int, options: dict[str, Any]) -> None:
    """Receive numbered messages; tell whether they are complete, once each, in order."""
    with Place(*place).open("checker", **options) as node:
        subscription = node.subscribe("/numbers", queue=count + 1)
        say("ready")
        is_right = True
        for number, message in enumerate(subscription):
            is_right = is_right and int(message.payload) == number
            if number == count - 1:
                break
        say([is_right, subscription.dropped])
        hear()


@pytest.mark.soak
@LONG
def test_full_speed_into_a_small_socket_buffer_is_complete_with_few_repairs() -> None:
    place = fresh_place()
    options = {"receive_buffer_bytes": SMALL_BUFFER_BYTES}
    with acting(check_numbers, place, MESSAGES, options) as actor, place.open("p") as node:
        assert actor.hear() == "ready"
        publisher = node.publisher("/numbers")
        assert publisher.wait_for_subscribers(1, 30)
        for number in range(MESSAGES):
            publisher.publish(b"%064d" % number)
        assert node.flush(600)
        assert actor.hear(600) == [True, 0]
        [channel] = node.statistics().channels
        assert channel.repairs_sent <= 0.05 * channel.frames_sent, channel


def follow_numbers(place: list[Any]) -> None:
    """Receive until a message says that it is the last; report what came and what was lost."""
    events = Events()
    with Place(*place).open("follower", on_event=events) as node:
        subscription = node.subscribe("/numbers", queue=10_000_000)
        say("ready")
        received = bytearray(20_000_000)
        highest, count, is_ordered = 0, 0, True
        for message in subscription:
            is_ordered = is_ordered and message.sequence > highest
            highest = message.sequence
            received[highest] = 1
            count += 1
            if message.payload == b"last":
                break
        wait_until(lambda: sum(g.last - g.first + 1 for g in gaps(events)) + count == highest, 10)
        for gap in gaps(events):
            assert gap.subject == "/numbers" and gap.reason in ("too_slow", "resync"), str(gap)
            assert not any(received[gap.first : gap.last + 1])
        say([highest, count, is_ordered, sum(gap.last - gap.first + 1 for gap in gaps(events))])
        hear()


def gaps(events: Events) -> list[GapAbandoned]:
    found: list[GapAbandoned] = events.of(GapAbandoned)
    return found


@pytest.mark.soak
@LONG
def test_stopped_subscriber_costs_bounded_memory_and_resumes_with_its_gap_reported() -> None:
    place, events = fresh_place(), Events()
    cache_bytes = 8 << 20
    options = {"cache_bytes": cache_bytes, "peer_timeout_ms": 1000 * (STOP_S + 60)}
    with (
        acting(follow_numbers, place) as stopped,
        acting(follow_numbers, place) as other,
        place.open("p", on_event=events, **options) as node,
    ):
        assert stopped.hear() == other.hear() == "ready"
        publisher = node.publisher("/numbers")
        assert publisher.wait_for_subscribers(2, 30)
        publisher.publish(b"first")
        assert node.flush(10)
        stopped.signal(signal.SIGSTOP)
        payload, before_bytes = bytes(10_000), resident_bytes()
        end_s = time.monotonic() + STOP_S
        while time.monotonic() < end_s:
            publisher.publish(payload)
            time.sleep(0.0002)
        [channel] = node.statistics().channels
        assert channel.cache_bytes <= cache_bytes
        # The cache, what waits to be sent, and as much again for the allocator.
        assert resident_bytes() - before_bytes < 2 * (cache_bytes + (8 << 20))
        slow = events.wait(SlowConsumer)
        assert slow.peer is not None and slow.peer.name == "follower"
        stopped.signal(signal.SIGCONT)
        wait_until(lambda: not any(peer.is_slow for peer in peers_of(node)), 60)
        publisher.publish(b"last")
        highest, count, is_ordered, lost = other.hear(60)
        assert (count, is_ordered, lost) == (highest, True, 0)
        missed = stopped.hear(60)
        assert missed[0] == highest and missed[2] is True
        assert missed[3] > 0 and missed[1] + missed[3] == highest


def peers_of(node: Node) -> Any:
    return node.statistics().channels[0].peers


def check_threads(place: list[Any], threads: int, count: int, interval_s: float) -> None:
    """Receive from many threads of one publisher; none lost, none torn, order kept per thread."""
    if interval_s:
        sys.setswitchinterval(interval_s)
    with Place(*place).open("checker") as node:
        subscription = node.subscribe("/threads", queue=threads * count + 1)
        say("ready")
        expected = [0] * threads
        torn = 0
        for _, message in zip(range(threads * count), subscription, strict=False):
            thread, number, rest = message.payload.split(b"/")
            torn += rest != number * 8
            if int(number) == expected[int(thread)]:
                expected[int(thread)] += 1
        say([expected, torn])
        hear()


@pytest.mark.soak
@LONG
@pytest.mark.parametrize("interval_s", [0.0, 1e-6], ids=["default interval", "tiny interval"])
def test_many_threads_publish_and_nothing_is_lost_torn_or_out_of_order(interval_s: float) -> None:
    place, count = fresh_place(), MESSAGES_PER_THREAD
    before_s = sys.getswitchinterval()
    with (
        acting(check_threads, place, THREADS, count, interval_s) as actor,
        place.open("p", switch_interval_ms=None) as node,
    ):
        assert actor.hear() == "ready"
        if interval_s:
            sys.setswitchinterval(interval_s)
        publishers = [node.publisher("/threads") for _ in range(THREADS)]
        assert publishers[0].wait_for_subscribers(1, 30)

        def publish(thread: int) -> None:
            for number in range(count):
                text = b"%d" % number
                publishers[thread].publish(b"%d/%b/%b" % (thread, text, text * 8))

        threads = [threading.Thread(target=publish, args=(n,)) for n in range(THREADS)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(600)
        finally:
            sys.setswitchinterval(before_s)
        assert node.flush(600)
        assert actor.hear(600) == [[count] * THREADS, 0]


def check_beside_a_busy_thread(place: list[Any], count: int) -> None:
    """Receive while another thread of this process holds the interpreter."""
    events = Events()
    is_over = threading.Event()

    def burn() -> None:
        data = os.urandom(200_000)
        while not is_over.is_set():
            sorted(data)  # One call into C, a few milliseconds that no other thread gets.

    with Place(*place).open("starving", on_event=events) as node:
        subscription = node.subscribe("/numbers", queue=count + 1)
        burner = threading.Thread(target=burn)
        burner.start()
        say("ready")
        numbers = [
            int(message.payload) for _, message in zip(range(count), subscription, strict=False)
        ]
        starved = events.wait(Starved, 20)
        is_over.set()
        burner.join()
        say([numbers == list(range(count)), starved.late_ms, len(events.of(GapAbandoned))])
        hear()


def test_beside_a_busy_thread_all_arrives_and_starved_says_why_it_was_slow() -> None:
    place, count = fresh_place(), 20_000
    with acting(check_beside_a_busy_thread, place, count) as actor, place.open("p") as node:
        assert actor.hear() == "ready"
        publisher = node.publisher("/numbers")
        assert publisher.wait_for_subscribers(1, 30)
        for number in range(count):
            publisher.publish(b"%d" % number)
        is_complete, late_ms, lost = actor.hear(60)
        assert is_complete and lost == 0
        assert late_ms >= 20
