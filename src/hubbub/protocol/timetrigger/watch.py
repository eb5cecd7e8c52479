"""What a node that looks on has heard of producers and consumers elsewhere."""

from typing import Any, NamedTuple

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
        """Note who wants what; of one that was withdrawn, that it was."""
        key = interest.node, interest.port, interest.type
        before = self._interests.get(key)
        if before is not None and before.interest.version >= interest.version:
            return
        is_wanted = interest.wants and interest.mode != OBSERVE
        expires_ns = now + interest.lease_ms * MS if is_wanted else now
        _enter(self._interests, key, SeenInterest(interest, source, expires_ns))

    def hear_offer(self, now: int, offer: Offer, source: Source) -> None:
        """Note who makes what; of one that has ended, that it has."""
        key = offer.node, offer.port
        before = self._offers.get(key)
        if before is not None and before.offer.version >= offer.version:
            return
        expires_ns = now + _OFFER_LASTS if offer.is_open else now
        _enter(self._offers, key, SeenOffer(offer, source, expires_ns))

    def forget_node(self, node: bytes) -> None:
        """Let go of a node that has left: one that returns may count from less."""
        self._interests = {key: one for key, one in self._interests.items() if key[0] != node}
        self._offers = {key: one for key, one in self._offers.items() if key[0] != node}

    def interests(self, now: int) -> list[SeenInterest]:
        """Return the interests that hold."""
        return [one for one in self._interests.values() if one.expires_ns > now]

    def offers(self, now: int) -> list[SeenOffer]:
        """Return the producers that were heard of lately."""
        return [one for one in self._offers.values() if one.expires_ns > now]


def _enter(table: dict[Any, Any], key: Any, seen: SeenInterest | SeenOffer) -> None:
    """Enter what was heard last behind all else, and let go of the oldest."""
    table.pop(key, None)
    table[key] = seen
    if len(table) > INTERESTS_MAX:
        del table[next(iter(table))]
