"""Consumers that want one sample, and then no more: a period of 0."""

import pytest

from hubbub.events import DeadlineMissed, InterestRefused, NothingProduced
from hubbub.limits import MS, SECOND
from hubbub.wire.header import RESPONSE
from hubbub.wire.timed import ONE
from tests.harness import Lan
from tests.unit.protocol.timetrigger.cars import Car


@pytest.fixture
def lan() -> Lan:
    return Lan()


def test_one_sample_of_each_producer_comes_at_once_and_no_other(lan: Lan) -> None:
    first, second, user = Car(lan), Car(lan), Car(lan)
    first.produce()
    second.produce()
    lan.run(100 * MS)
    consumer = user.consume(0)
    lan.run(20 * MS)
    assert len(user.got(consumer)) == 2
    lan.run(5 * SECOND)
    origins = [sample.response.origin for sample in user.got(consumer)]
    assert len(origins) == len(set(origins)) == 2
    assert (consumer.served, consumer.missed, consumer.vacant(lan.now)) == (2, 0, 0)
    # The interest is told a few times at first: until the sample is here, each draws one.
    assert first.reads <= 4 and user.events(DeadlineMissed) == []


def test_samples_for_others_are_not_taken_as_well(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    often, once, inside = user.consume(50), user.consume(0), maker.consume(0)
    lan.run(1 * SECOND)
    assert often.served >= 20 and often.missed == 0
    assert len(user.got(once)) == len(maker.got(inside)) == 1
    assert once.counts["early"] >= 15


def test_sample_that_was_lost_is_asked_for_again(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    lan.run(100 * MS)
    end_ns = lan.now + 500 * MS
    lan.lose = lambda datagram, node: datagram.kind == RESPONSE and lan.now < end_ns
    consumer = user.consume(0)
    lan.run(300 * MS)
    assert user.got(consumer) == []
    lan.run(2 * SECOND)
    assert len(user.got(consumer)) == 1
    reads = maker.reads
    lan.run(3 * SECOND)
    assert maker.reads == reads


def test_producer_that_comes_later_is_asked_too_and_its_absence_told_once(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    consumer = user.consume(0)
    lan.run(3 * SECOND)
    (event,) = user.events(NothingProduced)
    assert "wanted once" in str(event) and consumer.vacant(lan.now) == 0
    producer = maker.produce()
    lan.run(100 * MS)
    assert len(user.got(consumer)) == 1
    maker.gateway.stop(lan.now, producer)
    lan.run(3 * SECOND)
    assert len(user.events(NothingProduced)) == 1  # It has what it wanted.


def test_node_that_leaves_is_not_missed_by_who_had_its_sample(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(0)
    lan.run(1 * SECOND)
    user.gateway.forget(lan.now, maker.node.key)
    lan.run(1 * SECOND)
    assert consumer.served == 1 and user.events(DeadlineMissed) == []


def test_one_of_several_producers_is_enough_where_one_is_wanted(lan: Lan) -> None:
    makers, user = [Car(lan) for _ in range(3)], Car(lan)
    consumer = user.consume(0, mode=ONE)
    for maker in reversed(makers):  # Those of lower addresses come later.
        maker.produce()
        lan.run(1 * SECOND)
    assert len(user.got(consumer)) == 1 and consumer.counts["unchosen"] >= 2


def test_strict_producer_refuses_it_serves_the_others_of_that_node_and_says_so(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce(schedule="strict")
    often, once = user.consume(100), user.consume(0)
    lan.run(5050 * MS)  # Longer than a lease.
    assert often.served >= 50 and often.missed == 0
    assert set(producer.interests.periods) == {100_000} and producer.refused_once > 0
    assert {event.reason for event in maker.events(InterestRefused)} == {"once"}
    assert once.served <= 1  # It hears what the others are sent.


def test_period_may_follow_it(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(0)
    lan.run(1 * SECOND)
    user.gateway.set_period(lan.now, consumer, 100_000)
    lan.run(1 * SECOND)
    assert 10 <= consumer.served <= 12 and consumer.missed == 0
