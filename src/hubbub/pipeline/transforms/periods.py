"""Whether time-triggered messages kept their slots.

A slot is a period of a topic, from one multiple of it to the next. It is met by a message whose
tick lies in it, late if that came only half a period (at least 20 ms) after its end or later, and
missed if none came: as consumers judge it, which count what is late here as missed, and as late
when it comes. A recorder names the period with the first message of a slot alone. Slots are counted
from the first to the last that has a message, also in windows in which nothing came at all, but not
from one epoch to the next: nobody wanted samples then, or the clock of the producer stepped.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import SLOT_TOLERANCE_MIN
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms.expressions import TOPIC, floor_to, timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SERIES: Final = (*TOPIC, "period_ns")
_COUNTED: Final = (*_SERIES, "epoch")
SLOTS: Final = ("window_ns", *_COUNTED, "source_name", "met", "late", "first_ns", "last_ns")


def slots(rows: "DataFrame", window_ns: int) -> "DataFrame":
    """Count by topic, period and window of the slot which were met and which were not."""
    period, begin = F.col("period_ns"), F.col("slot_ns")
    grace = F.expr(f"greatest(period_ns div 2, {SLOT_TOLERANCE_MIN})")
    is_met = F.col("received_ns") < begin + period + grace
    timed = rows.where(period > 0).where(F.col("tick_ns") >= 0)
    return (
        timed.withColumn("slot_ns", F.col("tick_ns") - F.col("tick_ns") % period)
        .withColumn("epoch", F.coalesce("epoch", F.lit(0).cast("long")))
        .groupBy(floor_to(begin, window_ns).alias("window_ns"), *_COUNTED, "source_name")
        .agg(
            F.count(F.when(is_met, 1)).alias("met"),
            F.count(F.when(~is_met, 1)).alias("late"),
            F.min("slot_ns").alias("first_ns"),
            F.max("slot_ns").alias("last_ns"),
        )
    )


def merged_slots(parts: "DataFrame") -> "DataFrame":
    """Add up counts of the same window."""
    return parts.groupBy("window_ns", *_COUNTED, "source_name").agg(
        F.sum("met").alias("met"),
        F.sum("late").alias("late"),
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
    )


def compliance(counted: "DataFrame", window_ns: int) -> "DataFrame":
    """Compare what came with the slots that there were."""
    key = ("window_ns", *_SERIES)
    came = counted.groupBy(*key).agg(
        F.max("source_name").alias("source_name"),
        F.sum("met").alias("met"),
        F.sum("late").alias("late"),
    )
    return (
        _owed(counted, window_ns)
        .join(came, [*key], "left")
        .withColumn("met", F.coalesce("met", F.lit(0).cast("long")))
        .withColumn("late", F.coalesce("late", F.lit(0).cast("long")))
        .withColumn("missed", F.greatest(F.col("slots") - F.col("met") - F.col("late"), F.lit(0)))
        .withColumn("source_name", F.coalesce("source_name", "name"))
        .withColumn("window_start", timestamp(F.col("window_ns")))
        .withColumn("window_end", timestamp(F.col("window_ns") + window_ns))
        .select(*SHAPES["period_compliance"].columns.names)
    )


def _owed(counted: "DataFrame", window_ns: int) -> "DataFrame":
    """Count the slots of each window, from the first to the last of each epoch."""
    spells = counted.groupBy(*_COUNTED).agg(
        F.max("source_name").alias("name"),
        F.min("first_ns").alias("begin_ns"),
        F.max("last_ns").alias("end_ns"),
    )
    windows = F.sequence(
        floor_to(F.col("begin_ns"), window_ns),
        floor_to(F.col("end_ns"), window_ns),
        F.lit(window_ns).cast("long"),
    )
    # How many slots begin before the window, and up to its end, counted from the first one.
    before = F.expr("greatest(0, (window_ns - begin_ns + period_ns - 1) div period_ns)")
    upto_end = F.expr(
        f"(least(end_ns, window_ns + {window_ns - 1}) - begin_ns) div period_ns + 1"
    )  # fmt: skip
    return (
        spells.withColumn("window_ns", F.explode(windows))
        .withColumn("slots", upto_end - before)
        .where(F.col("slots") > 0)
        .groupBy("window_ns", *_SERIES)
        .agg(F.sum("slots").alias("slots"), F.max("name").alias("name"))
    )
