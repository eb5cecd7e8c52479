"""Other names beyond a gateway: what is below one subject here is below another one elsewhere.

Invariant: two subjects never become one. What would take a name that another is given does not
cross: with `/plant` here as `/site1/plant` elsewhere, nothing that is called `/site1/plant/x` here
leaves, and nothing that is called `/plant/x` elsewhere enters.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

from hubbub.errors import ConfigurationError
from hubbub.subjects import ONE, REST, check_subject

_KNOWN_MAX: Final = 4096  # Subjects; then they are looked up anew.


class Renaming:
    """One direction: subjects below each key are those below its value."""

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self._prefixes = {_levels(old): _levels(new) for old, new in prefixes.items()}
        self._known: dict[str, str | None] = {}

    def subject(self, subject: str) -> str | None:
        """Return what a subject is called on the other side; None: it may not cross."""
        if subject not in self._known:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[subject] = self._rename(_levels(subject))
        return self._known[subject]

    def _rename(self, levels: tuple[str, ...]) -> str | None:
        for old, new in self._prefixes.items():
            if levels[: len(old)] == old:
                return _join(*new, *levels[len(old) :])
        if any(levels[: len(new)] == new for new in self._prefixes.values()):
            return None
        return _join(*levels)

    def patterns(self, pattern: str) -> Iterator[str]:
        """Say by which patterns the other side has what a pattern asks for: that, and no less."""
        levels, is_all_renamed = _levels(pattern), False
        for old, new in self._prefixes.items():
            for rest in _rests(levels, old):
                yield _join(*new, *rest)
            is_all_renamed = is_all_renamed or levels[: len(old)] == old
        if not is_all_renamed:
            yield pattern


class Remap:
    """Both directions of a side, from one table: what it is called here, and what elsewhere."""

    def __init__(self, table: Mapping[str, str]) -> None:
        for subject in (*table, *table.values()):
            check_subject(subject)
        _check_apart(table)
        _check_apart(table.values())
        self.out = Renaming(table)
        self.into = Renaming({new: old for old, new in table.items()})


def _check_apart(prefixes: Iterable[str]) -> None:
    for one, other in combinations(sorted(prefixes), 2):
        if one == other or other.startswith(f"{one}/"):
            raise ConfigurationError(
                f"remap: {one} and {other} collide: a subject below both would have two names"
            )


def _rests(levels: tuple[str, ...], old: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Say what is left of a pattern below a prefix; of `...` also the prefix itself may be left."""
    for at, level in enumerate(old):
        if at == len(levels):
            return
        if levels[at] == REST:
            yield ()
            yield (REST,)
            return
        if levels[at] not in (ONE, level):
            return
    yield levels[len(old) :]


def _levels(subject: str) -> tuple[str, ...]:
    return tuple(subject.split("/")[1:])


def _join(*levels: str) -> str:
    return "/" + "/".join(levels)
