"""Do something so many times a second."""

import time


class Pace:
    """Say when the next one is due; late ones catch up, but not more than a second of them."""

    def __init__(self, rate: float) -> None:
        self._interval_s = 1 / rate
        self._due_s = time.monotonic()

    def wait(self) -> None:
        """Sleep until the next one is due."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            time.sleep(self._due_s - now_s)
        self._due_s = max(self._due_s, now_s - 1) + self._interval_s
