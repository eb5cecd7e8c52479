"""Consumers that want the same share a sieve, and each keeps its own books."""

import random

from hubbub.limits import MS, SECOND
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.passing import Sample
from tests.harness import Lan
from tests.unit.protocol.timetrigger.cars import Car, ticks


def sieves(car: Car) -> int:
    return len(car.gateway.relay.all_sieves())


def test_consumers_of_one_period_come_to_share_a_sieve() -> None:
    lan = Lan()
    maker, user = Car(lan), Car(lan)
    maker.produce()
    first = [user.consume(100), user.consume(100), user.consume(150)]
    assert sieves(user) == 2
    lan.run(1030 * MS)
    late = user.consume(100)
    assert sieves(user) == 3  # It has had no slot yet.
    before = first[0].served
    lan.run(3 * SECOND)
    assert sieves(user) == 2 and late.sieve is first[0].sieve
    assert (first[0].served, late.served) == (first[1].served, len(user.got(late)))
    assert 0 < late.served <= first[0].served - before + 1
    assert [one.served for one in first] == [len(user.got(one)) for one in first]
    assert ticks(user.got(late))[1:] == ticks(user.got(first[0]))[-late.served + 1 :]


def test_consumer_that_leaves_a_sieve_or_changes_its_period_keeps_what_it_counted() -> None:
    lan = Lan()
    maker, user = Car(lan), Car(lan)
    maker.produce()
    stays, leaves, changes = (user.consume(100) for _ in range(3))
    lan.run(1 * SECOND)
    assert sieves(user) == 1
    counted = leaves.served
    user.gateway.stop(lan.now, leaves)
    user.gateway.set_period(lan.now, changes, 50_000)
    lan.run(1 * SECOND)
    assert (leaves.served, len(user.got(leaves))) == (counted, counted)
    assert stays.served == len(user.got(stays)) >= 20
    assert changes.served == len(user.got(changes)) >= counted + 18
    assert sieves(user) == 2
    user.gateway.set_period(lan.now, changes, 100_000)
    lan.run(3 * SECOND)
    assert sieves(user) == 1 and stays.missed == changes.missed == 0


def test_sharing_changes_neither_what_is_taken_nor_what_is_counted() -> None:
    """Whatever comes when, consumers that share have what they would have had alone."""
    for seed in range(12):
        kept = [_play(seed, is_shared=is_shared) for is_shared in (True, False)]
        assert kept[0] == kept[1], f"seed {seed}"


def _play(seed: int, *, is_shared: bool) -> list[tuple[list[int], int, int]]:
    draw, lan = random.Random(seed), Lan()
    maker, user = Car(lan), Car(lan)
    maker.produce()
    if not is_shared:
        user.gateway.relay.share = lambda type: None  # type: ignore[method-assign]
    lan.lose = lambda datagram, node: datagram.sender is maker.node and draw.random() < 0.2
    consumers: list[Consumer] = []
    for _ in range(12):
        lan.run(draw.randrange(400) * MS)
        if len(consumers) < 5:
            consumers.append(user.consume(draw.choice([40, 100])))
        elif draw.random() < 0.5:
            user.gateway.stop(lan.now, draw.choice(consumers))
        else:
            user.gateway.set_period(lan.now, draw.choice(consumers), draw.choice([40, 100]) * 1000)
    lan.run(500 * MS)

    def taken(samples: list[Sample]) -> list[int]:
        return [sample.response.tick_ns for sample in samples]

    return [(taken(user.got(one)), one.served, one.missed) for one in consumers]
