"""What a peer declares, as far as it has told us: a snapshot, and the steps behind it.

A snapshot comes by HELLO, in parts, and replaces everything. Steps come by CHANGE and count only
where they join: one version a step, so what is known already is passed over, and where one is
missing between what we have and what came, the peer is asked for a snapshot.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hubbub.errors import SubjectError
from hubbub.limits import PATTERNS_MAX, PUBLICATIONS_BYTES_MAX, PUBLICATIONS_MAX
from hubbub.protocol.requests import Asks, read_request
from hubbub.subjects import Handle, Matcher, check_pattern, is_subject
from hubbub.wire.control import (
    PUBLISHES,
    PUBLISHES_NO_MORE,
    WANTS,
    WANTS_ANEW,
    WANTS_NO_MORE,
    Change,
    Hello,
    Publication,
    Step,
)
from hubbub.wire.header import CLASSES
from hubbub.wire.wishes import Links, read_name


class News(NamedTuple):
    """What became known of a peer."""

    is_new_interest: bool
    published: list[Publication]
    withdrawn: list[str]
    refused: int = 0  # Not kept: beyond a bound, or malformed.


class _Snapshot:
    """The parts of one snapshot that have come, within bounds."""

    def __init__(self, version: int = 0, parts: int = 0) -> None:
        self.version = version
        self.parts = parts
        self.refused = 0
        self._parts: dict[int, tuple[list[str], list[Publication]]] = {}
        self._patterns = 0
        self._publications = 0
        self._size_bytes = 0

    @property
    def missing(self) -> int:
        """Return how many parts are still to come."""
        return self.parts - len(self._parts)

    def take(self, hello: Hello) -> bool:
        """Take a part; False: its patterns are too many, and without them it is no use."""
        if hello.part in self._parts:
            return True
        self._patterns += len(hello.patterns)
        self._publications += len(hello.publications)
        self._size_bytes += sum(map(_size_of, hello.publications))
        publications = hello.publications
        if self._publications > PUBLICATIONS_MAX or self._size_bytes > PUBLICATIONS_BYTES_MAX:
            self.refused += len(publications)
            publications = []
        self._parts[hello.part] = hello.patterns, publications
        return self._patterns <= PATTERNS_MAX

    def join(self) -> tuple[list[str], list[Publication]]:
        """Return what all parts hold, in their order."""
        parts = [self._parts[part] for part in range(self.parts)]
        return (
            [pattern for patterns, _ in parts for pattern in patterns],
            [publication for _, publications in parts for publication in publications],
        )


class Declared:
    """The declared state of one peer."""

    def __init__(self) -> None:
        self.version = 0
        self.interest_version = 0
        self.announced_version = 0  # The newest version that we have heard of.
        self.matcher: Matcher[None] = Matcher()  # Of what it wants by any link,
        self.wishes: dict[Links, Matcher[None]] = {}  # and of what by these alone.
        # Whether it is a sound pattern; others are a request for history, links, or malformed.
        self.patterns: dict[str, bool] = {}
        self.has_links = False  # It has published something over links of its choice.
        self._by_any: dict[str, Handle[None]] = {}
        self._by_links: dict[str, dict[Links, Handle[None] | None]] = {}
        self.requests: dict[int, int] = {}  # For history: number -> how many messages; 0: all.
        self.asks = Asks()
        self._asking: dict[str, tuple[int, tuple[Links, Handle[int]]]] = {}
        self.publications: dict[str, Publication] = {}
        self._size_bytes = 0
        self._refused = 0
        self._snapshot = _Snapshot()

    @property
    def is_behind(self) -> bool:
        """Tell whether the peer has declared something that we do not know."""
        return self.version < self.announced_version

    def sound_patterns(self) -> tuple[str, ...]:
        """Return the patterns, without malformed ones and requests for history."""
        return tuple(pattern for pattern, is_sound in self.patterns.items() if is_sound)

    def insisting(self) -> tuple[tuple[str, Links], ...]:
        """Return which patterns it wants by which links alone."""
        return tuple(
            (pattern, links)
            for pattern, by_links in self._by_links.items()
            for links in by_links
            if links
        )

    def wishes_for(self, subject: str) -> list[Links]:
        """Return by which links it wants a subject, each list once; () is any."""
        wishes = [wish for wish, matcher in self.wishes.items() if matcher.match(subject)]
        return [(), *wishes] if self.matcher.match(subject) else wishes

    def collect(self, hello: Hello) -> tuple[list[str], list[Publication]] | None:
        """Take a part of a snapshot; return all of it when its newest version is complete."""
        snapshot = self._snapshot
        if hello.version < snapshot.version or hello.part >= hello.parts:
            return None
        if (hello.version, hello.parts) != (snapshot.version, snapshot.parts):
            snapshot = self._snapshot = _Snapshot(hello.version, hello.parts)
        if not snapshot.take(hello):
            self._snapshot = _Snapshot()
        if snapshot.missing:
            return None
        self._snapshot = _Snapshot()
        self._refused = snapshot.refused
        return snapshot.join()

    def replace(
        self, hello: Hello, patterns: Iterable[str], publications: Iterable[Publication]
    ) -> News:
        """Take a snapshot instead of what was known."""
        before = self.publications
        is_new_interest = hello.interest_version != self.interest_version
        self.matcher, self.patterns, self.publications = Matcher(), {}, {}
        self.wishes, self._by_any, self._by_links = {}, {}, {}
        self.requests, self.asks, self._asking = {}, Asks(), {}
        self._size_bytes = 0
        for pattern in patterns:
            self._want(pattern)
        for publication in publications:
            self._publish(publication)
        self.version, self.interest_version = hello.version, hello.interest_version
        self.announced_version = max(self.announced_version, self.version)
        refused, self._refused = self._refused, 0
        now = self.publications
        published = [one for name, one in now.items() if not _is_same(before.get(name), one)]
        withdrawn = [name for name, one in before.items() if not _is_same(now.get(name), one)]
        return News(is_new_interest, published, withdrawn, refused)

    def apply(self, change: Change) -> News | None:
        """Take the steps that are new; None: there are none, or some before them are missing."""
        if not change.base <= self.version < change.version:
            return None
        self._refused = 0
        interest_version, before = self.interest_version, dict[str, Publication | None]()
        for step in change.steps[self.version - change.base :]:
            self.version += 1
            self._take(step, before)
        self.announced_version = max(self.announced_version, self.version)
        published = [self.publications[name] for name in before if name in self.publications]
        return News(
            self.interest_version != interest_version,
            published,
            [name for name, one in before.items() if one is not None],
            self._refused,
        )

    def _take(self, step: Step, before: dict[str, Publication | None]) -> None:
        """Take one step; `before` keeps what was published under the names that it touches."""
        if step.what == WANTS:
            self._want(step.name)
        elif step.what == WANTS_NO_MORE:
            self._want_no_more(step.name)
        elif step.what in (PUBLISHES, PUBLISHES_NO_MORE):
            before.setdefault(step.name, self.publications.get(step.name))
            self._withdraw(step.name)
            if step.what == PUBLISHES:
                self._publish(Publication(
                    step.name, step.stream, step.schema_name, step.schema_hash, step.sequence,
                    step.links,
                ))  # fmt: skip
        if step.what in (WANTS, WANTS_NO_MORE, WANTS_ANEW):
            self.interest_version = self.version

    def _want(self, pattern: str) -> None:
        if pattern in self.patterns:
            return
        if len(self.patterns) >= PATTERNS_MAX:
            self._refused += 1
            return
        self.patterns[pattern] = False
        try:
            if not (self._ask(pattern) or self._insist(pattern)):
                check_pattern(pattern)
                self.patterns[pattern] = True
                self._sort(pattern)
        except SubjectError:
            self._refused += 1

    def _want_no_more(self, entry: str) -> None:
        self.patterns.pop(entry, None)
        self._withdraw_request(entry)
        links, pattern = read_name(entry) or ((), entry)
        by_links = self._by_links.get(pattern, {})
        handle = by_links.pop(links, None) if pattern != entry else None
        if handle is not None:
            self.wishes[links].remove(handle)
        if not by_links:
            self._by_links.pop(pattern, None)
        self._sort(pattern)

    def _insist(self, entry: str) -> bool:
        """Take in by which links a pattern is wanted; False: it is a plain one."""
        named = read_name(entry)
        if named is None:
            return False
        links, pattern = named
        check_pattern(pattern)
        by_links = self._by_links.setdefault(pattern, {})
        if links not in by_links:
            matcher = self.wishes.setdefault(links, Matcher()) if links else None
            by_links[links] = None if matcher is None else matcher.add(pattern, None)
            self._sort(pattern)
        return True

    def _sort(self, pattern: str) -> None:
        """See whether a pattern is wanted by any link: it says so, or says nothing of links."""
        by_links = self._by_links.get(pattern)
        is_by_any = () in by_links if by_links else self.patterns.get(pattern, False)
        if is_by_any and pattern not in self._by_any:
            self._by_any[pattern] = self.matcher.add(pattern, None)
        elif not is_by_any and pattern in self._by_any:
            self.matcher.remove(self._by_any.pop(pattern))

    def _ask(self, entry: str) -> bool:
        """Take a request for history; False: it is a pattern."""
        request = read_request(entry)
        if request is None:
            return False
        number, count, name = request
        if number not in self.requests:
            self._asking[entry] = number, self.asks.add(name, number)
            self.requests[number] = count
        return True

    def _withdraw_request(self, entry: str) -> None:
        number, place = self._asking.pop(entry, (0, None))
        if place is not None:
            self.asks.remove(place)
            del self.requests[number]

    def _publish(self, publication: Publication) -> None:
        size_bytes = _size_of(publication)
        is_too_much = (
            len(self.publications) >= PUBLICATIONS_MAX
            or self._size_bytes + size_bytes > PUBLICATIONS_BYTES_MAX
        )
        is_strange = publication.stream not in CLASSES or not is_subject(publication.subject)
        if is_too_much or is_strange or publication.subject in self.publications:
            self._refused += 1
            return
        self._size_bytes += size_bytes
        self.has_links = self.has_links or bool(publication.links)
        self.publications[publication.subject] = publication

    def _withdraw(self, subject: str) -> None:
        publication = self.publications.pop(subject, None)
        if publication is not None:
            self._size_bytes -= _size_of(publication)


def _size_of(publication: Publication) -> int:
    return len(publication.subject) + len(publication.schema_name)


def _is_same(one: Publication | None, other: Publication | None) -> bool:
    """Compare what two publications are, not how far they are."""
    if one is None or other is None:
        return one is other
    return (one.stream, one.schema_hash, one.links) == (
        other.stream, other.schema_hash, other.links
    )  # fmt: skip
