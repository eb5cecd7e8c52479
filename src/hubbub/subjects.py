"""Subjects, patterns, and which subscriptions a subject matches.

A subject is `/` and a level, once or more: `/plant/line1/temp`. A pattern may also hold `*`
(exactly one level) and, as its last level, `...` (one or more levels). They are wildcards only as
whole levels: `/fo*` and `/a...` are ordinary names that match themselves alone. Names are
case-sensitive and compared character by character; two spellings of one letter are two names.

Why not the obvious way, a loop over all subscriptions: its cost grows with those that do not match.
The trie visits only nodes whose path matches the beginning of the subject. Every branch is followed
from the same level, so one subscription can never hide or add another.

Threads: changes take a lock, matching takes none, because the I/O thread must not wait for a thread
that holds the lock and lost the interpreter. A walk reads each field of a node once, and a change
becomes visible by one assignment: a walk beside a change sees a subscription whole or not at all.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Generic, TypeVar

from hubbub import limits
from hubbub.errors import SubjectError

OWN_SUBJECTS: Final = "/hubbub/"  # Begin so: what the bus tells of itself.
ONE: Final = "*"
REST: Final = "..."
CACHED_SUBJECTS_MAX: Final = 4096  # A full cache starts afresh.

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_SHOWN_CHARACTERS: Final = 80

T = TypeVar("T")


def check_subject(subject: str) -> None:
    """Raise SubjectError unless messages can be published on this subject."""
    for position, level in enumerate(_checked_levels("subject", subject), 1):
        if level in (ONE, REST):
            raise _error(
                "subject",
                subject,
                f"has the wildcard '{level}' as level {position}:"
                " publish on a name, only subscriptions may use wildcards",
            )


def is_subject(subject: str) -> bool:
    """Tell whether a name that somebody else sent can be published on."""
    try:
        check_subject(subject)
    except SubjectError:
        return False
    return True


def check_pattern(pattern: str) -> None:
    """Raise SubjectError unless this pattern can be subscribed to."""
    levels = _checked_levels("pattern", pattern)
    if REST in levels[:-1]:
        position = levels.index(REST) + 1
        raise _error(
            "pattern",
            pattern,
            f"has '...' as level {position} of {len(levels)}: it may only be the last level",
        )


def check_patterns(patterns: Any) -> list[str]:
    """Return one pattern or several as a list; raise SubjectError for what cannot be one."""
    is_one = isinstance(patterns, str | bytes) or not isinstance(patterns, Iterable)
    listed = [patterns] if is_one else list(patterns)
    for pattern in listed:
        check_pattern(pattern)
    return listed


def overlap(one: str, other: str) -> bool:
    """Tell whether a subject can match both patterns."""
    ours, theirs = one.split("/")[1:], other.split("/")[1:]
    for ours_level, theirs_level in zip(ours, theirs, strict=False):
        if REST in (ours_level, theirs_level):
            return True
        if ours_level != theirs_level and ONE not in (ours_level, theirs_level):
            return False
    return len(ours) == len(theirs)


def matches(pattern: str, subject: str) -> bool:
    """Tell whether a subscription to `pattern` gets the messages of `subject`.

    >>> matches("/plant/*/temp", "/plant/line1/temp")
    True
    """
    check_pattern(pattern)
    check_subject(subject)
    wanted, levels = pattern.split("/"), subject.split("/")
    if wanted[-1] == REST:
        wanted.pop()
        if len(levels) <= len(wanted):
            return False
        del levels[len(wanted) :]
    return len(wanted) == len(levels) and all(
        want in (ONE, level) for want, level in zip(wanted, levels, strict=True)
    )


def _checked_levels(kind: str, name: str) -> list[str]:
    """Split a name into its levels, or raise what is wrong with its characters or its shape."""
    if not isinstance(name, str):
        raise SubjectError(f"a {kind} is a str, not {type(name).__name__}: {name!r}")
    fault = _text_fault(name)
    if fault is None:
        levels = name.split("/")[1:]
        fault = _level_fault(levels)
        if fault is None:
            return levels
    raise _error(kind, name, fault)


def _text_fault(name: str) -> str | None:
    """Say what is wrong with the characters of a name."""
    if not name:
        return "is empty: write '/' and a name"
    if not name.startswith("/"):
        return "does not begin with '/'"
    if surrogate := _SURROGATE.search(name):
        return f"is not valid UTF-8: a lone surrogate is character {surrogate.start() + 1}"
    size_bytes = len(name.encode())
    if size_bytes > limits.SUBJECT_BYTES_MAX:
        return f"has {size_bytes} bytes, at most {limits.SUBJECT_BYTES_MAX} are allowed"
    if control := _CONTROL.search(name):
        code = ord(control.group())
        return f"has the control character U+{code:04X} as character {control.start() + 1}"
    if "…" in name:
        position = name.index("…") + 1
        return f"has the single character '…' as character {position}: write three dots"
    return None


def _level_fault(levels: list[str]) -> str | None:
    """Say what is wrong with the levels of a name."""
    if len(levels) > limits.SUBJECT_LEVELS_MAX:
        return f"has {len(levels)} levels, at most {limits.SUBJECT_LEVELS_MAX} are allowed"
    if levels == [""]:
        return "names no level: write something behind the '/'"
    if "" not in levels:
        return None
    position = levels.index("") + 1
    if position == len(levels):
        return "ends in '/': leave the last '/' out"
    return f"has an empty level: level {position} of {len(levels)}"


def _error(kind: str, name: str, fault: str) -> SubjectError:
    shown = name if len(name) <= _SHOWN_CHARACTERS else name[: _SHOWN_CHARACTERS - 3] + "..."
    return SubjectError(f"{kind} {shown!r} {fault}")


@dataclass(frozen=True, slots=True, eq=False)
class Handle(Generic[T]):
    """One subscription in a matcher; hand it to `remove`."""

    pattern: str
    value: T
    order: int


@dataclass(frozen=True, slots=True)
class MatcherStatistics:
    """What a matcher holds and what it has cost so far."""

    patterns: int
    nodes: int
    cached_subjects: int
    nodes_visited: int


@dataclass(slots=True, eq=False)
class _Node(Generic[T]):
    """What is subscribed at one path: exactly here, with anything below, and further levels."""

    here: tuple[Handle[T], ...] = ()
    below: tuple[Handle[T], ...] = ()
    one: "_Node[T] | None" = None
    children: "dict[str, _Node[T]]" = field(default_factory=dict)

    def is_empty(self) -> bool:
        return not (self.here or self.below or self.one or self.children)

    def child(self, level: str) -> "_Node[T] | None":
        return self.one if level == ONE else self.children.get(level)

    def link(self, level: str, child: "_Node[T]") -> None:
        if level == ONE:
            self.one = child
        else:
            self.children[level] = child

    def unlink(self, level: str) -> None:
        if level == ONE:
            self.one = None
        else:
            del self.children[level]


class Matcher(Generic[T]):
    """Find the values whose patterns match a subject.

    `generation` changes after every change. Who keeps a result reads it before calling `match` and
    asks again when it has changed.
    """

    def __init__(self, cached_subjects_max: int = CACHED_SUBJECTS_MAX) -> None:
        assert cached_subjects_max > 0
        self.generation = 0
        self._lock = Lock()
        self._root: _Node[T] = _Node()
        self._cached_subjects_max = cached_subjects_max
        self._cache: dict[str, tuple[T, ...]] = {}
        self._patterns = 0
        self._nodes = 1
        self._added = 0
        self._nodes_visited = 0

    def add(self, pattern: str, value: T) -> Handle[T]:
        """Let `value` be found by every subject that matches `pattern`; equal ones stay apart."""
        check_pattern(pattern)
        levels, is_rest = _path(pattern)
        with self._lock:
            self._added += 1
            handle = Handle(pattern, value, self._added)
            node = self._root
            for level in levels:
                node = node.child(level) or self._grow(node, level)
            if is_rest:
                node.below = (*node.below, handle)
            else:
                node.here = (*node.here, handle)
            self._patterns += 1
            self._forget()
        return handle

    def remove(self, handle: Handle[T]) -> bool:
        """Take a subscription out; False if it is not in here (any more)."""
        levels, is_rest = _path(handle.pattern)
        with self._lock:
            path = [self._root]
            for level in levels:
                child = path[-1].child(level)
                if child is None:
                    return False
                path.append(child)
            if not _drop(path[-1], handle, is_rest):
                return False
            self._prune(path, levels)
            self._patterns -= 1
            self._forget()
        return True

    def match(self, subject: str) -> tuple[T, ...]:
        """Give the values whose patterns match a valid subject, in the order of adding.

        The subject is not checked again: who publishes or receives it has done that.
        """
        # The dictionary is taken before the walk. A change meanwhile replaces it, so what was found
        # from half a change is kept where nobody looks any more.
        cache = self._cache
        found = cache.get(subject)
        if found is None:
            found = self._walk(subject.split("/")[1:])
            if len(cache) >= self._cached_subjects_max:
                cache.clear()
            cache[subject] = found
        return found

    def statistics(self) -> MatcherStatistics:
        """Count what is in here."""
        return MatcherStatistics(self._patterns, self._nodes, len(self._cache), self._nodes_visited)

    def _walk(self, levels: list[str]) -> tuple[T, ...]:
        """Follow every branch that matches, all of them one level at a time."""
        found: list[Handle[T]] = []
        nodes = [self._root]
        for level in levels:
            self._nodes_visited += len(nodes)
            further: list[_Node[T]] = []
            for node in nodes:
                found += node.below
                if (child := node.children.get(level)) is not None:
                    further.append(child)
                if (one := node.one) is not None:
                    further.append(one)
            nodes = further
        self._nodes_visited += len(nodes)
        for node in nodes:
            found += node.here
        found.sort(key=_order)
        return tuple([handle.value for handle in found])

    def _grow(self, node: _Node[T], level: str) -> _Node[T]:
        child: _Node[T] = _Node()
        node.link(level, child)
        self._nodes += 1
        return child

    def _prune(self, path: list[_Node[T]], levels: list[str]) -> None:
        """Unlink what has become empty, from the leaf upwards; the root stays."""
        while levels and path.pop().is_empty():
            path[-1].unlink(levels.pop())
            self._nodes -= 1

    def _forget(self) -> None:
        """End a change. The generation comes last: who has read the new one finds the new state."""
        self._cache = {}
        self.generation += 1


def _path(pattern: str) -> tuple[list[str], bool]:
    """Split a pattern into the levels of its node, and whether it takes what is below that."""
    levels = pattern.split("/")[1:]
    is_rest = levels[-1] == REST
    return (levels[:-1] if is_rest else levels), is_rest


def _drop(node: _Node[T], handle: Handle[T], is_rest: bool) -> bool:
    """Take a handle out of a node by identity; False if it is not there."""
    handles = node.below if is_rest else node.here
    kept = tuple([other for other in handles if other is not handle])
    if is_rest:
        node.below = kept
    else:
        node.here = kept
    return len(kept) < len(handles)


def _order(handle: Handle[T]) -> int:
    return handle.order
