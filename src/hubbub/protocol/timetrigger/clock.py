"""The clock that ticks are on: nanoseconds since 1970, as far as its source knows.

Timers are monotonic; this clock is monotonic time plus an offset. A source (the system's clock, or
another node) says now and then what the offset should be. A small difference is slewed, one part in
a hundred, so that the clock never jumps and no tick is passed over or comes twice; a large one is
stepped, and `era` grows, so that everybody sees that slots are counted anew. Between two steps the
clock is strictly monotonic, and `when` is its inverse.

Why not follow the system's clock as it is: a step of a second back would make a consumer that has
had slot 1000 refuse the next ten slots of 100 ms; a step ahead would look like ten missed ones.
"""

from hubbub.limits import CLOCK_ERROR_MAX, CLOCK_SLEW_PARTS, CLOCK_STEP, US


class SlotClock:
    """Monotonic time plus an offset that is disciplined."""

    def __init__(self) -> None:
        self.era = 0
        self.steps = 0
        self.error_ns: int | None = None  # None: nobody knows.
        self._is_set = False
        self._first_ns = 0  # The offset that it was set to at first.
        self._since_ns = 0  # When the slewing under way began,
        self._until_ns = 0  # when it ends,
        self._from_ns = 0  # from which offset,
        self._offset_ns = 0  # to which.

    def at(self, now: int) -> int:
        """Return what this clock shows."""
        return now + self._offset_at(now)

    def count(self, now: int) -> int:
        """Return a number to count from: it only grows, also where this clock steps back.

        In microseconds since 1970, by the first offset: after a restart it has grown, too.
        """
        return max(0, now + self._first_ns) // US

    def when(self, slot_ns: int) -> int:
        """Return the first monotonic time at which this clock shows so much."""
        if slot_ns >= self._until_ns + self._offset_ns:
            return slot_ns - self._offset_ns
        if slot_ns <= self._since_ns + self._from_ns:
            return slot_ns - self._from_ns
        sign = 1 if self._offset_ns > self._from_ns else -1
        # Only a little too early by this, because the slewing is rounded; then look step by step.
        elapsed = slot_ns - self._since_ns - self._from_ns
        now = self._since_ns + elapsed * CLOCK_SLEW_PARTS // (CLOCK_SLEW_PARTS + sign)
        while self.at(now) < slot_ns:
            now += 1
        while self.at(now - 1) >= slot_ns:
            now -= 1
        return now

    @property
    def is_synchronised(self) -> bool:
        """Tell whether this clock is known to agree with others."""
        return self.error_ns is not None and self.error_ns <= CLOCK_ERROR_MAX

    def discipline(self, now: int, offset_ns: int, error_ns: int | None) -> bool:
        """Take what the offset should be; True: that was a step."""
        self.error_ns = error_ns
        before = self._offset_at(now)
        difference = offset_ns - before
        is_step = abs(difference) > CLOCK_STEP
        if not self._is_set:
            self._first_ns = offset_ns
        if is_step or not self._is_set:
            self.era = (self.era + self._is_set) & 0xFFFF
            self.steps += self._is_set
            before = offset_ns
            difference = 0
        is_step = is_step and self._is_set
        self._is_set = True
        self._since_ns = now
        self._until_ns = now + abs(difference) * CLOCK_SLEW_PARTS
        self._from_ns = before
        self._offset_ns = offset_ns
        return is_step

    def _offset_at(self, now: int) -> int:
        if now >= self._until_ns:
            return self._offset_ns
        moved = max(0, now - self._since_ns) // CLOCK_SLEW_PARTS
        return self._from_ns + (moved if self._offset_ns > self._from_ns else -moved)
