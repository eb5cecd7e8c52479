"""How nodes use the network: rate limit, batching, frame size, nagging, repairs given up."""

import time
from collections.abc import Callable
from typing import Any

from hubbub import Faults, GapAbandoned, Nagging, Node
from hubbub.protocol.burst import Burst
from hubbub.wire.header import DATA, SEGMENT, decode
from tests.integration.bus import Events, fresh_place, payloads, take, wait_until

SECONDS = 3.0


class Tap:
    """Sees every frame of a node that leaves, and when."""

    def __init__(self, node: Node, keep: Callable[[bytes], bool] = lambda frame: True) -> None:
        [connection] = node.channels
        self.frames: list[tuple[float, bytes]] = []
        self._link = connection.driver.link
        self._send = self._link.send
        self._keep = keep
        self._link.send = self._see  # type: ignore[method-assign]

    def _see(self, burst: Burst) -> bool:
        is_sent = self._send(burst)
        if is_sent:
            data = b"".join(burst.buffers)
            step = burst.segment_bytes or len(data)
            frames = [data[at : at + step] for at in range(0, len(data), step)]
            self.frames += [(time.monotonic(), frame) for frame in frames if self._keep(frame)]
        return is_sent


def is_data(frame: bytes) -> bool:
    return decode(frame).kind in (DATA, SEGMENT)


def test_rate_limit_holds_for_everything_that_is_sent_repairs_included() -> None:
    limit_bits = 1_000_000
    rates = [measure_rate(limit_bits)]
    while rates[-1] < 0.9 * limit_bits and len(rates) < 3:
        rates.append(measure_rate(limit_bits))  # The machine had no time for us.
    assert 0.9 * limit_bits < max(rates) < 1.1 * limit_bits, rates


def test_channel_that_waits_for_its_rate_sleeps_meanwhile() -> None:
    place = fresh_place()
    with place.open("p", rate_limit_bits=1_000_000) as sender, place.open("s") as receiver:
        subscription = receiver.subscribe("/x", queue=1000)
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        before = sender.statistics().loop.polls
        for _ in range(100):
            publisher.publish(bytes(1000))
        take(subscription, 100)
        # It took 30,000 when it looked again and again whether it may send.
        assert sender.statistics().loop.polls - before < 3000


def measure_rate(limit_bits: int) -> float:
    """Publish more than the limit allows to a receiver that loses a tenth; return bits a second."""
    place = fresh_place()
    with (
        place.open("p", rate_limit_bits=limit_bits, frame_bytes_max=1472) as sender,
        place.open("s", faults=Faults(loss=0.1, direction="in")) as receiver,
    ):
        subscription = receiver.subscribe("/x", queue=100_000)
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        tap = Tap(sender)
        end_s = time.monotonic() + SECONDS
        number = 0
        while time.monotonic() < end_s:
            publisher.publish(b"%d" % number + bytes(1000))
            number += 1
            while publisher._framer.pending_count > 50 and time.monotonic() < end_s:
                time.sleep(0.002)
        frames = list(tap.frames)
        [channel] = sender.statistics().channels
        assert channel.repairs_sent > 5
        first_s, last_s = frames[0][0], frames[-1][0]
        bits = 8 * sum(len(frame) for _, frame in frames)
        received = [int(m.payload.rstrip(b"\0")) for m in take(subscription, subscription.pending)]
        assert received == list(range(len(received))) and len(received) > 100
        return bits / (last_s - first_s)


def test_quiet_sender_sends_each_message_at_once_in_a_datagram_of_its_own() -> None:
    place = fresh_place()
    with place.open("p") as sender, place.open("s") as receiver:
        subscription = receiver.subscribe("/x")
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        wait_until(lambda: not publisher._sender.is_held)
        tap = Tap(sender, is_data)
        at_once = 0
        for number in range(20):
            publisher.publish(b"%d" % number)
            at_once += len(tap.frames) == number + 1  # When publish returns, it is on the wire.
            assert payloads(take(subscription, 1)) == [b"%d" % number]
            assert len(tap.frames) == number + 1
            time.sleep(0.003)
        # Unless the I/O thread was just at it, and sent it then.
        assert at_once >= 15


def test_busy_sender_puts_many_messages_into_a_datagram_and_holds_none_back_for_long() -> None:
    place, count, frame_bytes_max = fresh_place(), 20_000, 1472
    with (
        place.open("p", frame_bytes_max=frame_bytes_max, holdback_ms=5) as sender,
        place.open("s") as receiver,
    ):
        subscription = receiver.subscribe("/x", queue=count)
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        wait_until(lambda: not publisher._sender.is_held)
        tap = Tap(sender)
        for number in range(count):
            publisher.publish(b"%d" % number)
        last_s = time.monotonic()
        messages = take(subscription, count)
        assert payloads(messages) == [b"%d" % number for number in range(count)]
        data = [(when_s, frame) for when_s, frame in tap.frames if is_data(frame)]
        fresh = {decode(frame).sequence for _, frame in data}
        assert len(fresh) < count / 20
        assert max(len(frame) for _, frame in tap.frames) <= frame_bytes_max
        assert data[-1][0] < last_s + 1.0


def test_no_datagram_is_above_the_frame_size_whatever_is_published() -> None:
    place, frame_bytes_max = fresh_place(), 1300
    sizes = [*range(480, 600), 1000, 5000, 50_000]
    with place.open("p", frame_bytes_max=frame_bytes_max) as sender, place.open("s") as receiver:
        subscription = receiver.subscribe("/...", queue=10_000)
        tap = Tap(sender)
        publishers = [sender.publisher("/" + "s" * length) for length in (1, 200, 400)]
        assert all(publisher.wait_for_subscribers(1, 10) for publisher in publishers)
        for size in sizes:
            for publisher in publishers:
                publisher.publish(bytes(size))
        messages = take(subscription, 3 * len(sizes))
        assert sorted(len(m.payload) for m in messages) == sorted(3 * sizes)
        assert max(len(frame) for _, frame in tap.frames) <= frame_bytes_max


