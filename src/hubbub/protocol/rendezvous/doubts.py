"""Subscribers of whom it is not known whether they live: those taken for dead, and strangers.

Who is taken for dead is struck off the list, and told: if that was wrong, it objects, and
subscribes anew. By itself it would hear of it in its turn of pings, which in a town of twenty takes
ten seconds.

A list that comes from elsewhere may name nodes that this one never heard of. They may have died
before it came, and then nobody will ever tell it so: their lines would stay for a whole lease. So
they are asked, and a line stays only if its node is heard within the time in which a death is
noticed. (Not by entering them into the view, as one would: they might be taken for managers.)
"""

from collections.abc import Iterable

from hubbub.limits import SERVICE_LEASE
from hubbub.protocol.rendezvous.listing import Line, Listing
from hubbub.protocol.rendezvous.seat import Place
from hubbub.protocol.rendezvous.view import View
from hubbub.wire.services import BARE


class Doubts:
    """Whom the manager of this node is to ask whether they live."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.to_ask: dict[bytes, Place] = {}  # Emptied by who asks them.
        self.strangers: set[bytes] = set()

    def look_through(self, now: int, listing: Listing, *, are_we_on_it: bool) -> None:
        """Take off a list that came from elsewhere who is gone, and doubt whom we do not know.

        We may stand on it by an earlier life, of which nobody will ever tell us the end.
        """
        if not are_we_on_it:
            listing.drop(now, self._view.seat.node)
        for line in list(listing):
            if self._view.is_gone(line.node, line.stamp):
                self.strike_off(now, listing, line.node)
            elif self._is_stranger(line):
                listing.shorten(line, now + 2 * self._view.stable_ns)
                self.strangers.add(line.node)
                if line.place is not None:
                    self.to_ask[line.node] = line.place

    def _is_stranger(self, line: Line) -> bool:
        is_known = line.node in self._view.members or line.node == self._view.seat.node
        return not is_known and not line.flags & BARE

    def strike_off(self, now: int, listing: Listing, node: bytes) -> None:
        """Take one who is gone off a list; if it is taken for dead, it is to be told so."""
        is_dead = self._view.is_dead(node)
        listing.drop(now, node, is_absent=is_dead)
        place = self._view.place_of(node)
        if is_dead and place is not None:
            self.to_ask[node] = place

    def heard(self, now: int, node: bytes, listings: Iterable[Listing]) -> None:
        """Hear a stranger: it lives."""
        self.strangers.discard(node)
        for listing in listings:
            line = listing.find(node)
            if line is not None:
                line.expires_ns = max(line.expires_ns, now + SERVICE_LEASE)

    def ended(self, nodes: Iterable[bytes]) -> None:
        """Forget those whose lines have ended."""
        self.strangers.difference_update(nodes)
