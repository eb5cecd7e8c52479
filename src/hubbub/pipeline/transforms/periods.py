"""Whether time-triggered messages kept their slots.

A slot is one nominal tick of a topic with a period. It is met by a message received before the
next tick, late if the message came after that, and missed if none came. Slots are counted from the
first to the last tick that was received, also in windows in which nothing came at all.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms.expressions import TOPIC, floor_to, timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SERIES: Final = (*TOPIC, "period_ns")
SLOTS: Final = ("window_ns", *_SERIES, "source_name", "met", "late", "first_ns", "last_ns")


def slots(rows: "DataFrame", window_ns: int) -> "DataFrame":
    """Count by topic, period and window of the tick what met its slot and what did not."""
    is_met = F.col("received_ns") < F.col("tick_ns") + F.col("period_ns")
    timed = rows.where(F.col("period_ns") > 0).where(F.col("tick_ns") >= 0)
    return timed.groupBy(
        floor_to(F.col("tick_ns"), window_ns).alias("window_ns"), *_SERIES, "source_name"
    ).agg(
        F.count(F.when(is_met, 1)).alias("met"),
        F.count(F.when(~is_met, 1)).alias("late"),
        F.min("tick_ns").alias("first_ns"),
        F.max("tick_ns").alias("last_ns"),
    )


def merged_slots(parts: "DataFrame") -> "DataFrame":
    """Add up counts of the same window."""
    return parts.groupBy("window_ns", *_SERIES, "source_name").agg(
        F.sum("met").alias("met"),
        F.sum("late").alias("late"),
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
    )


def compliance(counted: "DataFrame", window_ns: int) -> "DataFrame":
    """Compare what came with the slots that there were."""
    series = counted.groupBy(*_SERIES).agg(
        F.max("source_name").alias("source_name"),
        F.min("first_ns").alias("begin_ns"),
        F.max("last_ns").alias("end_ns"),
    )
    step = F.lit(window_ns).cast("long")
    windows = F.sequence(
        floor_to(F.col("begin_ns"), window_ns), floor_to(F.col("end_ns"), window_ns), step
    )
    came = counted.groupBy("window_ns", *_SERIES).agg(
        F.sum("met").alias("met"), F.sum("late").alias("late")
    )
    period, begin, window = F.col("period_ns"), F.col("begin_ns"), F.col("window_ns")
    # The number of ticks before a time, counted from the first one.
    before_window = F.expr("greatest(0, (window_ns - begin_ns + period_ns - 1) div period_ns)")
    last = F.least(F.col("end_ns"), window + window_ns - 1)
    upto_end = F.floor((last - begin - F.pmod(last - begin, period)) / period).cast("long") + 1
    return (
        series.withColumn("window_ns", F.explode(windows))
        .join(came, ["window_ns", *_SERIES], "left")
        .withColumn("slots", upto_end - before_window)
        .withColumn("met", F.coalesce("met", F.lit(0).cast("long")))
        .withColumn("late", F.coalesce("late", F.lit(0).cast("long")))
        .where(F.col("slots") > 0)
        .withColumn("missed", F.greatest(F.col("slots") - F.col("met") - F.col("late"), F.lit(0)))
        .withColumn("window_start", timestamp(window))
        .withColumn("window_end", timestamp(window + window_ns))
        .select(*SHAPES["period_compliance"].columns.names)
    )
