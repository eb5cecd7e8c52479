"""Who looks after a service: the node that measures least against its key.

All nodes of a bus must use the same measure. XOR is the one of the first version; it gives the
keys that lie alone in their part of the tree several times the share of others. Rendezvous hashing
gives everybody the same, or what its weight says, for the price of a hash for each node and key.
Any measure that is a function of the key and the node alone keeps forwarding free of loops: each
step goes to a node that measures less.
"""

from hashlib import sha1
from math import log
from typing import Final, Protocol

from hubbub.errors import ConfigurationError
from hubbub.given import is_number

_WHOLE: Final = float(1 << 64)
# Shares by a measure that is not ours are those of some keys: as many as this many measures allow.
_MEASURES_MAX: Final = 200_000
_KEYS_MAX: Final = 4096
_KEYS_MIN: Final = 64


class Placement(Protocol):
    """Measures nodes against keys: the least wins, and of those that measure the same the least id.

    It is asked at every node, about all others, and must say the same everywhere, at any time: from
    nothing but what it is given, and without raising.
    """

    name: str

    def measure(self, key: int, node_key: int, weight: int) -> float:
        """Return how far a node is from a key."""


class XorPlacement:
    """The distance of the first version: all bits that differ, read as a number."""

    name = "xor"

    def measure(self, key: int, node_key: int, weight: int) -> int:
        """Return the XOR of both keys."""
        return key ^ node_key


def _draw(key: int, node_key: int) -> int:
    """Return a number of 64 bits that depends on both keys alike."""
    data = key.to_bytes(20, "big") + node_key.to_bytes(20, "big")
    return int.from_bytes(sha1(data, usedforsecurity=False).digest()[:8], "big")


class HrwPlacement:
    """Rendezvous hashing: every node has the same share."""

    name = "hrw"

    def measure(self, key: int, node_key: int, weight: int) -> int:
        """Return a number that no two nodes share."""
        return _draw(key, node_key)


class WeightedPlacement:
    """Rendezvous hashing where a node's share is that of its weight."""

    name = "weighted"

    def measure(self, key: int, node_key: int, weight: int) -> float:
        """Return how long this node would wait for the key, at a rate that is its weight."""
        return -log((_draw(key, node_key) + 1) / (_WHOLE + 1)) / weight


PLACEMENTS: Final[dict[str, Placement]] = {
    one.name: one for one in (XorPlacement(), HrwPlacement(), WeightedPlacement())
}


def shares(placement: Placement, node_keys: list[int], weights: list[int]) -> list[float]:
    """Return which part of all services each node manages.

    By XOR that is 2^-d for a key that is d bits deep in the tree of all keys, if no branch is
    empty; where one is, those on the other side of it have its share.
    """
    if placement.name not in PLACEMENTS:
        return _estimate(placement, node_keys, weights)
    if placement.name != XorPlacement.name:
        counted = weights if placement.name == WeightedPlacement.name else [1] * len(weights)
        return [one / sum(counted) for one in counted]
    found = dict.fromkeys(node_keys, 0.0)
    _divide(node_keys, 159, 1.0, found)
    return [found[key] for key in node_keys]


def _estimate(placement: Placement, node_keys: list[int], weights: list[int]) -> list[float]:
    """Return what part of some keys each node has."""
    measure, nodes = placement.measure, list(zip(node_keys, weights, strict=True))
    count = max(_KEYS_MIN, min(_KEYS_MAX, _MEASURES_MAX // len(nodes)))
    managed = [0] * len(nodes)
    for number in range(count):
        key = int.from_bytes(sha1(b"%d" % number, usedforsecurity=False).digest(), "big")
        far = [measure(key, node_key, weight) for node_key, weight in nodes]
        managed[far.index(min(far))] += 1
    return [one / count for one in managed]


def _divide(keys: list[int], bit: int, share: float, found: dict[int, float]) -> None:
    """Part a share between the keys of both branches of the tree at this bit."""
    if len(keys) == 1 or bit < 0:
        for key in keys:
            found[key] += share / len(keys)
        return
    high = [key for key in keys if key >> bit & 1]
    low = [key for key in keys if not key >> bit & 1]
    if high and low:
        _divide(high, bit - 1, share / 2, found)
        _divide(low, bit - 1, share / 2, found)
    else:
        _divide(high or low, bit - 1, share, found)


def find_placement(placement: str | Placement) -> Placement:
    """Return the placement of a name, or the one that was given, if it can be one."""
    if isinstance(placement, str):
        found = PLACEMENTS.get(placement)
        if found is None:
            raise ConfigurationError(
                f"placement={placement!r}: choose one of {', '.join(PLACEMENTS)}, or give an object"
            )
        return found
    _check(placement)
    return placement


def _check(placement: Placement) -> None:
    """Refuse what cannot place anything: it would fail later, at whatever others send."""
    name, measure = getattr(placement, "name", None), getattr(placement, "measure", None)
    if not isinstance(name, str) or not callable(measure):
        raise ConfigurationError(
            f"placement={placement!r}: choose one of {', '.join(PLACEMENTS)}, or give an object"
            " with a name and measure(key, node_key, weight)"
        )
    if name in PLACEMENTS and type(placement) is not type(PLACEMENTS[name]):
        raise ConfigurationError(f"placement={placement!r}: the name {name} is taken")
    try:
        far = measure(1, 2, 1)
    except Exception as error:
        raise ConfigurationError(
            f"placement={placement!r}: measure(1, 2, 1) raised {error!r}"
        ) from error
    if not is_number(far) or far != far:
        raise ConfigurationError(
            f"placement={placement!r}: measure(1, 2, 1) is {far!r}, and no number"
        )
