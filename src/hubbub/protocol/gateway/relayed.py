"""Topics that came by a gateway: how far we are is known once, by whichever gateway they come.

Two gateways may join the same two networks, and one may take over from the other, or do so by
mistake while that is still at it. What orders messages is the sequence that their origin gave them,
so all topics of one (origin, subject) share one place: what one of them brought, another does not
bring again, and where one stopped and another goes on, what is between them is a hole.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from hubbub.limits import PLACES_MAX
from hubbub.message import Source
from hubbub.protocol.topics import IncomingTopic
from hubbub.wire.control import Topic
from hubbub.wire.header import split_key


class Place:
    """How far we are with a subject of an origin, and where the hole before that began, if any."""

    __slots__ = ("expected", "hole_first", "hole_reason")

    def __init__(self) -> None:
        self.expected: int | None = None
        self.hole_first = 0
        self.hole_reason = ""


class RelayedTopic(IncomingTopic):
    """A topic of an origin elsewhere, as one gateway passes it on."""

    __slots__ = ("place",)

    def __init__(self, declared: Topic, place: Place, *others: Any, **options: Any) -> None:
        source = Source(declared.origin_name, *split_key(declared.origin))
        self.place = Place()  # Who begins anew sets that; the shared one stays as it is.
        super().__init__(declared.number, declared.subject, source, *others, **options)
        self.place = place
        self.hops = declared.hops

    @property
    def expected(self) -> int | None:
        """Return the sequence of the next message, by whichever gateway it comes."""
        return self.place.expected

    @expected.setter
    def expected(self, sequence: int | None) -> None:
        self.place.expected = sequence

    @property
    def hole_first(self) -> int:
        """Return where the open hole began: one that two gateways leave is one hole."""
        return self.place.hole_first

    @hole_first.setter
    def hole_first(self, sequence: int) -> None:
        self.place.hole_first = sequence

    @property
    def hole_reason(self) -> str:
        """Return why it is one."""
        return self.place.hole_reason

    @hole_reason.setter
    def hole_reason(self, reason: str) -> None:
        self.place.hole_reason = reason


class Places:
    """All places of one core; bounded, and who was asked for last is forgotten last."""

    def __init__(self, is_here: Callable[[bytes], bool]) -> None:
        self.is_here = is_here  # Whether an origin is on this channel itself.
        self._places: OrderedDict[tuple[bytes, str], Place] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def find(self, origin: bytes, subject: str) -> Place:
        """Return the place of a subject of an origin."""
        place = self._places.pop((origin, subject), None) or Place()
        self._places[origin, subject] = place
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)
        return place

    def keep(self, is_wanted: Callable[[str], bool]) -> None:
        """Forget what nobody here wants any more: what comes meanwhile is no hole."""
        for name in [name for name in self._places if not is_wanted(name[1])]:
            del self._places[name]
