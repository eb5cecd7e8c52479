"""Buckets of latencies: 32 for each doubling, so that a bucket is at most 3 % wide.

A histogram of them is exact to that width, does not depend on the order of what it counts, and two
are merged by adding. Bucket numbers are integers made by shifts, so every machine agrees on them.
Latencies below zero come from clocks that disagree: their buckets mirror the others.
"""

from typing import Final

DETAIL_BITS: Final = 5


def bucket_of(latency_ns: int) -> int:
    """Return the bucket of a latency.

    >>> bucket_of(1000), bucket_of(1015), bucket_of(1016)
    (190, 190, 191)
    """
    if latency_ns < 0:
        return -1 - bucket_of(-latency_ns)
    shift = max(latency_ns.bit_length() - DETAIL_BITS - 1, 0)
    return (shift << DETAIL_BITS) + (latency_ns >> shift)


def bounds_ns(bucket: int) -> tuple[int, int]:
    """Return the smallest and the largest latency of a bucket.

    >>> bounds_ns(190)
    (992, 1007)
    """
    if bucket < 0:
        low, high = bounds_ns(-1 - bucket)
        return -high, -low
    shift = max((bucket >> DETAIL_BITS) - 1, 0)
    low = (bucket - (shift << DETAIL_BITS)) << shift
    return low, low + (1 << shift) - 1
