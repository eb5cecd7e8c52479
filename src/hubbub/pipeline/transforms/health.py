"""How each topic did in each window: rates, latencies, losses.

Everything is made of sums, greatest values and a histogram. These can be merged in any order, so a
window may be filled bit by bit, and opened again by rows that come late.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import SECOND
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms.expressions import (
    TOPIC,
    bucket_bounds_ns,
    floor_to,
    nanoseconds,
    timestamp,
    with_bucket,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW: Final = ("window_ns", *TOPIC)
# What is known of a bucket of a window: its sums are of the rows of that bucket.
PART: Final = (
    *("window_ns", *TOPIC, "source_name", "bucket"),
    *("messages", "bytes", "latency_max_us", "duplicates"),
)


def parts(rows: "DataFrame", window_ns: int) -> "DataFrame":
    """Count messages by topic, window and bucket of latency."""
    timed = with_bucket(rows, F.col("received_ns") - F.col("published_ns"))
    window = floor_to(F.col("received_ns"), window_ns).alias("window_ns")
    # Strings are grouped by, never aggregated: Spark would sort all rows for it.
    return timed.groupBy(window, *TOPIC, "source_name", "bucket").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("size").alias("bytes"),
        (F.max("latency_ns") / 1000.0).alias("latency_max_us"),
        F.lit(0).cast("long").alias("duplicates"),
        F.max("received_ns").alias("newest_ns"),
    )


def duplicates(rows: "DataFrame", kept: "DataFrame", window_ns: int) -> "DataFrame":
    """Count rows that were left out because another is the same message."""
    group = (floor_to(F.col("received_ns"), window_ns).alias("window_ns"), *TOPIC, "source_name")
    there = rows.select(*group, F.lit(1).cast("long").alias("duplicates"))
    taken = kept.select(*group, F.lit(-1).cast("long").alias("duplicates"))
    return (
        there.unionByName(taken)
        .groupBy("window_ns", *TOPIC, "source_name")
        .agg(F.sum("duplicates").alias("duplicates"))
        .where(F.col("duplicates") > 0)
        .withColumn("messages", F.lit(0).cast("long"))
        .withColumn("bytes", F.lit(0).cast("long"))
        .withColumn("bucket", F.lit(None).cast("int"))
        .withColumn("latency_max_us", F.lit(None).cast("double"))
        .select(*PART)
    )


def taken_apart(health: "DataFrame") -> "DataFrame":
    """Turn the table back into what it was made of."""
    window_ns = nanoseconds(F.col("window_start")).alias("window_ns")
    counted = health.select(
        window_ns, *TOPIC, "source_name", F.explode("histogram").alias("bucket", "messages"),
        *_nothing("bytes"), F.lit(None).cast("double").alias("latency_max_us"),
        *_nothing("duplicates"),
    )  # fmt: skip
    summed = health.select(
        window_ns, *TOPIC, "source_name", *_nothing("bucket", "messages"),
        "bytes", "latency_max_us", "duplicates",
    )  # fmt: skip
    return counted.select(*PART).unionByName(summed.select(*PART))


def health(
    found: "DataFrame", lost: "DataFrame", repairs: "DataFrame", window_ns: int, final_ns: int
) -> "DataFrame":
    """Put parts together; windows that end by `final_ns` are final."""
    windows = _summed(found)
    entries = F.col("entries")
    total = F.col("messages")
    largest_us = F.col("latency_max_us")
    end_ns = F.col("window_ns") + window_ns

    def percentile(percent: int) -> Column:
        return F.least(_high_us_at(entries, total, percent), largest_us)

    zero = F.lit(0).cast("long")
    known = windows.withColumn("mean_us", F.try_divide(_sum(entries, _middle_us), total))
    # One projection: each further one is looked at by all of Spark's rules again.
    columns = {
        "window_start": timestamp(F.col("window_ns")),
        "window_end": timestamp(end_ns),
        "rate": total / F.lit(window_ns / SECOND),
        "latency_p50_us": percentile(50),
        "latency_p95_us": percentile(95),
        "latency_p99_us": percentile(99),
        "jitter_us": F.sqrt(F.try_divide(_sum(entries, _square), total)),
        "lost": F.coalesce("lost", zero),
        "repairs": F.coalesce("repairs", zero),
        "histogram": _as_map(entries),
        # A decimal: a plain number would be part of the code that Spark compiles for each step.
        "final": end_ns.cast("decimal(20,0)") <= F.lit(Decimal(final_ns)),
    }
    names = SHAPES["topic_health"].columns.names
    return (
        known.join(lost, [*WINDOW], "left")
        .join(repairs, ["window_ns", "source_id", "incarnation"], "left")
        .select(*(columns.get(name, F.col(name)).alias(name) for name in names))
    )


def _summed(found: "DataFrame") -> "DataFrame":
    buckets = found.groupBy(*WINDOW, "bucket").agg(
        F.max("source_name").alias("source_name"),
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.max("latency_max_us").alias("latency_max_us"),
        F.sum("duplicates").alias("duplicates"),
    )
    low_ns, high_ns = bucket_bounds_ns(F.col("bucket"))
    entry = F.struct(
        "bucket",
        F.col("messages").alias("count"),
        (high_ns / 1000.0).alias("high_us"),
        (low_ns / 2000.0 + high_ns / 2000.0).alias("middle_us"),
    )
    return buckets.groupBy(*WINDOW).agg(
        F.max("source_name").alias("source_name"),
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.max("latency_max_us").alias("latency_max_us"),
        F.sum("duplicates").alias("duplicates"),
        # Sorted, so that sums of floats have one order, too.
        F.sort_array(F.collect_list(F.when(F.col("bucket").isNotNull(), entry))).alias("entries"),
    )


def _as_map(entries: Column) -> Column:
    keys = F.transform(entries, lambda entry: entry["bucket"])
    return F.map_from_arrays(keys, F.transform(entries, lambda entry: entry["count"]))


def _high_us_at(entries: Column, total: Column, percent: int) -> Column:
    """Return the end of the bucket of the message that so many of a hundred do not exceed."""
    rank = F.call_function("div", total * percent + 99, F.lit(100).cast("long"))
    start = F.struct(
        F.lit(0).cast("long").alias("count"), F.lit(None).cast("double").alias("high_us")
    )

    def count_on(state: Column, entry: Column) -> Column:
        is_behind = state["count"] >= rank
        return F.struct(
            (state["count"] + entry["count"]).alias("count"),
            F.when(is_behind, state["high_us"]).otherwise(entry["high_us"]).alias("high_us"),
        )

    return F.aggregate(entries, start, count_on, lambda state: state["high_us"])


def _sum(entries: Column, value: Callable[[Column], Column]) -> Column:
    return F.aggregate(
        entries, F.lit(0.0), lambda total, entry: total + value(entry) * entry["count"]
    )


def _middle_us(entry: Column) -> Column:
    """Return what a message of a bucket counts as."""
    return entry["middle_us"]


def _square(entry: Column) -> Column:
    distance_us = entry["middle_us"] - F.col("mean_us")
    return distance_us * distance_us


def _nothing(*names: str) -> list[Column]:
    kinds = {"bucket": F.lit(None).cast("int")}
    return [kinds.get(name, F.lit(0).cast("long")).alias(name) for name in names]
