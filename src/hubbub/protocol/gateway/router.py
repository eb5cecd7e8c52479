"""Over which of its links a router passes a frame on, by what the header says (RODOS, seed 000).

A *simple* router looks at the receiver field alone: nobody (-2), one node, or many (-1), which is
everywhere. An *intelligent* one looks at the bitmap: a link gets a copy if a node of a set bit is
behind it, and one copy however many of them are. A frame that is for nobody goes nowhere: RODOS
says so in its notes, and its gateway forgot it. Who is behind which link is learned from what comes
from there, and forgotten after a while of silence; a node of which nothing is known may be behind
any link. Nothing goes back where it came from, nor further than its hops, nor twice: a frame is
known by all that tells it from others, not by its time alone, because clocks step and two frames
may share a tick.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from hubbub.limits import ROUTE_AGE, ROUTED_MAX, ROUTES_MAX
from hubbub.wire.header import MANY, NOBODY

SIMPLE: Final = "simple"
INTELLIGENT: Final = "intelligent"

Link = TypeVar("Link")


class Crossing(NamedTuple):
    """What a router must know of a frame.

    `is_open` says that there are receivers beyond the bitmap. `hops` is how many more routers it
    may cross, this one included.
    """

    receiver: int
    bitmap: int
    hops: int
    is_open: bool = False


class Route(NamedTuple, Generic[Link]):
    """Where a node is: behind this link, as far as was known then."""

    link: Link
    heard_ns: int


class Router(Generic[Link]):
    """Decides for the frames of all links of one router."""

    def __init__(
        self, links: Iterable[Link], *, mode: str = INTELLIGENT, age_ns: int = ROUTE_AGE
    ) -> None:
        assert mode in (SIMPLE, INTELLIGENT)
        self.links = tuple(links)
        self.mode = mode
        self.age_ns = age_ns
        self.routes: dict[int, Route[Link]] = {}  # By the index of the node; the newest is last.
        self.passed: Counter[Link] = Counter()  # Copies, by the link that they went over.
        self.drops: Counter[str] = Counter()
        self._known: OrderedDict[Hashable, None] = OrderedDict()

    def is_new(self, identity: Hashable) -> bool:
        """Tell whether a frame comes for the first time, over whichever link, and note it."""
        is_new = identity not in self._known
        self._known[identity] = None
        if len(self._known) > ROUTED_MAX:
            self._known.popitem(last=False)
        return is_new

    def learn(self, now: int, index: int, link: Link) -> None:
        """Note that the node of this index was heard from a link."""
        self.routes.pop(index, None)
        self.routes[index] = Route(link, now)
        if len(self.routes) > ROUTES_MAX:
            del self.routes[next(iter(self.routes))]

    def forget(self, index: int) -> None:
        """Note that a node is gone."""
        self.routes.pop(index, None)

    def expire(self, now: int) -> list[int]:
        """Forget who was silent for too long; return who that is."""
        silent = [i for i, route in self.routes.items() if now - route.heard_ns > self.age_ns]
        for index in silent:
            del self.routes[index]
        return silent

    def route(self, now: int, frame: Crossing, link: Link) -> tuple[Link, ...]:
        """Return the links that a new frame from `link` goes on over, each once."""
        reason = self._refuse(frame)
        if reason:
            self.drops[reason] += 1
            return ()
        self.expire(now)
        wanted = self._wanted(frame)
        chosen = tuple(one for one in self.links if one != link and one in wanted)
        if not chosen:
            self.drops["not_beyond"] += 1
        self.passed.update(chosen)
        return chosen

    def _refuse(self, frame: Crossing) -> str:
        if frame.receiver == NOBODY or not (frame.bitmap or frame.is_open):
            return "nobody"
        if frame.hops < 1:
            return "hops"
        return ""

    def _wanted(self, frame: Crossing) -> set[Link]:
        """Return all links behind which a receiver is, or may be."""
        if frame.is_open and (self.mode == INTELLIGENT or frame.receiver == MANY):
            return set(self.links)
        if self.mode == INTELLIGENT:
            return self._behind(_bits(frame.bitmap))
        return set(self.links) if frame.receiver == MANY else self._behind([frame.receiver])

    def _behind(self, indices: Iterable[int]) -> set[Link]:
        links: set[Link] = set()
        for index in indices:
            route = self.routes.get(index)
            if route is None:
                return set(self.links)
            links.add(route.link)
        return links


def _bits(bitmap: int) -> Iterator[int]:
    """Name the bits that are set."""
    while bitmap:
        lowest = bitmap & -bitmap
        yield lowest.bit_length() - 1
        bitmap ^= lowest
