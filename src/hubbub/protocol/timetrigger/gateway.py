"""The components of a node on one channel, and the gateway between them and everybody else.

What comes from outside is addressed to port 0. The gateway looks at the type and passes it on, as
port 1, to the components that it concerns; so its work grows with matches and not with components.
What components send is passed on inside first, as the same object, and once outside. Frames that
come back, come twice, have no hop left or are addressed to port 1 from outside go no further.

Its parts: `supply` has the producers, `wants` what consumers ask for, `relay` brings samples to
them, `post` has direct messages, `time` the slot clock; all of them work with one `office`.

A `stateless` gateway does as the source of this design: everything goes to every component, which
looks for itself, each consumer tells its own interest, and samples are for everybody.
"""

from collections.abc import Callable
from typing import Any, Final

from hubbub.errors import ConfigurationError
from hubbub.limits import COMPONENTS_MAX, PASSED_BY_MAX, PORTS_MAX, PRODUCERS_HEARD_MAX
from hubbub.protocol.delivery import LOOPBACK
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.peers import Peer
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.interests import LOCAL
from hubbub.protocol.timetrigger.lexicon import Lexicon
from hubbub.protocol.timetrigger.office import Office
from hubbub.protocol.timetrigger.passing import Sample
from hubbub.protocol.timetrigger.post import Post
from hubbub.protocol.timetrigger.producer import Due, Producer, ProducerOptions
from hubbub.protocol.timetrigger.relay import Relay
from hubbub.protocol.timetrigger.reports import Reports
from hubbub.protocol.timetrigger.sieve import Sieve
from hubbub.protocol.timetrigger.supply import Again, Supply
from hubbub.protocol.timetrigger.timekeeper import Timekeeper
from hubbub.protocol.timetrigger.wants import Wants
from hubbub.subjects import is_subject
from hubbub.wire.header import CLOCK, DIRECT, HEADER_BYTES, INTEREST, OFFER, RESPONSE, Header
from hubbub.wire.timed import (
    COMPONENT_PORT,
    GATEWAY_PORT,
    NODE_BYTES,
    RESPONSE_HEAD_BYTES,
    TAG_BYTES,
    Interest,
    Offer,
    decode_clock,
    decode_timed,
    encode_clock,
    is_component_port,
    make_origin,
    peek_mark,
    peek_type,
)


