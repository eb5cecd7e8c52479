"""Several payloads in the place of one: how many, the length of each, then all of them.

A message of a service whose envelope has the flag BATCH carries them so. Their numbers follow each
other, so nothing else has to be said of each, and whoever passes them on need not look inside.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from
from typing import Final

_COUNT: Final = Struct("!H")
LENGTH_BYTES: Final = 2
BATCH_MESSAGES_MAX: Final = 0xFFFF


def join(payloads: Sequence[bytes]) -> bytes:
    """Write payloads as one; each has a length below 64 KiB."""
    count = len(payloads)
    return pack(f"!H{count}H", count, *map(len, payloads)) + b"".join(payloads)


def count_of(joined: bytes) -> int:
    """Return how many payloads there are, in what is known to be sound."""
    count: int = _COUNT.unpack_from(joined)[0]
    return count


def is_sound(joined: bytes) -> bool:
    """Tell whether what a peer sent can be split."""
    if len(joined) < _COUNT.size:
        return False
    count = count_of(joined)
    begin = _COUNT.size + LENGTH_BYTES * count
    if not count or begin > len(joined):
        return False
    return begin + sum(_lengths(joined, count)) == len(joined)


def split(joined: bytes) -> list[bytes]:
    """Return the payloads of what is known to be sound."""
    count = count_of(joined)
    begin = _COUNT.size + LENGTH_BYTES * count
    ends = list(accumulate(_lengths(joined, count), initial=begin))
    return [joined[first:end] for first, end in pairwise(ends)]


def _lengths(joined: bytes, count: int) -> tuple[int, ...]:
    return unpack_from(f"!{count}H", joined, _COUNT.size)
