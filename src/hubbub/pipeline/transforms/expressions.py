"""Columns that several tables need: windows and buckets, in integers."""

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so.

from hubbub.pipeline.histogram import DETAIL_BITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def floor_to(column: Column, step: int) -> Column:
    """Round a number that is not negative down to a multiple."""
    return column - column % F.lit(step).cast("long")


def with_bucket(rows: "DataFrame", latency_ns: Column, *columns: Column) -> "DataFrame":
    """Add `bucket`, that of a latency, as `histogram.bucket_of` does, and these columns.

    One column after the other, each used more than once by the next: written as one expression
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
    return rows.select(
        "*",
        *columns,
        latency_ns.alias("latency_ns"),
        F.abs("latency_ns").alias("size_ns"),
        F.log2(F.greatest(size, one)).cast("int").alias("power"),
        shift.alias("shift"),
        mirrored.cast("int").alias("bucket"),
    )
