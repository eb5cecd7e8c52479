"""Percentiles of several windows together, from their merged histograms, as the pipeline does."""

import math
from collections.abc import Mapping

from hubbub.pipeline.histogram import bounds_ns
from hubbub.report.figures import Latency


def read_off(buckets: Mapping[int, int], max_us: float | None) -> Latency:
    """Return percentiles and deviation: exact to the width of a bucket, 3 %."""
    count = sum(buckets.values())
    if not count:
        return Latency(max_us=max_us)
    p50, p95, p99 = (_at(buckets, -(-count * percent // 100), max_us) for percent in (50, 95, 99))
    return Latency(p50, p95, p99, max_us, _deviation_us(buckets, count))


def _at(buckets: Mapping[int, int], rank: int, max_us: float | None) -> float:
    """Return the upper bound of the bucket in which the message of this rank is."""
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= rank:
            break
    high_us = bounds_ns(bucket)[1] / 1000
    return high_us if max_us is None else min(high_us, max_us)


def _deviation_us(buckets: Mapping[int, int], count: int) -> float:
    middles = {bucket: sum(bounds_ns(bucket)) / 2000 for bucket in buckets}
    mean = sum(middles[bucket] * times for bucket, times in buckets.items()) / count
    squares = sum((middles[bucket] - mean) ** 2 * times for bucket, times in buckets.items())
    return math.sqrt(squares / count)
