"""One producer: it follows the plan that the live interests make, and says when to sample.

A tick that is due becomes a `Due`, which the shell answers with a value (`respond`) or not at all
(`abandon`). Meanwhile the newest tick waits, and those it overtakes are passed over and counted:
with periods of 33 and 100 ms two ticks are 1 ms apart, and who loses the second loses a slot. Ticks
are absolute, so work takes nothing from the next period, and after a pause only the newest is made
up for: never a burst.

Invariants: no tick is sent twice, ticks of one era only grow and are never closer than the plan's
spacing, and without an interest there is no tick, no sample and no frame.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from msgspec.structs import replace

from hubbub.limits import CAP_HZ, FLOOR_US, OVERRUN_TICKS_COUNTED, SECOND, US
from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.interests import LOCAL, NEVER, Interests
from hubbub.protocol.timetrigger.plan import DUE, STRICT, Plan
from hubbub.wire.timed import (
    GATEWAY_PORT,
    LIMITED,
    OBSERVE,
    OUT_OF_TURN,
    RESUMED,
    SCHEDULES,
    SYNCHRONISED,
    TAGGED,
    Interest,
    Offer,
    Response,
    Tag,
    encode_tag,
    mark_subject,
    split_origin,
)
from hubbub.wire.wishes import Links


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How a producer plans: its schedule, bounds, and what it is a producer of."""

    schedule: str = DUE
    floor_us: int = FLOOR_US
    cap_hz: int = CAP_HZ
    is_staggered: bool = False
    scope: int = 0
    is_inside: bool = False  # For consumers of the own node alone.
    copies: int = 1  # So often a sample is sent, for the case that one gets lost.
    links: Links = ()  # That samples keep to, in order of preference; none: any will do.

    @property
    def spacing_us(self) -> int:
        """Return how far ticks are apart at least, by floor and cap: that is of frames."""
        return max(self.floor_us, -(-1_000_000 * self.copies // self.cap_hz))


class Due(NamedTuple):
    """A tick for which a sample is to be made now."""

    producer: "Producer"
    number: int
    era: int
    tick_ns: int
    is_extra: bool  # Out of turn, because the plan has changed.


class Producer:
    """Interests, a plan, and what has become of its ticks."""

    def __init__(
        self, now: int, origin: bytes, type: int, subject: str, clock: SlotClock,
        options: ProducerOptions | None = None,
    ) -> None:  # fmt: skip
        self.origin = origin
        self.port = split_origin(origin)[1]
        self.subject = subject
        self.clock = clock
        self.options = options or ProducerOptions()
        self.rename(type)
        self.interests = Interests()
        self.plan = self._make_plan()
        self.is_open = True
        self.pending: Due | None = None
        self._waiting: Due | None = None  # The newest that came meanwhile.
        self.due_ns = NEVER
        # Of one that has this port after us they are higher, also after a restart.
        self.sequence = clock.count(now)  # Of samples: a hole in it is a lost one.
        self.version = self.sequence  # Of offers.
        self.sent = 0
        self.sampled = 0
        self.failed = 0  # The application had no sample.
        self.skipped = 0  # Ticks that nobody was there for.
        self.refused_periods = 0  # Interests served at a longer period than they ask for.
        self.refused_once = 0  # Those in one sample, where there are none but at ticks.
        self.offer_ns = NEVER
        self.offers_left = 0
        self.taker: Callable[[Due], None] = lambda due: None  # Set by the shell.
        self._stagger_ns = 0
        self._is_resumed = True  # Nobody has had a sample since somebody wants any.
        self._expired_ns = -NEVER  # When the last lease ran out, and nobody wanted any more.
        self._era = clock.era
        self._last_ns: int | None = None  # The last tick that was handed out,
        self._seen_ns = self._time(now)  # and up to when all ticks were looked at.
        self._next_ns: int | None = None
        self._extra: list[int] = []  # Ticks out of turn, for those who would miss a slot.

    def plan_offer(self) -> None:
        """Have a turn when an offer is to be made, too."""
        self.due_ns = min(self.due_ns, self.offer_ns)

    # Interests.

    def take_interest(self, now: int, interest: Interest, via: bytes) -> bool:
        """Hear who wants what, after `advance`; True: the plan has changed."""
        if interest.type not in (0, self.type) or not self._is_meant(interest):
            return False
        if not self.is_open:
            return False
        if self.options.schedule == STRICT and _wants_once(interest):
            self.refused_once += 1
            interest = replace(interest, wants=[one for one in interest.wants if one.period_us])
        known = self.interests.ports_of(interest)
        is_changed = self.interests.take(now, interest, via)
        if not is_changed and self._is_awaited(interest):
            self._replan(now, newcomer=[0])
            self._set_due()
        if is_changed:
            if any(0 < one.period_us < self.options.spacing_us for one in interest.wants):
                self.refused_periods += 1
            new = [one.period_us for one in interest.wants if one.port not in known]
            self._replan(now, newcomer=new if interest.mode != OBSERVE else [])
            self._set_due()
        return is_changed

    def _is_awaited(self, interest: Interest) -> bool:
        """Tell whether somebody asks again for the one sample that it wants, and has not had."""
        if not _wants_once(interest) or not self.interests.is_newest(interest):
            return False
        return any(not one.period_us and not one.served for one in interest.wants)

    def is_namesake(self, interest: Interest) -> bool:
        """Tell whether an interest is of our type, and in another subject."""
        is_named = bool(interest.subject) and interest.type == self.type
        return is_named and interest.subject != self.subject

    def _is_meant(self, interest: Interest) -> bool:
        is_apart = interest.scope and self.options.scope not in (0, interest.scope)
        is_other = not self.origin.startswith(interest.device)
        return not is_apart and not is_other and not self.is_namesake(interest)

    def rename(self, type: int) -> None:
        """Be of the type that others know our subject by."""
        self.type = type
        self._tag = encode_tag(Tag(self.options.scope, mark_subject(type, self.subject)))

    def forget_peer(self, now: int, via: bytes) -> None:
        """Hear that a peer has left, and wants nothing any more."""
        if self.interests.forget_peer(via):
            self._replan(now)
            self._set_due()

    @property
    def is_wanted(self) -> bool:
        """Tell whether anybody has an interest in samples."""
        return bool(self.interests.periods)

    @property
    def receivers(self) -> list[bytes]:
        """Return the peers that get samples."""
        return [via for via in self.interests.receivers if via != LOCAL]

    # Time.

    def advance(self, now: int) -> Due | None:
        """Return the tick that is to be sampled now, if there is one."""
        if self.interests.expire(now):
            self._replan(now)
            self._expired_ns = now if not self.plan else self._expired_ns
        if self._era != self.clock.era:
            self._begin_era(now)
        due = None
        time = self._time(now)
        tick_ns = self._next_tick()
        if tick_ns is not None and tick_ns <= time:
            due = self._reach(self._newest(tick_ns, time))
        self._seen_ns = max(self._seen_ns, time)
        self._next_ns = self.plan.next_after(self._floor()) if self.plan else None
        self._set_due()
        return due

    def respond(self, now: int, due: Due, value: bytes, sampled_ns: int) -> Response | None:
        """Make a frame of the sample for a tick; None: it is not wanted any more."""
        if not self._settle(due) or not self.interests.receivers:
            return None
        self.sampled += 1
        self.sent += 1
        self.sequence += 1
        flags = SYNCHRONISED if self.clock.is_synchronised else 0
        flags |= OUT_OF_TURN if due.is_extra else 0
        flags |= RESUMED if self._is_resumed else 0
        flags |= LIMITED if self.plan.is_limited else 0
        flags |= TAGGED if self._tag else 0
        self._is_resumed = False
        return Response(
            self.origin, GATEWAY_PORT, self.type, 1, flags, due.era, self.sequence, due.tick_ns,
            sampled_ns, self.plan.granted_us, value, self._tag,
        )  # fmt: skip

    def follow(self) -> Due | None:
        """Return the tick that waited for the one before to be answered, if it is still wanted."""
        due, self._waiting = self._waiting, None
        if due is None or self.pending is not None or not self.is_wanted:
            return None
        self.pending = due
        return due

    def abandon(self, due: Due) -> None:
        """Leave a tick without a sample: the application had none."""
        if self._settle(due):
            self.failed += 1

    def clock_changed(self, now: int) -> None:
        """Look again when the next tick is: the clock was disciplined."""
        if self._era != self.clock.era:
            self._begin_era(now)
        self._set_due()

    def stop(self) -> None:
        """Make nothing any more."""
        self.is_open = False
        self.pending = self._waiting = None
        self.due_ns = NEVER

    def offer(self) -> Offer:
        """Say what this producer makes, and how it is doing."""
        node, port = split_origin(self.origin)
        self.version += 1
        plan = self.plan
        return Offer(
            node, port, GATEWAY_PORT, self.type, 1, self.version, self.is_open, self.subject,
            SCHEDULES.index(self.options.schedule), plan.tick_ns // US, plan.granted_us,
            plan.millihertz, len(self.interests.leases), self.sent, self.skipped,
            self.options.scope,
        )  # fmt: skip

    def _make_plan(self) -> Plan:
        return Plan(self.options.schedule, self.interests.periods, self.options.spacing_us)

    def _replan(self, now: int, newcomer: list[int] | None = None) -> None:
        """Follow another plan from now on; ticks that were passed are not looked at again."""
        before, self.plan = self.plan, self._make_plan()
        plan = self.plan
        if plan and not before:
            # Whose lease ran out while we slept asks again at once, and was owed samples meanwhile.
            self._is_resumed |= now - self._expired_ns >= plan.periods[0]
            self._expired_ns = -NEVER
        if self.options.is_staggered and plan:
            self._stagger_ns = crc32(self.origin) % max(1, plan.tick_ns // 2)
            self._seen_ns = min(self._seen_ns, self._time(now))  # By it, some are still to come.
        # A slot that was to have the next tick of the old plan may have none of the new one.
        is_owed = before.is_shifted and bool(plan)
        self._extra = [self._next_ns] if is_owed and self._next_ns is not None else []
        self._next_ns = plan.next_after(self._floor()) if plan else None
        if newcomer:
            self._extra = sorted([*self._extra, *self._tick_for_newcomer(now, newcomer)])

    def _tick_for_newcomer(self, now: int, periods_us: list[int]) -> list[int]:
        """Return a tick of its current slots, if there is one: it need not wait for the next."""
        time, spacing, last_ns = self._time(now), self.plan.spacing_ns, self._last_ns
        if self.options.schedule == STRICT:
            tick_ns = self.plan.last_at(time)
        else:
            tick_ns = time // spacing * spacing
            if last_ns is not None:
                tick_ns = max(tick_ns, last_ns + spacing)
        is_inside = all(tick_ns >= time // (us * US) * us * US for us in periods_us if us)
        return [tick_ns] if is_inside and (last_ns is None or tick_ns > last_ns) else []

    def _next_tick(self) -> int | None:
        if not self._extra:
            return self._next_ns
        return self._extra[0] if self._next_ns is None else min(self._next_ns, self._extra[0])

    def _newest(self, tick_ns: int, time: int) -> int:
        """Return the newest tick that is due, and count those before it as skipped."""
        if not self.plan:
            return tick_ns
        for _ in range(OVERRUN_TICKS_COUNTED):
            following = self.plan.next_after(tick_ns)
            if following > time:
                return tick_ns
            self.skipped += 1
            tick_ns = following
        newest = self.plan.last_at(time)
        self.skipped += (newest - tick_ns) * self.plan.millihertz // (1000 * SECOND)
        return newest

    def _reach(self, tick_ns: int) -> Due | None:
        is_extra = tick_ns in self._extra
        while self._extra and self._extra[0] <= tick_ns:
            self._extra.pop(0)
        if self._last_ns is not None and tick_ns < self._last_ns + self.plan.spacing_ns:
            # The plan has changed since: this one is too close, so its slot gets the next moment.
            if tick_ns > self._last_ns:
                self._extra.insert(0, self._last_ns + self.plan.spacing_ns)
            return None
        self._last_ns = tick_ns
        due = Due(self, self.sequence, self._era, tick_ns, is_extra)
        if self.pending is not None:
            self.skipped += self._waiting is not None
            self._waiting = due
            return None
        self.pending = due
        return due

    def _settle(self, due: Due) -> bool:
        """Note that a tick was answered; False: nobody waits for that."""
        if self.pending is not due:
            return False
        self.pending = None
        return self.is_open

    def _begin_era(self, now: int) -> None:
        """Count ticks anew: the clock was stepped."""
        self._era = self.clock.era
        self._last_ns, self._extra, self._waiting = None, [], None
        self._seen_ns = self._time(now)
        self._next_ns = self.plan.next_after(self._seen_ns) if self.plan else None

    def _floor(self) -> int:
        return self._seen_ns if self._last_ns is None else max(self._seen_ns, self._last_ns)

    def _time(self, now: int) -> int:
        """Return the time of the slot clock by which this producer has its turn."""
        return self.clock.at(now) - self._stagger_ns

    def _set_due(self) -> None:
        tick_ns = self._next_tick() if self.is_open else None
        due_ns = NEVER if tick_ns is None else self.clock.when(tick_ns + self._stagger_ns)
        self.due_ns = min(due_ns, self.interests.expires_ns, self.offer_ns)


def _wants_once(interest: Interest) -> bool:
    """Tell whether an interest asks for a sample at once and then no more: not in the original."""
    return any(wanted.period_us == 0 for wanted in interest.wants) and interest.mode != OBSERVE
