"""What a node that looks on has heard of producers and consumers elsewhere."""

from typing import NamedTuple

from hubbub.limits import INTERESTS_MAX, MS, OFFER_INTERVAL
from hubbub.message import Source
from hubbub.wire.timed import OBSERVE, Interest, Offer

_OFFER_LASTS = 4 * OFFER_INTERVAL


class SeenInterest(NamedTuple):
    """An interest, who has it, and until when."""

    interest: Interest
    source: Source
    expires_ns: int


class SeenOffer(NamedTuple):
    """An offer, whose it is, and until when it is believed."""

    offer: Offer
    source: Source
    expires_ns: int


class Watch:
    """The interests and offers of a channel."""

    def __init__(self) -> None:
        self._interests: dict[tuple[bytes, int, int], SeenInterest] = {}
        self._offers: dict[tuple[bytes, int], SeenOffer] = {}

    def hear_interest(self, now: int, interest: Interest, source: Source) -> None:
        """Note who wants what."""
        key = interest.node, interest.port, interest.type
        before = self._interests.pop(key, None)
        if before is not None and before.interest.version > interest.version:
            self._interests[key] = before
        elif interest.wants and interest.mode != OBSERVE:
            seen = SeenInterest(interest, source, now + interest.lease_ms * MS)
            self._interests[key] = seen
            if len(self._interests) > INTERESTS_MAX:
                del self._interests[next(iter(self._interests))]

    def hear_offer(self, now: int, offer: Offer, source: Source) -> None:
        """Note who makes what."""
        key = offer.node, offer.port
        before = self._offers.pop(key, None)
        if before is not None and before.offer.version > offer.version:
            self._offers[key] = before
        elif offer.is_open:
            self._offers[key] = SeenOffer(offer, source, now + _OFFER_LASTS)
            if len(self._offers) > INTERESTS_MAX:
                del self._offers[next(iter(self._offers))]

    def interests(self, now: int) -> list[SeenInterest]:
        """Return the interests that hold."""
        return [one for one in self._interests.values() if one.expires_ns > now]

    def offers(self, now: int) -> list[SeenOffer]:
        """Return the producers that were heard of lately."""
        return [one for one in self._offers.values() if one.expires_ns > now]
