"""Numbers and subjects: whoever means the same comes together, and nobody else."""

import pytest

from hubbub.data_types import derive_number
from hubbub.events import DataTypeMismatch
from hubbub.limits import MS, SECOND
from hubbub.wire.header import OFFER, RESPONSE
from tests.harness import Lan
from tests.unit.protocol.timetrigger.cars import Car

TEMP = "/plant/line1/temp"
DERIVED = derive_number(TEMP)
# Two subjects of one derived number.
TWINS = "/plant/line402/sensor58402", "/plant/line139/sensor100639"


@pytest.fixture
def lan() -> Lan:
    return Lan()


@pytest.mark.parametrize("is_consumer_first", [True, False])
@pytest.mark.parametrize("made_as", [100, DERIVED])
def test_who_has_a_derived_number_takes_the_registered_one(
    lan: Lan, made_as: int, is_consumer_first: bool
) -> None:
    maker, user = Car(lan), Car(lan)
    wanted_as = DERIVED if made_as == 100 else 100
    if is_consumer_first:
        consumer = user.consume(100, wanted_as, TEMP)
        lan.run(1 * SECOND)
        producer = maker.produce(made_as, TEMP)
    else:
        producer = maker.produce(made_as, TEMP)
        lan.run(1 * SECOND)
        consumer = user.consume(100, wanted_as, TEMP)
    lan.run(1 * SECOND)
    assert (producer.type, consumer.type) == (100, 100)
    assert consumer.served >= 9 and consumer.missed == 0
    assert maker.events(DataTypeMismatch) == user.events(DataTypeMismatch) == []
    offers, reads = len(lan.sent_of(OFFER)), maker.reads
    lan.run(3 * SECOND)
    assert len(lan.sent_of(OFFER)) == offers, "it is offered again, though all know it by now"
    user.gateway.stop(lan.now, consumer)
    lan.run(100 * MS)
    assert not producer.is_wanted and maker.reads > reads


def test_two_registered_numbers_for_one_subject_are_reported_and_not_served(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce(100, TEMP)
    consumer = user.consume(100, 200, TEMP)
    lan.run(3 * SECOND)
    assert (producer.type, consumer.type, consumer.served, maker.reads) == (100, 200, 0, 0)
    told = maker.events(DataTypeMismatch)
    assert (told[0].data_type, told[0].peer_data_type) == (100, 200)
    assert "200 is /plant/line1/temp at node2" in str(told[-1])
    assert 2 <= len(told) <= 4, "one a second"
    assert maker.gateway.tally.mismatched >= 3


@pytest.mark.parametrize("numbers", [(derive_number(TWINS[0]), derive_number(TWINS[1])), (7, 7)])
def test_subjects_of_one_number_are_kept_apart(lan: Lan, numbers: tuple[int, int]) -> None:
    assert numbers[0] == numbers[1]
    maker, user, both = Car(lan), Car(lan), Car(lan)
    producer = maker.produce(numbers[0], TWINS[0])
    stranger = user.consume(100, numbers[1], TWINS[1])
    lan.run(1 * SECOND)
    assert (stranger.served, maker.reads, producer.is_wanted) == (0, 0, False)
    assert maker.gateway.tally.mismatched >= 1
    assert maker.events(DataTypeMismatch)[0].peer_subject == TWINS[1]
    # Also where somebody on the node, or on another one, wants the right one: all hear the samples.
    right = [car.consume(100, numbers[0], TWINS[0]) for car in (user, both)]
    lan.run(1 * SECOND)
    assert lan.sent_of(RESPONSE)[-1].destination is None
    assert all(consumer.served >= 10 and not consumer.missed for consumer in right)
    if numbers[0] >= 1 << 31:  # Samples of registered types say nothing of their subject.
        assert stranger.served == 0


def test_consumer_of_a_scope_has_its_samples_alone(lan: Lan) -> None:
    makers, user = [Car(lan) for _ in range(3)], Car(lan)
    producers = [maker.produce(scope=scope) for maker, scope in zip(makers, (7, 8, 0), strict=True)]
    seven, eight, everything = (user.consume(50, scope=scope) for scope in (7, 8, 0))
    inside = makers[0].consume(50, scope=8)
    lan.run(1 * SECOND)
    origins = [producer.origin for producer in producers]
    for consumer, expected in (
        (seven, {origins[0], origins[2]}),
        (eight, {origins[1], origins[2]}),
        (everything, set(origins)),
    ):
        assert {sample.response.origin for sample in user.got(consumer)} == expected
        assert consumer.missed == 0
    got = {sample.response.origin for sample in makers[0].got(inside)}
    assert got == {origins[1], origins[2]}


def test_port_of_another_scope_is_looked_at_anew(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    consumers = [user.consume(50, scope=scope) for scope in (7, 8)]
    for scope in (7, 8):
        producer = maker.produce(scope=scope)
        lan.run(500 * MS)
        maker.gateway.stop(lan.now, producer)
        maker.gateway._next_port = producer.port
        lan.run(100 * MS)
    assert [10 <= len(user.got(consumer)) <= 12 for consumer in consumers] == [True, True]
