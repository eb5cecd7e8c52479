"""The components of a node on one channel, and the gateway between them and everybody else.

What comes from outside is addressed to port 0. The gateway looks at the type and passes it on, as
port 1, to the components that it concerns; so its work grows with matches and not with components.
What components send is passed on inside first, as the same object, and once outside. Frames that
come back, come twice, have no hop left or are addressed to port 1 from outside go no further.

A `stateless` gateway does as the source of this design: everything goes to every component, which
looks for itself, each consumer tells its own interest, and samples are for everybody.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from hubbub.errors import ConfigurationError
from hubbub.limits import (
    COMPONENTS_MAX,
    MS,
    OFFER_INTERVAL,
    OFFER_SPACING,
    PORTS_MAX,
    PRODUCERS_HEARD_MAX,
    TIMED_REPEAT_INTERVAL,
    TIMED_REPEATS,
    US,
)
from hubbub.message import Source
from hubbub.protocol.burst import Address, Burst
from hubbub.protocol.delivery import LOOPBACK, Handover
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.peers import Peer
from hubbub.protocol.timetrigger.agenda import Agenda
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.demand import Demand
from hubbub.protocol.timetrigger.interests import LOCAL, NEVER
from hubbub.protocol.timetrigger.passing import GatewayTally, Letter, Sample, Seen
from hubbub.protocol.timetrigger.producer import Due, Producer, ProducerOptions
from hubbub.protocol.timetrigger.reports import Reports
from hubbub.protocol.timetrigger.timekeeper import Timekeeper
from hubbub.protocol.timetrigger.watch import Watch
from hubbub.subjects import is_subject
from hubbub.wire.header import (
    CLOCK,
    DIRECT,
    HEADER_BYTES,
    INTEREST,
    OFFER,
    RESPONSE,
    Header,
    finish,
)
from hubbub.wire.timed import (
    COMPONENT_PORT,
    GATEWAY_PORT,
    NODE_BYTES,
    OBSERVE,
    RESPONSE_HEAD_BYTES,
    TYPE_OFFSET,
    Direct,
    Interest,
    Offer,
    Response,
    decode_clock,
    decode_response,
    decode_timed,
    encode_clock,
    encode_response,
    encode_timed,
    make_origin,
)

_ANSWER_SPREAD: Final = 10 * MS


class Gateway:
    """The time-triggered part of one node on one channel."""

    def __init__(self, endpoint: Endpoint, peers: dict[bytes, Peer], body_bytes_max: int) -> None:
        self.endpoint = endpoint
        self.peers = peers
        self.node = endpoint.identity.id
        self.value_bytes_max = body_bytes_max - RESPONSE_HEAD_BYTES
        self.is_stateless = False
        self.time = Timekeeper(endpoint, self._clock_changed)
        self.clock = self.time.clock
        self.tally = GatewayTally()
        self.watch: Watch | None = None
        self.components: dict[int, Any] = {}  # By port.
        self.names: dict[int, str] = {}  # Subjects of types, as others call them.
        self.out: deque[Burst] = deque()
        self._body_bytes_max = body_bytes_max
        self._producers: dict[int, list[Producer]] = {}  # By type.
        self._consumers: dict[int, list[Consumer]] = {}
        self._wanted: set[int] = set()  # Types that there are consumers of.
        self._demands: dict[tuple[int, ...], Demand] = {}
        self._letters: dict[int, Callable[[Letter], None]] = {}
        self._seen = Seen(PRODUCERS_HEARD_MAX)
        self._offers: dict[bytes, int] = {}
        self._agenda = Agenda()
        self._reports = Reports(endpoint, self._source_of)
        self._next_port = COMPONENT_PORT
        self.due_ns = NEVER

    # Components.

    def produce(
        self, now: int, type: int, subject: str, options: ProducerOptions,
        taker: Callable[[Due], None], port: int | None = None,
    ) -> Producer:  # fmt: skip
        """Add a producer: it is told of all interests, and offered to everybody."""
        self._begin(now)
        origin = make_origin(self.node, self._take_port(port))
        producer = Producer(now, origin, type, subject, self.clock, options)
        producer.taker = taker
        self.components[producer.port] = producer
        self._producers.setdefault(type, []).append(producer)
        producer.offers_left = 0 if self.is_stateless else TIMED_REPEATS + 1
        producer.offer_ns = now if producer.offers_left else NEVER
        for demand in list(self._demands.values()):
            if demand.type in (type, 0) and demand.consumers:
                self._take_interest(now, demand.tell(now), LOCAL)
        producer.plan_offer()
        self._plan(producer)
        return producer

    def consume(
        self, now: int, consumer: Consumer, taker: Callable[[Sample], None], port: int | None = None
    ) -> None:
        """Add a consumer, and tell everybody what it wants."""
        self._begin(now)
        consumer.port = self._take_port(port)
        consumer.taker = taker
        if consumer.type:
            self.names.setdefault(consumer.type, consumer.subject)
        self.components[consumer.port] = consumer
        self._consumers.setdefault(consumer.type, []).append(consumer)
        self._wanted.add(consumer.type)
        key = self._demand_key(consumer)
        demand = self._demands.get(key)
        if demand is None:
            version = max(0, self.clock.at(now)) // US
            demand_port = consumer.port if self.is_stateless else GATEWAY_PORT
            random = self.endpoint.random
            # Interests of several modes and scopes are several, and need an origin each.
            if demand_port == GATEWAY_PORT and (consumer.mode or consumer.scope):
                demand_port = consumer.port
            demand = Demand(consumer, self.node, demand_port, version, random)
            self._demands[key] = demand
        demand.consumers.append(consumer)
        self._tell(now, demand)

    def set_period(self, now: int, consumer: Consumer, period_us: int) -> None:
        """Let a consumer want samples at another period, at once."""
        consumer.set_period(period_us)
        self._plan(consumer)
        demand = self._demands.get(self._demand_key(consumer))
        if demand is not None and consumer.is_open:
            self._tell(now, demand)

    def stop(self, now: int, component: Producer | Consumer) -> None:
        """Remove a component: nothing is sent by it, nor handed to it, any more."""
        if self.components.pop(component.port, None) is not component:
            return
        self._letters.pop(component.port, None)
        component.stop()
        self._agenda.remove(component)
        if isinstance(component, Producer):
            self._producers[component.type].remove(component)
            if not self.is_stateless:
                self._send_all(OFFER, encode_timed(component.offer()))
                self._forget_producer(component.origin)
            return
        self._consumers[component.type].remove(component)
        if not self._consumers[component.type]:
            del self._consumers[component.type]
            self._wanted.discard(component.type)
        demand = self._demands.get(self._demand_key(component))
        if demand is not None:
            demand.consumers.remove(component)
            self._tell(now, demand)

    def respond(self, now: int, due: Due, value: bytes, sampled_ns: int) -> bool:
        """Send a sample, inside and outside; False: nobody waits for it any more."""
        producer = due.producer
        response = producer.respond(now, due, value, sampled_ns)
        if response is None:
            return False
        destination = self._route(producer)
        if destination != LOCAL:
            self._send(now, destination, RESPONSE, encode_response(response))
        if producer.interests.receivers[LOCAL] or self.is_stateless:
            source, received_ns = self.endpoint.source, now + self.endpoint.wall_offset_ns
            self._hand_over(now, Sample(response, source, received_ns, LOOPBACK))
        return True

    def listen(self, taker: Callable[[Letter], None], port: int) -> None:
        """Let a component hear the direct messages for its port."""
        self._letters[port] = taker

    def send_letter(self, now: int, port: int, target: bytes, to: int, payload: bytes) -> bool:
        """Send a direct message to a port of a node; False: that node is not here."""
        if target == self.node:
            letter = Letter(self.endpoint.source, port, payload, now + self.endpoint.wall_offset_ns)
            return self._hand_letter(to, letter)
        key = next((k for k, one in self.peers.items() if k.startswith(target)), None)
        if key is None:
            return False
        body = encode_timed(Direct(self.node, port, to, target, 1, payload))
        self._send(now, self.peers[key].reach, DIRECT, body)
        return True

    def _take_port(self, port: int | None) -> int:
        if len(self.components) >= COMPONENTS_MAX:
            raise ConfigurationError(f"a node has at most {COMPONENTS_MAX} components")
        if port is not None:
            if not COMPONENT_PORT <= port <= PORTS_MAX or port in self.components:
                raise ConfigurationError(
                    f"port={port!r}: give a free one from {COMPONENT_PORT} to {PORTS_MAX};"
                    " 0 is the gateway, 1 what it passes on"
                )
            return port
        while self._next_port in self.components:
            self._next_port = max(COMPONENT_PORT, (self._next_port + 1) % PORTS_MAX)
        self._next_port += 1
        return self._next_port - 1

    def _demand_key(self, consumer: Consumer) -> tuple[int, ...]:
        if self.is_stateless:
            return (consumer.type, consumer.port)
        return (consumer.type, consumer.mode, consumer.scope)

    # What arrives.

    def take(
        self, now: int, peer: Peer, header: Header, buffer: bytes, start: int, end: int
    ) -> bool:
        """Take a frame from outside; False: its body is malformed."""
        kind, begin = header.kind, start + HEADER_BYTES
        self.tally.heard += 1
        if kind == RESPONSE:
            # Most of what a crowd sends is for others: that is seen before anything is taken apart.
            if not (self.is_stateless or self._is_wanted(buffer, begin)):
                self.tally.unwanted += 1
                return end - begin >= RESPONSE_HEAD_BYTES
            response = decode_response(buffer, begin, end)
            if response is not None:
                self._take_response(now, peer, response)
            return response is not None
        taken = _TAKERS[kind](self, now, peer, buffer[begin:end])
        self.due_ns = min(self._agenda.due_ns, self.time.due_ns)
        return taken

    def _is_wanted(self, buffer: bytes, begin: int) -> bool:
        """Tell whether a component is concerned with the type of a sample."""
        at = begin + TYPE_OFFSET
        type = int.from_bytes(buffer[at : at + 4], "big")
        return type in self._wanted or 0 in self._wanted

    def _take_response(self, now: int, peer: Peer, response: Response) -> None:
        origin, tally = response.origin, self.tally
        if response.destination != GATEWAY_PORT:
            tally.refused_port += 1
        elif not response.hops:
            tally.refused_hops += 1
        elif origin.startswith(self.node):
            tally.own += 1
        elif not self._seen.is_new(origin, response.type, response.sequence):
            tally.duplicates += 1
        else:
            is_direct = peer.key.startswith(origin[:NODE_BYTES])
            source = peer.source if is_direct else self._source_of(origin[:NODE_BYTES])
            received_ns = now + self.endpoint.wall_offset_ns
            self._hand_over(now, Sample(response, source, received_ns, self.endpoint.link))

    def _hand_over(self, now: int, sample: Sample) -> None:
        """Pass a sample on to the components that it concerns."""
        response, tally = sample.response, self.tally
        concerned: Any = self._consumers.get(response.type, ())
        if 0 in self._consumers and response.type:
            concerned = [*concerned, *self._consumers[0]]
        if self.is_stateless:
            tally.handed += len(self.components)
        else:
            tally.handed += len(concerned)
        if not concerned:
            tally.unwanted += 1
            return
        tally.relayed += 1
        takers = []
        granted_us, origin = response.granted_us, response.origin
        for consumer in concerned:
            stream = consumer.streams.get(origin)
            # Most samples are of the next slot, and need no closer look.
            if stream is not None and consumer.is_plain and stream.take_next(now, response):
                takers.append(consumer.taker)
                continue
            due_ns = consumer.due_ns
            if consumer.take(now, response) is not None:
                takers.append(consumer.taker)
                if consumer.due_ns < due_ns:
                    self._plan(consumer)
                if granted_us > consumer.period_us != 0:
                    self._note_granted(consumer, response)
        if takers:
            tally.taken += len(takers)
            self.endpoint.events.append(Handover(takers, sample))

    def _note_granted(self, consumer: Consumer, response: Response) -> None:
        if consumer.granted_us != response.granted_us:
            self._reports.granted(consumer, response.origin, response.granted_us)

    def _take_interest_frame(self, now: int, peer: Peer, body: bytes) -> bool:
        interest = decode_timed(Interest, body)
        if interest is None:
            return False
        if self._may_pass(interest):
            self._learn_name(interest)
            if self.watch is not None:
                self.watch.hear_interest(now, interest, self._source_of(interest.node))
            self._take_interest(now, interest, peer.key)
        return True

    def _take_interest(self, now: int, interest: Interest, via: bytes) -> None:
        """Tell the producers that it concerns of an interest."""
        tally = self.tally
        if interest.type:
            concerned = self._producers.get(interest.type, ())
        elif interest.mode == OBSERVE:
            concerned = [one for some in self._producers.values() for one in some]
        else:
            concerned = ()  # Nobody makes what is unknown.
        tally.handed += len(self.components) if self.is_stateless else len(concerned)
        if not concerned:
            tally.unwanted += 1
            return
        tally.relayed += 1
        for producer in concerned:
            self._interest_for(now, producer, interest, via)

    def _interest_for(self, now: int, producer: Producer, interest: Interest, via: bytes) -> None:
        refused, rounded = producer.interests.refused, producer.refused_periods
        due = producer.advance(now)
        if due is not None:
            self._hand_due(due)
        if producer.take_interest(now, interest, via):
            is_observed = bool(producer.interests.observers)
            if is_observed and not self.is_stateless:
                producer.offer_ns = min(producer.offer_ns, now + OFFER_SPACING)
        if producer.interests.refused > refused:
            self._reports.refused(now, producer, interest, "full")
        if producer.refused_periods > rounded:
            self._reports.refused(now, producer, interest, "floor")
        producer.plan_offer()
        self._plan(producer)

    def _take_offer(self, now: int, peer: Peer, body: bytes) -> bool:
        offer = decode_timed(Offer, body)
        if offer is None:
            return False
        if not self._may_pass(offer):
            return True
        self._learn_name(offer)
        if self.watch is not None:
            self.watch.hear_offer(now, offer, self._source_of(offer.node))
        origin = make_origin(offer.node, offer.port)
        if offer.version <= self._offers.get(origin, -1):
            self.tally.duplicates += 1
        elif not offer.is_open:
            self._offers.pop(origin, None)
            self._forget_producer(origin)
        else:
            if origin not in self._offers:
                self._answer_offer(now, offer)
            self._offers.pop(origin, None)
            self._offers[origin] = offer.version
            if len(self._offers) > PRODUCERS_HEARD_MAX:
                del self._offers[next(iter(self._offers))]
        return True

    def _answer_offer(self, now: int, offer: Offer) -> None:
        """Tell a producer that is new to us what we want of it, soon."""
        for demand in self._demands.values():
            if demand.type in (offer.type, 0) and demand.consumers:
                demand.remind(now + int(self.endpoint.random.random() * _ANSWER_SPREAD))
                self._plan(demand)

    def _forget_producer(self, origin: bytes) -> None:
        for consumers in self._consumers.values():
            for consumer in consumers:
                consumer.forget_producer(origin)

    def _take_direct(self, now: int, peer: Peer, body: bytes) -> bool:
        direct = decode_timed(Direct, body)
        if direct is None:
            return False
        if direct.destination < COMPONENT_PORT:
            self.tally.refused_port += 1
        elif direct.target != self.node or not direct.hops:
            self.tally.refused_hops += 1
        else:
            source = self._source_of(direct.node)
            received_ns = now + self.endpoint.wall_offset_ns
            letter = Letter(source, direct.port, direct.payload, received_ns)
            if not self._hand_letter(direct.destination, letter):
                self.tally.unwanted += 1
        return True

    def _hand_letter(self, port: int, letter: Letter) -> bool:
        taker = self._letters.get(port)
        if taker is not None:
            self.tally.handed += 1
            self.endpoint.events.append(Handover([taker], letter))
        return taker is not None

    def _take_clock(self, now: int, peer: Peer, body: bytes) -> bool:
        exchange = decode_clock(body)
        if exchange is None:
            return False
        answer = self.time.take(now, peer.key, exchange)
        if answer is not None:
            self._send(now, peer.reach, CLOCK, encode_clock(answer))
        return True

    def _clock_changed(self, now: int) -> None:
        """Plan anew: what was planned is due at other times now."""
        for producers in self._producers.values():
            for producer in producers:
                producer.clock_changed(now)
                self._plan(producer)

    def _learn_name(self, frame: Interest | Offer) -> None:
        """Note how others call a type: who looks on at all of them has not registered each."""
        is_new = frame.type not in self.names and len(self.names) < PRODUCERS_HEARD_MAX
        if is_new and is_subject(frame.subject):
            self.names[frame.type] = frame.subject

    def _may_pass(self, frame: Interest | Offer) -> bool:
        """Tell whether a frame from outside goes any further."""
        if frame.destination != GATEWAY_PORT:
            self.tally.refused_port += 1
        elif not frame.hops:
            self.tally.refused_hops += 1
        elif frame.node == self.node:
            self.tally.own += 1
        else:
            return True
        return False

    # Time.

    def advance(self, now: int) -> None:
        """Do what is due."""
        if now >= self.time.due_ns:
            question = self.time.advance(now)
            if question is not None:
                self._send_all(CLOCK, encode_clock(question))
        for item in self._agenda.take(now):
            if isinstance(item, Producer):
                self._advance_producer(now, item)
            elif isinstance(item, Consumer):
                for miss in item.advance(now):
                    self._reports.missed(now, item, miss)
            else:
                self._tell_again(now, item)
        self.due_ns = min(self._agenda.due_ns, self.time.due_ns)

    def close(self, now: int) -> None:
        """End all components: everybody is told that they want and make nothing any more."""
        for component in list(self.components.values()):
            self.stop(now, component)

    def forget(self, now: int, key: bytes) -> None:
        """Let go of a peer that has left, with all its components."""
        node = key[:NODE_BYTES]
        for producers in self._producers.values():
            for producer in producers:
                producer.forget_peer(now, key)
        for consumers in self._consumers.values():
            for consumer in consumers:
                for miss in consumer.forget_node(node):
                    self._reports.missed(now, consumer, miss)
        for origin in [one for one in self._offers if one.startswith(node)]:
            del self._offers[origin]

    def _advance_producer(self, now: int, producer: Producer) -> None:
        skipped = producer.skipped
        due = producer.advance(now)
        if due is not None:
            self._hand_due(due)
        if producer.skipped > skipped:
            self._reports.skipped(now, producer, producer.skipped - skipped)
        if now >= producer.offer_ns:
            self._send_all(OFFER, encode_timed(producer.offer()))
            producer.offers_left = max(0, producer.offers_left - 1)
            if producer.offers_left:
                producer.offer_ns = now + TIMED_REPEAT_INTERVAL
            else:
                is_observed = bool(producer.interests.observers)
                producer.offer_ns = now + OFFER_INTERVAL if is_observed else NEVER
        producer.plan_offer()

    def _hand_due(self, due: Due) -> None:
        """Let the shell make a sample."""
        handover = Handover([due.producer.taker], due)
        self.endpoint.events.append(handover)

    def _tell(self, now: int, demand: Demand) -> None:
        """Tell an interest that has changed at once, inside and outside."""
        demand.change(now)
        self._tell_again(now, demand)
        self._plan(demand)

    def _tell_again(self, now: int, demand: Demand) -> None:
        interest = demand.tell(now)
        self._send_all(INTEREST, demand.encode(interest, self._body_bytes_max))
        self._take_interest(now, interest, LOCAL)
        if self.watch is not None:
            self.watch.hear_interest(now, interest, self.endpoint.source)
        if demand.is_over:
            self._demands = {k: one for k, one in self._demands.items() if one is not demand}
            self._agenda.remove(demand)

    def _begin(self, now: int) -> None:
        """Begin to look after the clock: there are components."""
        self.endpoint.now = now
        self.time.begin(now)
        self.due_ns = min(self.due_ns, self.time.due_ns)

    # What leaves.

    def _route(self, producer: Producer) -> Address | bytes | None:
        """Choose where samples go; LOCAL: nobody outside wants them."""
        if self.is_stateless:
            return self.endpoint.ways.everybody
        keys = [
            key for key in producer.receivers if key in self.peers and not self.peers[key].lost_ns
        ]
        if not keys:
            return LOCAL
        if len(keys) == 1:
            return self.peers[keys[0]].reach
        return self.endpoint.ways.route(keys, ())

    def _send_all(self, kind: int, body: bytes) -> None:
        self.tally.sent += 1
        self.endpoint.send(None, kind, 0, body)

    def _send(self, now: int, destination: Any, kind: int, body: bytes) -> None:
        self.tally.sent += 1
        endpoint = self.endpoint
        shared = endpoint.make_prefix(kind, 0, 0)
        frame = finish(shared, 0, next(endpoint.packets), now // US & 0xFFFF_FFFF, body)
        self.out.append(Burst(destination, [frame, body], 0))

    def _plan(self, item: Any) -> None:
        self._agenda.plan(item)
        if item.due_ns < self.due_ns:
            self.due_ns = item.due_ns

    def _source_of(self, node: bytes) -> Source:
        """Say who a node is, as far as we know it."""
        if node == self.node:
            return self.endpoint.source
        for key, peer in self.peers.items():
            if key.startswith(node):
                return peer.source
        return Source("", node, 0)


_TAKERS: Final[dict[int, Callable[[Gateway, int, Peer, bytes], bool]]] = {
    INTEREST: Gateway._take_interest_frame,
    OFFER: Gateway._take_offer,
    DIRECT: Gateway._take_direct,
    CLOCK: Gateway._take_clock,
}
