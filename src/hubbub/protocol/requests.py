"""Requests for history, as they stand among the patterns that a node declares."""

from typing import Final

from hubbub.limits import REQUESTS_MAX

_DIGITS: Final = 10


def write_request(number: int, count: int, pattern: str) -> str:
    """Write a request for the history of what matches: so many messages a topic; 0: all.

    No pattern begins like this, so who does not know of it takes it for a malformed one.
    """
    return f"{number} {count} {pattern}"


def read_request(entry: str) -> tuple[int, int, str] | None:
    """Return number, count and pattern of a request for history; None: it is a plain pattern."""
    number, _, rest = entry.partition(" ")
    count, _, pattern = rest.partition(" ")
    is_request = all(
        len(figures) <= _DIGITS and figures.isascii() and figures.isdigit()
        for figures in (number, count)
    )
    if not is_request or not 0 < int(number) <= REQUESTS_MAX:
        return None
    return int(number), int(count), pattern
