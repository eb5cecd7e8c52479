"""The producers of a node: who wants their samples, where these go, and what is told of them."""

from collections.abc import Callable
from typing import Final

from hubbub.limits import OFFER_INTERVAL, OFFER_SPACING, TIMED_REPEAT_INTERVAL, TIMED_REPEATS
from hubbub.protocol.burst import Address
from hubbub.protocol.delivery import DATAGRAM
from hubbub.protocol.timetrigger.interests import LOCAL, NEVER
from hubbub.protocol.timetrigger.office import Office
from hubbub.protocol.timetrigger.producer import Due, Producer
from hubbub.wire.header import BEST_EFFORT, OFFER, RESPONSE
from hubbub.wire.timed import OBSERVE, Interest, Response, encode_response, encode_timed
from hubbub.wire.wishes import Links, framed

_NO_PRODUCERS: Final[list[Producer]] = []


class Again:
    """A sample that is sent more than once: whoever misses one frame has the next.

    Copies are spread over the time until the next tick may be, so that what takes one of them need
    not take all.
    """

    def __init__(self, now: int, producer: Producer, response: Response) -> None:
        copies = producer.options.copies
        self.producer = producer
        self.response = response
        self.left = copies - 1
        self.gap_ns = max(producer.plan.tick_ns, producer.plan.spacing_ns) // copies
        self.due_ns = now + self.gap_ns if self.left else NEVER

    def take(self) -> None:
        """Note that one of them is sent."""
        self.left -= 1
        self.due_ns = self.due_ns + self.gap_ns if self.left else NEVER


