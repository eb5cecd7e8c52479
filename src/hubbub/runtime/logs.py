"""Python logging, one logger a concern, switched on and off at run time.

    hubbub.connection    channels opened and closed, interfaces lost and found
    hubbub.peers         who joins and leaves, and who is matched with whom
    hubbub.repair        requests and repairs of the last second, gaps, nagging, slow receivers
    hubbub.subscription  patterns added and removed, callbacks that failed
    hubbub.statistics    counters, every `statistics_interval`
    hubbub.segments      large messages, in and out
    hubbub.wire.in       every frame that arrives
    hubbub.wire.out      every frame that leaves
    hubbub.cache         the retransmission cache, once a second
    hubbub.samples       time-triggered samples that no consumer took: early, twice, late, too old

All but the last are the log flags of the Java Distributor. `set_log("peers,repair")` switches some
on and the others off, but for warnings, and gives them a handler if the application has configured
none. A logger says at most LINES_PER_SECOND lines a second; what it leaves out, it counts in the
next line.
"""

import logging
import time
from typing import Final

from hubbub.errors import ConfigurationError

CONCERNS: Final = (
    "connection", "peers", "repair", "subscription", "statistics", "segments", "wire.in",
    "wire.out", "cache", "samples",
)  # fmt: skip
LINES_PER_SECOND: Final = 200

_root: Final = logging.getLogger("hubbub")


class RateLimit(logging.Filter):
    """Let so many lines a second pass and count the rest."""

    def __init__(self, lines_per_second: int = LINES_PER_SECOND) -> None:
        super().__init__()
        self.lines_per_second = lines_per_second
        self._second = 0
        self._lines = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether this line is one too many."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > self.lines_per_second:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg = f"{record.getMessage()} (and {self._left_out} lines left out)"
            record.args = ()
            self._left_out = 0
        return True


def logger_of(concern: str) -> logging.Logger:
    """Return the logger of a concern."""
    assert concern in CONCERNS
    return logging.getLogger(f"hubbub.{concern}")


for _name in (*CONCERNS, "events"):  # A listener that raises does so at each event.
    logging.getLogger(f"hubbub.{_name}").addFilter(RateLimit())


def set_log(concerns: str) -> None:
    """Switch the named loggers on (comma-separated; `all`, or empty for none) and the others off.

    Those that are off still warn.

    hubbub.set_log("peers,repair")
    """
    if not isinstance(concerns, str):
        raise ConfigurationError(f"log={concerns!r}: give names, as in 'peers,repair'")
    wanted = {name.strip() for name in concerns.split(",") if name.strip()}
    if "all" in wanted:
        wanted = set(CONCERNS)
    unknown = sorted(wanted - set(CONCERNS))
    if unknown:
        raise ConfigurationError(f"log={', '.join(unknown)}: choose of all, {', '.join(CONCERNS)}")
    for concern in CONCERNS:
        logger_of(concern).setLevel(logging.DEBUG if concern in wanted else logging.WARNING)
    if wanted and not logging.getLogger().handlers and not _root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
        _root.addHandler(handler)