def nag(place: Any, policy: str, events: Events) -> tuple[Node, Node, Any, Any]:
    """Open a publisher, and a receiver that loses so much that it nags."""
    sender = place.open("p")
    receiver = place.open(
        "s", on_event=events, faults=Faults(loss=0.5, direction="in"), nagging_window_ms=50,
        nagging_check_ms=200, nagging_requests=4, nagging_policy=policy,
    )  # fmt: skip
    subscription = receiver.subscribe("/x", queue=1_000_000)
    publisher = sender.publisher("/x")
    assert publisher.wait_for_subscribers(1, 10)
    return sender, receiver, publisher, subscription


def publish_until(publisher: Any, is_over: Callable[[], Any], timeout_s: float = 30) -> None:
    end_s = time.monotonic() + timeout_s
    while not is_over():
        assert time.monotonic() < end_s
        publisher.publish(bytes(100))
        time.sleep(0.001)


def test_nagging_receiver_is_reported_once_and_suspends_itself() -> None:
    place, events = fresh_place(), Events()
    sender, receiver, publisher, subscription = nag(place, "suspend", events)
    with sender, receiver:
        publish_until(publisher, lambda: events.of(Nagging))
        nagging = events.of(Nagging)[0]
        assert nagging.policy == "suspend" and nagging.requests >= 4
        assert " in 0.2 s " in str(Nagging("c", 5, 0.2, "suspend"))  # It had been 0 s.
        [channel] = receiver.statistics().channels
        received, naks = subscription.received, channel.naks_sent
        end_s = time.monotonic() + 0.6
        publish_until(publisher, lambda: time.monotonic() > end_s)
        assert len(events.of(Nagging)) == 1
        # It hears no more, and asks no more.
        assert subscription.received == received
        assert receiver.statistics().channels[0].naks_sent <= naks + 1


def test_nagging_receiver_that_only_reports_goes_on() -> None:
    place, events = fresh_place(), Events()
    sender, receiver, publisher, subscription = nag(place, "report", events)
    with sender, receiver:
        publish_until(publisher, lambda: events.of(Nagging))
        received = subscription.received
        publish_until(publisher, lambda: subscription.received > received + 20)
        assert events.of(GapAbandoned) == []


def test_nagging_receiver_that_resyncs_reports_what_it_gave_up_and_goes_on() -> None:
    given_up: set[int] = set()
    while not given_up:  # Once in a hundred times nothing is missing when it resyncs.
        events = Events()
        sender, receiver, publisher, subscription = nag(fresh_place(), "resync", events)
        with sender, receiver:
            publish_until(publisher, lambda events=events: events.of(Nagging))
            received = subscription.received
            publish_until(publisher, lambda sub=subscription, at=received: sub.received > at + 20)
            gaps = events.of(GapAbandoned)
            assert {gap.reason for gap in gaps} <= {"nagging"}
            given_up = {n for gap in gaps for n in range(gap.first, gap.last + 1)}
            heard = {m.sequence for m in take(subscription, subscription.pending)}
            assert not given_up & heard


def test_rare_losses_are_no_nagging() -> None:
    place, events = fresh_place(), Events()
    with (
        place.open("p") as sender,
        place.open("s", on_event=events, nagging_window_ms=20, nagging_check_ms=100,
                   nagging_requests=1, faults=Faults(loss=0.3, direction="in")) as receiver,
    ):  # fmt: skip
        subscription = receiver.subscribe("/x")
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        for _ in range(4):
            for _ in range(10):
                publisher.publish(b"x")
            assert sender.flush(10)
            time.sleep(0.05)  # A window and a half without a request.
        take(subscription, 40)
        assert receiver.statistics().channels[0].naks_sent > 0
        assert events.of(Nagging) == []


def test_loss_that_outlasts_the_cache_is_reported_at_once_and_the_stream_goes_on() -> None:
    place, events = fresh_place(), Events()
    with (
        # Only who is left behind can miss what the cache no longer has.
        place.open("p", cache_bytes=20_000, slow_ms=20) as sender,
        place.open("s", on_event=events) as receiver,
    ):
        subscription = receiver.subscribe("/x", queue=10_000)
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(b"first")
        take(subscription, 1)
        lose_everything_until_left_behind(receiver, publisher)
        publish_until(publisher, lambda: events.of(GapAbandoned))
        gap = events.of(GapAbandoned)[0]
        assert (gap.publisher.name, gap.subject, gap.first) == ("p", "/x", 2)
        publisher.publish(b"still there")
        wait_until(lambda: subscription.received > 1)
        sequences = [m.sequence for m in take(subscription, subscription.pending)]
        missing = {n for g in events.of(GapAbandoned) for n in range(g.first, g.last + 1)}
        assert sequences == sorted(set(sequences)) and not missing & set(sequences)
        assert min(sequences) > gap.last


def lose_everything_until_left_behind(node: Node, publisher: Any) -> None:
    """Cut a node off while a publisher goes on, and for more than its cache holds."""
    link = node.channels[0].driver.link
    whole, look = link.receive, link.look

    def receive() -> Any:
        whole()
        return []

    link.receive = link.look = receive  # type: ignore[method-assign]
    publish_until(publisher, lambda: any(one.is_slow for one in publisher.subscribers()))
    for _ in range(100):
        publisher.publish(bytes(1000))
    link.receive, link.look = whole, look  # type: ignore[method-assign]
