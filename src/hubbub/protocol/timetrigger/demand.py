"""What the consumers of this node want of one type, told to everybody by one interest.

So the outside sees one interest a vehicle, type, mode and scope, however many want it. Of those
beyond WANTS_MAX, or what a frame holds, only those are left out whose period another one has; if
there are so many periods, those of the longest: each slot of theirs holds a tick of the shortest.
"""

from random import Random

from hubbub.limits import (
    LEASE_MS_MIN,
    LEASE_PERIODS,
    LEASE_RENEWALS,
    MS,
    TIMED_REPEAT_INTERVAL,
    TIMED_REPEATS,
    WANTS_MAX,
)
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.interests import NEVER
from hubbub.wire.timed import GATEWAY_PORT, Interest, Wanted, encode_timed


class Demand:
    """The interest of one node, or of one of its components, in one type."""

    def __init__(
        self, first: Consumer, node: bytes, port: int, version: int, random: Random
    ) -> None:
        self.type = first.type
        self.mode = first.mode
        self.scope = first.scope
        self.is_inside = first.is_inside  # It is not told outside.
        self.device = first.within
        self.subject = first.subject
        self.node = node
        self.port = port
        self.version = version
        self.consumers: list[Consumer] = []
        self.due_ns = NEVER
        self._random = random
        self._repeats = 0

    @property
    def is_over(self) -> bool:
        """Tell whether nobody wants it any more, and that was told."""
        return not self.consumers and not self._repeats

    @property
    def lease_ms(self) -> int:
        """Return for how long an interest holds."""
        longest_us = max((consumer.period_us for consumer in self.consumers), default=0)
        return max(LEASE_MS_MIN, LEASE_PERIODS * longest_us // 1000)

    def change(self, now: int) -> None:
        """Tell it at once, and a few times again: who or how often has changed."""
        self._repeats = TIMED_REPEATS + 1
        self.due_ns = now

    def remind(self, at_ns: int) -> None:
        """Tell it again by then."""
        self.due_ns = min(self.due_ns, at_ns)

    def tell(self, now: int) -> Interest:
        """Return what to tell, and plan when to do so again."""
        self.version += 1
        self._repeats = max(0, self._repeats - 1)
        if self._repeats:
            self.due_ns = now + TIMED_REPEAT_INTERVAL
        elif self.consumers:
            # The last renewal comes before the lease ends, so that two may be lost.
            share = self._random.uniform(0.75, 0.95) / LEASE_RENEWALS
            self.due_ns = now + int(self.lease_ms * MS * share)
        else:
            self.due_ns = NEVER
        return self._interest(WANTS_MAX)

    def _interest(self, count: int) -> Interest:
        wants = [
            Wanted(one.port, one.period_us, one.served, one.missed) for one in self._named(count)
        ]
        return Interest(
            self.node, self.port, GATEWAY_PORT, self.type, 1, self.version, self.lease_ms,
            self.mode, self.scope, wants, self.subject, self.device,
        )  # fmt: skip

    def _named(self, count: int) -> list[Consumer]:
        """Choose who is named: one of each period, the newest, and then the others."""
        newest = {one.period_us: one for one in self.consumers}
        others = [one for one in self.consumers if newest[one.period_us] is not one]
        chosen = [*sorted(newest.values(), key=_by_period), *sorted(others, key=_by_period)]
        return sorted(chosen[:count], key=_by_period)

    def encode(self, interest: Interest, bytes_max: int) -> bytes:
        """Make the body of an interest, with as many consumers as fit."""
        body = encode_timed(interest)
        count = len(interest.wants)
        while len(body) > bytes_max and count > 1:
            count //= 2
            body = encode_timed(self._interest(count))
        return body


def _by_period(consumer: Consumer) -> tuple[int, int]:
    return consumer.period_us, consumer.port
