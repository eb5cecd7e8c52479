"""How each topic did in each window: rates, latencies, losses.

Everything is made of sums, greatest values and a histogram. These can be merged in any order, so a
window may be filled bit by bit, and opened again by rows that come late.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import SECOND
from hubbub.pipeline.histogram import DETAIL_BITS
from hubbub.pipeline.merging.groups import (
    TOPIC,
    UNKNOWN,
    Numbers,
    grouped,
    nanoseconds,
    numbered,
    numbers,
    timestamps,
    united,
)
from hubbub.pipeline.tables import SHAPES

WINDOW: Final = ("window_ns", *TOPIC)
_SOURCE: Final = ("window_ns", "source_id", "incarnation")
# What is known of a bucket of a window: its sums are of the rows of that bucket.
PART: Final = pa.schema(
    [
        ("window_ns", pa.int64()),
        ("source_id", pa.string()),
        ("incarnation", pa.int64()),
        ("subject", pa.string()),
        ("source_name", pa.string()),
        ("bucket", pa.int32()),  # Null: of no bucket, or of all.
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("latency_max_us", pa.float64()),
        ("duplicates", pa.int64()),
    ]
)
_COLUMNS: Final = SHAPES["topic_health"].columns
_PERCENT: Final = {"latency_p50_us": 50, "latency_p95_us": 95, "latency_p99_us": 99}

Reals = np.ndarray[Any, np.dtype[np.float64]]


class _Entries(NamedTuple):
    """The buckets of all windows, sorted by window and bucket."""

    windows: Numbers  # The number of the window of each.
    buckets: Numbers
    counts: Numbers


def taken_apart(health: Any) -> Any:
    """Turn the table back into what it was made of."""
    histograms = health["histogram"].combine_chunks()
    if isinstance(histograms, pa.ChunkedArray):  # Without any chunk there is nothing to combine.
        return PART.empty_table()
    lengths = np.diff(numbers(histograms.offsets))
    rows = np.repeat(np.arange(health.num_rows), lengths)
    begin, end = histograms.offsets[0].as_py(), histograms.offsets[-1].as_py()
    window_ns = nanoseconds(health["window_start"])
    names = [*TOPIC, "source_name"]
    counted = {name: health[name].take(pa.array(rows)) for name in names}
    counted |= {"window_ns": pa.array(window_ns[rows])}
    counted["bucket"] = histograms.keys[begin:end]
    counted["messages"] = histograms.items[begin:end]
    summed = {name: health[name] for name in (*names, "bytes", "latency_max_us", "duplicates")}
    counts = np.bincount(rows, numbers(counted["messages"]), health.num_rows).astype(np.int64)
    summed["messages"] = pa.array(numbers(health["messages"]) - counts)  # Of no known latency.
    return united(_parts(counted), _parts(summed | {"window_ns": pa.array(window_ns)}))


def _parts(columns: dict[str, Any]) -> Any:
    """Make parts of what is known of them: sums that are not are zero, the rest is null."""
    count = len(columns["window_ns"])
    zero = pa.array(np.zeros(count, dtype=np.int64))
    made = dict.fromkeys(("messages", "bytes", "duplicates"), zero) | columns
    return pa.table(
        [made[one.name] if one.name in made else pa.nulls(count, one.type) for one in PART],
        schema=PART,
    )


def health(parts: Any, lost: Any, repairs: Any, window_ns: int, final_ns: int) -> Any:
    """Put parts together; windows that end by `final_ns` are final."""
    if not parts.num_rows:
        return _COLUMNS.empty_table()
    windows = grouped(
        parts, WINDOW,
        sums=("messages", "bytes", "duplicates"), greatest=("source_name", "latency_max_us"),
    )  # fmt: skip
    entries = _entries(parts, windows.num_rows)
    begin_ns = numbers(windows["window_ns"])
    total = numbers(windows["messages"])
    columns = {name: windows[name] for name in windows.column_names}
    timed = np.bincount(entries.windows, entries.counts, windows.num_rows).astype(np.int64)
    columns |= _latencies(entries, timed, windows["latency_max_us"])
    columns |= {
        "window_start": timestamps(begin_ns),
        "window_end": timestamps(begin_ns + window_ns),
        "rate": pa.array(total / (window_ns / SECOND)),
        "lost": _matching(windows, lost, WINDOW, "lost"),
        "repairs": _matching(windows, repairs, _SOURCE, "repairs"),
        "histogram": _histograms(entries, windows.num_rows),
        "final": pa.array(begin_ns + window_ns <= final_ns),
    }
    return pa.table([columns[name] for name in _COLUMNS.names], schema=_COLUMNS)


def _entries(parts: Any, window_count: int) -> _Entries:
    """Add up the buckets of each window, in their order: sums of floats have one order, too."""
    windows = numbered(parts, WINDOW)
    assert windows.total == window_count
    is_counted = np.asarray(parts["bucket"].is_valid())
    ids, buckets = windows.ids[is_counted], numbers(parts["bucket"].drop_null())
    counts = numbers(parts["messages"])[is_counted]
    order = np.lexsort((buckets, ids))
    ids, buckets = ids[order], buckets[order]
    is_new = np.append(True, (ids[1:] != ids[:-1]) | (buckets[1:] != buckets[:-1]))[: len(ids)]
    begins = np.flatnonzero(is_new)
    added = np.add.reduceat(counts[order], begins) if len(begins) else counts[:0]
    return _Entries(ids[begins], buckets[begins], added)


def _latencies(entries: _Entries, total: Numbers, largest: Any) -> dict[str, Any]:
    low_ns, high_ns = _bounds_ns(entries.buckets)
    middle_us = low_ns / 2000.0 + high_ns / 2000.0
    has_any = total > 0
    divisor = np.where(has_any, total, 1)
    mean_us = _weighted(entries, middle_us, len(total)) / divisor
    distance_us = middle_us - mean_us[entries.windows]
    square = _weighted(entries, distance_us * distance_us, len(total)) / divisor
    found = {"jitter_us": pa.array(np.sqrt(square), mask=~has_any)}
    upto = np.cumsum(entries.counts)
    before = np.append(0, np.cumsum(total)[:-1])
    for name, percent in _PERCENT.items():
        # The bucket of the message that so many of a hundred do not exceed.
        rank = (total * percent + 99) // 100
        place = np.searchsorted(upto, before + np.maximum(rank, 1))
        high_us = np.append(high_ns, 0)[np.minimum(place, len(high_ns))] / 1000.0
        found[name] = pc.min_element_wise(pa.array(high_us, mask=~has_any), largest)
    return found


def _weighted(entries: _Entries, value: Reals, window_count: int) -> Reals:
    # One after the other, in the order of the buckets: the same sum however they came together.
    total: Any = np.bincount(entries.windows, value * entries.counts, window_count)
    return np.asarray(total, dtype=np.float64)


def _bounds_ns(buckets: Numbers) -> tuple[Numbers, Numbers]:
    """Return the smallest and the largest latency of buckets, as `histogram.bounds_ns` does."""
    is_mirrored = buckets < 0
    size = np.where(is_mirrored, -1 - buckets, buckets)
    shift = np.maximum((size >> DETAIL_BITS) - 1, 0)
    low = (size - (shift << DETAIL_BITS)) << shift
    high = low + (np.int64(1) << shift) - 1
    return np.where(is_mirrored, -high, low), np.where(is_mirrored, -low, high)


def _histograms(entries: _Entries, window_count: int) -> Any:
    offsets = np.searchsorted(entries.windows, np.arange(window_count + 1))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(entries.buckets, pa.int32()),
        pa.array(entries.counts, pa.int64()),
    )


def _matching(windows: Any, found: Any, keys: tuple[str, ...], name: str) -> Any:
    """Look up a number for each window; zero, if there is none."""
    ids = numbered(united(found.select(list(keys)), windows), keys).ids
    values = np.zeros(int(ids.max(initial=UNKNOWN)) + 1, dtype=np.int64)
    values[ids[: found.num_rows]] = numbers(found[name])
    return pa.array(values[ids[found.num_rows :]])
