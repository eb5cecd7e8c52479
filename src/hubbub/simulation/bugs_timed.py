"""Planted bugs of time-triggered topics, the first of them that of the source of this design."""

from typing import Any

from msgspec import structs

from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.demand import Demand
from hubbub.protocol.timetrigger.gateway import Gateway
from hubbub.protocol.timetrigger.interests import NEVER, Interests, Lease
from hubbub.protocol.timetrigger.lexicon import Lexicon
from hubbub.protocol.timetrigger.offsets import Offsets, Reading, Reference
from hubbub.protocol.timetrigger.passing import Numbers
from hubbub.protocol.timetrigger.plan import DUE, Plan
from hubbub.protocol.timetrigger.producer import Due, Producer, ProducerOptions
from hubbub.protocol.timetrigger.relay import Relay, Route
from hubbub.protocol.timetrigger.reports import Reports
from hubbub.protocol.timetrigger.sieve import Sieve, Wish
from hubbub.protocol.timetrigger.slots import EARLY, LATE, TAKEN, Stream
from hubbub.protocol.timetrigger.supply import Supply
from hubbub.protocol.timetrigger.timekeeper import BUS_CLOCK, Timekeeper
from hubbub.protocol.timetrigger.wants import Wants
from hubbub.simulation.bugs import Method, bug
from hubbub.wire.header import INTEREST
from hubbub.wire.timed import (
    ClockExchange,
    Interest,
    Offer,
    Response,
    encode_timed,
    make_origin,
)


@bug(Stream, "take", "timed_jitter", seed=3)
def sample_kept_by_its_arrival(sound: Method) -> Method:
    """Take a sample when the last one is a period ago: `now - last >= period`."""

    def take(self: Stream, now: int, response: Response) -> str:
        if self.served and now - self.heard_ns < self.period_ns:
            return EARLY
        self.heard_ns = now
        self.served += 1
        return TAKEN

    return take


@bug(Sieve, "_open", "timed_jitter", seed=7)
def all_producers_filtered_as_one(sound: Method) -> Method:
    """Have one filter for all producers of a type."""

    def open_stream(self: Sieve, now: int, origin: bytes) -> Stream:
        stream: Stream = next(iter(self.streams.values()), None) or sound(self, now, origin)
        self.streams[origin] = stream
        return stream

    return open_stream


@bug(Interests, "_replace", "timed_churn", seed=3)
def periods_kept_as_a_set(sound: Method) -> Method:
    """Forget a period with the first consumer of it that leaves."""

    def replace(self: Interests, origin: bytes, before: Lease | None, after: Lease | None) -> None:
        sound(self, origin, before, after)
        for period_us in before.periods_us if before is not None and after is None else ():
            self.periods.pop(period_us, None)

    return replace


@bug(Interests, "expire", "timed_churn", seed=10)
def interests_never_expire(sound: Method) -> Method:
    """Serve the dead for ever."""

    def expire(self: Interests, now: int) -> bool:
        self.expires_ns = NEVER
        return False

    return expire


@bug(Interests, "take", "timed_loss")
def renewals_heard_and_not_believed(sound: Method) -> Method:
    """Let a lease end when it would have without them: who still asks is owed samples meanwhile."""

    def take(self: Interests, now: int, interest: Interest, via: bytes) -> bool:
        origin = make_origin(interest.node, interest.port)
        before = self.leases.get(origin)
        is_changed = bool(sound(self, now, interest, via))
        if before is not None and not is_changed:
            renewed = self.leases[origin]
            self.leases[origin] = renewed._replace(expires_ns=before.expires_ns)
        return is_changed

    return take


@bug(Demand, "tell", "timed_clocks")
def interest_never_renewed(sound: Method) -> Method:
    """Tell an interest only when it changes."""

    def tell(self: Demand, now: int) -> Interest:
        interest: Interest = sound(self, now)
        if not self._repeats:
            self.due_ns = 1 << 62
        return interest

    return tell


@bug(Producer, "advance", "timed_churn")
def next_tick_a_period_after_the_work(sound: Method) -> Method:
    """Sleep for a tick from now on, wherever that ends."""

    def advance(self: Producer, now: int) -> Due | None:
        due: Due | None = sound(self, now)
        if due is not None:
            self._next_ns = self._time(now) + self.plan.tick_ns
            self._set_due()
        return due

    return advance


@bug(Producer, "_replan", "timed_jitter")
def tick_sent_again_after_a_change(sound: Method) -> Method:
    """Begin a new plan with the tick that was the last of the old one."""

    def replan(self: Producer, now: int, newcomer: list[int] | None = None) -> None:
        sound(self, now, newcomer)
        if self.plan and self._last_ns is not None:
            self._extra, self._last_ns = [self._last_ns], None

    return replan


