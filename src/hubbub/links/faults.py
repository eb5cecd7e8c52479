"""Faults on purpose: a link that loses, doubles, reorders, delays and corrupts frames, by seed.

`Faults` is the option a user sets; a `FaultInjector` does it to one direction of one link. It knows
no socket and no clock, and draws from a generator of its own, so what happens to the n-th frame of
a direction depends on the seed and on n alone. A reordered frame is held until a few later ones
have passed, not for a time: only that reorders on a slow stream too. A short time limit lets the
last frame of a stream go in the end.
"""

import random
from collections import deque
from dataclasses import dataclass, field, fields
from typing import Final

from hubbub.errors import ConfigurationError
from hubbub.limits import MS
from hubbub.protocol.burst import Address

REORDER_FRAMES_MAX: Final = 4
REORDER_HOLD_NS: Final = 5 * MS
DELAY_MS_MAX: Final = 60_000

DIRECTIONS: Final = ("in", "out")

Frame = tuple[bytes, Address | None]


@dataclass(frozen=True, slots=True)
class Faults:
    """How a link mistreats frames: probabilities from 0 to 1, in both directions.

    `delay_ms` holds every frame for so long. The same `seed` does the same to the same frames; None
    draws another one each time. `direction` "in" or "out" limits the faults to one way.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_ms: float = 0.0
    corrupt: float = 0.0
    seed: int | None = None
    direction: str = "both"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            _check_number(name, getattr(self, name), 1)
        _check_number("delay_ms", self.delay_ms, DELAY_MS_MAX)
        if self.seed is not None and not isinstance(self.seed, int):
            raise ConfigurationError(f"faults seed={self.seed!r} is not a whole number")
        if self.direction not in ("both", *DIRECTIONS):
            raise ConfigurationError(
                f"faults direction={self.direction!r} is none of both, {', '.join(DIRECTIONS)}"
            )

    def injector(self, direction: str) -> "FaultInjector | None":
        """Make the injector of a direction, None if nothing is to happen there."""
        is_idle = not (self.loss or self.duplicate or self.reorder or self.delay_ms or self.corrupt)
        if is_idle or self.direction not in ("both", direction):
            return None
        rng = random.Random() if self.seed is None else random.Random(f"{self.seed}/{direction}")
        return FaultInjector(self, rng, direction)


@dataclass(frozen=True, slots=True)
class FaultStatistics:
    """What was done to the frames of a direction."""

    seen: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    delayed: int = 0
    corrupted: int = 0


@dataclass(slots=True)
class _Held:
    """A reordered frame, waiting for `frames_left` later ones to pass or for its time."""

    frame: Frame
    frames_left: int
    due_ns: int


@dataclass(slots=True)
class _Counts:
    seen: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    delayed: int = 0
    corrupted: int = 0


@dataclass(slots=True)
class FaultInjector:
    """Decide for each frame of one direction what becomes of it."""

    faults: Faults
    rng: random.Random
    direction: str
    _held: list[_Held] = field(default_factory=list)
    _delayed: deque[tuple[int, Frame]] = field(default_factory=deque)
    _counts: _Counts = field(default_factory=_Counts)

    def filter(self, now: int, frames: list[Frame]) -> list[Frame]:
        """Take frames in; give those that may pass now, released ones included."""
        survivors: list[Frame] = []
        for frame in frames:
            self._treat(now, frame, survivors)
        return self._through_delay(now, survivors)

    def release(self, now: int) -> list[Frame]:
        """Give the frames whose time has come."""
        overdue = [held for held in self._held if held.due_ns <= now]
        if overdue:
            self._held = [held for held in self._held if held.due_ns > now]
        return self._through_delay(now, [held.frame for held in overdue])

    def deadline(self) -> int | None:
        """Tell when `release` has something next; None: nothing is held."""
        times = [held.due_ns for held in self._held]
        if self._delayed:
            times.append(self._delayed[0][0])
        return min(times, default=None)

    def statistics(self) -> FaultStatistics:
        """Count what was done."""
        counts = {one.name: getattr(self._counts, one.name) for one in fields(FaultStatistics)}
        return FaultStatistics(**counts)

    def _treat(self, now: int, frame: Frame, survivors: list[Frame]) -> None:
        faults, chance, counts = self.faults, self.rng.random, self._counts
        counts.seen += 1
        if faults.loss and chance() < faults.loss:
            counts.lost += 1
            return
        if faults.corrupt and chance() < faults.corrupt:
            counts.corrupted += 1
            frame = (self._flip_a_bit(frame[0]), frame[1])
        copies = 1
        if faults.duplicate and chance() < faults.duplicate:
            counts.duplicated += 1
            copies = 2
        for _ in range(copies):
            if faults.reorder and chance() < faults.reorder:
                counts.reordered += 1
                after = self.rng.randint(1, REORDER_FRAMES_MAX)
                self._held.append(_Held(frame, after, now + REORDER_HOLD_NS))
            else:
                survivors.append(frame)
                self._overtake(survivors)

    def _overtake(self, survivors: list[Frame]) -> None:
        """Let the held frames know that one passed them; those overtaken often enough follow it."""
        if not self._held:
            return
        still_held: list[_Held] = []
        for held in self._held:
            held.frames_left -= 1
            if held.frames_left > 0:
                still_held.append(held)
            else:
                survivors.append(held.frame)
        self._held = still_held

    def _through_delay(self, now: int, frames: list[Frame]) -> list[Frame]:
        """Send frames through the delay line, which all others have to pass first."""
        if not self.faults.delay_ms:
            return frames
        due_ns = now + round(self.faults.delay_ms * MS)
        self._delayed.extend((due_ns, frame) for frame in frames)
        self._counts.delayed += len(frames)
        arrived: list[Frame] = []
        while self._delayed and self._delayed[0][0] <= now:
            arrived.append(self._delayed.popleft()[1])
        return arrived

    def _flip_a_bit(self, frame: bytes) -> bytes:
        if not frame:
            return frame
        position = self.rng.randrange(len(frame) * 8)
        damaged = bytearray(frame)
        damaged[position // 8] ^= 1 << position % 8
        return bytes(damaged)


def split(data: bytes, segment_bytes: int) -> list[bytes]:
    """Cut a run of frames into its frames; `segment_bytes` 0 means that it is one."""
    if segment_bytes <= 0 or segment_bytes >= len(data):
        return [data]
    return [data[start : start + segment_bytes] for start in range(0, len(data), segment_bytes)]


def gather(
    frames: list[Frame], run_bytes_max: int, run_frames_max: int
) -> list[tuple[list[bytes], int, Address | None]]:
    """Put frames together to runs again: one address, all of one size but a shorter last one."""
    runs: list[tuple[list[bytes], int, Address | None]] = []
    run: list[bytes] = []
    run_bytes = 0
    address: Address | None = None
    for data, whither in frames:
        fits = (
            run
            and whither == address
            and len(run[-1]) == len(run[0]) >= len(data)
            and len(run) < run_frames_max
            and run_bytes + len(data) <= run_bytes_max
        )
        if fits:
            run.append(data)
            run_bytes += len(data)
            continue
        run, run_bytes, address = [data], len(data), whither
        runs.append((run, len(data), address))
    return [(run, size if len(run) > 1 else 0, address) for run, size, address in runs]


def _check_number(name: str, value: object, bound: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= bound:
        raise ConfigurationError(f"faults {name}={value!r} must be a number from 0 to {bound}")
