"""Time-triggered messages counted by their slots; see merging/periods.py."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import SLOT_TOLERANCE_MIN
from hubbub.pipeline.merging.groups import TOPIC
from hubbub.pipeline.transforms.expressions import floor_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNTED: Final = (*TOPIC, "period_ns", "epoch")


def slots(rows: "DataFrame", window_ns: int) -> "DataFrame":
    """Count by topic, period and window of the slot which were met and which were not."""
    period, begin = F.col("period_ns"), F.col("slot_ns")
    grace = F.expr(f"greatest(period_ns div 2, {SLOT_TOLERANCE_MIN})")
    is_met = F.col("received_ns") < begin + period + grace
    timed = rows.where(period > 0).where(F.col("tick_ns") >= 0)
    return (
        timed.withColumn("slot_ns", F.col("tick_ns") - F.col("tick_ns") % period)
        .withColumn("epoch", F.coalesce("epoch", F.lit(0).cast("long")))
        .groupBy(F.expr(f"{floor_to('slot_ns', window_ns)} AS window_ns"), *_COUNTED, "source_name")
        .agg(
            F.count(F.when(is_met, 1)).alias("met"),
            F.count(F.when(~is_met, 1)).alias("late"),
            F.min("slot_ns").alias("first_ns"),
            F.max("slot_ns").alias("last_ns"),
        )
    )
