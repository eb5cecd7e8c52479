"""What a node dropped and lost, and which slots it met, others hear; never in a loop."""

import time

import pytest

import hubbub
from hubbub.events import GapAbandoned, SlowConsumer
from hubbub.limits import TOLD_EVENTS_MAX
from hubbub.message import Source
from hubbub.telling import SUBJECTS, Told, decode
from tests.integration.bus import Place, fresh_place, take, wait_until

LIDAR = Source("lidar", b"l" * 12, 7)


@pytest.fixture
def place() -> Place:
    return fresh_place()


def hear(listener: hubbub.Node) -> hubbub.Subscription:
    """Listen to all nodes; those that are there know it before they tell anything."""
    return listener.subscribe(SUBJECTS, no_local=True)


def is_heard(teller: hubbub.Node) -> bool:
    return teller._telling._is_heard()


def told(subscription: hubbub.Subscription, count: int = 1) -> list[Told]:
    return [decode(message.payload) for message in take(subscription, count)]


def drop(place: Place, node: hubbub.Node, count: int) -> hubbub.Subscription:
    """Let a subscription of a node drop so many messages."""
    subscription = node.subscribe("/fast", queue=10)
    with place.open("publisher") as publisher:
        topic = publisher.publisher("/fast")
        assert topic.wait_for_subscribers(1, 30)
        for _ in range(10 + count):
            topic.publish(b"")
        publisher.flush(30)
    wait_until(lambda: subscription.dropped == count)
    return subscription


def test_what_a_subscription_dropped_is_told_with_its_name_also_when_its_node_closes(
    place: Place,
) -> None:
    with place.open("listener") as listener:
        heard = hear(listener)
        with place.open("slow") as slow:
            wait_until(lambda: is_heard(slow))
            drop(place, slow, 90)
        [message] = take(heard, 1)
        assert (message.source.name, message.source.id) == ("slow", slow.id)
        [one] = decode(message.payload).slow
        assert (one.subscription, one.policy, one.dropped) == ("/fast", "drop_oldest", 90)
        assert [(subject, first, last) for subject, _, first, last in one.ranges] == [
            ("/fast", 1, 90)
        ]


def test_everything_of_a_second_is_told_in_one_message_and_sums_are_right(place: Place) -> None:
    with place.open("listener") as listener, place.open("teller") as teller:
        heard = hear(listener)
        wait_until(lambda: is_heard(teller))
        for number in range(2 * TOLD_EVENTS_MAX):
            teller._emit(SlowConsumer("", "drop_newest", 3, f"/{number}"))
            first = 5 * number
            teller._emit(GapAbandoned("", LIDAR, "/scan", first, first + 1, "given_up"))
        [all_of_it] = told(heard)
        assert sum(one.dropped for one in all_of_it.slow) == 6 * TOLD_EVENTS_MAX
        assert len(all_of_it.slow) == TOLD_EVENTS_MAX
        assert all_of_it.lost == 4 * TOLD_EVENTS_MAX
        assert all_of_it.lost_ranges[1] == ("/scan", LIDAR, 5, 6)
        assert not teller._telling._is_due and heard.receive(0) is None


def test_what_befell_messages_of_our_own_is_never_told(place: Place) -> None:
    with place.open("listener") as listener, place.open("teller") as teller:
        heard = hear(listener)
        wait_until(lambda: is_heard(teller))
        own = ("/hubbub/events/ab", LIDAR, 1, 5)
        teller._emit(SlowConsumer("", "drop_oldest", 5, SUBJECTS, (own,)))
        teller._emit(GapAbandoned("", LIDAR, "/hubbub/alerts/loss", 1, 2, "given_up"))
        teller._emit(SlowConsumer("", "drop_oldest", 7, "/...", (own, ("/a", LIDAR, 1, 2))))
        [one] = told(heard)
        [slow] = one.slow
        assert (slow.subscription, slow.dropped, one.lost) == ("/...", 2, 0)


def test_without_a_listener_nothing_is_declared_and_nothing_told_later(place: Place) -> None:
    with place.open("late") as late, place.open("teller") as teller:
        wait_until(teller.peers)
        teller._emit(SlowConsumer("", "drop_oldest", 5, "/a"))
        wait_until(lambda: not teller._telling._slow)
        assert not teller._publishers
        heard = hear(late)
        wait_until(lambda: is_heard(teller))
        teller._emit(SlowConsumer("", "drop_oldest", 6, "/a"))
        assert [slow.dropped for slow in told(heard)[0].slow] == [6]


def test_node_that_is_to_tell_nothing_tells_nothing(place: Place) -> None:
    with place.open("listener") as listener:
        heard = hear(listener)
        with place.open("quiet", tell_events=False) as quiet:
            wait_until(lambda: is_heard(quiet))
            drop(place, quiet, 5)
        assert heard.receive(0.2) is None


def test_slots_of_a_consumer_are_told_as_it_counts_them(place: Place) -> None:
    with place.open("listener") as listener, place.open("car") as car:
        heard = hear(listener)
        wait_until(lambda: is_heard(car))
        car.produce("/car/speed", lambda: b"13.9")
        consumer = car.consume("/car/speed", period_ms=50)
        take(consumer, 30)
        consumer.stop()
        counted = consumer.statistics()
        served, end_s = 0, time.monotonic() + 30
        while served < counted.served:
            assert time.monotonic() < end_s
            for slots in told(heard)[0].slots:
                assert (slots.subject, slots.period_ns) == ("/car/speed", 50_000_000)
                served += slots.served
        assert served == counted.served >= 30


def test_node_that_was_on_no_channel_tells_again_when_it_has_joined_another(place: Place) -> None:
    with place.open("teller") as teller:
        [connection] = teller.channels
        connection.close(0)
        teller._emit(GapAbandoned("", LIDAR, "/scan", 1, 2, "given_up"))
        teller.connect(connection.channel)
        with place.open("listener") as listener:
            heard = hear(listener)
            wait_until(lambda: is_heard(teller))
            teller._emit(GapAbandoned("", LIDAR, "/scan", 3, 4, "given_up"))
            assert [one.lost for one in told(heard)] == [4]
