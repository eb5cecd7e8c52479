"""Columns that several tables need: times, windows and buckets, in integers."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so.

from hubbub.pipeline.histogram import DETAIL_BITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A topic: one subject of one incarnation of a source, where sequences count.
TOPIC: Final = ("source_id", "incarnation", "subject")


def divided(column: Column, divisor: int) -> Column:
    """Divide integers without ever becoming a float."""
    return F.call_function("div", column, F.lit(divisor).cast("long"))


def timestamp(time_ns: Column) -> Column:
    """Turn nanoseconds since 1970 into a timestamp."""
    return F.timestamp_micros(divided(time_ns, 1000))


def nanoseconds(time: Column) -> Column:
    """Turn a timestamp into nanoseconds since 1970."""
    return F.unix_micros(time) * 1000


def floor_to(column: Column, step: int) -> Column:
    """Round a number that is not negative down to a multiple."""
    return column - column % F.lit(step).cast("long")


def with_bucket(rows: "DataFrame", latency_ns: Column) -> "DataFrame":
    """Add `bucket`, that of a latency, as `histogram.bucket_of` does.

    Step by step, because each step is used more than once by the next: written as one expression
    it would be so large that planning it takes longer than running it.
    """
    size = F.col("size_ns")
    power = F.col("power")
    one = F.lit(1).cast("long")
    # A logarithm of floats may be off by one next to a power of two: integers set it right.
    is_high = F.call_function("shiftleft", one, power) > size
    is_low = F.call_function("shiftright", size, power) > 1
    exact = power - is_high.cast("int") + is_low.cast("int")
    shift = F.greatest(exact - DETAIL_BITS, F.lit(0))
    bucket = F.shiftleft("shift", DETAIL_BITS) + F.call_function("shiftright", size, F.col("shift"))
    mirrored = F.when(F.col("latency_ns") < 0, -1 - bucket).otherwise(bucket)
    return (
        rows.withColumns({"latency_ns": latency_ns, "size_ns": F.abs(latency_ns)})
        .withColumn("power", F.log2(F.greatest(size, one)).cast("int"))
        .withColumn("shift", shift)
        .withColumn("bucket", mirrored.cast("int"))
    )


def bucket_bounds_ns(bucket: Column) -> tuple[Column, Column]:
    """Return the smallest and the largest latency of a bucket, as `histogram.bounds_ns` does."""
    size = F.when(bucket < 0, -1 - bucket).otherwise(bucket)
    shift = F.greatest(F.shiftright(size, DETAIL_BITS) - 1, F.lit(0))
    detail = (size - F.shiftleft(shift, DETAIL_BITS)).cast("long")
    low = F.call_function("shiftleft", detail, shift)
    high = low + F.call_function("shiftleft", F.lit(1).cast("long"), shift) - 1
    is_mirrored = bucket < 0
    return F.when(is_mirrored, -high).otherwise(low), F.when(is_mirrored, -low).otherwise(high)
