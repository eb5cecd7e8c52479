"""Which clock the ticks of a node are on, and what it follows."""

from collections.abc import Callable
from typing import Final

from hubbub.events import ClockStepped
from hubbub.limits import CLOCK_INTERVAL, MS
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.timetrigger.clock import SlotClock
from hubbub.protocol.timetrigger.interests import NEVER
from hubbub.protocol.timetrigger.offsets import FREE, SYNCHRONISED_SYSTEM, SYSTEM, Offsets
from hubbub.wire.timed import ASKS, ClockExchange

SYSTEM_CLOCK: Final = "system"  # The operating system's, by whatever that is disciplined.
LOCAL_CLOCK: Final = "local"  # As the system's was at first, then on its own.
BUS_CLOCK: Final = "bus"  # That of another node, by two-way exchanges.


class Timekeeper:
    """The slot clock of a node, and its source."""

    def __init__(self, endpoint: Endpoint, on_change: Callable[[int], None]) -> None:
        self.clock = SlotClock()
        self.source = SYSTEM_CLOCK
        self.is_wall_synchronised = False  # As the shell finds out.
        self.offsets = Offsets(endpoint.key, SYSTEM)
        self.due_ns = NEVER
        self._endpoint = endpoint
        self._on_change = on_change
        self._wall_ns: int | None = None  # What the wall clock was ahead when we looked last.

    def use(self, source: str) -> None:
        """Follow this source; before the first tick."""
        self.source = source
        self.offsets.own_rank = SYSTEM if source == SYSTEM_CLOCK else FREE

    def begin(self, now: int) -> None:
        """Look after the clock from now on."""
        self._follow(now)
        if self.due_ns == NEVER:
            self.due_ns = now

    def advance(self, now: int) -> ClockExchange | None:
        """Follow the source; return what to ask everybody, if anything."""
        self.due_ns = now + CLOCK_INTERVAL
        self._follow(now)
        if self.source != BUS_CLOCK:
            return None
        if self.offsets.choose(now) is None:
            self.clock.error_ns = None
        question = self.offsets.ask(now)
        self.due_ns = min(self.due_ns, self.offsets.due_ns)
        return question

    def take(self, now: int, key: bytes, exchange: ClockExchange) -> ClockExchange | None:
        """Take a leg of an exchange with a peer; return the answer, if that is a question."""
        self._follow(now)
        if exchange.form == ASKS:
            return self.offsets.answer(exchange, key, self.clock.at(now), self.clock.error_ns)
        if exchange.target == self._endpoint.key and self.source == BUS_CLOCK:
            reading = self.offsets.hear(now, key, exchange)
            if reading is not None:
                self._discipline(now, reading.offset_ns, reading.error_ns)
        return None

    def _follow(self, now: int) -> None:
        wall_ns = self._endpoint.wall_offset_ns
        if self.source == SYSTEM_CLOCK:
            is_known = self.is_wall_synchronised
            self.offsets.own_rank = SYNCHRONISED_SYSTEM if is_known else SYSTEM
            if wall_ns != self._wall_ns:
                self._discipline(now, wall_ns, 0 if is_known else None)
        elif self._wall_ns is None:
            self._discipline(now, wall_ns, None)  # From here on it runs freely.
        self._wall_ns = wall_ns

    def _discipline(self, now: int, offset_ns: int, error_ns: int | None) -> None:
        before = self.clock.at(now)
        if self.clock.discipline(now, offset_ns, error_ns):
            by_ms = (self.clock.at(now) - before) / MS
            event = ClockStepped(self._endpoint.channel, by_ms, self.clock.era)
            self._endpoint.events.append(event)
        self._on_change(now)
