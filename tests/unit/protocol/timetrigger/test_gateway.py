"""Components of several nodes on one network: who hears what, once, and from whom."""

from itertools import pairwise

import pytest

from hubbub.errors import ConfigurationError
from hubbub.events import (
    ClockStepped,
    DeadlineMissed,
    InterestRefused,
    NothingProduced,
    PeriodGranted,
)
from hubbub.limits import MS, SECOND
from hubbub.protocol.timetrigger.passing import Discarded, Seen
from hubbub.protocol.timetrigger.timekeeper import BUS_CLOCK, LOCAL_CLOCK
from hubbub.protocol.timetrigger.watch import Watch
from hubbub.wire.header import CLOCK, DIRECT, INTEREST, NAK, OFFER, RESPONSE
from hubbub.wire.timed import (
    OBSERVE,
    ONE,
    SYNCHRONISED,
    Direct,
    Interest,
    Response,
    Wanted,
    decode_response,
    decode_timed,
    encode_response,
    encode_timed,
    make_origin,
)
from tests.harness import Lan
from tests.unit.protocol.timetrigger.cars import SPEED, WALL, Car, ticks


@pytest.fixture
def lan() -> Lan:
    return Lan()


def test_consumer_elsewhere_gets_a_sample_a_slot_with_the_producer_as_origin(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(100)
    lan.run(1050 * MS)
    samples = user.got(consumer)
    assert ticks(samples)[1:] == [*range(100, 1100, 100)]
    assert {sample.response.origin for sample in samples} == {make_origin(maker.id, 2)}
    assert samples[0].source.name == "node1"
    assert (consumer.served, consumer.missed) == (len(samples), 0)
    assert maker.reads == len(samples)


def test_what_stays_inside_sends_no_frame_and_hears_nobody_outside(lan: Lan) -> None:
    car, other = Car(lan), Car(lan)
    car.produce(is_inside=True)
    inside = car.consume(100, within=car.id, is_inside=True)
    lan.run(1050 * MS)
    kinds = (INTEREST, OFFER, RESPONSE)
    assert len(car.got(inside)) >= 10 and not any(lan.sent_of(kind) for kind in kinds)
    outside = other.consume(50)
    other.produce()
    lan.run(1 * SECOND)
    assert {one.response.origin[: len(other.id)] for one in other.got(outside)} == {other.id}
    assert {one.response.origin[: len(car.id)] for one in car.got(inside)} == {car.id}
    both = car.consume(100)
    lan.run(1 * SECOND)
    assert {one.response.origin[: len(car.id)] for one in car.got(both)} == {car.id, other.id}
    assert (inside.served, inside.missed) == (len(car.got(inside)), 0)


@pytest.mark.parametrize("is_stateless", [False, True])
def test_what_is_outside_cannot_ask_for_what_stays_inside(lan: Lan, is_stateless: bool) -> None:
    car, other = (Car(lan, is_stateless=is_stateless) for _ in range(2))
    producer = car.produce(is_inside=True)
    consumer = other.consume(100)
    lan.run(1 * SECOND)
    assert other.got(consumer) == [] and car.reads == 0 and not producer.is_wanted
    car.gateway.stop(lan.now, producer)
    assert not lan.sent_of(OFFER)


def test_one_receiver_is_served_by_unicast_and_two_by_the_group(lan: Lan) -> None:
    maker, first = Car(lan), Car(lan)
    maker.produce()
    first.consume(100)
    lan.run(500 * MS)
    sent = lan.sent_of(RESPONSE)
    assert sent and {datagram.destination for datagram in sent} == {first.node.address}
    second = Car(lan)
    second.consume(100)
    lan.run(500 * MS)
    assert lan.sent_of(RESPONSE)[-1].destination is None


def test_outside_sees_one_interest_a_node_and_type(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce(schedule="strict")
    consumers = [user.consume(ms) for ms in (100, 150, 100, 300)]
    lan.run(1 * SECOND)
    assert len(producer.interests.leases) == 1
    told = decode_timed(Interest, lan.sent_of(INTEREST, user.node)[-1].data[70:])
    assert told is not None and told.port == 0
    assert sorted(wanted.period_us for wanted in told.wants) == [100_000, 100_000, 150_000, 300_000]
    assert producer.plan.tick_ns == 50 * MS
    assert all(consumer.missed == 0 and consumer.served for consumer in consumers)
    served = [consumer.served for consumer in consumers]
    assert served[0] == served[2] > served[1] > served[3]


@pytest.mark.parametrize("is_stateless", [False, True])
@pytest.mark.parametrize("is_local", [False, True])
def test_divisor_is_of_all_consumers_also_of_more_than_an_interest_names(
    lan: Lan, is_stateless: bool, is_local: bool
) -> None:
    maker, user = Car(lan, is_stateless=is_stateless), Car(lan, is_stateless=is_stateless)
    producer = maker.produce(schedule="strict")
    host = maker if is_local else user
    for _ in range(70):
        host.consume(20)
    last = host.consume(30)
    lan.run(300 * MS)
    assert producer.plan.tick_ns == 10 * MS
    assert (producer.interests.refused, last.missed) == (0, 0)
    host.gateway.stop(lan.now, last)
    lan.run(100 * MS)
    assert producer.plan.tick_ns == 20 * MS


def test_ports_begin_again_behind_the_last_and_pass_over_those_in_use(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    kept, listening = user.consume(100), 3
    user.gateway.post.listen(user.letters.append, listening)
    ports = [user.gateway._take_port(None) for _ in range(66_000)]  # More than there are.
    assert (min(ports), max(ports)) == (2 + 2, 0xFFFF) and kept.port == 2
    assert len(set(ports)) == 0xFFFF - 3
    last = user.consume(100)
    lan.run(4 * SECOND)
    assert kept.missed == last.missed == 0 and last.served >= 40
    for port in (7.5, "7", True, 1, 65_536, kept.port):
        with pytest.raises(ConfigurationError, match="give a free one from 2 to 65535"):
            user.gateway._take_port(port)  # type: ignore[arg-type]


def test_local_consumer_pays_for_no_frame_and_shares_the_value(lan: Lan) -> None:
    car = Car(lan)
    car.produce()
    both = [car.consume(100), car.consume(100)]
    lan.run(1 * SECOND)
    assert lan.sent_of(RESPONSE) == []
    first, second = (car.got(consumer) for consumer in both)
    assert len(first) >= 10
    assert all(a.response.value is b.response.value for a, b in zip(first, second, strict=True))


def test_late_producer_is_told_at_once_what_is_wanted(lan: Lan) -> None:
    user = Car(lan)
    consumer = user.consume(1000)
    lan.run(500 * MS)
    maker = Car(lan)
    lan.run(100 * MS)
    maker.produce()
    lan.run(15 * MS)
    assert len(user.got(consumer)) == 1


def test_interest_is_renewed_three_times_a_lease_and_not_by_all_at_once(lan: Lan) -> None:
    users = [Car(lan), Car(lan)]
    for user in users:
        user.consume(100)
    lan.run(20 * SECOND)
    times = [[one.sent_ns for one in lan.sent_of(INTEREST, user.node)] for user in users]
    gaps = [after - before for some in times for before, after in pairwise(some[2:])]
    assert 750 * MS <= min(gaps) < max(gaps) <= 950 * MS and len(gaps) >= 34
    assert all(one != other for one, other in zip(times[0][3:], times[1][3:], strict=False))


def test_consumer_of_what_was_heard_before_it_wanted_any_is_served(lan: Lan) -> None:
    maker, late, *others = (Car(lan) for _ in range(4))
    maker.produce()
    for other in others:
        other.consume(100)
    lan.run(500 * MS)
    assert late.gateway.tally.unwanted >= 4
    consumer = late.consume(100)
    lan.run(500 * MS)
    assert len(late.got(consumer)) >= 5


def test_withdrawn_interest_stops_samples_and_so_does_a_leave(lan: Lan) -> None:
    maker, user, other = Car(lan), Car(lan), Car(lan)
    producer = maker.produce()
    consumer = user.consume(100)
    other.consume(100)
    lan.run(500 * MS)
    user.gateway.stop(lan.now, consumer)
    lan.run(10 * MS)
    assert len(producer.interests.leases) == 1
    before = len(user.got(consumer))
    other.node.core.close(lan.now, 100 * MS)
    lan.run(200 * MS)
    assert not producer.is_wanted
    reads = maker.reads
    lan.run(2 * SECOND)
    assert (maker.reads, len(user.got(consumer))) == (reads, before)


def test_dead_consumer_is_served_for_one_lease(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    user.consume(100)
    lan.run(1 * SECOND)
    user.node.is_running = False
    lan.run(3100 * MS)
    reads = maker.reads
    lan.run(5 * SECOND)
    assert maker.reads == reads > 10


def test_changed_period_takes_effect_at_once(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce()
    consumer = user.consume(1000)
    lan.run(100 * MS)
    user.gateway.set_period(lan.now, consumer, 50_000)
    lan.run(1 * MS)
    assert producer.plan.tick_ns == 50 * MS
    lan.run(500 * MS)
    assert 10 <= len(user.got(consumer)) <= 12


def test_producer_that_falls_silent_is_missed_slot_by_slot_then_given_up(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(100)
    lan.run(1050 * MS)
    served = consumer.served
    lan.lose = lambda datagram, node: datagram.sender is maker.node
    lan.run(1 * SECOND)
    missed = user.events(DeadlineMissed)
    assert missed and missed[0].slots == 1 and not missed[0].is_lost
    assert missed[0].subject == "/x/1" and missed[0].producer.id == maker.id
    assert consumer.served == served
    assert 7 <= consumer.missed <= 9
    lan.run(5 * SECOND)
    assert user.events(DeadlineMissed)[-1].is_lost
    assert consumer.streams == {}
    counted = consumer.missed
    lan.run(1 * SECOND)
    assert consumer.missed == counted
    assert sum(event.slots for event in user.events(DeadlineMissed)) == counted


def test_slots_without_a_producer_are_counted_and_told_once(lan: Lan) -> None:
    user, maker = Car(lan), Car(lan)
    consumer = user.consume(100)
    late = user.consume(100)
    lan.run(950 * MS)
    assert (consumer.vacant(lan.now), user.events(NothingProduced)) == (9, [])
    lan.run(10 * SECOND)
    told = user.events(NothingProduced)
    assert [(one.subject, one.period_ms) for one in told] == [("/x/1", 100)] * 2
    producer = maker.produce()
    lan.run(2 * SECOND)
    waited = consumer.vacant(lan.now)
    assert waited == late.vacant(lan.now) == 109
    assert (consumer.missed, consumer.streams.keys()) == (0, {producer.origin})
    maker.gateway.stop(lan.now, producer)  # Politely: nothing is missed, and nobody is there.
    lan.run(1 * SECOND)
    user.gateway.set_period(lan.now, consumer, 10_000)
    lan.run(1 * SECOND)
    assert 109 <= consumer.vacant(lan.now) - waited <= 111
    assert len(user.events(NothingProduced)) == 4 and consumer.missed == 0
    user.gateway.stop(lan.now, consumer)
    ended = consumer.vacant(lan.now)
    lan.run(1 * SECOND)
    assert consumer.vacant(lan.now) == ended


def test_slots_of_a_node_that_was_seen_to_die_are_served_missed_or_vacant(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(100)
    lan.run(2 * SECOND)
    maker.node.is_running = False
    lan.run(2 * SECOND)
    key = maker.node.core.endpoint.key
    user.gateway.forget(lan.now, key)  # As the local link finds out.
    user.node.drain(lan.now)
    assert user.events(DeadlineMissed)[-1].is_lost
    lan.run(6 * SECOND)
    slots = consumer.served + consumer.missed + consumer.vacant(lan.now)
    assert 98 <= slots <= 101 and consumer.vacant(lan.now) >= 59


def test_stopped_producer_is_not_missed(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce()
    consumer = user.consume(100)
    lan.run(1 * SECOND)
    maker.gateway.stop(lan.now, producer)
    lan.run(3 * SECOND)
    assert (consumer.missed, user.events(DeadlineMissed)) == (0, [])


def test_period_below_the_floor_is_granted_at_the_floor_and_both_say_so(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce(floor_us=50_000)
    consumer = user.consume(10)
    lan.run(1 * SECOND)
    (granted,) = user.events(PeriodGranted)
    assert (granted.asked_ms, granted.granted_ms) == (10, 50)
    (refused,) = maker.events(InterestRefused)
    assert (refused.reason, refused.granted_ms) == ("floor", 50)
    assert consumer.missed == 0 and 20 <= consumer.served <= 22


def test_grants_of_two_producers_are_told_once_each(lan: Lan) -> None:
    makers, user = [Car(lan), Car(lan)], Car(lan)
    for maker, floor_us in zip(makers, (50_000, 30_000), strict=True):
        maker.produce(floor_us=floor_us)
    consumers = [user.consume(10), user.consume(10, age_ns_max=5 * SECOND)]
    lan.run(1 * SECOND)
    granted = sorted((one.producer.name, one.granted_ms) for one in user.events(PeriodGranted))
    assert granted == [("node1", 50), ("node1", 50), ("node2", 30), ("node2", 30)]
    assert [consumer.granted_us for consumer in consumers] == [50_000, 50_000]


def test_two_producers_of_a_type_are_filtered_apart_and_one_can_be_chosen(lan: Lan) -> None:
    makers, user = [Car(lan), Car(lan)], Car(lan)
    producers = [maker.produce() for maker in makers]
    both, one = user.consume(100), user.consume(100, mode=ONE)
    lan.run(1 * SECOND)
    origins = [sample.response.origin for sample in user.got(both)]
    assert origins.count(producers[0].origin) == origins.count(producers[1].origin) >= 10
    chosen = {sample.response.origin for sample in user.got(one)[2:]}
    assert len(chosen) == 1 and one.missed == 0
    (index,) = [n for n in (0, 1) if producers[n].origin in chosen]
    makers[index].node.is_running = False
    lan.run(2 * SECOND)
    later = user.got(one)[-5:]
    assert {sample.response.origin for sample in later} == {producers[1 - index].origin}
    assert one.missed <= 2


def test_types_are_apart_and_unknown_starts_nothing(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce(1)
    maker.produce(2)
    speed = user.consume(100, 1)
    user.consume(100, 0)
    lan.run(1 * SECOND)
    assert {sample.response.type for sample in user.got(speed)} == {1}
    assert {decode_response(d.data, 70, len(d.data)).type for d in lan.sent_of(RESPONSE)} == {1}  # type: ignore[union-attr]


def test_observer_of_everything_gets_copies_of_what_is_sent(lan: Lan) -> None:
    maker, user, recorder = Car(lan), Car(lan), Car(lan)
    maker.produce(1)
    observer = recorder.consume(0, 0, mode=OBSERVE)
    lan.run(1 * SECOND)
    assert maker.reads == 0
    consumer = user.consume(100)
    lan.run(1 * SECOND)
    assert ticks(recorder.got(observer)) == ticks(user.got(consumer))
    assert len(lan.sent_of(OFFER)) >= 3


def test_stale_samples_are_not_taken(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(100, age_ns_max=40 * MS)
    lan.run(1 * SECOND)
    fresh = consumer.served
    lan.delay_ns = 60 * MS
    lan.run(1 * SECOND)
    assert consumer.counts["stale"] >= 9
    assert consumer.served <= fresh + 1


@pytest.mark.parametrize("known", [(True, True), (True, False), (False, True)])
def test_age_is_absolute_only_where_both_clocks_are_known_to_agree(
    lan: Lan, known: tuple[bool, bool]
) -> None:
    lan.delay_ns = 60 * MS
    maker, user = cars = Car(lan), Car(lan)
    for car, is_known in zip(cars, known, strict=True):
        car.gateway.time.is_wall_synchronised = is_known
    maker.produce()
    consumer, other = user.consume(100, age_ns_max=40 * MS), user.consume(100)
    lan.run(2 * SECOND)
    flags = {sample.response.flags & SYNCHRONISED for sample in user.got(other)}
    assert flags == {SYNCHRONISED if known[0] else 0} and other.served >= 15
    # Else it is how much longer a sample took than the quickest.
    assert consumer.served == (0 if all(known) else other.served)
    assert (consumer.counts["stale"] >= other.served) is all(known)


def test_frames_that_go_no_further_are_counted_by_reason(lan: Lan) -> None:
    car, other = Car(lan), Car(lan)
    car.produce()
    consumer = car.consume(100)
    lan.run(100 * MS)
    before = consumer.served
    tally = car.gateway.tally
    relayed = tally.relayed
    now = WALL + 10 * SECOND
    origin = make_origin(other.id, 9)
    response = Response(origin, 0, SPEED, 1, 0, 0, 1, now, now, 0, b"")
    for frame in (
        response._replace(destination=1),
        response._replace(destination=7),
        response._replace(hops=0),
        response._replace(origin=make_origin(car.id, 9)),
    ):
        car.receive(RESPONSE, encode_response(frame), other)
    wants = [Wanted(2, 100_000)]
    for body in (
        Interest(other.id, 0, 1, SPEED, 1, 1, 3000, 0, 0, wants),
        Interest(other.id, 0, 0, SPEED, 0, 1, 3000, 0, 0, wants),
        Interest(car.id, 0, 0, SPEED, 1, 1, 3000, 0, 0, wants),
    ):
        car.receive(INTEREST, encode_timed(body), other)
    assert (tally.refused_port, tally.refused_hops, tally.own) == (3, 2, 2)
    assert (tally.relayed, consumer.served) == (relayed, before)
    car.receive(RESPONSE, encode_response(response), other)
    car.receive(RESPONSE, encode_response(response), other)
    assert (tally.relayed, tally.duplicates, consumer.served) == (relayed + 1, 1, before + 1)
    assert consumer.counts["duplicate"] == 1


def test_samples_that_are_not_taken_are_told_to_who_traces(lan: Lan) -> None:
    car, other = Car(lan), Car(lan)
    car.consume(100)
    told: list[Discarded] = []
    now, origin = WALL + 10 * SECOND, make_origin(other.id, 9)
    responses = [
        Response(origin, 0, SPEED, 1, 0, 0, sequence, now + ms * MS, now, 0, b"")
        for sequence, ms in ((1, 0), (1, 0), (2, 10), (3, 100))
    ]
    for trace in (None, told.append):
        car.gateway.office.trace = trace
        for response in responses:
            car.receive(RESPONSE, encode_response(response), other)
        responses = [one._replace(sequence=one.sequence + 3) for one in responses]
        responses = [one._replace(tick_ns=one.tick_ns + 200 * MS) for one in responses]
    assert told == [
        Discarded(why, "/x/1", origin, n) for why, n in (("duplicate", 4), ("early", 5))
    ]


@pytest.mark.parametrize("is_stateless", [False, True])
def test_sample_that_comes_twice_is_counted_by_those_it_concerns(
    lan: Lan, is_stateless: bool
) -> None:
    maker, user = (Car(lan, is_stateless=is_stateless) for _ in range(2))
    maker.produce()
    both, other = [user.consume(100), user.consume(50)], user.consume(100, 2)
    lan.run(1030 * MS)
    for datagram in lan.sent_of(RESPONSE):
        user.node.core.receive(lan.now, datagram.data, 0, maker.node.address)
    sent = len(lan.sent_of(RESPONSE))
    assert [one.counts["duplicate"] for one in (*both, other)] == [sent, sent, 0]
    assert user.gateway.tally.duplicates == sent >= 20


def test_samples_that_are_lost_are_not_asked_for(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    maker.produce()
    consumer = user.consume(100)
    lan.run(1 * SECOND)
    lost = iter([True, False] * 1000)
    lan.lose = lambda datagram, node: datagram.kind == RESPONSE and next(lost)
    lan.run(2 * SECOND)
    assert consumer.missed >= 5 and consumer.served >= 15
    assert lan.sent_of(NAK) == [] and not any(one.is_repair for one in lan.sent)


def test_how_quick_producers_were_is_not_remembered_of_endlessly_many(
    lan: Lan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.protocol.timetrigger.sieve.PRODUCERS_HEARD_MAX", 10)
    car, other = Car(lan), Car(lan)
    consumer = car.consume(100, mode=ONE, age_ns_max=10 * SECOND)
    for port in range(2, 100):
        now = WALL + lan.now
        sample = Response(make_origin(other.id, port), 0, SPEED, 1, 0, 0, 1, now, now, 0, b"")
        car.receive(RESPONSE, encode_response(sample), other)
    assert len(consumer.sieve._quickest) <= 10 and consumer.counts["unchosen"] == 97


def test_replayed_and_reordered_frames_are_told_apart() -> None:
    seen = Seen()
    assert [seen.is_new(n) for n in (5, 7, 6, 7, 5, 6, 8, 4, 4)] == [
        True, True, True, False, False, False, True, True, False,
    ]  # fmt: skip
    assert seen.is_new(10**9) and not seen.is_new(8)


def test_stateless_gateway_hands_everything_to_every_component(lan: Lan) -> None:
    maker, user = Car(lan, is_stateless=True), Car(lan, is_stateless=True)
    producer = maker.produce(schedule="strict")
    others = [user.consume(1000, type) for type in range(2, 11)]
    consumers = [user.consume(100), user.consume(150)]
    lan.run(1 * SECOND)
    assert len(producer.interests.leases) == 2
    assert {origin[-2:] for origin in producer.interests.leases} == {b"\0\x0b", b"\0\x0c"}
    sent = lan.sent_of(RESPONSE)
    assert {datagram.destination for datagram in sent} == {None}
    assert 20 <= len(sent) <= 22
    tally = user.gateway.tally
    assert tally.relayed == tally.heard >= 20 and tally.handed == 11 * tally.heard
    assert all(consumer.missed == 0 for consumer in consumers)
    # Each of them was handed each sample, and has found out for itself that it is not for it.
    assert {other.counts["foreign"] for other in others} == {tally.heard}
    assert all(user.got(other) == [] for other in others)


def test_stateless_gateway_hands_every_interest_to_every_producer(lan: Lan) -> None:
    maker, user = Car(lan, is_stateless=True), Car(lan, is_stateless=True)
    producers = [maker.produce(type, schedule="strict") for type in range(1, 6)]
    before = maker.gateway.tally.handed
    user.consume(100, 3)
    lan.run(10 * MS)
    assert maker.gateway.tally.handed == before + 5
    assert [bool(producer.is_wanted) for producer in producers] == [0, 0, 1, 0, 0]


def test_stateless_gateway_offers_its_producers_while_somebody_looks_on(lan: Lan) -> None:
    maker, user = Car(lan, is_stateless=True), Car(lan, is_stateless=True)
    producer = maker.produce(schedule="strict")
    consumer = user.consume(100)
    lan.run(2 * SECOND)
    assert lan.sent_of(OFFER) == []  # The source of this design has none.
    onlooker = Car(lan)
    watch = onlooker.gateway.office.watch = Watch()
    observer = onlooker.consume(0, 0, mode=OBSERVE)
    lan.run(2 * SECOND)
    (seen,) = watch.offers(lan.now)
    assert (seen.offer.schedule, seen.offer.tick_us) == (1, 100_000)
    maker.gateway.stop(lan.now, producer)
    lan.run(10 * MS)
    assert watch.offers(lan.now) == [] and consumer.missed == 0
    producer = maker.produce(schedule="strict")
    lan.run(2 * SECOND)
    assert len(watch.offers(lan.now)) == 1
    onlooker.gateway.stop(lan.now, observer)
    lan.run(1500 * MS)
    offers = len(lan.sent_of(OFFER))
    lan.run(3 * SECOND)
    assert len(lan.sent_of(OFFER)) == offers


@pytest.mark.parametrize("is_stateless", [False, True])
def test_types_that_nobody_here_knows_are_passed_on_to_who_observes(
    lan: Lan, is_stateless: bool
) -> None:
    car, other = Car(lan, is_stateless=is_stateless), Car(lan)
    car.consume(100)
    observer = car.consume(0, 0, mode=OBSERVE)
    car.gateway.office.watch = Watch()
    unknown, now = 987_654, WALL + 10 * SECOND
    response = Response(make_origin(other.id, 9), 0, unknown, 1, 0, 0, 1, now, now, 0, b"?")
    car.receive(RESPONSE, encode_response(response), other)
    (sample,) = car.got(observer)
    assert (sample.response.type, sample.response.value) == (unknown, b"?")
    asked = Interest(other.id, 0, 0, unknown, 1, 1, 3000, 0, 0, [Wanted(2, 1000)], "/who/knows")
    car.receive(INTEREST, encode_timed(asked), other)
    (seen,) = [one for one in car.gateway.office.watch.interests(lan.now) if one.interest.port == 0]
    assert seen.interest == asked


def test_letter_reaches_one_port_and_no_other(lan: Lan) -> None:
    one, two = Car(lan), Car(lan)
    lan.run(100 * MS)
    two.gateway.post.listen(two.letters.append, 5)
    one.gateway.post.listen(one.letters.append, 4)
    assert one.gateway.post.send(lan.now, 4, two.id, 5, b"stop")
    assert one.gateway.post.send(lan.now, 4, two.id, 6, b"nobody")
    assert one.gateway.post.send(lan.now, 9, one.id, 4, b"self")
    assert not one.gateway.post.send(lan.now, 4, b"?" * 12, 5, b"where")
    two.receive(DIRECT, encode_timed(Direct(one.id, 4, 1, two.id, 1, b"inside")), one)
    lan.run(10 * MS)
    assert [(letter.port, letter.payload) for letter in two.letters] == [(4, b"stop")]
    assert [(letter.port, letter.payload) for letter in one.letters] == [(9, b"self")]
    assert two.gateway.tally.refused_port == 1


def test_restarted_node_is_heard_at_once(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    producer = maker.produce()
    user.consume(100)
    lan.run(1 * SECOND)
    user.node.is_running = False
    again = Car.__new__(Car)
    again.lan, again.samples, again.reads, again.letters = lan, {}, 0, []
    again.node = lan.add(2, incarnation=77)
    again.gateway = again.node.core.timed
    again.node.core.endpoint.wall_offset_ns = WALL - 500 * SECOND  # Its clock went back.
    consumer = again.consume(200)
    lan.run(1 * SECOND)
    assert [lease.periods_us for lease in producer.interests.leases.values()] == [(200_000,)]
    assert len(again.got(consumer)) >= 5


def test_node_that_follows_another_has_its_time(lan: Lan) -> None:
    leader, follower = Car(lan), Car(lan)
    follower.node.core.endpoint.wall_offset_ns = WALL + 5 * SECOND
    follower.gateway.time.use(BUS_CLOCK)
    follower.produce()
    leader.produce()
    lan.jitter_ns = 1 * MS
    lan.run(3 * SECOND)
    difference = follower.gateway.clock.at(lan.now) - leader.gateway.clock.at(lan.now)
    assert abs(difference) <= 1 * MS
    assert follower.gateway.clock.is_synchronised
    assert len(follower.events(ClockStepped)) == 1
    leader.node.is_running = False
    lan.run(8 * SECOND)
    assert not follower.gateway.clock.is_synchronised
    assert len(lan.sent_of(CLOCK, follower.node)) > 10


def test_local_clock_does_not_follow_steps_of_the_wall_clock(lan: Lan) -> None:
    cars = [Car(lan), Car(lan)]
    cars[0].gateway.time.use(LOCAL_CLOCK)
    for car in cars:
        car.produce()
    lan.run(1500 * MS)
    for car in cars:
        car.node.core.endpoint.wall_offset_ns += 10 * SECOND
    lan.run(1500 * MS)
    assert [len(car.events(ClockStepped)) for car in cars] == [0, 1]


def test_interests_and_offers_of_other_types_are_not_taken_apart(lan: Lan) -> None:
    car, other = Car(lan), Car(lan)
    car.produce(70_000)
    car.consume(100, 5)
    lan.run(100 * MS)
    tally, wants = car.gateway.tally, [Wanted(2, 100_000)]
    before = tally.unwanted
    for type in (1, 200, 60_000, 2**31):
        unknown = Interest(other.id, 300, 0, type, 1, 1, 3000, 0, 0, wants)
        car.receive(INTEREST, encode_timed(unknown), other)
    assert tally.unwanted == before + 4
    asked = Interest(other.id, 300, 0, 70_000, 1, 1, 3000, 0, 0, wants)
    car.receive(INTEREST, encode_timed(asked), other)
    assert tally.unwanted == before + 4 and tally.relayed >= 1
    drops = car.node.core.endpoint.drops["malformed"]
    car.receive(INTEREST, b"no array", other)
    assert car.node.core.endpoint.drops["malformed"] == drops + 1


def test_hundred_components_share_one_agenda(lan: Lan) -> None:
    maker, user = Car(lan), Car(lan)
    for type in range(1, 101):
        maker.produce(type)
    consumers = [user.consume(100, type) for type in range(1, 101)]
    lan.run(1 * SECOND)
    assert all(consumer.missed == 0 and consumer.served >= 10 for consumer in consumers)
    assert len(maker.gateway.office.agenda._heap) < 500
