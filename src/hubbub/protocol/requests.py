"""Requests for history, as they stand among the patterns that a node declares.

A request is for a name (wire/wishes.py): a pattern, and the links that its subscription insists on.
So it is met by the topics that this subscription gets, and by no others.
"""

from collections.abc import Sequence
from typing import Final

from hubbub.limits import REQUESTS_MAX
from hubbub.subjects import Handle, Matcher
from hubbub.wire.wishes import Links, read_name

_DIGITS: Final = 10


class Asks:
    """The requests of one node, by what they are for."""

    def __init__(self) -> None:
        self._by_links: dict[Links, Matcher[int]] = {}

    def add(self, name: str, request: int) -> tuple[Links, Handle[int]]:
        """Enter a request; return what takes it out again."""
        links, pattern = read_name(name) or ((), name)
        return links, self._by_links.setdefault(links, Matcher()).add(pattern, request)

    def remove(self, place: tuple[Links, Handle[int]]) -> None:
        """Take a request out."""
        links, handle = place
        self._by_links[links].remove(handle)

    def match(self, name: str) -> Sequence[int]:
        """Return the requests for a subject that comes by just the links of a name."""
        links, subject = read_name(name) or ((), name)
        matcher = self._by_links.get(links)
        return () if matcher is None else matcher.match(subject)

    def match_all(self, subject: str) -> Sequence[int]:
        """Return the requests for a subject, whatever they insist on."""
        return [one for matcher in self._by_links.values() for one in matcher.match(subject)]


def write_request(number: int, count: int, name: str) -> str:
    """Write a request for the history of what matches: so many messages a topic; 0: all.

    No pattern begins like this, so who does not know of it takes it for a malformed one.
    """
    return f"{number} {count} {name}"


def read_request(entry: str) -> tuple[int, int, str] | None:
    """Return number, count and name of a request for history; None: it is a plain pattern."""
    number, _, rest = entry.partition(" ")
    count, _, name = rest.partition(" ")
    is_request = all(
        len(figures) <= _DIGITS and figures.isascii() and figures.isdigit()
        for figures in (number, count)
    )
    if not is_request or not 0 < int(number) <= REQUESTS_MAX:
        return None
    return int(number), int(count), name
