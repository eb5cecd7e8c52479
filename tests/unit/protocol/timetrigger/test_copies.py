"""Samples that are sent more than once: a frame that is lost takes no slot with it."""

import pytest

from hubbub.limits import MS, SECOND
from hubbub.wire.header import HEADER_BYTES, RESPONSE
from hubbub.wire.timed import decode_response
from tests.harness import Lan
from tests.unit.protocol.timetrigger.cars import Car


@pytest.fixture
def lan() -> Lan:
    return Lan()


def test_every_second_frame_lost_takes_no_slot_of_samples_that_are_sent_twice(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce(copies=2)
    consumer, inside = user.consume(100), maker.consume(100)
    lan.run(1 * SECOND)
    lost = iter([True, False] * 1000)
    lan.lose = lambda datagram, node: datagram.kind == RESPONSE and next(lost)
    lan.run(3 * SECOND)
    assert consumer.missed == 0 and consumer.served >= 30
    # What came before is known as such; those inside have it once anyway.
    assert consumer.counts["duplicate"] >= 8 and inside.counts["duplicate"] == 0


def test_copies_are_apart_and_before_the_next_tick(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce(copies=4)
    user.consume(100)
    lan.run(1 * SECOND)
    del lan.sent[:]
    lan.run(2 * SECOND)
    times = [one.sent_ns // MS % 100 for one in lan.sent_of(RESPONSE)]
    assert len(times) == 80 and set(times) == {0, 25, 50, 75}


def test_copies_count_for_the_cap(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce(copies=2, cap_hz=100)
    user.consume(5)
    lan.run(1 * SECOND)
    del lan.sent[:]
    lan.run(2 * SECOND)
    assert producer.plan.granted_us == 20_000
    assert 198 <= len(lan.sent_of(RESPONSE)) <= 202


def test_no_copy_is_sent_behind_a_newer_sample_when_the_plan_gets_faster(lan: Lan) -> None:
    maker, user, newcomer = Car(lan), Car(lan), Car(lan)
    maker.produce(copies=2)
    user.consume(1000)
    lan.run(1010 * MS)
    consumer = newcomer.consume(100)  # The copy of the tick of 1 s was to go at 1.5 s.
    del lan.sent[:]
    lan.run(980 * MS)
    frames = [
        decode_response(one.data, HEADER_BYTES, len(one.data)) for one in lan.sent_of(RESPONSE)
    ]
    sequences = [one.sequence for one in frames if one is not None]
    assert sequences == sorted(sequences) and consumer.counts["early"] == 0


def test_no_copy_is_sent_after_the_end_of_its_producer(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce(copies=2)
    user.consume(100)
    lan.run(1010 * MS)
    maker.gateway.stop(lan.now, producer)
    del lan.sent[:]
    lan.run(2 * SECOND)
    assert lan.sent_of(RESPONSE) == []
