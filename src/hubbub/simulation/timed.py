"""Producers and consumers under simulation, and what they promise (invariants P1 to P16).

What a producer has sent is written down as it is sampled; what a consumer has taken, as it is
handed out. The check knows nothing of filters: of all samples that reached a node it works out
which are the first of their slots, and those must have been taken, each once and no other.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from math import gcd
from typing import NamedTuple

from hubbub.events import DeadlineMissed
from hubbub.limits import MS, PERIODS_PLANNED_MAX, SECOND, US
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.passing import Sample
from hubbub.protocol.timetrigger.plan import DUE, STRICT
from hubbub.protocol.timetrigger.producer import Due, ProducerOptions
from hubbub.simulation.leases import Leases
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.stage import Stage
from hubbub.wire.header import HEADER_BYTES, INTEREST, KIND_OFFSET, RESPONSE
from hubbub.wire.timed import OUT_OF_TURN, Interest, decode_response, decode_timed

_HEARD_MAX = 500


class Sent(NamedTuple):
    """A sample that was made: when, for which tick of which era, and when its copies are out."""

    true_ns: int
    era: int
    tick_ns: int
    copied_ns: int


class Maker:
    """A producer whose samples say who made them, and for what."""

    def __init__(
        self, stage: Stage, node: SimulatedNode, type: int, options: ProducerOptions,
        subject: str,
    ) -> None:  # fmt: skip
        self.stage = stage
        self.node = node
        self.sent: list[Sent] = []
        self.lost: Counter[tuple[int, int]] = Counter()  # How often node and tick did not meet.
        self.arrived: set[tuple[int, int]] = set()  # Node and tick that did.
        self.overtaken: set[int] = set()  # Ticks behind which the next one came before all copies.
        self.copies = options.copies
        self.leases = Leases()
        self.spacing_us = max(options.floor_us, -(-1_000_000 * self.copies // options.cap_hz))
        self._grid_ns = 0
        self._wanted: set[int] = set()  # Periods, when a sample was made last.
        self.work_ns = 0  # How long a sample takes, at most.
        gateway = node.core.timed
        self.producer = gateway.produce(node.now, type, subject, options, self.read)
        node.wake()

    def read(self, due: Due) -> None:
        """Make a sample, and check what holds of each."""
        world, producer = self.stage.world, self.producer
        world.check(producer.is_open, f"{self.node} was asked for a sample after its end")
        world.check(producer.is_wanted, f"{self.node} makes a sample that nobody wants (P7)")
        plan = producer.plan
        if producer.options.schedule == STRICT and plan:
            # The plan may have changed since the tick was due.
            grids = {plan.tick_ns, self._grid_ns or plan.tick_ns}
            self._grid_ns = plan.tick_ns
            is_on_grid = due.is_extra or any(due.tick_ns % grid == 0 for grid in grids)
            world.check(is_on_grid, f"tick {due.tick_ns} is off the grid of {plan.tick_ns} (P1)")
        self._check_due(due)
        if self.sent and self.sent[-1].era == due.era:
            gap_ns = due.tick_ns - self.sent[-1].tick_ns
            spacing_ns = self.spacing_us * US
            world.check(gap_ns > 0, f"tick {due.tick_ns} comes again (P8)")
            world.check(gap_ns >= spacing_ns, f"ticks {gap_ns} ns apart: over the cap (P9)")
        if self.work_ns:
            world.after(world.draw_ns(0, self.work_ns), self._respond, due)
        else:
            self._respond(due)

    def _check_due(self, due: Due) -> None:
        """Check that a period of somebody begins with a tick, where only such are sent (P2)."""
        wanted = {max(us, self.spacing_us) * US for us in self.producer.interests.periods if us}
        before, self._wanted = self._wanted, wanted
        is_planned = self.producer.options.schedule == DUE and len(wanted) <= PERIODS_PLANNED_MAX
        if is_planned and not due.is_extra:
            # The plan may have changed since the tick was due; and ticks keep their distance.
            is_begin = any(due.tick_ns % ns < self.spacing_us * US for ns in before | wanted)
            text = f"nobody's period begins at {due.tick_ns}, of {sorted(wanted)} ns (P2)"
            self.stage.world.check(is_begin, text)

    def _respond(self, due: Due) -> None:
        producer, now = self.producer, self.stage.world.now
        if self.sent and now <= self.sent[-1].copied_ns:
            self.overtaken.add(self.sent[-1].tick_ns)
        copied_ns = now + producer.plan.tick_ns * (self.copies - 1) // self.copies + MS
        self.sent.append(Sent(now, due.era, due.tick_ns, copied_ns))
        value = b"%d %d" % (producer.type, due.tick_ns) + producer.origin
        self.node.core.timed.respond(self.node.now, due, value, due.tick_ns)
        self.node.wake()

    def is_owed(self, node: int, sent: Sent) -> bool:
        """Tell whether a node surely had a lease when a sample was made."""
        return self.leases.holds(node, sent.true_ns, sent.true_ns)

    def is_lost(self, node: int, sent: Sent) -> bool:
        """Tell whether no copy of a sample has reached a node, of all that it was owed."""
        met = node, sent.tick_ns
        return met not in self.arrived and self.lost[met] >= self._count_owed(node, sent)

    def _count_owed(self, node: int, sent: Sent) -> int:
        """Return how often a sample must be sent to a node, at least."""
        if not self.is_owed(node, sent):
            return 0
        is_kept = self.leases.holds(node, sent.true_ns, sent.copied_ns)
        return self.copies if is_kept and sent.tick_ns not in self.overtaken else 1

    def stop(self) -> None:
        """End it."""
        self.node.core.timed.stop(self.node.now, self.producer)
        self.node.wake()

    def check_grid(self, periods_us: Iterable[int]) -> None:
        """Check the tick of a strict producer against the interests that there are (P1)."""
        periods = list(periods_us)
        expected = gcd(*periods) * US if periods else 0
        found = self.producer.plan.tick_ns
        self.stage.world.check(
            found == expected, f"ticks each {found} ns for {sorted(periods)} us, not {expected}"
        )

    def check_load(self) -> None:
        """Check that no second has more samples than the cap allows (P9)."""
        times, first = [one.true_ns for one in self.sent], 0
        cap = SECOND // (self.spacing_us * US) + 2
        for place, true_ns in enumerate(times):
            while true_ns - times[first] >= SECOND:
                first += 1
            count = place - first + 1
            self.stage.world.check(count <= cap, f"{count} samples in a second: over {cap} (P9)")


class Taken(NamedTuple):
    """A sample that a consumer took."""

    true_ns: int
    origin: bytes
    era: int
    tick_ns: int
    is_out_of_turn: bool


class User:
    """A consumer that writes down what it takes."""

    def __init__(
        self, stage: Stage, node: SimulatedNode, type: int, period_us: int, mode: int = 0,
        subject: str | None = None, scope: int = 0, within: bytes = b"",
    ) -> None:  # fmt: skip
        self.stage = stage
        self.node = node
        self.period_us = period_us
        self.taken: list[Taken] = []
        self.is_plain = True  # Neither its period nor a clock has changed.
        self.began_ns = stage.world.now
        self.ended_ns: int | None = None
        gateway = node.core.timed
        self.consumer = Consumer(
            0, type, subject or f"/t/{type}", gateway.clock, period_us=period_us, mode=mode,
            scope=scope, within=within,
        )  # fmt: skip
        gateway.consume(node.now, self.consumer, self.take)
        node.wake()

    def take(self, sample: Sample) -> None:
        """Take a sample, and check that it is what its producer made."""
        response = sample.response
        is_right = response.type == self.consumer.type
        expected = b"%d %d" % (response.type, response.tick_ns) + response.origin
        world = self.stage.world
        world.check(is_right and response.value == expected, f"{self.node} took {response} (P11)")
        is_own = sample.source.id == response.origin[:12]
        world.check(is_own, f"{response.origin.hex()} came as from {sample.source} (P10)")
        world.check(self.ended_ns is None, f"{self.node} was handed a sample after its end")
        is_out_of_turn = bool(response.flags & OUT_OF_TURN)
        taken = Taken(world.now, response.origin, response.era, response.tick_ns, is_out_of_turn)
        self.taken.append(taken)

    def set_period(self, period_us: int) -> None:
        """Want samples at another period."""
        self.is_plain = False
        self.period_us = period_us
        self.node.core.timed.set_period(self.node.now, self.consumer, period_us)
        self.node.wake()

    def stop(self) -> None:
        """End it."""
        self.ended_ns = self.stage.world.now
        self.node.core.timed.stop(self.node.now, self.consumer)
        self.node.wake()

    def of(self, maker: Maker) -> list[Taken]:
        """Return what it took of one producer."""
        return [one for one in self.taken if one.origin == maker.producer.origin]


class Company:
    """All producers and consumers of a run, and the checks over all of them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.makers: list[Maker] = []
        self.users: list[User] = []
        self.loss = 0.0
        self.interest_loss = 0.0
        self.heard: list[bytes] = []  # Frames on the wire.
        stage.network.drop = self._drop

    def make(
        self, node: SimulatedNode, type: int = 1, subject: str | None = None, **options: object
    ) -> Maker:
        """Add a producer."""
        wanted = ProducerOptions(**options)  # type: ignore[arg-type]
        maker = Maker(self.stage, node, type, wanted, subject or f"/t/{type}")
        self.makers.append(maker)
        return maker

    def use(
        self, node: SimulatedNode, period_us: int, type: int = 1, mode: int = 0,
        subject: str | None = None, scope: int = 0, within: bytes = b"",
    ) -> User:  # fmt: skip
        """Add a consumer."""
        user = User(self.stage, node, type, period_us, mode, subject, scope, within)
        self.users.append(user)
        return user

    def periods_us(self, type: int = 1) -> list[int]:
        """Return what is wanted of a type just now."""
        live = (user for user in self.users if user.ended_ns is None and user.node.is_alive)
        return [user.period_us for user in live if user.consumer.type == type]

    def check_streams(self, in_flight_ns: int, *, is_lossless: bool) -> None:
        """Compare what was taken with the first samples of all slots that reached a node."""
        for user in self.users:
            for maker in self.makers:
                if maker.producer.type == user.consumer.type:
                    self._check_once(user, maker)
                    if user.is_plain:
                        self._check_firsts(user, maker, in_flight_ns)
            if is_lossless and user.is_plain:
                missed = user.consumer.missed
                text = f"{user.node} missed {missed} slots of {user.period_us} us (P3)"
                self.stage.world.check(missed == 0, text)

    def check_counts(self, in_flight_ns: int) -> None:
        """Compare what consumers have counted with the numbers of the slots that they had."""
        world = self.stage.world
        for user in self.users:
            consumer, period_ns = user.consumer, user.period_us * US
            least = most = 0
            for maker in self.makers:
                taken = user.of(maker)
                least += _slots_between(taken, period_ns)
                since_ns = world.now - taken[-1].true_ns
                # Behind a sample out of turn those count that were given up before the next came.
                most += _slots_between(taken, period_ns, are_all=True) + since_ns // period_ns + 1
                least += max(0, (since_ns - in_flight_ns) // period_ns - 2)
            text = f"{user.node} at {user.period_us} us: {consumer.missed} of {least} to {most}"
            world.check(least <= consumer.missed <= most, f"{text} slots are counted as missed")
            is_complete = consumer.served == len(user.taken)
            world.check(is_complete, f"{consumer.served} of {len(user.taken)} samples are counted")

    def check_told(self) -> None:
        """Compare what was reported as missed, a second after the last of it, with the counters."""
        for user in self.users:
            events = [e for _, node, e in self.stage.ledger.events if node is user.node]
            told = sum(e.slots for e in events if isinstance(e, DeadlineMissed))
            missed = user.consumer.missed
            text = f"{user.node} has reported {told} of {missed} slots that were missed"
            self.stage.world.check(told == missed, text)

    def _check_once(self, user: User, maker: Maker) -> None:
        """Check that no tick was taken twice, nor out of order."""
        for before, after in pairwise(user.of(maker)):
            is_later = after.era != before.era or after.tick_ns > before.tick_ns
            self.stage.world.check(is_later, f"{user.node} took {after} after {before} (P4)")

    def _check_firsts(self, user: User, maker: Maker, in_flight_ns: int) -> None:
        taken = user.of(maker)
        if not taken:
            return
        world, period_ns = self.stage.world, user.period_us * US
        end_ns = world.now if user.ended_ns is None else user.ended_ns
        if not user.node.is_alive:
            end_ns = taken[-1].true_ns
        expected, slot = [], taken[0].tick_ns // period_ns
        ticks = {one.tick_ns for one in taken}
        for sent in maker.sent:
            if sent.tick_ns <= taken[0].tick_ns or sent.true_ns > end_ns - in_flight_ns:
                continue
            is_lost = maker.is_lost(user.node.index, sent)
            if not maker.is_owed(user.node.index, sent):  # Made for others, and late for us or not.
                is_lost = sent.tick_ns not in ticks
            if sent.tick_ns // period_ns > slot and not is_lost:
                slot = sent.tick_ns // period_ns
                expected.append(sent.tick_ns)
        found = [one.tick_ns for one in taken[1:]][: len(expected)]
        world.check(
            found == expected,
            f"{user.node} took {len(taken)} samples of {maker.node} at {user.period_us} us, and not"
            f" the first of each slot: {_difference(expected, found)} (P3 to P6)",
        )

    def _drop(self, source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        """Lose samples and interests, and write down which, and what there was to hear."""
        if frame[KIND_OFFSET] in (INTEREST, RESPONSE) and len(self.heard) < _HEARD_MAX:
            self.heard.append(frame)
        if frame[KIND_OFFSET] == INTEREST:
            return self._drop_interest(source, target, frame)
        if frame[KIND_OFFSET] != RESPONSE:
            return False
        is_lost = self.stage.world.chance(self.loss)
        response = decode_response(frame, HEADER_BYTES, len(frame))
        for maker in self.makers:
            if response is not None and maker.producer.origin == response.origin:
                met = target.index, response.tick_ns
                maker.lost[met] += is_lost
                maker.arrived |= set() if is_lost else {met}
        return is_lost

    def _drop_interest(self, source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        if self.stage.world.chance(self.interest_loss):
            return True
        interest = decode_timed(Interest, frame[HEADER_BYTES:])
        if interest is None:
            return False
        for maker in self.makers:
            if maker.node is target and maker.producer.type == interest.type:
                maker.leases.hear(self.stage.world.now, source.index, interest)
        return False


def _slots_between(taken: list[Taken], period_ns: int, *, are_all: bool = False) -> int:
    """Count the slots between the first and the last sample that have none, and were owed one."""
    return sum(
        after.tick_ns // period_ns - before.tick_ns // period_ns - 1
        for before, after in pairwise(taken)
        if are_all or not before.is_out_of_turn
    )


def _difference(expected: list[int], found: list[int]) -> str:
    for place, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return f"the one of place {place} is {other}, not {one}"
    return f"{len(found)} instead of {len(expected)}"


def draw_periods(stage: Stage, count: int) -> list[int]:
    """Draw periods in us: round ones, coprime ones, and some of no order."""
    random = stage.random
    kinds = [(20_000, 33_000, 100_000, 150_000), (50_000, 70_000, 110_000), (33_333, 99_999)]
    chosen = random.choice(kinds)
    return [
        random.choice(chosen) if random.random() < 0.8 else random.randrange(5_000, 400_000)
        for _ in range(count)
    ]


def half_a_tick(company: Company) -> int:
    """Return the largest jitter that may change nothing (P5)."""
    ticks = [maker.producer.plan.tick_ns for maker in company.makers if maker.producer.plan]
    return max(0, min([*ticks, 20 * MS]) // 2 - 1)
