"""Who subscribes to one service, until when, and who did until lately.

Every change by a subscriber has a stamp that only grows, so lists can be put together in any order:
the newer stamp counts, and of the same stamp the end. A line that has ended stays for a lease, so
that a request which was overtaken cannot bring it back.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from zlib import crc32

from hubbub.errors import SubjectError
from hubbub.limits import ABSENCE, BARE_LEASE, SERVICE_LEASE, SUBSCRIBERS_MAX
from hubbub.protocol.rendezvous.seat import NEVER, Place
from hubbub.subjects import matches
from hubbub.wire.services import ABSENT, BARE, ENTRY_FLAGS, FULL, NO_LOCAL, STALE, TAKEN, Entry

_SUBJECTS_KEPT: Final = 4096


class Line:
    """One subscriber, or one that was."""

    __slots__ = ("expires_ns", "flags", "is_in", "node", "patterns", "place", "stamp")

    def __init__(
        self, node: bytes, stamp: int, is_in: bool, flags: int, place: Place | None,
        expires_ns: int, patterns: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.node = node
        self.stamp = stamp
        self.is_in = is_in
        self.flags = flags & (ENTRY_FLAGS & ~ABSENT if is_in else ENTRY_FLAGS)
        self.place = place
        self.expires_ns = expires_ns
        self.patterns = tuple(patterns)  # What it wants of the subjects; none: everything.

    def entry(self) -> Entry:
        """Return the line as it is sent."""
        patterns = list(self.patterns)
        return Entry(self.node, self.stamp, self.is_in, self.flags, self.place, patterns)

    def wants(self, subject: str) -> bool:
        """Tell whether a message is for it; without a subject it is for who wants everything."""
        return not self.patterns or any(_is_match(one, subject) for one in self.patterns)

    @property
    def is_special(self) -> bool:
        """Tell whether it must not be sent everything in the same frame as others."""
        return self.is_absent or (self.is_in and bool(self.flags & BARE or self.patterns))

    @property
    def is_no_local(self) -> bool:
        """Tell whether it subscribes to what others publish alone."""
        return self.is_in and bool(self.flags & NO_LOCAL)

    @property
    def is_absent(self) -> bool:
        """Tell whether it was struck off because its node seems to be dead."""
        return bool(self.flags & ABSENT)


class Listing:
    """The list of one service."""

    def __init__(self) -> None:
        self.lines: dict[bytes, Line] = {}
        self.count = 0  # Of those who subscribe,
        self.special = 0  # and of those among them who are not served as all others are.
        self.no_local = 0  # Of those among them who do not want what they publish themselves.
        self.absent = 0  # Of those who were struck off, and may come back.
        self._wanting: dict[str, list[Line]] = {}  # By subject, as long as nobody comes or goes.
        self.changed: set[bytes] = set()  # Whose lines copies do not know yet.
        self.expires_ns = NEVER

    def __iter__(self) -> Iterator[Line]:
        return (line for line in self.lines.values() if line.is_in)

    def wanting(self, subject: str) -> list[Line]:
        """Return who wants what is published on a subject."""
        found = self._wanting.get(subject)
        if found is None:
            if len(self._wanting) >= _SUBJECTS_KEPT:
                self._wanting.clear()
            found = self._wanting[subject] = [line for line in self if line.wants(subject)]
        return found

    def missing(self, now: int, subject: str) -> list[Line]:
        """Return who would want a message, was struck off lately, and may come back."""
        if not self.absent:
            return []
        oldest_ns = now + SERVICE_LEASE - ABSENCE
        return [
            line
            for line in self.lines.values()
            if line.is_absent and line.expires_ns > oldest_ns and line.wants(subject)
        ]

    def find(self, node: bytes) -> Line | None:
        """Return the line of a subscriber."""
        line = self.lines.get(node)
        return line if line is not None and line.is_in else None

    def leaves_out(self, publisher: bytes) -> bool:
        """Tell whether a publisher is on the list, and does not want what is its own."""
        line = self.lines.get(publisher)
        return line is not None and line.is_no_local

    def subscribe(
        self, now: int, node: bytes, stamp: int, flags: int, place: Place | None, lease_ns: int,
        patterns: Iterable[str] = (),
    ) -> tuple[int, bool]:  # fmt: skip
        """Enter or renew a subscriber; return the status, and whether it is new."""
        line = self.lines.get(node)
        expires_ns = now + lease_ns
        if line is not None and (stamp < line.stamp or (stamp == line.stamp and not line.is_in)):
            return STALE, False
        if line is None and len(self.lines) >= SUBSCRIBERS_MAX:
            return FULL, False
        is_new = line is None or not line.is_in
        if line is None or line.stamp != stamp or line.place != place:
            self._enter(Line(node, stamp, True, flags, place, expires_ns, patterns))
        else:
            line.expires_ns = max(line.expires_ns, expires_ns)
        return TAKEN, is_new

    def unsubscribe(self, now: int, node: bytes, stamp: int) -> int:
        """End a subscription; that of one who is not known is remembered as well."""
        line = self.lines.get(node)
        if line is not None and (stamp < line.stamp or (stamp == line.stamp and line.is_in)):
            return STALE
        if line is None and len(self.lines) >= SUBSCRIBERS_MAX:
            return FULL
        if line is None or line.stamp < stamp:
            self._enter(Line(node, stamp, False, 0, None, now + SERVICE_LEASE))
        return TAKEN

    def drop(self, now: int, node: bytes, *, is_absent: bool = False) -> bool:
        """End the line of one that is gone, or has forgotten us."""
        line = self.find(node)
        if line is None:
            return False
        flags = line.flags | ABSENT if is_absent else 0
        place, patterns = (line.place, line.patterns) if is_absent else (None, ())
        self._enter(Line(node, line.stamp, False, flags, place, now + SERVICE_LEASE, patterns))
        return True

    def merge(self, now: int, entries: Iterable[Entry]) -> bool:
        """Take the lines of another list; True: something was new."""
        is_changed = False
        for entry in entries:
            line = self.lines.get(entry.node)
            known = (-1, False) if line is None else (line.stamp, not line.is_in)
            if (entry.stamp, not entry.is_in) > known and len(self.lines) < SUBSCRIBERS_MAX:
                place = None if entry.place is None else (entry.place[0], entry.place[1])
                expires_ns = now + _lease_ns(entry.is_in, entry.flags)
                self._enter(
                    Line(
                        entry.node,
                        entry.stamp,
                        entry.is_in,
                        entry.flags,
                        place,
                        expires_ns,
                        entry.patterns,
                    )
                )
                is_changed = True
        return is_changed

    def renew_all(self, now: int) -> None:
        """Give everybody a whole lease: who kept the list before us is not there to tell."""
        for line in self.lines.values():
            line.expires_ns = max(line.expires_ns, now + _lease_ns(line.is_in, line.flags))

    def shorten(self, line: Line, expires_ns: int) -> None:
        """Let a line end sooner, unless it is renewed."""
        line.expires_ns = min(line.expires_ns, expires_ns)
        self.expires_ns = min(self.expires_ns, expires_ns)

    def expire(self, now: int) -> list[bytes]:
        """End what was not renewed; return who that was."""
        ended: list[bytes] = []
        if now < self.expires_ns:
            return ended
        for line in list(self.lines.values()):
            if line.expires_ns <= now and line.is_in:
                self.drop(now, line.node)
                ended.append(line.node)
            elif line.expires_ns <= now:
                self.special -= line.is_special
                self.absent -= line.is_absent
                del self.lines[line.node]
        self.expires_ns = min((one.expires_ns for one in self.lines.values()), default=NEVER)
        return ended

    def entries(self, nodes: Iterable[bytes] | None = None) -> list[Entry]:
        """Return all lines as they are sent, or those of some."""
        wanted = self.lines if nodes is None else nodes
        return [self.lines[node].entry() for node in wanted if node in self.lines]

    @property
    def digest(self) -> int:
        """Return what is the same for all who know the same subscribers."""
        total = 0
        for line in self:
            total ^= crc32(line.node + line.stamp.to_bytes(8, "big"))
        return total

    def _enter(self, line: Line) -> None:
        before = self.lines.get(line.node)
        self.count += line.is_in - (before is not None and before.is_in)
        self.special += line.is_special - (before is not None and before.is_special)
        self.no_local += line.is_no_local - (before is not None and before.is_no_local)
        self.absent += line.is_absent - (before is not None and before.is_absent)
        self._wanting.clear()
        self.lines[line.node] = line
        self.changed.add(line.node)
        self.expires_ns = min(self.expires_ns, line.expires_ns)


def _lease_ns(is_in: bool, flags: int) -> int:
    """Return how long a line holds; who speaks the first version has nobody renew it."""
    return BARE_LEASE if is_in and flags & BARE else SERVICE_LEASE


def _is_match(pattern: str, subject: str) -> bool:
    """Match what a peer sent, which may be anything."""
    try:
        return matches(pattern, subject)
    except SubjectError:
        return False


def leave_out(publisher: bytes, lines: list[Line]) -> list[Line]:
    """Return who is to have a message: not its publisher, if it does not want its own."""
    return [line for line in lines if not (line.flags & NO_LOCAL and line.node == publisher)]
