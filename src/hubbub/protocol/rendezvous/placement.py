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

_WHOLE: Final = float(1 << 64)


class Placement(Protocol):
    """Measures nodes against keys: the least wins."""

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
    if placement.name != XorPlacement.name:
        counted = weights if placement.name == WeightedPlacement.name else [1] * len(weights)
        return [one / sum(counted) for one in counted]
    found = dict.fromkeys(node_keys, 0.0)
    _divide(node_keys, 159, 1.0, found)
    return [found[key] for key in node_keys]


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


def find_placement(name: str) -> Placement:
    """Return the placement of this name."""
    placement = PLACEMENTS.get(name)
    if placement is None:
        raise ConfigurationError(f"placement={name!r}: choose one of {', '.join(PLACEMENTS)}")
    return placement
