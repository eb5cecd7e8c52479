"""Count and log what attachments and callbacks raise on the I/O thread, which never ends for it."""

import logging
import time
from collections.abc import Callable

from hubbub.limits import SECOND

logger = logging.getLogger("hubbub.runtime")


class Failures:
    """A counter of exceptions, with at most one traceback a second in the log."""

    def __init__(self) -> None:
        self.count = 0
        self._quiet_until_ns = 0
        self._unlogged = 0

    def report(self, what: str, error: BaseException) -> None:
        """Count an exception, and log it unless one was logged a moment ago."""
        self.count += 1
        now = time.monotonic_ns()
        if now < self._quiet_until_ns:
            self._unlogged += 1
            return
        logger.error("%s failed (%d unlogged before)", what, self._unlogged, exc_info=error)
        self._quiet_until_ns = now + SECOND
        self._unlogged = 0

    def guard(self, function: Callable[[], object]) -> None:
        """Call a function; report what it raises."""
        try:
            function()
        except BaseException as error:
            self.report(getattr(function, "__qualname__", repr(function)), error)
