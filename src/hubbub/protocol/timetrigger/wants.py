"""What the consumers of a node want, told to everybody, and the offers that answer it."""

from typing import Final

from hubbub.limits import MS, PRODUCERS_HEARD_MAX
from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.demand import Demand
from hubbub.protocol.timetrigger.interests import LOCAL
from hubbub.protocol.timetrigger.office import Office
from hubbub.protocol.timetrigger.producer import Producer
from hubbub.protocol.timetrigger.relay import Relay
from hubbub.protocol.timetrigger.supply import Supply
from hubbub.wire.header import INTEREST
from hubbub.wire.timed import GATEWAY_PORT, Offer, make_origin

_ANSWER_SPREAD: Final = 10 * MS


class Wants:
    """The interests of one node on one channel: one for each type, however many consumers."""

    def __init__(self, office: Office, clock: SlotClock, supply: Supply, relay: Relay) -> None:
        # Of others: versions, also of those that have ended, and who is there.
        self.offers: dict[bytes, tuple[int, bool]] = {}
        self._office = office
        self._clock = clock
        self._supply = supply
        self._relay = relay
        self._demands: dict[tuple[object, ...], Demand] = {}

    def add(self, now: int, consumer: Consumer) -> None:
        """Tell everybody what a consumer wants that is new."""
        key = self._demand_key(consumer)
        demand = self._demands.get(key)
        if demand is None:
            demand = self._demands[key] = self._make_demand(now, consumer)
        demand.consumers.append(consumer)
        self._tell(now, demand)

    def change(self, now: int, consumer: Consumer) -> None:
        """Tell everybody that a consumer wants samples at another period."""
        demand = self._demands.get(self._demand_key(consumer))
        if demand is not None and consumer.is_open:
            self._tell(now, demand)

    def remove(self, now: int, consumer: Consumer) -> None:
        """Tell everybody that a consumer wants nothing any more."""
        demand = self._demands.get(self._demand_key(consumer))
        if demand is not None:
            demand.consumers.remove(consumer)
            self._tell(now, demand)

    def remind(self, now: int, consumer: Consumer) -> None:
        """Tell an interest again soon, to somebody who knows its subject by another type."""
        demand = self._demands.get(self._demand_key(consumer))
        if demand is not None:
            self._remind(now, demand)

    def tell_producer(self, now: int, producer: Producer) -> None:
        """Tell a producer of ours that is new what our consumers want."""
        for demand in list(self._demands.values()):
            if demand.type in (producer.type, 0) and demand.consumers:
                self._supply.take_interest(now, demand.tell(now), LOCAL)

    def tell_again(self, now: int, demand: Demand) -> None:
        """Tell an interest, inside and, unless it is to stay there, outside."""
        office = self._office
        self._relay.share(demand.type)
        interest = demand.tell(now)
        if not demand.is_inside:
            office.send_all(INTEREST, demand.encode(interest, office.body_bytes_max))
        self._supply.take_interest(now, interest, LOCAL)
        if office.watch is not None:
            office.watch.hear_interest(now, interest, office.endpoint.source)
        if demand.is_over:
            self._demands = {k: one for k, one in self._demands.items() if one is not demand}
            office.agenda.remove(demand)

    def take_offer(self, now: int, offer: Offer) -> None:
        """Hear of a producer elsewhere; tell one that is new to us what we want of it."""
        origin = make_origin(offer.node, offer.port)
        version, is_known = self.offers.get(origin, (-1, False))
        if offer.version <= version:
            self._office.tally.duplicates += 1
            return
        self.offers.pop(origin, None)
        self.offers[origin] = offer.version, offer.is_open
        if len(self.offers) > PRODUCERS_HEARD_MAX:
            del self.offers[next(iter(self.offers))]
        if not offer.is_open:
            self._relay.forget_producer(now, origin)
        elif not is_known:
            self._answer(now, offer)

    def forget_node(self, node: bytes) -> None:
        """Let go of the offers of a node that has left."""
        for origin in [one for one in self.offers if one.startswith(node)]:
            del self.offers[origin]

    def _demand_key(self, consumer: Consumer) -> tuple[object, ...]:
        if self._office.is_stateless:
            return (consumer.type, consumer.port)
        return (
            consumer.type, consumer.subject, consumer.mode, consumer.scope, consumer.within,
            consumer.is_inside,
        )  # fmt: skip

    def _make_demand(self, now: int, consumer: Consumer) -> Demand:
        office = self._office
        version = self._clock.count(now)
        # Interests of several modes and scopes are several, and need an origin each.
        is_apart = office.is_stateless or consumer.mode or consumer.scope or consumer.within
        port = consumer.port if is_apart else GATEWAY_PORT
        return Demand(consumer, office.node, port, version, office.endpoint.random)

    def _tell(self, now: int, demand: Demand) -> None:
        """Tell an interest that has changed at once."""
        demand.change(now)
        self.tell_again(now, demand)
        self._office.plan(demand)

    def _answer(self, now: int, offer: Offer) -> None:
        for demand in self._demands.values():
            is_ours = demand.type in (offer.type, 0) and not demand.is_inside
            if is_ours and demand.consumers:
                self._remind(now, demand)

    def _remind(self, now: int, demand: Demand) -> None:
        demand.remind(now + int(self._office.endpoint.random.random() * _ANSWER_SPREAD))
        self._office.plan(demand)
