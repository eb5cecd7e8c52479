"""Who is there, as this node knows it, and who of them is closest to a key.

What is told of a member is ordered by its incarnation, which it alone raises; of one incarnation
the worse news count. A member that is suspected still counts: only its death moves services. One
that has come just now does not count yet, lest one that comes and goes takes services along each
time; but who is new itself believes all others to be old.
"""

from enum import IntEnum
from heapq import heappop, heappush, nsmallest
from zlib import crc32

from hubbub.limits import MEMBERS_MAX, SERVICES_MAX
from hubbub.protocol.rendezvous.placement import Placement, XorPlacement
from hubbub.protocol.rendezvous.ring import Ring
from hubbub.protocol.rendezvous.seat import NEVER, Place, Seat
from hubbub.wire.services import Record, node_key


class State(IntEnum):
    """How a member is; the higher of one incarnation counts."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


class News(IntEnum):
    """What has happened to a member."""

    CAME = 0
    RESTARTED = 1
    SUSPECTED = 2
    CLEARED = 3
    DIED = 4
    WENT = 5
    SETTLED = 6
    LOOKED_ON = 7


_BAD_NEWS = {State.SUSPECT: News.SUSPECTED, State.DEAD: News.DIED, State.LEFT: News.WENT}


class Member:
    """Another node."""

    __slots__ = (
        "changed_ns", "heard_ns", "incarnation", "is_guest", "is_settled", "life", "node", "number",
        "place",
        "since_ns", "state", "weight",
    )  # fmt: skip

    def __init__(self, record: Record, place: Place, now: int) -> None:
        self.node = record.node
        self.number = int.from_bytes(node_key(record.node), "big")
        self.place = place
        self.incarnation = record.incarnation
        self.life = record.life
        self.state = State(record.state)
        self.weight = record.weight
        self.since_ns = now
        self.changed_ns = now
        self.heard_ns = now  # The last sign of life.
        self.is_settled = False
        self.is_guest = False  # It told of itself that it had left, and never that it was here.

    @property
    def is_present(self) -> bool:
        """Tell whether it is here, as far as is known."""
        return self.state <= State.SUSPECT

    def record(self) -> Record:
        """Return what is told of it."""
        host, port = self.place
        return Record(
            self.node, host, port, self.incarnation, self.life, int(self.state), self.weight
        )


class View:
    """All members that this node knows, itself apart."""

    def __init__(self, seat: Seat, placement: Placement, stable_ns: int, weight: int = 1) -> None:
        self.seat = seat
        self.placement = placement
        self.weight = weight
        self.members: dict[bytes, Member] = {}
        self.version = 0  # Changes whenever somebody else may be closest.
        self._number = int.from_bytes(node_key(seat.node), "big")
        self._started_ns = seat.now
        self.stable_ns = stable_ns
        self._settling: list[tuple[int, bytes]] = []
        self._closest: dict[bytes, bytes] = {}  # To keys of services, as long as nobody
        self._closest_others: dict[bytes, bytes] = {}  # comes or goes; ourselves left out.
        self._digest = 0
        self._present: list[Member] = []  # In this version:
        self._present_version = -1
        self._nodes: dict[int, bytes] = {}  # By the numbers of their keys:
        self._here = Ring()  # those of all who are here,
        self._settled = Ring()  # and of those who have been for a while.
        self._cached_version = -1

    @property
    def due_ns(self) -> int:
        """Return when the next newcomer counts."""
        return self._settling[0][0] if self._settling else NEVER

    def present(self) -> list[Member]:
        """Return all who are here; the list is the same as long as nobody comes or goes."""
        if self._present_version != self.version:
            self._present_version = self.version
            self._present = [member for member in self.members.values() if member.is_present]
        return self._present

    def is_present(self, node: bytes) -> bool:
        """Tell whether a node is here; we are."""
        member = self.members.get(node)
        return node == self.seat.node or (member is not None and member.is_present)

    def place_of(self, node: bytes) -> Place | None:
        """Return where a node can be reached."""
        member = self.members.get(node)
        return None if member is None else member.place

    def at(self, place: Place) -> Member | None:
        """Return who is at an address: who is here, else one that seems to be dead."""
        found = None
        for member in self.members.values():
            if member.place == place and member.state is not State.LEFT:
                if member.is_present:
                    return member
                found = member
        return found

    def apply(self, now: int, record: Record, place: Place) -> News | None:
        """Take what is told of another node; None: it is known already, or old."""
        member = self.members.get(record.node)
        if member is None:
            return self._enter(now, record, place)
        told = (record.incarnation, record.state)
        if told <= (member.incarnation, int(member.state)):
            return None
        was_present, life, was_met = member.is_present, member.life, not member.incarnation
        self._fold(member)
        was, member.state = member.state, State(record.state)
        member.is_guest = member.state is State.LEFT and (was_met or member.is_guest)
        member.incarnation = record.incarnation
        member.changed_ns = now
        self._fold(member)
        if not member.is_present:
            self.version += 1
            self._here.discard(member.number)
            self._settled.discard(member.number)
            news = News.LOOKED_ON if member.is_guest else _BAD_NEWS[member.state]
            return news if was_present else None
        self.version += record.weight != member.weight
        member.place, member.life, member.weight = place, record.life, record.weight
        if member.state is State.ALIVE:  # Only it can have said so.
            member.heard_ns = now
        if not was_present or life != record.life:
            self._begin(now, member)
            return News.RESTARTED if was_present else News.CAME
        if member.state is State.SUSPECT:
            return News.SUSPECTED
        return News.CLEARED if was is State.SUSPECT else None

    def _enter(self, now: int, record: Record, place: Place) -> News | None:
        if record.state > State.SUSPECT or len(self.members) >= MEMBERS_MAX:
            return None
        member = self.members[record.node] = Member(record, place, now)
        self._nodes[member.number] = member.node
        self._fold(member)
        self._begin(now, member)
        return News.CAME

    def _fold(self, member: Member) -> None:
        """Take a member out of the digest, or put it in, if it is here."""
        if member.is_present:
            self._digest ^= fold(member.node, member.incarnation)

    def _begin(self, now: int, member: Member) -> None:
        """Note that a member is new, or came back."""
        member.since_ns = now
        member.is_settled = now - self._started_ns < self.stable_ns
        self.version += 1
        self._here.add(member.number)
        if member.is_settled:
            self._settled.add(member.number)
        else:
            self._settled.discard(member.number)
            heappush(self._settling, (now + self.stable_ns, member.node))

    def settle(self, now: int) -> list[Member]:
        """Let those count who have been here long enough."""
        settled = []
        while self._settling and self._settling[0][0] <= now:
            member = self.members.get(heappop(self._settling)[1])
            is_due = member is not None and now - member.since_ns >= self.stable_ns
            if member is not None and is_due and member.is_present and not member.is_settled:
                member.is_settled = True
                self._settled.add(member.number)
                self.version += 1
                settled.append(member)
        return settled

    def forget(self, node: bytes) -> None:
        """Let go of one who is long gone."""
        member = self.members.pop(node, None)
        if member is not None:
            self._fold(member)
            del self._nodes[member.number]
            self._here.discard(member.number)
            self._settled.discard(member.number)
            self.version += member.is_present

    # Who is closest.

    def measure(self, key: bytes, node: bytes) -> float:
        """Return how far a node is from a key, whether it is here or not."""
        number, weight = self._number, self.weight
        if node != self.seat.node:
            member = self.members.get(node)
            number = member.number if member else int.from_bytes(node_key(node), "big")
            weight = member.weight if member else 1
        return self.placement.measure(int.from_bytes(key, "big"), number, weight)

    def is_closer(self, key: bytes, node: bytes, than: bytes) -> bool:
        """Tell whether one node is strictly closer to a key than another; ids break a tie."""
        return (self.measure(key, node), node) < (self.measure(key, than), than)

    def closest(self, key: bytes) -> bytes | None:
        """Return who manages a service; None: we leave, and nobody else is here."""
        found = self._closest.get(key) if self._cached_version == self.version else None
        return found or self._keep(self._closest, key, self.rank(key, 1))

    def _keep(self, cache: dict[bytes, bytes], key: bytes, ranked: list[bytes]) -> bytes | None:
        """Remember the first of those found, as long as nobody comes or goes."""
        if self._cached_version != self.version or len(cache) > SERVICES_MAX:
            self._cached_version = self.version
            self._closest.clear()
            self._closest_others.clear()
        if not ranked:
            return None
        cache[key] = ranked[0]
        return ranked[0]

    @property
    def age_ns(self) -> int:
        """Return how long we have been here."""
        return self.seat.now - self._started_ns

    @property
    def is_sure(self) -> bool:
        """Tell whether all that there is for us to know has been told, as far as time can say."""
        return self.age_ns >= 3 * self.stable_ns

    @property
    def counts_us(self) -> bool:
        """Tell whether we have been here long enough to count ourselves."""
        return self.seat.now - self._started_ns >= self.stable_ns

    def closest_to_ask(self, key: bytes) -> bytes | None:
        """Return whom our own requests go to: while we are new, we do not count ourselves."""
        if self.counts_us:
            return self.closest(key)
        found = self._closest_others.get(key) if self._cached_version == self.version else None
        if found is None:
            others = [node for node in self.rank(key, 2) if node != self.seat.node]
            found = self._keep(self._closest_others, key, others)
        return found or self.closest(key)

    def is_gone(self, node: bytes, stamp: int) -> bool:
        """Tell whether who asked for something then is known to have died, or begun anew, since."""
        member = self.members.get(node)
        if member is None or member.is_guest:
            return False
        return not member.is_present or stamp < member.incarnation

    def has_left(self, node: bytes) -> bool:
        """Tell whether a node said that it goes."""
        member = self.members.get(node)
        return member is not None and member.state is State.LEFT

    def is_dead(self, node: bytes) -> bool:
        """Tell whether a node is taken for dead, and did not say that it goes."""
        member = self.members.get(node)
        return member is not None and member.state is State.DEAD

    def rank(self, key: bytes, count: int, *, is_settled: bool = True) -> list[bytes]:
        """Return the closest nodes to a key, the closest first; newcomers only if asked for."""
        number, measure = int.from_bytes(key, "big"), self.placement.measure
        if type(self.placement) is XorPlacement:  # Who is made from it may measure otherwise.
            return self._rank_by_xor(number, count, self._settled if is_settled else self._here)
        ranked: list[tuple[float, bytes]] = [
            (measure(number, one.number, one.weight), one.node)
            for one in self.members.values()
            if one.state <= State.SUSPECT and (one.is_settled or not is_settled)
        ]
        if self.seat.may_manage:
            ranked.append((measure(number, self._number, self.weight), self.seat.node))
        return [node for _, node in nsmallest(count, ranked)]

    def _rank_by_xor(self, key: int, count: int, ring: Ring) -> list[bytes]:
        """Rank by the measure for which there is no need to look at everybody."""
        nearest = ring.nearest(key, count)
        ranked = [(number ^ key, self._nodes[number]) for number in nearest]
        if self.seat.may_manage:
            ranked.append((self._number ^ key, self.seat.node))
            ranked.sort()
        return [node for _, node in ranked[:count]]

    @property
    def digest(self) -> int:
        """Return what is the same for all who know the same members."""
        return self._digest


def fold(node: bytes, incarnation: int) -> int:
    """Return what a member adds to the digest of a view."""
    data = node + incarnation.to_bytes(8, "big")
    return crc32(data) << 32 | crc32(data[::-1])
