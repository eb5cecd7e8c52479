"""Producers and consumers of real nodes: every way to read, to change and to end them."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from math import gcd
from typing import Any

import msgspec
import pytest

import hubbub
from hubbub.producer import make_options
from hubbub.protocol.timetrigger.producer import ProducerOptions
from tests.integration.bus import IS_SOAK, Events, Place, fresh_place, take, wait_until

SPEED = "/vehicle/speed"


class Reading(msgspec.Struct):
    """A typed sample."""

    value: float


@pytest.fixture
def place() -> Place:
    return fresh_place()


@pytest.fixture
def nodes(place: Place) -> Iterator[tuple[hubbub.Node, hubbub.Node]]:
    with place.open("maker") as maker, place.open("user") as user:
        yield maker, user


def test_nearest_producer_takes_over_and_gives_way(nodes: Any) -> None:
    far, user = nodes
    far.produce(SPEED, lambda: b"far")
    consumer = user.consume(SPEED, period_ms=20, mode="nearest")
    assert take(consumer, 1)[0].payload == b"far"
    near = user.produce(SPEED, lambda: b"near")
    wait_until(lambda: take(consumer, 1)[0].payload == b"near")
    assert {message.payload for message in take(consumer, 10)} == {b"near"}
    near.stop()
    wait_until(lambda: take(consumer, 1)[0].payload == b"far")


def test_samples_come_once_a_period_with_tick_and_origin(nodes: Any) -> None:
    maker, user = nodes
    producer = maker.produce(SPEED, lambda: b"13.9")
    consumer = user.consume(SPEED, period_ms=20)
    messages = take(consumer, 10)
    ticks = [message.tick_ns for message in messages]
    slots = [tick // 20_000_000 for tick in ticks]
    assert slots == sorted(set(slots))
    assert {message.payload for message in messages} == {b"13.9"}
    # The first may come before the HELLO that tells the name.
    assert {message.source.id for message in messages} == {maker.id}
    assert messages[-1].source.name == "maker"
    assert {message.port for message in messages} == {producer.port}
    assert {message.period_ns for message in messages} == {20_000_000}
    assert all(abs(message.published_ns - message.tick_ns) < 10**10 for message in messages)
    assert consumer.statistics().served >= 10
    assert producer.statistics().periods_ms == (20,)


def test_nothing_is_sampled_without_an_interest_and_withdrawal_ends_it(nodes: Any) -> None:
    maker, user = nodes
    reads: list[float] = []
    producer = maker.produce(SPEED, lambda: reads.append(time.monotonic()) or b"x")
    time.sleep(0.1)
    assert reads == [] and not producer.is_wanted
    consumer = user.consume(SPEED, period_ms=10)
    take(consumer, 3)
    consumer.stop()
    wait_until(lambda: not producer.is_wanted)
    count = len(reads)
    time.sleep(0.1)
    assert len(reads) <= count + 1
    assert consumer.is_stopped and {message.payload for message in consumer} <= {b"x"}


def test_callback_iteration_asyncio_and_types(nodes: Any) -> None:
    maker, user = nodes
    maker.produce(SPEED, lambda: Reading(13.9), type=Reading)
    called: list[Any] = []
    user.consume(SPEED, period_ms=10, callback=called.append, type=Reading, context="c")
    inline: list[Any] = []
    user.consume(SPEED, period_us=10_000, callback=inline.append, inline=True)
    wait_until(lambda: len(called) >= 3 and len(inline) >= 3)
    assert called[0].payload == Reading(13.9) and called[0].context == "c"
    with user.consume(SPEED, period_ms=10) as consumer:
        for number, _ in enumerate(consumer):
            if number == 2:
                break

    async def main() -> int:
        count = 0
        async with user.consume(SPEED, period_ms=10) as consumer:
            await asyncio.wait_for(consumer.receive_async(), 10)
            async for _ in consumer:
                count += 1
                if count == 3:
                    return count
        return 0

    assert asyncio.run(main()) == 3


def test_consumers_of_one_subject_share_what_is_made_of_a_sample(nodes: Any) -> None:
    maker, user = nodes
    maker.produce(SPEED, lambda: b"x")
    both = [user.consume(SPEED, period_ms=10, context=context) for context in "ab"]
    first, second = ({one.tick_ns: one for one in take(consumer, 8)} for consumer in both)
    common = first.keys() & second.keys()
    assert len(common) >= 5
    assert all(first[tick].passage is second[tick].passage for tick in common)
    assert {one.context for one in second.values()} == {"b"}
    assert all(first[tick].subject == SPEED == second[tick].subject for tick in common)


def test_local_consumer_is_served_without_the_network(place: Place) -> None:
    with place.open("alone") as node:
        node.produce(SPEED, lambda: b"x")
        message = take(node.consume(SPEED, period_ms=10), 2)[1]
        assert message.link == "loopback"


def test_what_stays_inside_is_not_told_outside(place: Place) -> None:
    with place.open("car") as car, place.open("other") as other:
        car.produce("/x", lambda: b"ours", inside=True)
        inside = car.consume("/x", period_ms=20, inside=True)
        elsewhere = other.consume("/x", period_ms=20)
        other.produce("/x", lambda: b"theirs")
        assert {inside.receive(10).payload for _ in range(5)} == {b"ours"}
        assert {elsewhere.receive(10).payload for _ in range(5)} == {b"theirs"}


def test_period_of_0_is_one_sample(nodes: Any) -> None:
    maker, user = nodes
    maker.produce(SPEED, lambda: b"13.9")
    with user.consume(SPEED, period_ms=0) as consumer:
        assert take(consumer, 1)[0].payload == b"13.9" and "once" in repr(consumer)
        assert consumer.receive(0.2) is None
        statistics = consumer.statistics()
        assert (statistics.served, statistics.missed, statistics.vacant) == (1, 0, 0)


def test_observer_and_who_wants_one_sample_tell_recordings_of_no_slots(nodes: Any) -> None:
    maker, user = nodes
    maker.produce(SPEED, lambda: b"x")
    told: list[Any] = []
    end = user._telling.listen(told.append)
    with user.observe() as observer, user.consume(SPEED, period_ms=0) as once:
        take(user.consume(SPEED, period_ms=10), 3)
        take(observer, 3)
        take(once, 1)
    end()
    periods = {slots.period_ns for one in told for slots in one.slots}
    assert periods == {10_000_000}


def test_samples_of_one_producer_are_wanted_by_its_address_in_every_form(place: Place) -> None:
    with place.open("other") as other, place.open("car") as car:
        other.produce(SPEED, lambda: b"other")
        car.produce(SPEED, lambda: b"seven", port=7)
        car.produce(SPEED, lambda: b"eight", port=8)
        source, seven = hubbub.Source("", car.id, 0), hubbub.VehicleAddress(car.id, 7)
        for of, expected in [
            (seven, {b"seven"}), (str(seven), {b"seven"}), (other.id, {b"other"}),
            (source, {b"seven", b"eight"}), (car.id.hex(), {b"seven", b"eight"}),
        ]:  # fmt: skip
            with other.consume(SPEED, period_ms=20, of=of) as consumer:
                assert {message.payload for message in take(consumer, 8)} == expected
        for wrong in (
            "xyz",
            b"short",
            "00" * 12 + ":1",
            "00" * 12 + ":x",
            7,
            seven._replace(port=1),
        ):
            with pytest.raises(hubbub.HubbubError, match=r"of=|components have"):
                other.consume(SPEED, period_ms=20, of=wrong)
        with pytest.raises(hubbub.HubbubError, match="inside=True"):
            other.consume(SPEED, period_ms=20, of=seven, inside=True)


def test_copies_of_samples_are_sent_in_time_and_taken_once(nodes: Any) -> None:
    maker, user = nodes
    maker.produce(SPEED, lambda: b"x", copies=2)
    consumer = user.consume(SPEED, period_ms=20)
    wait_until(lambda: consumer.statistics().served >= 10)
    wait_until(lambda: consumer.statistics().duplicates >= 8)
    slots = [message.tick_ns // 20_000_000 for message in take(consumer, 10)]
    assert slots == sorted(set(slots))


@pytest.mark.parametrize("links", [["local"], ["multicast"], ["local", "multicast"]])
def test_samples_take_the_links_there_are(place: Place, links: list[str]) -> None:
    with place.open("maker", links=links) as maker, place.open("user", links=links) as user:
        maker.produce(SPEED, lambda: b"x")
        assert take(user.consume(SPEED, period_ms=10), 3)[-1].link == links[0]


def test_changed_interest_takes_effect_at_once(nodes: Any) -> None:
    maker, user = nodes
    producer = maker.produce(SPEED, lambda: b"x")
    consumer = user.consume(SPEED, period_ms=10_000)
    take(consumer, 1)
    consumer.set_interest(period_ms=10)
    wait_until(lambda: producer.statistics().periods_ms == (10,))
    start = time.monotonic()
    take(consumer, 5)
    assert time.monotonic() - start < 5
    assert consumer.period_ms == 10


def test_hundreds_of_components_need_no_thread_each(place: Place) -> None:
    with place.open("car", links=["local"]) as car:
        before = threading.active_count()
        for number in range(150):
            car.produce(f"/c/{number}", lambda: b"x", inside=True)
        consumers = [
            car.consume(f"/c/{number}", period_ms=200, callback=lambda m: None, inside=True)
            for number in range(150)
        ]
        wait_until(lambda: all(one.statistics().served for one in consumers))
        assert threading.active_count() - before < 20


@pytest.mark.parametrize("inline", [False, True])
def test_stop_of_a_producer_that_is_wanted_once_an_hour_waits_for_no_tick(
    nodes: Any, inline: bool
) -> None:
    maker, user = nodes
    calls: list[int] = []
    producer = maker.produce(SPEED, lambda: calls.append(1) or b"x", inline=inline)
    take(user.consume(SPEED, period_ms=3_600_000), 1)
    start = time.monotonic()
    producer.stop()
    assert time.monotonic() - start < 5 and calls == [1]  # Not an hour: a busy machine takes long.


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_stop_returns_within_100_ms_and_nothing_is_called_after_it(
    nodes: Any, seconds: float
) -> None:
    # 80 ms of patience, and what a busy machine takes: that may be more once, but not always.
    assert any(stop_once(nodes, seconds) < 0.15 for _ in range(3))


def stop_once(nodes: Any, seconds: float) -> float:
    """Return how long it takes to stop a producer; nothing is called after it."""
    maker, user = nodes
    calls: list[float] = []
    is_inside = threading.Event()

    def read() -> bytes:
        calls.append(time.monotonic())
        is_inside.set()
        time.sleep(seconds)
        return b"x"

    producer = maker.produce(SPEED, read)
    consumer = user.consume(SPEED, period_ms=5)
    assert is_inside.wait(10)
    start = time.monotonic()
    producer.stop()
    took = time.monotonic() - start
    count = len(calls)
    user_count = consumer.statistics().served
    time.sleep(0.3)
    assert len(calls) == count
    if seconds:
        assert consumer.statistics().served == user_count == 0
    consumer.close()
    return took


def test_ticks_are_on_the_clock_that_was_chosen(place: Place) -> None:
    with place.open("leader") as leader, place.open("follower", clock="bus") as follower:
        follower.produce(SPEED, lambda: b"x")
        # Its rank is that of a clock that follows nobody, until it hears of a better one.
        offsets = follower.channels[0].driver.core.timed.time.offsets
        take(leader.consume(SPEED, period_ms=20), 3)
        wait_until(lambda: offsets.following)
        assert offsets.following.startswith(leader.id)


def test_sampling_that_fails_is_reported_and_goes_on(place: Place) -> None:
    events = Events()
    with place.open("maker", on_event=events) as maker, place.open("user") as user:
        values: list[Any] = [ValueError("broken"), "text", bytes(10**6), None, b"good"]

        def read() -> Any:
            value = values.pop(0) if len(values) > 1 else values[0]
            if isinstance(value, Exception):
                raise value
            return value

        producer = maker.produce(SPEED, read)
        assert take(user.consume(SPEED, period_ms=5), 1)[0].payload == b"good"
        wait_until(lambda: len(events.of(hubbub.SampleFailed)) == 3)
        assert producer.statistics().failed == 4
        assert "broken" in str(events.of(hubbub.SampleFailed)[0])


def test_missed_deadline_is_an_event_and_a_polite_end_is_none(place: Place) -> None:
    events = Events()
    with place.open("user", on_event=events) as user:
        consumer = user.consume(SPEED, period_ms=20)
        with place.open("maker") as maker:
            values = [b"x"] * 5
            maker.produce(SPEED, lambda: values.pop() if values else None)
            take(consumer, 5)
            missed = events.wait(hubbub.DeadlineMissed)
            assert missed.subject == SPEED and missed.slots >= 1
        # It has stopped politely, so from then on nothing is missed.
        wait_until(lambda: consumer.statistics().producers == 0)
        assert not any(one.is_lost for one in events.of(hubbub.DeadlineMissed))


def test_early_samples_are_counted_and_logged_at_debug(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", "hubbub.samples"), place.open("node") as node:
        node.produce(SPEED, lambda: b"x", schedule="strict")
        fast, slow = (node.consume(SPEED, period_ms=period) for period in (20, 50))
        wait_until(lambda: fast.statistics().served and slow.statistics().discarded_early >= 5)
    lines = [record.getMessage() for record in caplog.records if record.name == "hubbub.samples"]
    assert any(line.startswith("early: ") and f" of {SPEED} from " in line for line in lines)
    assert {record.levelname for record in caplog.records if record.name == "hubbub.samples"} == {
        "DEBUG"
    }


def test_stopped_consumer_takes_no_other_interest(place: Place) -> None:
    with place.open("node") as node:
        consumer = node.consume(SPEED, period_ms=20)
        consumer.stop()
        with pytest.raises(hubbub.ClosedError, match="was stopped"):
            consumer.set_interest(period_ms=10)


def test_observer_sees_what_others_are_sent(place: Place) -> None:
    with (
        place.open("maker") as maker,
        place.open("user") as user,
        place.open("onlooker") as onlooker,
    ):
        maker.produce("/some/subject", lambda: b"x")
        observer = onlooker.observe()
        consumer = user.consume("/some/subject", period_ms=10)
        take(consumer, 3)
        (message,) = take(observer, 1)
        assert (message.subject, message.payload) == ("/some/subject", b"x")


@pytest.mark.soak
def test_thousand_starts_stops_and_changes_from_eight_threads_leave_the_right_divisor(
    place: Place,
) -> None:
    count, periods = (1000 if IS_SOAK else 240), [20, 30, 50, 70, 100, 150, 250]
    with place.open("maker") as maker, place.open("user") as user:
        producer = maker.produce(SPEED, lambda: b"x", schedule="strict")
        live: dict[hubbub.Consumer, int] = {}
        lock = threading.Lock()
        for _ in range(70):  # More than an interest names.
            live[user.consume(SPEED, period_ms=100, callback=lambda m: None)] = 100
        compared = 0

        def work(seed: int) -> None:
            draw = random.Random(seed)
            own: list[hubbub.Consumer] = []
            for _ in range(count // 8):
                action, period = draw.choice(["start", "stop", "change"]), draw.choice(periods)
                if action == "start" or not own:
                    node = draw.choice([maker, user])
                    own.append(node.consume(SPEED, period_ms=period, callback=lambda m: None))
                    with lock:
                        live[own[-1]] = period
                elif action == "stop":
                    consumer = own.pop(draw.randrange(len(own)))
                    with lock:
                        del live[consumer]
                    consumer.stop()
                else:
                    consumer = draw.choice(own)
                    consumer.set_interest(period_ms=period)
                    with lock:
                        live[consumer] = period

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        while any(
            thread.is_alive() for thread in threads
        ):  # At every moment, and not only at last.
            now = producer.statistics()
            assert now.tick_ms == gcd(*map(int, now.periods_ms)), now
            compared += 1
        assert compared > 10
        wait_until(lambda: set(producer.statistics().periods_ms) == set(live.values()))
        assert producer.statistics().tick_ms == gcd(*live.values())


def test_misuse_is_refused_with_value_and_bound(nodes: Any) -> None:
    node, _ = nodes
    for refused, text in [
        (lambda: node.produce("/*", lambda: b""), "wildcard"),
        (lambda: node.produce(SPEED, b"no function"), "function"),
        (lambda: node.produce(SPEED, lambda: b"", schedule="often"), "due, strict, harmonised"),
        (lambda: node.produce(SPEED, lambda: b"", cap_hz=0), "1 to"),
        (lambda: node.produce(SPEED, lambda: b"", floor_ms=0), "0.001"),
        (lambda: node.produce(SPEED, lambda: b"", copies=0), "1 to 8"),
        (lambda: node.produce(SPEED, lambda: b"", port=1), "gateway"),
        (lambda: node.produce(77, lambda: b""), "register_data_type"),
        (lambda: node.consume(0, period_ms=1), "register_data_type"),
        (lambda: node.consume(SPEED), "one of period_ms and period_us"),
        (lambda: node.consume(SPEED, period_ms=-1), "1 us to a day, or 0 for one sample"),
        (lambda: node.consume("/x", period_ms=1).set_interest(period_ms=0), "1 us to a day"),
        (lambda: node.consume(SPEED, period_us=10**12), "1 us to a day"),
        (lambda: node.consume(SPEED, period_ms=1, mode="some"), "all, one, nearest"),
        (lambda: node.consume(SPEED, period_ms=1, max_age_ms=-1), "max_age_ms"),
        (lambda: hubbub.register_data_type(1, "/other"), "already"),
        (lambda: hubbub.register_data_type(0, "/other"), "from 1"),
    ]:
        with pytest.raises(hubbub.HubbubError, match=text):
            refused()


def test_options_of_a_producer_are_those_that_were_given() -> None:
    options = make_options("strict", 5, 100, stagger=True, scope=7, inside=True, copies=3)
    assert options == ProducerOptions("strict", 5000, 100, True, 7, True, 3)
    assert options.spacing_us == 30_000
    assert make_options("due", 20.5, 1000, stagger=False, scope=0).spacing_us == 20_500


def test_registered_type_and_its_subject_are_one(nodes: Any) -> None:
    maker, user = nodes
    given = {one.name: int(one) for one in hubbub.DataTypeId}  # They are on the wire.
    assert given == {"UNKNOWN": 0, "VEHICLE_SPEED": 1, "ENGINE_RPM": 2, "OBSTACLE_DISTANCE": 3}
    hubbub.register_data_type(4711, "/plant/temp")
    maker.produce(4711, lambda: b"21.5")
    assert take(user.consume("/plant/temp", period_ms=10), 1)[0].subject == "/plant/temp"
    maker.produce(hubbub.DataTypeId.ENGINE_RPM, lambda: b"3000")
    assert take(user.consume("/engine/rpm", period_ms=10), 1)[0].payload == b"3000"


def test_number_that_was_registered_later_or_elsewhere_is_found(nodes: Any) -> None:
    maker, user = nodes
    consumer = user.consume("/plant/pressure", period_ms=10)
    derived = consumer.data_type
    hubbub.register_data_type(4712, "/plant/pressure")
    producer = maker.produce(4712, lambda: b"1013")
    assert take(consumer, 1)[0].subject == "/plant/pressure"
    assert derived > 1 << 31 and consumer.data_type == producer.data_type == 4712
    assert consumer.statistics().data_type == 4712


def test_closed_node_ends_components_and_readers(place: Place) -> None:
    node = place.open("short")
    producer = node.produce(SPEED, lambda: b"x")
    consumer = node.consume(SPEED, period_ms=10)
    take(consumer, 1)
    node.close()
    assert producer.is_stopped and consumer.is_stopped
    with pytest.raises(hubbub.ClosedError):
        node.consume(SPEED, period_ms=1)
    assert all(message.payload == b"x" for message in consumer)  # What was queued, then the end.


def test_component_stops_also_when_its_channel_closes_at_that_very_moment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: Any) -> None:
        raise hubbub.ClosedError("by another thread, since the last look")

    with hubbub.Vehicle(
        "car", domain=place.domain, interface="127.0.0.1",
        channels=[hubbub.Channel(place.group, place.port)],
    ) as car:  # fmt: skip
        consumer = car.consumer(SPEED, period_ms=100)
        producer = car.producer(SPEED, lambda: b"1")
        mail = car.listen(9)
        with monkeypatch.context() as patch:
            patch.setattr(car.node.channels[0].driver, "call", refuse)
            for component in (consumer, producer, mail):
                component.stop()
        assert consumer.is_stopped and producer.is_stopped and mail.is_closed
        assert car.node.statistics().consumers == car.node.statistics().producers == ()
        assert consumer._subscription.is_closed


@pytest.mark.parametrize("scope", [-1, 1 << 32, True, "1"])
def test_scope_that_no_interest_can_carry_is_refused(nodes: Any, scope: Any) -> None:
    for ask in (
        lambda: nodes[0].produce(SPEED, lambda: b"", scope=scope),
        lambda: nodes[1].consume(SPEED, period_ms=100, scope=scope),
    ):
        with pytest.raises(hubbub.ConfigurationError, match="must be a number from 0 to 2"):
            ask()


@pytest.mark.parametrize("inline", [False, True])
def test_producer_goes_on_after_whatever_its_function_raises(nodes: Any, inline: bool) -> None:
    raised: list[BaseException] = [ValueError("no"), SystemExit(3), GeneratorExit()]

    def read() -> bytes:
        if raised:
            raise raised.pop()
        return b"1"

    maker, user = nodes
    events = Events()
    maker.on_event(events)
    maker.produce(SPEED, read, inline=inline)
    take(user.consume(SPEED, period_ms=20), 3)
    wait_until(lambda: len(events.of(hubbub.SampleFailed)) == 3)
