"""How fast a reliable stream may go: as fast as its slowest conforming receiver, and never faster.

Positions are bytes since the stream began, counted as a socket buffer counts them. Every receiver
offers a window beyond the last frame that it has without a hole; the sender stays within the
minimum. A receiver that does not advance for `slow_ns` while it holds back the others leaves the
minimum: it is repaired as long as the cache lasts, and nobody waits for it. It is back in when it
has caught up. No window is larger than the cache: what a conforming receiver may still ask for is
never gone.

Why not a fixed rate: a Python sender with segmentation offload outruns a Python receiver by a
factor of two, a full socket buffer is 20 ms of traffic, and any rate that is safe is far too slow
(decision 0005).

Who was stopped goes on when an eighth of a window is free, not at the first frame that fits. The
frame that fills a window asks, the answer makes room for what came since the one before, and so one
frame that was sent alone would be asked about and followed by one frame for ever: the silly window
of RFC 1122, section 4.2.3.4. A megabyte in Ethernet frames had 3.5 to 4.4 STATUS by it, now 2.7.
"""

from hubbub.limits import (
    GRTT_CEILING,
    GRTT_FLOOR,
    GRTT_START,
    MS,
    RESUME_WINDOW_SHARE,
    SECOND,
    WINDOW_BYTES_MIN,
)
from hubbub.wire.control import Status


class ReceiverState:
    """What the sender knows of one receiver of its stream."""

    __slots__ = (
        "advanced_ns", "contiguous", "from_frame", "is_lost", "is_slow", "key", "limit", "rtt_ns",
        "sampled_ns", "window_bytes",
    )  # fmt: skip

    def __init__(
        self, key: bytes, now: int, from_frame: int, position: int, window_bytes: int
    ) -> None:
        self.key = key
        self.from_frame = from_frame
        self.contiguous = from_frame  # The first frame that it does not have.
        self.window_bytes = window_bytes
        self.limit = position + window_bytes
        self.advanced_ns = now
        self.rtt_ns = 0
        self.sampled_ns = now
        self.is_slow = False
        self.is_lost = False  # Timed out, but still owed.