@bug(ProducerOptions, "spacing_us", "timed_flood")
def cap_ignored(sound: Any) -> Any:
    """Serve shorter periods than the cap allows."""
    return property(lambda self: max(self.floor_us, 1_000_000 // self.cap_hz) // 4)


@bug(Interests, "take", "timed_replay")
def old_interest_believed(sound: Method) -> Method:
    """Take every interest for the newest."""

    def take(self: Interests, now: int, interest: Interest, via: bytes) -> bool:
        self._ended.clear()
        for origin, lease in self.leases.items():
            self.leases[origin] = lease._replace(version=-1)
        return bool(sound(self, now, interest, via))

    return take


@bug(Gateway, "_may_pass", "timed_replay")
def port_1_open_to_the_outside(sound: Method) -> Method:
    """Pass on what others have addressed to our inside."""
    return lambda self, frame: frame.node != self.node


@bug(SlotClock, "discipline", "timed_clocks", seed=2)
def step_without_an_era(sound: Method) -> Method:
    """Set the clock, and count its slots on as if it had not been."""

    def discipline(self: SlotClock, now: int, offset_ns: int, error_ns: int | None) -> bool:
        is_step = bool(sound(self, now, offset_ns, error_ns))
        self.era = 0
        return is_step

    return discipline


@bug(Relay, "_renew", "timed_types")
def types_mixed_up(sound: Method) -> Method:
    """Hand a sample to every consumer, whatever it wants."""

    def renew(self: Relay, route: Route) -> None:
        sound(self, route)
        route.sieves = self.all_sieves()

    return renew


@bug(Sieve, "is_like", "timed_jitter", seed=3)
def all_periods_filtered_as_one(sound: Method) -> Method:
    """Let consumers share a sieve, whatever their periods are."""
    return lambda self, other: self.streams.keys() == other.streams.keys()


@bug(Wants, "_demand_key", "timed_types")
def interests_of_a_vehicle_under_one_address(sound: Method) -> Method:
    """Tell the interest of each consumer by itself, so that each undoes that of the other."""
    return lambda self, consumer: (consumer.type, consumer.port)


@bug(Wants, "_make_demand", "timed_types")
def interests_not_aggregated(sound: Method) -> Method:
    """Tell an interest for each consumer, as from its own port, and one for all."""

    def make_demand(self: Wants, now: int, consumer: Consumer) -> Demand:
        demand: Demand = sound(self, now, consumer)
        tell = demand.tell

        def tell_each(now: int) -> Interest:
            whole = tell(now)
            for one in whole.wants:
                alone = structs.replace(whole, port=one.port, wants=[one])
                self._office.send_all(INTEREST, encode_timed(alone))
            return whole

        demand.tell = tell_each  # type: ignore[method-assign]
        return demand

    return make_demand


@bug(Stream, "take", "timed_jitter", seed=3)
def every_sample_taken(sound: Method) -> Method:
    """Take what comes, however many a slot has."""

    def take(self: Stream, now: int, response: Response) -> str:
        outcome = str(sound(self, now, response))
        return TAKEN if outcome == EARLY else outcome

    return take


@bug(Plan, "next_after", "timed_jitter")
def boundary_of_the_longest_period_only(sound: Method) -> Method:
    """Send only what is due for whoever wants the least."""

    def next_after(self: Plan, slot_ns: int) -> int:
        longest = self.periods[-1]
        return (slot_ns // longest + 1) * longest

    return next_after


@bug(Producer, "follow", "timed_work", seed=1)
def tick_lost_while_another_is_sampled(sound: Method) -> Method:
    """Pass over what is due while the application works."""
    return lambda self: None


@bug(Stream, "_take_late", "timed_delay", seed=3)
def delay_learnt_of_taken_samples_only(sound: Method) -> Method:
    """Judge slots by how long the way was when a sample was taken last."""
    return lambda self, now, response: LATE


@bug(Interests, "ports_of", "timed_newcomer")
def second_consumer_of_a_node_waits(sound: Method) -> Method:
    """Take every consumer for known whose node has asked before."""
    return lambda self, interest: {wanted.port for wanted in interest.wants}


@bug(Demand, "_named", "timed_crowd", seed=3)
def only_the_shortest_periods_told(sound: Method) -> Method:
    """Name those who want samples most often, whatever the others want."""
    return lambda self, count: sorted(self.consumers, key=lambda one: one.period_us)[:count]


@bug(Wish, "is_met_by", "timed_names")
def samples_known_by_their_number_alone(sound: Method) -> Method:
    """Take what has the right type, whatever its scope and subject."""
    return lambda self, origin, type, tag: type == self.type


@bug(Demand, "_interest", "timed_names")
def everybody_asked_for_what_one_is_to_make(sound: Method) -> Method:
    """Tell an interest without the device that it is in."""
    return lambda self, count: structs.replace(sound(self, count), device=b"")


@bug(Lexicon, "compare", "timed_names")
def other_numbers_of_a_subject_not_heard(sound: Method) -> Method:
    """Stay with the own number, whatever others have registered."""
    return lambda self, now, frame: None


@bug(Plan, "next_after", "timed_jitter", seed=1)
def sample_at_every_tick_of_the_divisor(sound: Method) -> Method:
    """Send as `strict` does, where only those are served who are due."""

    def next_after(self: Plan, slot_ns: int) -> int:
        if self.schedule != DUE:
            return int(sound(self, slot_ns))
        return (slot_ns // self.tick_ns + 1) * self.tick_ns

    return next_after


@bug(Supply, "send_again", "timed_loss", seed=1)
def copies_of_samples_not_sent(sound: Method) -> Method:
    """Send each sample once, however often it is to be sent."""
    return lambda self, now, again: again.take()


@bug(Stream, "judge", "timed_loss", seed=5)
def misses_not_counted(sound: Method) -> Method:
    """Give up slots, and count none."""

    def judge(self: Stream, now: int) -> int:
        missed = self.missed
        count = int(sound(self, now))
        self.missed = missed
        return count

    return judge


@bug(Timekeeper, "_discipline", "timed_bus_clock")
def bus_clock_follows_nobody(sound: Method) -> Method:
    """Take the system's clock, and leave it there."""

    def discipline(self: Timekeeper, now: int, offset_ns: int, error_ns: int | None) -> None:
        if self.source != BUS_CLOCK or self._wall_ns is None:
            sound(self, now, offset_ns, error_ns)

    return discipline


@bug(Stream, "take", "timed_loss")
def slots_between_samples_not_counted(sound: Method) -> Method:
    """Take the next sample, wherever it is, and count nothing as missed."""

    def take(self: Stream, now: int, response: Response) -> str:
        missed = self.missed
        outcome = str(sound(self, now, response))
        self.missed = missed
        return outcome

    return take


@bug(Offsets, "hear", "timed_replay_rest")
def old_answer_of_a_clock_believed(sound: Method) -> Method:
    """Take an answer as often as it comes."""

    def hear(self: Offsets, now: int, key: bytes, exchange: ClockExchange) -> Reading | None:
        self.references.setdefault(key, Reference()).asked_ns = -1
        reading: Reading | None = sound(self, now, key, exchange)
        return reading

    return hear


@bug(Numbers, "is_new", "timed_replay_rest")
def letter_handed_out_as_often_as_it_comes(sound: Method) -> Method:
    """Remember no direct message."""
    return lambda self, number: True


@bug(Wants, "take_offer", "timed_replay_rest")
def offer_forgotten_with_its_end(sound: Method) -> Method:
    """Take a producer that has ended for new when it is heard of again."""

    def take_offer(self: Wants, now: int, offer: Offer) -> None:
        if not self.offers.get(make_origin(offer.node, offer.port), (0, True))[1]:
            self.offers.pop(make_origin(offer.node, offer.port))
        sound(self, now, offer)

    return take_offer


@bug(SlotClock, "count", "timed_clock_back")
def counts_begin_at_the_time_of_a_clock_that_went_back(sound: Method) -> Method:
    """Count from what the clock shows, whatever was counted before."""
    return lambda self, now: self.at(now) // 1000


@bug(Reports, "advance", "timed_loss", seed=4)
def misses_told_only_with_the_next_one(sound: Method) -> Method:
    """Keep what came within a second of the last report for the next occasion."""

    def advance(self: Reports, now: int) -> None:
        self.due_ns = NEVER

    return advance


@bug(Relay, "_look_closely", "timed_loss", seed=1)
def slots_passed_over_by_a_sample_not_told(sound: Method) -> Method:
    """Tell only of slots that were given up before the next sample came."""

    def look_closely(self: Relay, now: int, route: Route, sieve: Sieve, response: Response) -> bool:
        outcome = sieve.take(now, response)
        self._office.plan(sieve)
        return outcome == TAKEN

    return look_closely


@bug(Relay, "_steps_to", "timed_nearest")
def all_producers_equally_near(sound: Method) -> Method:
    """Take every producer for as far away as any other."""
    return lambda self, route: 0
