"""What was missed or skipped is told, all of it, and not more than once a second."""

import pytest

from hubbub.events import DeadlineMissed, TicksSkipped
from hubbub.limits import MS, SECOND
from hubbub.wire.header import INTEREST, RESPONSE
from tests.harness import Lan, lose_nothing
from tests.unit.protocol.timetrigger.cars import Car


@pytest.fixture
def lan() -> Lan:
    return Lan()


def test_slots_that_were_missed_within_a_second_are_told_though_all_is_well_again(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(50)
    lan.run(1 * SECOND)
    lan.lose = lambda datagram, node: datagram.kind == RESPONSE
    lan.run(400 * MS)
    lan.lose = lose_nothing
    lan.run(500 * MS)
    missed = consumer.missed
    assert missed >= 5 and [one.slots for one in user.events(DeadlineMissed)] == [1]
    lan.run(600 * MS)
    assert [one.slots for one in user.events(DeadlineMissed)] == [1, missed - 1]
    lan.run(3 * SECOND)
    assert len(user.events(DeadlineMissed)) == 2 and consumer.missed == missed


def test_single_slot_that_stays_empty_is_told_by_the_sample_behind_it(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(100)
    lan.run(1050 * MS)
    lan.lose = lambda datagram, node: datagram.kind == RESPONSE
    lan.run(100 * MS)
    lan.lose = lose_nothing
    lan.run(100 * MS)
    (missed,) = user.events(DeadlineMissed)
    assert (missed.slots, missed.is_lost, consumer.missed) == (1, False, 1)


def test_ticks_that_nobody_was_there_for_are_told_with_their_number(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce()
    consumer = user.consume(100)
    lan.run(1 * SECOND)
    assert maker.events(TicksSkipped) == []
    maker.node.is_running = False  # It gets no processor, and then an interest before its turn.
    lan.run(1 * SECOND)
    maker.node.is_running = True
    user.gateway.set_period(lan.now, consumer, 50_000)
    told = lan.sent_of(INTEREST, user.node)
    lan.pump(user.node)
    assert len(lan.sent_of(INTEREST, user.node)) > len(told)
    data = lan.sent_of(INTEREST, user.node)[-1].data
    maker.node.core.receive(lan.now, data, 0, user.node.address)
    maker.node.drain(lan.now)
    (skipped,) = maker.events(TicksSkipped)
    assert (skipped.subject, skipped.skipped) == ("/x/1", producer.skipped) and skipped.skipped >= 8