class Gateway:
    """The time-triggered part of one node on one channel."""

    def __init__(self, endpoint: Endpoint, peers: dict[bytes, Peer], body_bytes_max: int) -> None:
        self.endpoint = endpoint
        self.node = endpoint.identity.id
        self.value_bytes_max = body_bytes_max - RESPONSE_HEAD_BYTES - TAG_BYTES
        self.office = Office(endpoint, peers, body_bytes_max)
        self.tally = self.office.tally
        self.components = self.office.components
        self.names = self.office.names
        self.out = self.office.out
        self.supply = Supply(self.office)
        self.time = Timekeeper(endpoint, self.supply.clock_changed)
        self.clock = self.time.clock
        self.relay = Relay(self.office)
        self.wants = Wants(self.office, self.clock, self.supply, self.relay)
        self.post = Post(self.office)
        self.lexicon = Lexicon(self.office, self._rename, self._remind)
        self.supply.on_namesake = self.lexicon.mismatch
        self._next_port = COMPONENT_PORT
        self._passed_by: dict[int, set[bytes]] = {INTEREST: set(), OFFER: set()}

    @property
    def due_ns(self) -> int:
        """Return when `advance` has something to do, at the latest."""
        return self.office.due_ns

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
        self.supply.add(now, producer)
        self.wants.tell_producer(now, producer)
        self.lexicon.add(now, producer)
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
        self.relay.add(now, consumer)
        self.wants.add(now, consumer)
        self.lexicon.add(now, consumer)

    def set_period(self, now: int, consumer: Consumer, period_us: int) -> None:
        """Let a consumer want samples at another period, at once."""
        if consumer.is_open:
            self.relay.set_period(now, consumer, period_us)
            self.wants.change(now, consumer)

    def stop(self, now: int, component: Producer | Consumer) -> None:
        """Remove a component: nothing is sent by it, nor handed to it, any more."""
        if self.components.pop(component.port, None) is not component:
            return
        self.post.deafen(component.port)
        self.lexicon.remove(component)
        if isinstance(component, Producer):
            self.supply.remove(component)
            if not self.office.is_stateless:
                self.relay.forget_producer(now, component.origin)
        else:
            self.relay.remove(now, component)
            self.wants.remove(now, component)

    def respond(self, now: int, due: Due, value: bytes, sampled_ns: int) -> bool:
        """Send a sample, inside and outside; False: nobody waits for it any more."""
        producer = due.producer
        response = producer.respond(now, due, value, sampled_ns)
        self.supply.follow(producer)
        if response is None:
            return False
        self.supply.send(now, producer, response)
        if producer.interests.receivers[LOCAL] or self.office.is_stateless:
            source, received_ns = self.endpoint.source, now + self.endpoint.wall_offset_ns
            self.relay.hand_over(now, Sample(response, source, received_ns, LOOPBACK, []))
        return True

    def abandon(self, now: int, due: Due) -> None:
        """Leave a tick without a sample: the application had none."""
        due.producer.abandon(due)
        self.supply.follow(due.producer)

    def _take_port(self, port: int | None) -> int:
        if len(self.components) >= COMPONENTS_MAX:
            raise ConfigurationError(f"a node has at most {COMPONENTS_MAX} components")
        if port is not None:
            if not is_component_port(port) or port in self.components:
                raise ConfigurationError(
                    f"port={port!r}: give a free one from {COMPONENT_PORT} to {PORTS_MAX};"
                    " 0 is the gateway, 1 what it passes on"
                )
            return port
        free = self._next_port
        while free in self.components or self.post.is_heard(free):
            free = _port_after(free)
        self._next_port = _port_after(free)
        return free

    # What arrives.

    def take(
        self, now: int, peer: Peer, header: Header, buffer: bytes, start: int, end: int
    ) -> bool:
        """Take a frame from outside; False: its body is malformed."""
        kind, begin = header.kind, start + HEADER_BYTES
        if kind == RESPONSE:
            return self.relay.take(now, peer, buffer, begin, end)
        self.tally.heard += 1
        if kind == DIRECT:
            return self.post.take(now, peer.key, header.packet, buffer[begin:end])
        if kind in self._passed_by:
            mark = peek_mark(buffer, begin, end)
            if mark in self._passed_by[kind]:
                self.tally.unwanted += 1
                return True
            if not self._is_concerned(kind, buffer, begin, end):
                # Its subject may be one of ours, by another number: that takes a closer look, once.
                frame = decode_timed(_BODIES[kind], buffer[begin:end])
                if frame is None or not self.lexicon.knows(frame.subject):
                    self._pass_by(kind, mark)
                    return frame is not None
        taken = _TAKERS[kind](self, now, peer, buffer[begin:end])
        self._set_due()
        return taken

    def _is_concerned(self, kind: int, buffer: bytes, begin: int, end: int) -> bool:
        """Tell whether somebody here cares for a frame, by its type alone if that says it."""
        is_looking_on = self.office.watch is not None or self.relay.is_wanted(0)
        if is_looking_on or self.office.is_stateless:
            return True
        type = peek_type(buffer, begin, end)
        if kind == OFFER:
            return type is None or self.relay.is_wanted(type)
        return not type or type in self.supply.producers

    def _pass_by(self, kind: int, mark: bytes) -> None:
        """Remember the marks of frames that concern nobody here: in a crowd that is most of them.

        One of them takes 0.8 us by its mark, 2 by its type, and 6 by all of it
        (`hubbub.simulation.fleet`).
        """
        self.tally.unwanted += 1
        if len(self._passed_by[kind]) >= PASSED_BY_MAX:
            self._passed_by[kind].clear()
        if mark:
            self._passed_by[kind].add(mark)

    def _take_interest(self, now: int, peer: Peer, body: bytes) -> bool:
        interest = decode_timed(Interest, body)
        if interest is None:
            return False
        if self._may_pass(interest):
            self._learn_name(interest)
            self.lexicon.compare(now, interest)
            if self.office.watch is not None:
                source = self.office.source_of(interest.node)
                self.office.watch.hear_interest(now, interest, source)
            self.supply.take_interest(now, interest, peer.key)
        return True

    def _take_offer(self, now: int, peer: Peer, body: bytes) -> bool:
        offer = decode_timed(Offer, body)
        if offer is None:
            return False
        if self._may_pass(offer):
            self._learn_name(offer)
            self.lexicon.compare(now, offer)
            if self.office.watch is not None:
                self.office.watch.hear_offer(now, offer, self.office.source_of(offer.node))
            self.wants.take_offer(now, offer)
        return True

    def _take_clock(self, now: int, peer: Peer, body: bytes) -> bool:
        exchange = decode_clock(body)
        if exchange is None:
            return False
        answer = self.time.take(now, peer.key, exchange)
        if answer is not None:
            self.office.send(now, peer.reach, CLOCK, encode_clock(answer))
        return True

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

    def _learn_name(self, frame: Interest | Offer) -> None:
        """Note how others call a type: who looks on at all of them has not registered each."""
        is_new = frame.type not in self.names and len(self.names) < PRODUCERS_HEARD_MAX
        if is_new and is_subject(frame.subject):
            self.names[frame.type] = frame.subject

    def _rename(self, now: int, component: Producer | Consumer, type: int) -> None:
        """Let a component have the type that others know its subject by."""
        self.names.setdefault(type, component.subject)
        if isinstance(component, Producer):
            self.supply.rename(now, component, type)
            self.wants.tell_producer(now, component)
        else:
            self.wants.remove(now, component)
            self.relay.rename(now, component, type)
            self.wants.add(now, component)
        for marks in self._passed_by.values():
            marks.clear()

    def _remind(self, now: int, component: Producer | Consumer) -> None:
        """Tell again by which type a component goes."""
        if isinstance(component, Producer):
            self.supply.remind(now, component)
        else:
            self.wants.remind(now, component)

    # Time.

    def advance(self, now: int) -> None:
        """Do what is due."""
        if now >= self.time.due_ns:
            question = self.time.advance(now)
            if question is not None:
                self.office.send_all(CLOCK, encode_clock(question))
        for item in self.office.agenda.take(now):
            if isinstance(item, Producer):
                self.supply.advance(now, item)
            elif isinstance(item, Sieve):
                self.relay.judge(now, item)
            elif isinstance(item, Again):
                self.supply.send_again(now, item)
            elif isinstance(item, Reports):
                item.advance(now)
            else:
                self.wants.tell_again(now, item)
        self._set_due()

    def close(self, now: int) -> None:
        """End all components: everybody is told that they want and make nothing any more."""
        for component in list(self.components.values()):
            self.stop(now, component)

    def forget(self, now: int, key: bytes) -> None:
        """Let go of a peer that has left, with all its components."""
        node = key[:NODE_BYTES]
        self.supply.forget_peer(now, key)
        self.relay.forget_node(now, node)
        self.wants.forget_node(node)
        self.post.forget(key)
        if self.office.watch is not None:
            self.office.watch.forget_node(node)

    def _begin(self, now: int) -> None:
        """Begin to look after the clock, and look anew at who is concerned."""
        for marks in self._passed_by.values():
            marks.clear()
        self.endpoint.now = now
        self.time.begin(now)
        self.office.due_ns = min(self.office.due_ns, self.time.due_ns)

    def _set_due(self) -> None:
        self.office.due_ns = min(self.office.agenda.due_ns, self.time.due_ns)


def _port_after(port: int) -> int:
    """Return the next port of components: behind the last comes the first again."""
    return port + 1 if port < PORTS_MAX else COMPONENT_PORT


_BODIES: Final[dict[int, Any]] = {INTEREST: Interest, OFFER: Offer}
_TAKERS: Final[dict[int, Callable[[Gateway, int, Peer, bytes], bool]]] = {
    INTEREST: Gateway._take_interest,
    OFFER: Gateway._take_offer,
    CLOCK: Gateway._take_clock,
}
