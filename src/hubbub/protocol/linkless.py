"""What is wanted and not sent, because no link leads there that both sides allow: told, on both.

Each side finds out by itself, from what the other declares and from the links that are open. Where
the lists have nothing in common that is told at once. Else a link may still be opening, and it is
told when none has come for a while (decision 0041).
"""

from collections.abc import Iterator
from typing import NamedTuple

from hubbub.events import NoCommonLink
from hubbub.limits import LINKLESS_PATIENCE
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.matches import Matches
from hubbub.protocol.outgoing import Outgoing
from hubbub.protocol.peers import Peer
from hubbub.protocol.state import State
from hubbub.wire.header import BEST_EFFORT, RELIABLE
from hubbub.wire.wishes import INPROC, Links, combine, decode_links, framed, may_hand_over


class Case(NamedTuple):
    """A subject that one side wants and cannot get from the other."""

    peer: bytes
    subject: str
    published: Links
    wanted: Links
    is_publisher: bool  # Whether the peer is who publishes it.
    cls: int  # Of streams: what is reliable takes no datagrams.


class Linkless:
    """All such cases of one node on one channel."""

    def __init__(
        self, endpoint: Endpoint, peers: dict[bytes, Peer], outgoing: Outgoing, matches: Matches,
        state: State,
    ) -> None:  # fmt: skip
        self.endpoint = endpoint
        self.peers = peers
        self.outgoing = outgoing
        self.matches = matches
        self.state = state
        self.cases: dict[Case, int | None] = {}  # When each is to be told; None: it was.
        self._look_ns: int | None = None

    def look_later(self, now: int) -> None:
        """Look again before time passes: something has changed."""
        self._look_ns = now

    def look(self, now: int) -> None:
        """See what cannot be had by now."""
        self._look_ns = None
        current = dict.fromkeys([*self._subscribers(), *self._publishers()])
        for case in [case for case in self.cases if case not in current]:
            del self.cases[case]
        for case in current:
            if case not in self.cases:
                patience_ns = 0 if self._is_hopeless(case) else LINKLESS_PATIENCE
                self.cases[case] = now + patience_ns

    def _subscribers(self) -> Iterator[Case]:
        """Name who cannot get what from us."""
        for peer in self.peers.values():
            for number, wish in sorted(peer.debt.unserved) if peer.is_present else ():
                topic = self.outgoing.topics.get(number)
                if topic is not None and topic.subject in self.state.topics:
                    cls = RELIABLE if topic.is_reliable else BEST_EFFORT
                    yield Case(peer.key, topic.subject, topic.links, wish, False, cls)

    def _publishers(self) -> Iterator[Case]:
        """Name what we cannot get from whom."""
        wishes = self.state.interest.wishes.items()
        if len(wishes) == 1 and not any(one.declared.has_links for one in self.peers.values()):
            return
        for subject, peers in self.matches.publishing.items():
            wanted = [wish for wish, matcher in wishes if matcher.match(subject)]
            for peer in peers.values() if wanted else ():
                publication = peer.declared.publications[subject]
                published, cls = decode_links(publication.links), publication.stream
                for wish in wanted:
                    if peer.links and not self._is_reached(peer, published, wish, cls):
                        yield Case(peer.key, subject, published, wish, True, cls)

    def _is_reached(self, peer: Peer, published: Links, wanted: Links, cls: int) -> bool:
        """Tell whether a link that both sides allow leads to a peer."""
        if not (published or wanted):
            return True
        if peer.is_nearby and may_hand_over(published, wanted):
            return True
        links = framed(combine(published, wanted), cls)
        return bool(self.outgoing.grants.link_to(peer, links))

    def _is_hopeless(self, case: Case) -> bool:
        """Tell whether no link could ever do, by what both insist on and what both have."""
        peer = self.peers[case.peer]
        links = combine(case.published, case.wanted)
        allowed = [one for one in links if one == INPROC or one in framed(links, case.cls)]
        return not any(one in self.endpoint.links and one in peer.links for one in allowed)

    def advance(self, now: int) -> None:
        """Tell what has lasted."""
        if self._look_ns is not None:
            self.look(now)
        for case, due_ns in list(self.cases.items()):
            peer = self.peers.get(case.peer)
            if due_ns is None or now < due_ns or peer is None:
                continue
            self.cases[case] = None
            self.endpoint.counters["no_common_link"] += 1
            self.endpoint.events.append(
                NoCommonLink(
                    self.endpoint.channel, peer.source, case.subject, case.published, case.wanted,
                    case.is_publisher, self._is_hopeless(case),
                )
            )  # fmt: skip

    def deadline(self) -> int | None:
        """Return when `advance` has something to do."""
        times = [due_ns for due_ns in (*self.cases.values(), self._look_ns) if due_ns is not None]
        return min(times, default=None)
