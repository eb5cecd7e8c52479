"""HOT. The way of a sample: from a frame, or from a producer here, to the consumers it concerns.

Most of what a crowd sends is for others: that is seen by the type alone, before anything is taken
apart. Of an origin whose samples we take, all that its frames have in common is kept as a route
under the twenty bytes that they begin with (origin, destination, type), so a frame costs one look
at these, one unpacking, and one turn of each sieve, however many consumers share it.

With a hundred consumers of which ten match (`python -m benchmarks.relay`) a frame took 22 us and
takes 7: it would be 8 us more without sieves that are shared, and 3 more without lanes.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final

from hubbub.limits import PASSED_BY_MAX, PERIOD_US_MAX, PRODUCERS_HEARD_MAX
from hubbub.message import Source
from hubbub.protocol.burst import Straight
from hubbub.protocol.delivery import DATAGRAM, INPROC, LOCAL, MULTICAST, Handover
from hubbub.protocol.peers import Peer
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.office import Office
from hubbub.protocol.timetrigger.passing import Discarded, Sample, Seen
from hubbub.protocol.timetrigger.sieve import NOBODY, Miss, Sieve
from hubbub.protocol.timetrigger.slots import DUPLICATE, TAKEN
from hubbub.wire.timed import (
    GATEWAY_PORT,
    LIMITED,
    NEAREST,
    NODE_BYTES,
    ORIGIN_BYTES,
    RESPONSE_HEAD_BYTES,
    ROUTE_BYTES,
    TAG_BYTES,
    TAGGED,
    TYPE_OFFSET,
    Response,
    decode_tag,
)

_REST: Final = Struct("!BBHQQQQI")  # Of a RESPONSE, behind what a route knows.
_EVERYTHING: Final = 0  # The type of those who want a copy of all.
_STEPS: Final = {INPROC: 1, LOCAL: 2}  # How far away a peer is, by the link that leads to it.
_BEYOND: Final = 4  # Somebody else passes on what it sends.

# A third of the time of calling the class, which passes the fields through keywords.
_new_response: Final[Callable[[Any], Response]] = partial(tuple.__new__, Response)
_new_sample: Final[Callable[[Any], Sample]] = partial(tuple.__new__, Sample)


class Route:
    """What is known of the samples of one type that one producer sends."""

    __slots__ = ("consumers", "origin", "peer", "seen", "sieves", "tag", "type", "version")

    def __init__(self, origin: bytes, type: int, tag: bytes = b"") -> None:
        self.origin = origin
        self.type = type
        self.tag = tag
        self.seen = Seen()
        self.peer: Peer | None = None  # The producer's own node, if it sends them itself.
        self.sieves: list[Sieve] = []
        self.consumers = 0
        self.version = -1  # Of the sieves.


class Relay:
    """The sieves of a node, and the routes to them."""

    def __init__(self, office: Office) -> None:
        self.sieves: dict[int, list[Sieve]] = {}  # By type.
        self.routes: dict[bytes, Route] = {}
        self._office = office
        self._endpoint = office.endpoint
        self._tally = office.tally
        self._passed_by: set[bytes] = set()  # Routes that concern nobody here.
        self._version = 0  # Grows when the sieves change.

    # Who wants what.

    def add(self, now: int, consumer: Consumer) -> None:
        """Let a consumer have samples of its type, by a sieve of its own."""
        consumer.sieve.enter(consumer)
        self._enter(consumer.type, consumer.sieve)
        consumer.sieve.look_out(now)
        self._office.plan(consumer.sieve)

    def remove(self, now: int, consumer: Consumer) -> None:
        """Let a consumer have nothing any more."""
        sieve = consumer.sieve
        consumer.stop(now)
        self._leave(consumer.type, sieve)

    def set_period(self, now: int, consumer: Consumer, period_us: int) -> None:
        """Let a consumer have samples at another period."""
        sieve = consumer.sieve
        consumer.set_period(now, period_us)
        self._leave(consumer.type, sieve)
        self._enter(consumer.type, consumer.sieve)
        self._office.plan(consumer.sieve)

    def rename(self, now: int, consumer: Consumer, type: int) -> None:
        """Let a consumer have samples of the type that others know its subject by."""
        sieve, before = consumer.sieve, consumer.type
        consumer.rename(now, type)
        self._leave(before, sieve)
        self._enter(type, consumer.sieve)
        self._office.plan(consumer.sieve)

    def share(self, type: int) -> None:
        """Let consumers that have come to the same slots share a sieve."""
        sieves = self.sieves.get(type, [])
        for place, newer in enumerate(sieves):
            older = next(
                (one for one in sieves[:place] if one.members and one.is_like(newer)), None
            )
            if older is not None:
                older.absorb(newer)
                self._office.plan(older)
        for sieve in [one for one in sieves if not one.members]:
            self._leave(type, sieve)

    def is_wanted(self, type: int) -> bool:
        """Tell whether a component is concerned with samples of a type."""
        return type in self.sieves or _EVERYTHING in self.sieves

    def judge(self, now: int, sieve: Sieve) -> None:
        """Give up the slots of a sieve that are over."""
        self._report(now, sieve, sieve.advance(now))

    def forget_node(self, now: int, node: bytes) -> None:
        """Let go of the producers of a node that has left: one that returns counts anew."""
        for key in [key for key in self.routes if key.startswith(node)]:
            del self.routes[key]
        for sieve in self.all_sieves():
            self._report(now, sieve, sieve.forget_node(now, node))
            self._office.plan(sieve)

    def forget_producer(self, now: int, origin: bytes) -> None:
        """Wait for a producer no more that has stopped."""
        for sieve in self.all_sieves():
            sieve.forget_producer(now, origin)
            self._office.plan(sieve)

    def _report(self, now: int, sieve: Sieve, misses: list[Miss]) -> None:
        for miss in misses:
            for consumer in sieve.members:
                if miss.origin == NOBODY:
                    self._office.reports.vacant(consumer)
                else:
                    self._office.reports.missed(now, consumer, miss)

    def all_sieves(self) -> list[Sieve]:
        """Return the sieves of all types."""
        return [sieve for some in self.sieves.values() for sieve in some]

    def _enter(self, type: int, sieve: Sieve) -> None:
        self.sieves.setdefault(type, []).append(sieve)
        self._passed_by.clear()
        self._version += 1

    def _leave(self, type: int, sieve: Sieve) -> None:
        self._version += 1
        if not sieve.members:
            self._office.agenda.remove(sieve)
            self.sieves[type].remove(sieve)
            if not self.sieves[type]:
                del self.sieves[type]

    # Samples.

    def take(self, now: int, peer: Peer, buffer: bytes, begin: int, end: int) -> bool:
        """Take the body of a RESPONSE from outside; False: it is malformed."""
        tally = self._tally
        tally.heard += 1
        behind = begin + RESPONSE_HEAD_BYTES
        if behind > end:
            return False
        key = buffer[begin : begin + ROUTE_BYTES]
        route = self.routes.get(key)
        if route is None:
            if key in self._passed_by:
                tally.unwanted += 1
                return True
            route = self._open(key)
            if route is None:
                return True
        if route.version != self._version:
            self._renew(route)
        hops, flags, era, sequence, tick_ns, sampled_ns, granted_us, size = _REST.unpack_from(
            buffer, begin + ROUTE_BYTES
        )
        after = behind + size
        tag = buffer[after : after + TAG_BYTES] if flags & TAGGED else b""
        if after + (flags & TAGGED) > end or granted_us > PERIOD_US_MAX:
            return False
        if tag != route.tag:
            route.tag = tag
            self._renew(route)
        if not hops:
            tally.refused_hops += 1
            return True
        if not route.seen.is_new(sequence):
            self._refuse_duplicate(route, sequence)
            return True
        response = _new_response((
            route.origin, GATEWAY_PORT, route.type, hops, flags, era, sequence, tick_ns,
            sampled_ns, granted_us, buffer[behind:after], tag,
        ))  # fmt: skip
        endpoint = self._endpoint
        source = peer.source if route.peer is peer else self._source_of(route, peer)
        received_ns = now + endpoint.wall_offset_ns
        sample = _new_sample((response, source, received_ns, self._link_of(peer), []))
        self._hand_over(now, route, sample)
        return True

    def _link_of(self, peer: Peer) -> str:
        """Name the link of the sample under way.

        What came to us alone came by datagram, where both nodes have that.
        """
        endpoint = self._endpoint
        if endpoint.link is not MULTICAST or type(endpoint.came_from) is not Straight:
            return endpoint.link
        is_datagram = DATAGRAM in peer.links and DATAGRAM in endpoint.links
        return DATAGRAM if is_datagram else MULTICAST

    def hand_over(self, now: int, sample: Sample) -> None:
        """Pass a sample of a producer of this node on."""
        response = sample.response
        route = Route(response.origin, response.type, response.tag)
        self._renew(route)
        self._hand_over(now, route, sample)

    def _hand_over(self, now: int, route: Route, sample: Sample) -> None:
        """Pass a sample on to the consumers that it concerns."""
        tally = self._tally
        is_stateless = self._office.is_stateless
        tally.handed += route.consumers
        if not route.sieves:
            tally.unwanted += 1
            return
        tally.relayed += 1
        response, origin = sample.response, route.origin
        takers = None
        sieves = route.sieves
        if is_stateless:  # Every consumer is handed every sample, and looks for itself.
            sieves = [one for one in sieves if one.looks_for(response)]
        for sieve in sieves:
            stream = sieve.streams.get(origin)
            # Most samples are of the next slot, and need no closer look.
            is_next = stream is not None and sieve.is_plain and stream.take_next(now, response)
            if is_next or self._look_closely(now, route, sieve, response):
                takers = sieve.takers if takers is None else [*takers, *sieve.takers]
        if takers is None:
            return
        tally.taken += len(takers)
        events = self._endpoint.events
        last = events[-1] if events else None
        # One hand-over for all samples of a burst saves 0.7 us each.
        if isinstance(last, Handover) and last.takers is takers:
            last.values.append(sample)
        else:
            events.append(Handover(takers, [sample]))

    def _look_closely(self, now: int, route: Route, sieve: Sieve, response: Response) -> bool:
        due_ns = sieve.due_ns
        stream = sieve.streams.get(route.origin)
        missed = 0 if stream is None else stream.missed
        steps = self._steps_to(route) if sieve.mode == NEAREST else 0
        outcome = sieve.take(now, response, steps)
        if stream is not None and stream.missed > missed:  # It is of a slot behind the next.
            self._report(now, sieve, [Miss(route.origin, stream.missed - missed, is_lost=False)])
        if outcome != TAKEN:
            self._discard(route, response.sequence, outcome)
            return False
        if sieve.due_ns < due_ns:
            self._office.plan(sieve)
        granted_us = response.granted_us
        if granted_us > sieve.period_us != 0 and response.flags & LIMITED:
            for member in sieve.members:
                self._office.reports.granted(member, response.origin, granted_us)
        return True

    def _refuse_duplicate(self, route: Route, sequence: int) -> None:
        """Count a sample that came again, also for each of those who had it."""
        self._tally.duplicates += 1
        tag = decode_tag(route.tag)
        for sieve in route.sieves:
            if sieve.wish.is_met_by(route.origin, route.type, tag):
                sieve.counts[DUPLICATE] += 1
        self._discard(route, sequence, DUPLICATE)

    def _discard(self, route: Route, sequence: int, outcome: str) -> None:
        """Say of a sample why it was not taken, if anybody wants to know."""
        trace = self._office.trace
        if trace is not None:
            subject = self._office.names.get(route.type, f"/type/{route.type}")
            self._office.hand(trace, Discarded(outcome, subject, route.origin, sequence))

    def _open(self, key: bytes) -> Route | None:
        """Enter a producer; None: no component is concerned with what it sends."""
        tally = self._tally
        origin = key[:ORIGIN_BYTES]
        type = int.from_bytes(key[TYPE_OFFSET:], "big")
        if not (self._office.is_stateless or self.is_wanted(type)):
            tally.unwanted += 1
            if len(self._passed_by) >= PASSED_BY_MAX:
                self._passed_by.clear()
            self._passed_by.add(key)
        elif int.from_bytes(key[ORIGIN_BYTES:TYPE_OFFSET], "big") != GATEWAY_PORT:
            tally.refused_port += 1
        elif origin.startswith(self._office.node):
            tally.own += 1
        else:
            if len(self.routes) >= PRODUCERS_HEARD_MAX:
                del self.routes[next(iter(self.routes))]
            route = self.routes[key] = Route(origin, type)
            return route
        return None

    def _renew(self, route: Route) -> None:
        """Look again who wants the samples of a route."""
        if self._office.is_stateless:
            sieves = self.all_sieves()
        else:
            tag = decode_tag(route.tag)
            everything = self.sieves.get(_EVERYTHING, []) if route.type else []
            sieves = [*self.sieves.get(route.type, []), *everything]
            sieves = [one for one in sieves if one.wish.is_met_by(route.origin, route.type, tag)]
        route.sieves = sieves
        route.consumers = sum(len(sieve.members) for sieve in sieves)
        route.version = self._version

    def _steps_to(self, route: Route) -> int:
        """Tell how far away a producer is: in this node, process, host, on the LAN, or beyond."""
        if route.origin.startswith(self._office.node):
            return 0
        return _BEYOND if route.peer is None else _STEPS.get(route.peer.link, _BEYOND - 1)

    def _source_of(self, route: Route, peer: Peer) -> Source:
        node = route.origin[:NODE_BYTES]
        if not peer.key.startswith(node):
            return self._office.source_of(node)  # Somebody passes it on.
        route.peer = peer
        return peer.source
