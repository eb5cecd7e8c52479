"""What nodes of one network want, as a gateway counts it: for real, or in reserve.

A gateway that stands by wants what it would pass on. Others do not pass that on to it, but where it
takes over, what was published until the death before it was noticed must still be there: so they
keep it in reserve, and ask for it beyond, up to whoever publishes. What a gateway asks for in this
way alone it marks by another pattern, which nothing matches, so that the next one keeps it, too,
and passes on nothing.

Invariants: wishes in reserve arise from real ones at a gateway that stands by, and only such as
pass on hand them on. These form a tree, so no wish goes in a circle and keeps itself alive.

Why not a field of the declaration: nodes that are no gateways would have to know of it.
"""

from collections.abc import Collection, Iterable
from typing import Final

from hubbub.errors import SubjectError
from hubbub.limits import WISH_LINGER
from hubbub.protocol.peers import Peer
from hubbub.subjects import OWN_SUBJECTS, check_pattern

_MARK: Final = OWN_SUBJECTS + "reserve"


def mark(pattern: str) -> str:
    """Return the pattern that says of another that it is wanted in reserve."""
    return _MARK + pattern


class Wishes:
    """The wishes of all nodes that a port hears."""

    def __init__(self) -> None:
        self.real: frozenset[str] = frozenset()
        self.reserve: frozenset[str] = frozenset()  # And not for real.
        # What was in reserve and is wanted for real now, by the same gateway.
        self.released: frozenset[str] = frozenset()
        self._reserved: dict[bytes, set[str]] = {}  # By key.
        self._until_ns: dict[str, int] = {}  # How long what only ignored gateways want lingers.

    def look(
        self, now: int, peers: Iterable[Peer], ignored: Collection[bytes], kept: Collection[bytes]
    ) -> None:
        """Look again; `kept` of the ignored gateways stand by, and we keep for them."""
        real: dict[bytes, set[str]] = {}
        reserved: dict[bytes, set[str]] = {}
        of_ignored: set[str] = set()
        for peer in peers:
            wanted, marked = _read(peer)
            if peer.key not in ignored:
                real[peer.key], reserved[peer.key] = wanted, marked
            else:
                of_ignored |= wanted
                reserved[peer.key] = wanted if peer.key in kept else set()
        counted = set().union(*real.values())
        self.released = frozenset().union(
            *(real[key] & patterns for key, patterns in self._reserved.items() if key in real)
        )
        self.real = frozenset(counted | self._linger(now, of_ignored - counted))
        reserve = set().union(*reserved.values()) - self.real
        self.reserve = frozenset(one for one in reserve if _is_pattern(mark(one)))
        self._reserved = reserved

    def _linger(self, now: int, wanted: set[str]) -> set[str]:
        """Choose of what only ignored gateways want what is wanted for a while yet.

        One that counted before may be ignored by mistake, because beacons were lost. To withdraw
        its wishes and have them back costs what is published meanwhile, and nobody could tell.
        """
        until_ns = self._until_ns
        self._until_ns = {one: until_ns.get(one, now + WISH_LINGER) for one in wanted & self.real}
        return {one for one, end_ns in self._until_ns.items() if now < end_ns}


def _is_pattern(pattern: str) -> bool:
    """Tell whether a mark is not too long to be one."""
    try:
        check_pattern(pattern)
    except SubjectError:
        return False
    return True


def _read(peer: Peer) -> tuple[set[str], set[str]]:
    """Return what a peer wants for real, and in reserve."""
    patterns = set(peer.declared.sound_patterns())
    marks = {one for one in patterns if one.startswith(_MARK + "/")}
    marked = {one.removeprefix(_MARK) for one in marks} & patterns
    return patterns - marks - marked, marked
