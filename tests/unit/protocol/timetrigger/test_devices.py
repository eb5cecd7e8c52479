"""Consumers that want the samples of one node, or of one component, and no others."""

import pytest

from hubbub.limits import SECOND
from hubbub.wire.timed import make_origin
from tests.harness import Lan
from tests.unit.protocol.timetrigger.cars import Car


@pytest.fixture
def lan() -> Lan:
    return Lan()


def test_only_the_producer_that_is_named_is_asked_and_taken(lan: Lan) -> None:
    first, second, user = Car(lan), Car(lan), Car(lan)
    here, there = first.produce(), second.produce()
    consumer = user.consume(100, within=there.origin)
    lan.run(1 * SECOND)
    origins = {sample.response.origin for sample in user.got(consumer)}
    assert origins == {there.origin} and consumer.served >= 10
    assert not here.is_wanted and first.reads == 0


def test_all_producers_of_a_node_that_is_named_are_taken(lan: Lan) -> None:
    first, second, user = Car(lan), Car(lan), Car(lan)
    first.produce()
    both = [second.produce() for _ in range(2)]
    consumer = user.consume(100, within=second.id)
    lan.run(1 * SECOND)
    origins = {sample.response.origin for sample in user.got(consumer)}
    assert origins == {one.origin for one in both} and first.reads == 0


@pytest.mark.parametrize("is_stateless", [False, True])
def test_consumers_of_others_and_of_all_are_served_beside_it(lan: Lan, is_stateless: bool) -> None:
    first, second = (Car(lan, is_stateless=is_stateless) for _ in range(2))
    user = Car(lan, is_stateless=is_stateless)
    schedule = "strict" if is_stateless else "due"
    here, there = first.produce(schedule=schedule), second.produce(schedule=schedule)
    one = user.consume(100, within=here.origin)
    other = user.consume(200, within=there.origin)
    every = user.consume(50)
    lan.run(1 * SECOND)

    def count(consumer: object) -> dict[bytes, int]:
        origins = [sample.response.origin for sample in user.got(consumer)]  # type: ignore[arg-type]
        return {origin: origins.count(origin) for origin in set(origins)}

    assert count(one).keys() == {here.origin} and count(one)[here.origin] >= 10
    assert count(other).keys() == {there.origin} and 5 <= count(other)[there.origin] <= 7
    assert min(count(every).values()) >= 20 and len(count(every)) == 2
    assert all(consumer.missed == 0 for consumer in (one, other, every))


def test_device_that_nobody_is_has_no_sample_and_nobody_works_for_it(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce()
    consumer = user.consume(100, within=make_origin(maker.id, 77))
    lan.run(2 * SECOND)
    assert consumer.served == maker.reads == 0 and not producer.is_wanted
    assert consumer.vacant(lan.now) >= 19
