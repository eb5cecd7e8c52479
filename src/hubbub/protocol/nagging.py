"""The nagging monitor: a receiver that asks for repairs without a pause is told so.

The definition is the prose of the Distributor's documentation, because its pseudo-code cannot fire:
once a window, count the requests sent in it. A window without any starts the observation anew. When
every window of the check interval had some, and the total reached the maximum, the node nags: one
event, and then the policy. The window that opens an observation counts as elapsed.
"""


class NaggingMonitor:
    """Watches the requests of one channel; off when the window is 0."""

    def __init__(self, now: int, window_ns: int, check_ns: int, requests_max: int) -> None:
        self.window_ns = window_ns
        self.check_ns = check_ns
        self.requests_max = requests_max
        self.due_ns: int | None = now + window_ns if window_ns else None
        self.has_fired = False
        self._in_window = 0
        self._total = 0
        self._observed_ns = 0

    def requested(self) -> None:
        """Count a request."""
        self._in_window += 1

    def advance(self, now: int) -> tuple[int, float] | None:
        """End a window if it is time; return (requests, seconds) when nagging is found, once."""
        if self.due_ns is None or now < self.due_ns:
            return None
        self.due_ns += self.window_ns
        if self.due_ns <= now:  # Windows slept through had no requests.
            self.due_ns = now + self.window_ns
        count, self._in_window = self._in_window, 0
        if count == 0:
            self.has_fired = False
            self._restart()
            return None
        self._total += count
        self._observed_ns += self.window_ns
        if self._observed_ns < self.check_ns:
            return None
        total, observed_s = self._total, self._observed_ns / 1e9
        self._restart()
        if total < self.requests_max or self.has_fired:
            return None
        self.has_fired = True
        return total, observed_s

    def _restart(self) -> None:
        self._total = 0
        self._observed_ns = 0