class Supply:
    """The producers of one node on one channel."""

    def __init__(self, office: Office) -> None:
        self.producers: dict[int, list[Producer]] = {}  # By type.
        self.on_namesake: Callable[[int, Interest, Producer], None] = lambda *_: None
        self._office = office

    def add(self, now: int, producer: Producer) -> None:
        """Offer a producer to everybody."""
        self.producers.setdefault(producer.type, []).append(producer)
        producer.offers_left = TIMED_REPEATS + 1 if self._is_offered(producer) else 0
        producer.offer_ns = now if producer.offers_left else NEVER
        producer.plan_offer()
        self._office.plan(producer)

    def remove(self, producer: Producer) -> None:
        """Make nothing by it any more, and say so."""
        producer.stop()
        self._office.agenda.remove(producer)
        self._drop(producer)
        if self._is_offered(producer):
            self._office.send_all(OFFER, encode_timed(producer.offer()))

    def _is_offered(self, producer: Producer) -> bool:
        """Tell whether others are told of a producer; of a stateless one, those who look on."""
        is_silent = self._office.is_stateless and not producer.interests.observers
        return not (is_silent or producer.options.is_inside)

    def _drop(self, producer: Producer) -> None:
        self.producers[producer.type].remove(producer)
        if not self.producers[producer.type]:
            del self.producers[producer.type]

    def rename(self, now: int, producer: Producer, type: int) -> None:
        """Offer a producer under the type that others know its subject by."""
        self._drop(producer)
        producer.rename(type)
        self.add(now, producer)

    def remind(self, now: int, producer: Producer) -> None:
        """Offer a producer again, to somebody who knows its subject by another type."""
        if self._is_offered(producer):
            producer.offer_ns = min(producer.offer_ns, now + OFFER_SPACING)
            producer.plan_offer()
            self._office.plan(producer)

    def all(self) -> list[Producer]:
        """Return the producers of all types."""
        return [one for some in self.producers.values() for one in some]

    # Interests.

    def take_interest(self, now: int, interest: Interest, via: bytes) -> None:
        """Tell the producers that it concerns of an interest."""
        tally = self._office.tally
        if self._office.is_stateless:  # Every producer is handed it, and looks for itself.
            concerned = self.all()
        elif interest.type:
            concerned = self.producers.get(interest.type, _NO_PRODUCERS)
        else:  # Nobody makes what is unknown.
            concerned = self.all() if interest.mode == OBSERVE else _NO_PRODUCERS
        if via != LOCAL:
            concerned = [one for one in concerned if not one.options.is_inside]
        tally.handed += len(concerned)
        if not concerned:
            tally.unwanted += 1
            return
        tally.relayed += 1
        for producer in concerned:
            if producer.is_namesake(interest):
                self.on_namesake(now, interest, producer)
            else:
                self._tell(now, producer, interest, via)

    def _tell(self, now: int, producer: Producer, interest: Interest, via: bytes) -> None:
        refused, rounded = producer.interests.refused, producer.refused_periods
        once = producer.refused_once
        self._take_turn(now, producer)
        if producer.take_interest(now, interest, via):
            is_observed = bool(producer.interests.observers)
            if is_observed and self._is_offered(producer):
                producer.offer_ns = min(producer.offer_ns, now + OFFER_SPACING)
        reports = self._office.reports
        if producer.interests.refused > refused:
            reports.refused(now, producer, interest, "full")
        if producer.refused_periods > rounded:
            reports.refused(now, producer, interest, "floor")
        if producer.refused_once > once:
            reports.refused(now, producer, interest, "once")
        producer.plan_offer()
        self._office.plan(producer)

    # Time.

    def advance(self, now: int, producer: Producer) -> None:
        """Have a producer make what is due."""
        self._take_turn(now, producer)
        if now >= producer.offer_ns:
            self._office.send_all(OFFER, encode_timed(producer.offer()))
            producer.offers_left = max(0, producer.offers_left - 1)
            if producer.offers_left:
                producer.offer_ns = now + TIMED_REPEAT_INTERVAL
            else:
                is_observed = bool(producer.interests.observers)
                producer.offer_ns = now + OFFER_INTERVAL if is_observed else NEVER
        producer.plan_offer()

    def _take_turn(self, now: int, producer: Producer) -> None:
        skipped = producer.skipped
        self._hand(producer.advance(now))
        if producer.skipped > skipped:
            self._office.reports.skipped(now, producer, producer.skipped - skipped)

    def follow(self, producer: Producer) -> None:
        """Have a producer make what waited for the sample before."""
        self._hand(producer.follow())

    def clock_changed(self, now: int) -> None:
        """Plan anew: what was planned is due at other times now."""
        for producer in self.all():
            producer.clock_changed(now)
            self._office.plan(producer)

    def forget_peer(self, now: int, key: bytes) -> None:
        """Let go of what a peer wanted that has left."""
        for producer in self.all():
            producer.forget_peer(now, key)

    def send(self, now: int, producer: Producer, response: Response) -> None:
        """Send a sample to those outside who want it, as often as it is to be sent."""
        if producer.options.copies > 1:
            self._office.plan(Again(now, producer, response))
        self._send(now, producer, response)

    def send_again(self, now: int, again: Again) -> None:
        """Send a copy of a sample, unless its producer has stopped, or made another meanwhile.

        That can be where the plan has changed: whoever is new would take the old one for its first.
        """
        again.take()
        producer = again.producer
        if producer.is_open and again.response.sequence == producer.sequence:
            self._send(now, producer, again.response)

    def _send(self, now: int, producer: Producer, response: Response) -> None:
        destination = self._route(producer)
        if destination != LOCAL:
            self._office.send(now, destination, RESPONSE, encode_response(response))

    def _route(self, producer: Producer) -> Address | bytes | None:
        """Choose where samples go; LOCAL: nobody outside wants them."""
        ways, peers = self._office.endpoint.ways, self._office.peers
        if producer.options.is_inside:
            return LOCAL
        if self._office.is_stateless:
            return ways.everybody
        keys = [key for key in producer.receivers if key in peers and not peers[key].lost_ns]
        if not keys:
            return LOCAL
        if producer.options.links:
            return self._route_over(producer.options.links, keys)
        return peers[keys[0]].reach if len(keys) == 1 else ways.route(keys, ())

    def _route_over(self, links: Links, keys: list[bytes]) -> Address | bytes | None:
        """Choose the same for samples that keep to links: the first that leads to each."""
        peers, allowed = self._office.peers, framed(links, BEST_EFFORT)
        found = {key: self._office.link_to(peers[key], allowed) for key in keys}
        chosen = {key: link for key, link in found.items() if link}
        addresses = [peers[key].address for key, link in chosen.items() if link == DATAGRAM]
        if not chosen:
            return LOCAL
        if len(addresses) == 1 == len(chosen):
            return addresses[0]
        return self._office.endpoint.ways.choose(chosen, (), addresses)

    def _hand(self, due: Due | None) -> None:
        """Let the shell make a sample."""
        if due is not None:
            self._office.hand(due.producer.taker, due)
