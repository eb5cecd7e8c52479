"""The order of many publishers and subjects at once: bounded, and nothing is lost by it."""

from collections import Counter
from random import Random

from hubbub.limits import HOP_TIMEOUT, ORDER_PATIENCE, ORDERED_PUBLISHERS_MAX, SECOND
from hubbub.protocol.rendezvous.client import FIFO, NO_ORDER
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.protocol.rendezvous.seen import Origin
from hubbub.protocol.rendezvous.sequencers import Sequencers
from hubbub.wire.services import INFO, Extra, Message, Request, service_key

NODE = b"abcdefghijkl"
OTHER = b"other......."


def origin(number: int) -> Origin:
    return OTHER, 7, f"/s/{number}"


def fill(sequencers: Sequencers[str]) -> list[str]:
    """Let as many others come as are kept."""
    handed: list[str] = []
    for number in range(ORDERED_PUBLISHERS_MAX):
        handed += sequencers.push(0, origin(1 + number), 1, "other", 1)
    return [item for item in handed if item != "other"]


def test_sequence_that_makes_room_hands_out_what_waits_in_it_in_order() -> None:
    sequencers = Sequencers[str](Counter())
    assert sequencers.push(0, origin(0), 1, "1", 1) == ["1"]
    assert sequencers.push(0, origin(0), 4, "4", 1) == []
    assert sequencers.push(0, origin(0), 3, "3", 1) == []
    assert fill(sequencers) == ["3", "4"]
    assert len(sequencers) == ORDERED_PUBLISHERS_MAX
    assert sequencers.advance(ORDER_PATIENCE) == []


def test_sequence_that_was_silent_longest_makes_room() -> None:
    counters = Counter[str]()
    sequencers = Sequencers[str](counters)
    sequencers.push(0, origin(0), 5, "first heard", 1)
    sequencers.push(0, (NODE, 7, ""), 5, "silent", 1)
    sequencers.push(0, origin(0), 6, "heard again", 1)
    handed: list[str] = []
    for number in range(ORDERED_PUBLISHERS_MAX - 1):
        handed += sequencers.push(0, origin(1 + number), 1, "other", 1)
    assert [item for item in handed if item != "other"] == ["silent"]
    assert counters["order_forgotten"] == 1


def test_sequence_that_comes_back_waits_for_nothing_and_keeps_its_order() -> None:
    counters = Counter[str]()
    sequencers = Sequencers[str](counters)
    sequencers.push(0, origin(0), 1, "1", 1)
    sequencers.push(0, origin(0), 3, "3", 1)
    assert fill(sequencers) == ["3"]
    assert sequencers.push(0, origin(0), 2, "2", 1) == []  # It would come behind the third.
    assert counters["order_late"] == 1
    assert sequencers.push(0, origin(0), 5, "5", 1) == []
    assert sequencers.push(0, origin(0), 4, "4", 1) == ["4", "5"]
    assert sequencers.advance(0) == [] and sequencers.due_ns == NEVER


def info(key: bytes, subject: str, sequence: int) -> Request:
    payload = b"%d" % sequence
    message, extra = Message(INFO, key, payload), Extra(subject=subject)
    return Request(0, 0, 0, OTHER, 7, sequence, 1, 0, sequence, message, extra)


def subscribed(order: str) -> Rendezvous:
    machine = Rendezvous(0, NODE, 1, 7, Random(1), seeds=[])
    machine.subscribe(0, "plant", order=order)
    return machine


def test_subscriber_to_more_subjects_than_are_kept_in_order_misses_nothing() -> None:
    machine, key = subscribed(FIFO), service_key("plant")
    subjects = [f"/plant/{number}" for number in range(ORDERED_PUBLISHERS_MAX + 100)]
    for sequence in (1, 2, 3):
        for subject in subjects:
            machine.client.deliver(0, info(key, subject, sequence))
    had = Counter(one.payload for one in machine.seat.deliveries)
    assert set(had.values()) == {len(subjects)} and len(had) == 3


def test_what_comes_late_is_counted() -> None:
    machine, key = subscribed(FIFO), service_key("plant")
    for now, sequence in ((0, 1), (0, 3), (3 * SECOND, 4), (3 * SECOND, 2)):
        machine.client.advance(now)
        machine.client.deliver(now, info(key, "/plant/a", sequence))
    assert [one.sequence for one in machine.seat.deliveries] == [1, 3, 4]
    assert machine.seat.counters["order_late"] == 1


def test_what_waits_for_its_order_is_handed_out_when_none_is_asked_for_any_more() -> None:
    machine, key = subscribed(FIFO), service_key("plant")
    machine.client.deliver(0, info(key, "", 9))
    machine.client.deliver(HOP_TIMEOUT, info(key, "", 8))
    machine.subscribe(HOP_TIMEOUT, "plant", order=NO_ORDER)
    assert [one.sequence for one in machine.seat.deliveries] == [8, 9]
