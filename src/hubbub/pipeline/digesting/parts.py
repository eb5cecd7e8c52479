"""Messages counted by topic, window and bucket of latency: what topic_health is made of."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from hubbub.pipeline.histogram import DETAIL_BITS
from hubbub.pipeline.merging.groups import TOPIC, Numbers, grouped, numbers

READS: Final = (*TOPIC, "source_name", "published_ns", "received_ns", "size")


def parts(rows: Any, window_ns: int) -> Any:
    """Count messages by topic, window and bucket of latency."""
    published_ns, received_ns = numbers(rows["published_ns"]), numbers(rows["received_ns"])
    latency_ns = received_ns - published_ns
    # Services do not carry when something was published: of these no latency is known.
    is_timeless = published_ns == 0
    columns = {name: rows[name] for name in (*TOPIC, "source_name")}
    columns |= {
        "window_ns": pa.array(received_ns - received_ns % window_ns),
        "bucket": pa.array(buckets_of(latency_ns), mask=is_timeless),
        "messages": pa.array(np.ones(len(latency_ns), dtype=np.int64)),
        "bytes": rows["size"],
        "latency_ns": pa.array(latency_ns),
        "newest_ns": pa.array(received_ns),
    }
    found = grouped(
        pa.table(columns), ("window_ns", *TOPIC, "source_name", "bucket"),
        sums=("messages", "bytes"), greatest=("latency_ns", "newest_ns"),
    )  # fmt: skip
    has_none = np.asarray(found["bucket"].is_null())
    latency_us = pa.array(numbers(found["latency_ns"]) / 1000.0, mask=has_none)
    none = pa.array(np.zeros(found.num_rows, dtype=np.int64))
    return found.append_column("latency_max_us", latency_us).append_column("duplicates", none)


def buckets_of(latency_ns: Numbers) -> Numbers:
    """Return the buckets of latencies, as `histogram.bucket_of` does."""
    size_ns = np.abs(latency_ns)
    power = np.maximum(np.frexp(size_ns.astype(np.float64))[1].astype(np.int64) - 1, 0)
    power -= (np.int64(1) << power) > size_ns  # A float may be rounded up to a power of two.
    shift = np.maximum(power - DETAIL_BITS, 0)
    place = (shift << DETAIL_BITS) + (size_ns >> shift)
    buckets: Numbers = np.where(latency_ns < 0, -1 - place, place)
    return buckets
