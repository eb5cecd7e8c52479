"""The clock of one simulated host: it drifts, and its wall clock is set by hand now and then."""

_PARTS: int = 1_000_000


class Clock:
    """Monotonic time of a host, `drift_ppm` off, and a wall clock that may step."""

    def __init__(self, drift_ppm: int = 0, start_ns: int = 0) -> None:
        self._rate = _PARTS + drift_ppm
        self._start_ns = start_ns
        self.wall_offset_ns = 1_700_000_000 * 1_000_000_000

    def local(self, true_ns: int) -> int:
        """Return what the host's monotonic clock shows."""
        return self._start_ns + true_ns * self._rate // _PARTS

    def true(self, local_ns: int) -> int:
        """Return the first true time at which the host's clock shows at least this."""
        return -(-(local_ns - self._start_ns) * _PARTS // self._rate)
