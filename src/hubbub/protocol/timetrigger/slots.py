"""HOT. One sample a slot of one producer, however late or early each of them comes.

A sample belongs to slot floor(tick / period) of its nominal tick, not of its arrival, so jitter
moves nothing: the first sample of each slot is taken, others are early. That needs no common clock:
only the producer's own counts. After a slot has ended, half a period of grace goes by on our clock,
and then it is judged as missed; what comes even later is late. So every slot is either served or
missed, once.

Why not `now - last >= period`, as the source has it: after one late arrival the next sample is too
early by the same time, and is thrown away. At any jitter that loses 16 to 37 % of the samples.

A producer without ticks (the first version of the protocol) is measured by arrivals: one is taken
that comes when it is due, give or take half a gap between arrivals; the due times are anchored, and
not moved to the arrival.
"""

from typing import Final

from hubbub.limits import CONSUMER_SILENCE, LEASE_PERIODS, SLOT_TOLERANCE_MIN
from hubbub.protocol.timetrigger.interests import NEVER
from hubbub.wire.timed import LIMITED, OUT_OF_TURN, Response

TAKEN: Final = "taken"
EARLY: Final = "early"
LATE: Final = "late"
DUPLICATE: Final = "duplicate"
STALE: Final = "stale"

_DELAY_WEIGHT: Final = 6  # A longer delay is believed by 1/64 a sample, a shorter one at once.


