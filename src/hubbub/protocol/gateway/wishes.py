"""What nodes of one network want, as a gateway counts it: for real, or in reserve.

A gateway that stands by wants what it would pass on. Others do not pass that on to it, but where it
takes over, what was published until the death before it was noticed must still be there: so they
keep it in reserve, and ask for it beyond, up to whoever publishes. What a gateway asks for in this
way alone it marks by another pattern, which nothing matches, so that the next one keeps it, too,
and passes on nothing.

Invariants: wishes in reserve arise from real ones at a gateway that stands by, and only such as
pass on hand them on. These form a tree, so no wish goes in a circle and keeps itself alive.

A node that was restarted under its id is another peer, and its first HELLO ends the one before.
What it wants comes a moment later, of a gateway after it has heard its other networks. Withdrawn
along the whole way for that moment, wishes would cost what is published meanwhile, and gateways
would forget how far they were: so those of the life before count for a while yet.

Why not a field of the declaration: nodes that are no gateways would have to know of it.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from hubbub.errors import SubjectError
from hubbub.limits import WISH_LINGER
from hubbub.protocol.peers import Peer
from hubbub.subjects import OWN_SUBJECTS, check_pattern
from hubbub.wire.header import split_key

_MARK: Final = OWN_SUBJECTS + "reserve"


def mark(pattern: str) -> str:
    """Return the pattern that says of another that it is wanted in reserve."""
    return _MARK + pattern


class Life(NamedTuple):
    """What a peer wants, as it is counted; once it was restarted, only until then."""

    real: set[str]
    reserved: set[str]
    until_ns: int | None = None


class Wishes:
    """The wishes of all nodes that a port hears."""

    def __init__(self) -> None:
        self.real: frozenset[str] = frozenset()
        self.reserve: frozenset[str] = frozenset()  # And not for real.
        # What was in reserve and is wanted for real now, by the same gateway.
        self.released: frozenset[str] = frozenset()
        self._lives: dict[bytes, Life] = {}  # By key.
        self._until_ns: dict[str, int] = {}  # How long what only ignored gateways want lingers.

    def look(
        self, now: int, peers: Iterable[Peer], ignored: Collection[bytes], kept: Collection[bytes]
    ) -> None:
        """Look again; `kept` of the ignored gateways stand by, and we keep for them."""
        lives: dict[bytes, Life] = {}
        of_ignored: set[str] = set()
        for peer in peers:
            wanted, marked = _read(peer)
            if peer.key not in ignored:
                lives[peer.key] = Life(wanted, marked)
            else:
                of_ignored |= wanted
                lives[peer.key] = Life(set(), wanted if peer.key in kept else set())
        self.released = frozenset().union(
            *(lives[key].real & one.reserved for key, one in self._lives.items() if key in lives)
        )
        self._lives = lives | self._earlier_lives(now, lives)
        counted = set().union(*(one.real for one in self._lives.values()))
        self.real = frozenset(counted | self._linger(now, of_ignored - counted))
        reserve = set().union(*(one.reserved for one in self._lives.values())) - self.real
        self.reserve = frozenset(one for one in reserve if _is_pattern(mark(one)))

    def _earlier_lives(self, now: int, lives: dict[bytes, Life]) -> dict[bytes, Life]:
        """Return the lives that ended with a restart, as long as their wishes count."""
        present = {split_key(key)[0] for key in lives}
        ended = {
            key: life._replace(until_ns=life.until_ns or now + WISH_LINGER)
            for key, life in self._lives.items()
            if key not in lives and split_key(key)[0] in present
        }
        return {key: life for key, life in ended.items() if now < (life.until_ns or 0)}

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
