"""The slots of one producer, as somebody who takes every sample counts them.

The period is the shortest that the producer serves, and the first sample of each slot opens it.
Slots are counted from an epoch on, a tick after which they follow each other: a new one begins with
another period, another era of the producer's clock, after nobody wanted samples, and after a
silence so long that consumers give a producer up. So nothing is missed that nobody was owed.
"""

from typing import NamedTuple

from hubbub.limits import CONSUMER_SILENCE, LEASE_PERIODS, US
from hubbub.wire.timed import OUT_OF_TURN, RESUMED, Response


class Place(NamedTuple):
    """Where a sample stands among the slots."""

    period_ns: int  # 0: it opens none.
    epoch_ns: int  # The tick that slots are counted from.


class Series:
    """Which slots of one producer have a sample, and from which tick on they are counted."""

    def __init__(self) -> None:
        self._period_ns = 0
        self._era = -1
        self._slot = -1
        self._tick_ns = 0
        self._epoch_ns = 0
        self._is_out_of_turn = False

    def place(self, response: Response) -> Place:
        """Say which slot a sample opens; each comes behind those that were sent before it."""
        period_ns = response.granted_us * US
        if not response.tick_ns or not period_ns:
            return Place(0, 0)
        slot = response.tick_ns // period_ns
        if self._begins(response, period_ns, slot):
            self._epoch_ns, self._slot = response.tick_ns, -1
        is_first = slot > self._slot
        if is_first:
            self._slot, self._tick_ns = slot, response.tick_ns
            self._is_out_of_turn = bool(response.flags & OUT_OF_TURN)
        self._period_ns, self._era = period_ns, response.era
        return Place(period_ns if is_first else 0, self._epoch_ns)

    def _begins(self, response: Response, period_ns: int, slot: int) -> bool:
        """Tell whether no slot is owed between the last sample and this one."""
        if response.era != self._era or period_ns != self._period_ns or response.flags & RESUMED:
            return True
        silence_ns = max(CONSUMER_SILENCE, LEASE_PERIODS * period_ns)
        is_jump = self._is_out_of_turn and slot > self._slot + 1
        return is_jump or response.tick_ns - self._tick_ns > silence_ns
