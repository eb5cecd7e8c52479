"""Who wants samples of one producer, how often, and until when.

An interest is kept by its full origin, node and port: two consumers of one vehicle are two, and one
that goes takes only its own period away. It ends when it is withdrawn, when its node leaves, or
when its lease has run out; withdrawing is a courtesy, the lease is the truth. The version of each
is kept for a while after its end, so that a late or replayed frame cannot bring it back.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hubbub.limits import INTERESTS_MAX, INTERESTS_PER_NODE_MAX, MS
from hubbub.wire.timed import OBSERVE, Interest, Wanted, make_origin

NEVER: Final = 1 << 63
LOCAL: Final = b""  # Who asks is a component of this very node.


class Lease(NamedTuple):
    """One interest that holds."""

    version: int
    via: bytes  # The peer to send to; LOCAL: none.
    expires_ns: int
    mode: int
    wants: tuple[Wanted, ...]

    @property
    def periods_us(self) -> tuple[int, ...]:
        """Return how often samples are wanted."""
        if self.mode == OBSERVE:
            return ()
        return tuple(wanted.period_us for wanted in self.wants)


class Interests:
    """The interests in one producer."""

    def __init__(self) -> None:
        self.leases: dict[bytes, Lease] = {}
        self.periods: Counter[int] = Counter()  # How many consumers want each.
        self.receivers: Counter[bytes] = Counter()  # Peers, by how many interests.
        self.expires_ns = NEVER  # Not later than the first end of a lease.
        self.refused = 0  # For which there was no room.
        self.outdated = 0
        self._of_node: Counter[bytes] = Counter()
        self._ended: dict[bytes, int] = {}  # Versions of those that have ended, oldest first.

    def take(self, now: int, interest: Interest, via: bytes) -> bool:
        """Enter, renew, change or withdraw an interest; True: what is wanted has changed."""
        origin = make_origin(interest.node, interest.port)
        before = self.leases.get(origin)
        known = self._ended.get(origin, -1) if before is None else before.version
        if interest.version <= known:  # Each renewal has its own, so that none can be replayed.
            self.outdated += 1
            return False
        if not interest.wants:
            return self._end(origin, interest.version)
        if before is None and not self._has_room(interest.node):
            self.refused += 1
            return False
        expires_ns = now + interest.lease_ms * MS
        lease = Lease(interest.version, via, expires_ns, interest.mode, tuple(interest.wants))
        self.expires_ns = min(self.expires_ns, expires_ns)
        is_same = before is not None and _is_renewed(before, lease)
        if is_same:
            self.leases[origin] = lease
        else:
            self._ended.pop(origin, None)
            self._replace(origin, before, lease)
        return not is_same

    def is_newest(self, interest: Interest) -> bool:
        """Tell whether it is this interest that holds."""
        lease = self.leases.get(make_origin(interest.node, interest.port))
        return lease is not None and lease.version == interest.version

    def expire(self, now: int) -> bool:
        """End the leases that have run out; True: what is wanted has changed."""
        if now < self.expires_ns:
            return False
        over = [origin for origin, lease in self.leases.items() if lease.expires_ns <= now]
        for origin in over:
            self._end(origin, self.leases[origin].version)
        self.expires_ns = min((one.expires_ns for one in self.leases.values()), default=NEVER)
        return bool(over)

    def forget_peer(self, via: bytes) -> bool:
        """End what a peer asked for that has left; True: what is wanted has changed."""
        gone = [origin for origin, lease in self.leases.items() if lease.via == via]
        for origin in gone:
            self._replace(origin, self.leases[origin], None)
        return bool(gone)

    def ports_of(self, interest: Interest) -> set[int]:
        """Return which consumers an interest has named so far."""
        lease = self.leases.get(make_origin(interest.node, interest.port))
        return set() if lease is None else {wanted.port for wanted in lease.wants}

    @property
    def observers(self) -> int:
        """Return how many only want a copy of what is sent."""
        return sum(lease.mode == OBSERVE for lease in self.leases.values())

    def wants(self) -> Iterator[tuple[bytes, Wanted]]:
        """Name all consumers behind the interests, with their nodes."""
        for origin, lease in self.leases.items():
            for wanted in lease.wants if lease.mode != OBSERVE else ():
                yield origin[:-2], wanted

    def _has_room(self, node: bytes) -> bool:
        return len(self.leases) < INTERESTS_MAX and self._of_node[node] < INTERESTS_PER_NODE_MAX

    def _end(self, origin: bytes, version: int) -> bool:
        before = self.leases.get(origin)
        self._ended.pop(origin, None)
        self._ended[origin] = version
        if len(self._ended) > INTERESTS_MAX:
            del self._ended[next(iter(self._ended))]
        if before is not None:
            self._replace(origin, before, None)
        return before is not None

    def _replace(self, origin: bytes, before: Lease | None, after: Lease | None) -> None:
        """Change one entry, and all that is counted over them."""
        for lease, sign in ((before, -1), (after, 1)):
            if lease is not None:
                _count(self.receivers, lease.via, sign)
                _count(self._of_node, origin[:-2], sign)
                for period_us in lease.periods_us:
                    _count(self.periods, period_us, sign)
        if after is None:
            del self.leases[origin]
        else:
            self.leases[origin] = after


def _is_renewed(before: Lease, after: Lease) -> bool:
    """Tell whether a lease is the same as before but for its time and counters."""
    if before.via != after.via or before.mode != after.mode:
        return False
    return _named(before) == _named(after)


def _named(lease: Lease) -> list[tuple[int, int]]:
    """Return who wants samples, and how often."""
    return [(wanted.port, wanted.period_us) for wanted in lease.wants]


def _count(counter: Counter[Any], key: int | bytes, sign: int) -> None:
    """Add to a counter that holds nothing of which there is none."""
    counter[key] += sign
    if not counter[key]:
        del counter[key]