class Flow:
    """The receivers of one stream and the limit they set together."""

    def __init__(self, slow_ns: int, cache_bytes: int) -> None:
        self.slow_ns = slow_ns
        self.cache_bytes = cache_bytes
        self.receivers: dict[bytes, ReceiverState] = {}
        self.has_present = False  # Whether anybody is there to hear.
        self.slow: frozenset[bytes] = frozenset()  # Who is here, and was left behind.
        self.limit: int | None = None  # The position not to be passed; None: nobody conforms.
        self.resume_bytes = 0  # Who was stopped by it goes on when so much is free.
        self.acknowledged = 0  # Every owed receiver has all frames before this one.
        self.grtt_ns = GRTT_START
        self.blocked_since_ns: int | None = None

    def add(
        self, key: bytes, now: int, from_frame: int, position: int, window_bytes: int
    ) -> ReceiverState:
        """Count a new receiver in, from this frame on."""
        window_bytes = self._bounded(window_bytes)
        state = self.receivers[key] = ReceiverState(key, now, from_frame, position, window_bytes)
        self._recompute(from_frame)
        return state

    def remove(self, key: bytes, next_frame: int) -> None:
        """Nothing more is owed to this receiver."""
        if self.receivers.pop(key, None) is not None:
            self._recompute(next_frame)
            self._note_slow()

    def set_lost(self, key: bytes, next_frame: int, *, is_lost: bool) -> bool:
        """Stop or resume waiting for a receiver, the debt stays; False: as it was."""
        state = self.receivers.get(key)
        if state is None or state.is_lost == is_lost:
            return False
        state.is_lost = is_lost
        self._recompute(next_frame)
        self._note_slow()
        return True

    def update(
        self,
        now: int,
        state: ReceiverState,
        status: Status,
        next_frame: int,
        position: int,
        base: int,
    ) -> None:
        """Take in a STATUS; `base` is the position of the first frame that the receiver misses."""
        if status.contiguous > next_frame:
            return  # Nobody can have what was never sent.
        if status.contiguous > state.contiguous:
            state.contiguous = status.contiguous
            state.advanced_ns = now
        elif status.contiguous < state.contiguous:
            return  # An older STATUS overtaken by a newer one.
        state.window_bytes = self._bounded(status.window_bytes)
        state.limit = base + state.window_bytes
        if state.is_slow and position <= state.limit:
            state.is_slow = False
            self._note_slow()
        self._recompute(next_frame)

    def sample_rtt(self, now: int, state: ReceiverState, rtt_ns: int) -> None:
        """Track round trips: up quickly, down slowly, because asking too early costs everybody.

        Slowly is a matter of time, not of samples: where those are rare, what a stall of long ago
        has left would slow down every repair for minutes.
        """
        if not 0 <= rtt_ns <= GRTT_CEILING:
            return
        step = 2
        if rtt_ns <= state.rtt_ns:
            rested_ns = max(now - state.sampled_ns, 1)
            step = min(max(SECOND // rested_ns, 1), 16)
        state.sampled_ns = now
        state.rtt_ns += (rtt_ns - state.rtt_ns) // step
        here = [other.rtt_ns for other in self.receivers.values() if not other.is_lost]
        slowest = max(here, default=rtt_ns)
        self.grtt_ns = min(max(slowest, GRTT_FLOOR), GRTT_CEILING)

    def blocked(self, now: int) -> None:
        """Note that the stream has something to send and may not."""
        if self.blocked_since_ns is None:
            self.blocked_since_ns = now

    @property
    def is_blocked(self) -> bool:
        """Tell whether that was noted."""
        return self.blocked_since_ns is not None

    def unblocked(self) -> None:
        """Note that the stream moves."""
        self.blocked_since_ns = None

    def slow_deadline(self) -> int | None:
        """Return when the receivers at the limit will have been waited for long enough."""
        if self.blocked_since_ns is None:
            return None
        return min((self._patience_ends(state) for state in self._holding_back()), default=None)

    def drop_slow(self, now: int, next_frame: int) -> list[bytes]:
        """Take out of the minimum who did not advance for too long; return their keys."""
        if self.blocked_since_ns is None:
            return []
        slow = [state for state in self._holding_back() if self._patience_ends(state) <= now]
        for state in slow:
            state.is_slow = True
        if slow:
            self._recompute(next_frame)
            self._note_slow()
        return [state.key for state in slow]

    def is_acknowledged(self, next_frame: int) -> bool:
        """Tell whether everybody who is here has all."""
        return all(
            state.contiguous >= next_frame for state in self.receivers.values() if not state.is_lost
        )

    def _bounded(self, window_bytes: int) -> int:
        return min(max(window_bytes, WINDOW_BYTES_MIN), self.cache_bytes)

    def _holding_back(self) -> list[ReceiverState]:
        return [
            state
            for state in self.receivers.values()
            if state.limit == self.limit and not state.is_slow and not state.is_lost
        ]

    def _patience_ends(self, state: ReceiverState) -> int:
        assert self.blocked_since_ns is not None
        return max(state.advanced_ns, self.blocked_since_ns) + self.slow_ns

    def _note_slow(self) -> None:
        self.slow = frozenset(
            state.key for state in self.receivers.values() if state.is_slow and not state.is_lost
        )

    def _recompute(self, next_frame: int) -> None:
        states = self.receivers.values()
        conforming = [state for state in states if not state.is_slow and not state.is_lost]
        self.limit = min((state.limit for state in conforming), default=None)
        window_bytes = min((state.window_bytes for state in conforming), default=0)
        self.resume_bytes = window_bytes // RESUME_WINDOW_SHARE
        self.acknowledged = min((state.contiguous for state in states), default=next_frame)
        self.has_present = any(not state.is_lost for state in states)


class TokenBucket:
    """An upper limit of bits a second over everything a channel sends, repairs included."""

    __slots__ = ("_bytes_per_ns", "_level_bytes", "_stamp_ns", "burst_bytes")

    def __init__(self, bits_per_second: int) -> None:
        assert bits_per_second > 0
        self._bytes_per_ns = bits_per_second / 8e9
        # Ten milliseconds of traffic: timers are late by a millisecond, and the rate must still
        # hold.
        self.burst_bytes = max(2048.0, self._bytes_per_ns * 10 * MS)
        self._level_bytes = self.burst_bytes
        self._stamp_ns: int | None = None

    def take(self, now: int, size_bytes: int) -> None:
        """Pay for what was sent; the level may go below zero once."""
        self._refill(now)
        self._level_bytes -= size_bytes

    def ready_ns(self, now: int) -> int | None:
        """Return when the next burst may go; None: now."""
        self._refill(now)
        if self._level_bytes > 0:
            return None
        return now + int(-self._level_bytes / self._bytes_per_ns) + 1

    def _refill(self, now: int) -> None:
        if self._stamp_ns is not None and now > self._stamp_ns:
            gained = (now - self._stamp_ns) * self._bytes_per_ns
            self._level_bytes = min(self._level_bytes + gained, self.burst_bytes)
        self._stamp_ns = now
