"""Frames that come again change nothing, whatever they are; and what begins again is heard."""

import pytest

from hubbub.limits import MS, SECOND
from hubbub.protocol.timetrigger.passing import Numbers
from hubbub.protocol.timetrigger.timekeeper import BUS_CLOCK
from hubbub.protocol.timetrigger.watch import Watch
from hubbub.wire.header import CLOCK, DIRECT, INTEREST, OFFER, RESPONSE
from tests.harness import Lan
from tests.unit.protocol.timetrigger.cars import WALL, Car

KINDS = (INTEREST, RESPONSE, OFFER, DIRECT, CLOCK)


class Bench:
    """A car that makes and one that wants, looks on, follows the other's clock and has mail."""

    def __init__(self) -> None:
        self.lan = Lan()
        self.maker, self.user = Car(self.lan), Car(self.lan)
        self.watch = self.user.gateway.office.watch = Watch()
        self.user.gateway.time.use(BUS_CLOCK)
        self.user.gateway.post.listen(self.user.letters.append, 9)
        self.producers = [self.maker.produce(type) for type in (1, 2)]
        self.consumers = [self.user.consume(100, type) for type in (1, 2)]
        self.lan.run(2 * SECOND)
        for payload in (b"stop", b"stop"):
            self.maker.gateway.post.send(self.lan.now, 4, self.user.id, 9, payload)
        self.maker.gateway.stop(self.lan.now, self.producers[1])
        self.user.gateway.stop(self.lan.now, self.consumers[0])
        self.lan.run(200 * MS)

    def replay(self, kind: int) -> int:
        """Bring all frames of a kind to everybody once more."""
        again = self.lan.sent_of(kind)
        for datagram in again:
            for car in (self.maker, self.user):
                if car.node is not datagram.sender:
                    source = datagram.sender.address
                    car.node.core.receive(self.lan.now, datagram.data, 0, source)
                    car.node.drain(self.lan.now)
        return len(again)

    def state(self) -> list[object]:
        now, clock = self.lan.now, self.user.gateway.clock
        return [
            [producer.interests.leases for producer in self.producers],
            [(one.served, one.missed, list(one.streams)) for one in self.consumers],
            (self.user.gateway.wants.offers, self.user.gateway.relay.routes.keys()),
            (self.watch.interests(now), self.watch.offers(now)),
            (clock.at(now), clock.error_ns, clock.era),
            [letter and letter.payload for letter in self.user.letters],
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_frame_that_comes_again_changes_nothing(kind: int) -> None:
    bench, quiet = Bench(), Bench()
    assert bench.state() == quiet.state()
    assert bench.state()[-1] == [b"stop", b"stop"], "two that are alike are two"
    assert bench.user.gateway.clock.is_synchronised
    assert bench.replay(kind) >= 2
    assert bench.state() == quiet.state()
    for both in (bench, quiet):
        both.lan.run(200 * MS)
    assert bench.state() == quiet.state()


def test_nobody_looks_on_at_what_has_left() -> None:
    bench = Bench()
    assert len(bench.watch.offers(bench.lan.now)) == 1
    bench.user.gateway.forget(bench.lan.now, bench.maker.node.key)
    assert bench.watch.offers(bench.lan.now) == []


def test_frames_with_holes_in_their_numbers_are_told_apart() -> None:
    numbers = Numbers()
    assert [numbers.is_new(n) for n in (500, 900, 700, 900, 700, 2)] == [
        True, True, True, False, False, True,
    ]  # fmt: skip
    assert all(numbers.is_new(n) for n in range(1000, 64_000, 1000))
    assert not numbers.is_new(800), "as many have overtaken it as are remembered"
    assert numbers.is_new(1500)


@pytest.mark.parametrize("is_maker", [True, False])
def test_component_that_begins_after_the_clock_went_back_is_heard(is_maker: bool) -> None:
    lan = Lan()
    maker, user = Car(lan), Car(lan)
    producer, consumer = maker.produce(), user.consume(100)
    lan.run(1 * SECOND)
    car = maker if is_maker else user
    car.gateway.stop(lan.now, producer if is_maker else consumer)
    car.node.core.endpoint.wall_offset_ns = WALL - 3600 * SECOND
    lan.run(1500 * MS)
    if is_maker:
        car.gateway._next_port = producer.port
        assert maker.produce().origin == producer.origin
    else:
        consumer = user.consume(100)
    before = consumer.served
    lan.run(1 * SECOND)
    assert consumer.served >= before + 10