class Stream:
    """What one consumer has had of one producer."""

    __slots__ = (
        "_delay_ns", "_due_ns", "_gap_ns", "_is_judged", "_is_out_of_turn", "_slot", "asked_ns",
        "deadline_ns", "era", "granted_us", "heard_ns", "missed", "period_ns", "sequence",
        "served", "tick_ns",
        "topic",
    )  # fmt: skip

    def __init__(self, now: int, period_ns: int) -> None:
        self.asked_ns = period_ns
        self.period_ns = period_ns  # What is served: not less than the producer grants.
        self.era = -1
        self.granted_us = -1
        self.sequence = -1
        self.tick_ns = 0
        self.served = 0
        self.missed = 0
        self.heard_ns = now
        self.deadline_ns = NEVER  # When the slot behind the last one is given up.
        self.topic: object = None  # Of the shell.
        self._slot: int | None = None  # The last one that was served or judged.
        self._is_judged = False
        self._is_out_of_turn = False  # The last sample was for somebody who was new.
        self._delay_ns: int | None = None  # From a tick to its arrival, at the quickest.
        self._due_ns: int | None = None
        self._gap_ns = 0  # Between arrivals; 0: not known yet.

    def take(self, now: int, response: Response) -> str:
        """Say what a sample is: taken, or why not."""
        self.heard_ns = now
        if response.sequence <= self.sequence:
            return DUPLICATE if response.sequence == self.sequence else self._take_old(response)
        self.sequence = response.sequence
        if not response.tick_ns:
            return self._take_unstamped(now)
        # Who is not limited is asked by others for no more than that: our interest was lost.
        granted_ns = response.granted_us * 1000 if response.flags & LIMITED else 0
        period_ns = max(self.asked_ns, granted_ns)
        if period_ns != self.period_ns:
            self._change_period(period_ns, response.tick_ns - period_ns)
        if response.era != self.era:
            self.era = response.era
            self._slot = self._delay_ns = None
        slot = response.tick_ns // self.period_ns
        last = self._slot
        if last is not None:
            if slot <= last:
                return self._take_late(now, response) if self._is_judged else EARLY
            self.missed += 0 if self._is_out_of_turn else slot - last - 1
        self._slot = slot
        self._is_judged = False
        self._is_out_of_turn = bool(response.flags & OUT_OF_TURN)
        self.tick_ns = response.tick_ns
        self.served += 1
        self._note_delay(now - response.tick_ns)
        self._set_deadline()
        self.granted_us = response.granted_us
        return TAKEN

    def take_next(self, now: int, response: Response) -> bool:
        """Take a sample if it is of the next slot and nothing has changed; False: look closely.

        The deadline is left where it was, too early: who comes for it finds out (`judge`).
        """
        _, _, _, _, flags, era, sequence, tick_ns, _, granted_us, _, _ = response
        slot = tick_ns // self.period_ns
        if slot - 1 != self._slot or era != self.era or granted_us != self.granted_us:
            return False
        if sequence <= self.sequence:
            return False
        delay_ns = now - tick_ns
        if delay_ns < self._delay_ns:  # type: ignore[operator]
            self._delay_ns = delay_ns
        self._slot = slot
        self._is_judged = False
        self._is_out_of_turn = flags & OUT_OF_TURN != 0
        self.sequence = sequence
        self.tick_ns = tick_ns
        self.heard_ns = now
        self.served += 1
        return True

    def observe(self, now: int, response: Response) -> str:
        """Take every sample once."""
        self.heard_ns = now
        if response.sequence <= self.sequence:
            return DUPLICATE
        self.sequence = response.sequence
        self.tick_ns = response.tick_ns
        self.served += 1
        return TAKEN

    def take_once(self, now: int, response: Response) -> str:
        """Take the first sample there is; whatever comes behind it is early."""
        self.heard_ns = now
        if response.sequence <= self.sequence:
            return DUPLICATE if response.sequence == self.sequence else EARLY
        self.sequence = response.sequence
        if self.served:
            return EARLY
        self.era, self.tick_ns = response.era, response.tick_ns
        self.served += 1
        return TAKEN

    def judge(self, now: int) -> int:
        """Give up the slots that are over; return how many."""
        if now < self.deadline_ns:
            return 0
        if self._due_ns is None and self._slot is not None:
            self._set_deadline()
            if now < self.deadline_ns:
                return 0
        count = (now - self.deadline_ns) // self.period_ns + 1
        self.missed += count
        self._is_judged = True
        if self._due_ns is not None:
            self._due_ns += count * self.period_ns
        elif self._slot is not None:
            self._slot += count
        self.deadline_ns += count * self.period_ns
        return count

    def is_silent(self, now: int) -> bool:
        """Tell whether the slot that is due has stayed empty."""
        if self._due_ns is None and self._slot is not None and not self._is_judged:
            self._set_deadline()
        return self._is_judged or now >= self.deadline_ns

    def change_period(self, now: int, period_ns: int) -> None:
        """Take samples at another period; the slots up to this time count as served."""
        self.asked_ns = period_ns
        self._due_ns = None
        self._change_period(period_ns, now - (self._delay_ns or 0))

    def is_like(self, other: "Stream") -> bool:
        """Tell whether both take the same samples from now on."""
        if self._due_ns is not None or other._due_ns is not None:
            return False  # Arrivals are measured, and neither has measured the other's.
        return (
            self._slot == other._slot
            and self.sequence == other.sequence
            and self.era == other.era
            and self.period_ns == other.period_ns
            and self.granted_us == other.granted_us
            and self._is_judged == other._is_judged
            and self._is_out_of_turn == other._is_out_of_turn
        )

    def note_quicker(self, other: "Stream") -> None:
        """Learn from a stream like this one how quickly samples come."""
        if self._delay_ns is not None and other._delay_ns is not None:
            self._delay_ns = min(self._delay_ns, other._delay_ns)

    def is_lost(self, now: int) -> bool:
        """Tell whether the producer was silent for too long."""
        silence_ns = max(CONSUMER_SILENCE, LEASE_PERIODS * self.period_ns)
        return now - self.heard_ns > silence_ns

    def _take_late(self, now: int, response: Response) -> str:
        """Learn from a sample of a slot that was given up how long the way is by now.

        Whoever judged by the old delay would find every sample late, for ever. What was believed
        too much is taken back by the next sample that comes sooner.
        """
        delay_ns = now - response.tick_ns
        if self._delay_ns is not None and delay_ns > self._delay_ns:
            self._delay_ns = delay_ns
        return LATE

    def _take_old(self, response: Response) -> str:
        """Say what a sample is that others have overtaken."""
        slot = response.tick_ns // self.period_ns
        is_known = self._slot is not None and slot <= self._slot
        return LATE if is_known and self._is_judged else EARLY

    def _take_unstamped(self, now: int) -> str:
        """Take a sample that has no tick, by the time when it comes."""
        period_ns = self.period_ns
        self._note_gap(now)
        if self._due_ns is None or now - self._due_ns > 2 * period_ns:
            self._due_ns = now + period_ns
        else:
            early_ns = self._due_ns - now
            if early_ns > self._gap_ns // 2:
                return EARLY
            passed = max(0, -early_ns + self._gap_ns // 2) // period_ns
            self.missed += passed
            self._due_ns += (passed + 1) * period_ns
        self.served += 1
        self._is_judged = False
        self.deadline_ns = self._due_ns + period_ns + self._grace_ns()
        return TAKEN

    def _note_gap(self, now: int) -> None:
        """Learn how far arrivals are apart, on average: at most a period, if some are lost."""
        if self.tick_ns:
            gap_ns = min(now - self.tick_ns, self.period_ns)
            is_first = self._gap_ns == 0
            self._gap_ns = gap_ns if is_first else self._gap_ns + (gap_ns - self._gap_ns >> 3)
        self.tick_ns = now

    def _note_delay(self, delay_ns: int) -> None:
        known = self._delay_ns
        if known is None or delay_ns < known:
            self._delay_ns = delay_ns
        else:
            self._delay_ns = known + ((delay_ns - known) >> _DELAY_WEIGHT)

    def _change_period(self, period_ns: int, begun_ns: int) -> None:
        """Count in slots of another length, from that of the last tick or of this one on."""
        self.period_ns = period_ns
        self._gap_ns = min(self._gap_ns, period_ns)
        if self._slot is not None:
            self._slot = max(self.tick_ns, begun_ns) // period_ns
            self._set_deadline()

    def _grace_ns(self) -> int:
        return max(self.period_ns // 2, SLOT_TOLERANCE_MIN)

    def _set_deadline(self) -> None:
        """Say when the next slot will have been over for long enough."""
        assert self._slot is not None and self._delay_ns is not None
        end_ns = (self._slot + 2) * self.period_ns
        self.deadline_ns = end_ns + self._delay_ns + self._grace_ns()
