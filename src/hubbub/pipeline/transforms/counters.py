"""What the recorder's node counted, window by window.

A counter only grows while its recorder runs, and begins at nothing when it is started again. So it
is enough to know how far each had come at the end of each window: marks, merged by their maximum.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms.expressions import floor_to, timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNTER: Final = ("recorder", "node_id", "incarnation", "link", "name")


def counts(counters: "DataFrame", window_ns: int) -> "DataFrame":
    """Note how far each counter had come in each window."""
    marked = counters.where(F.col("value").isNotNull()).select(
        floor_to(F.col("time_ns"), window_ns).alias("window_ns"),
        "recorder",
        F.coalesce("node_id", F.lit("")).alias("node_id"),
        F.coalesce("incarnation", F.lit(0).cast("long")).alias("incarnation"),
        F.coalesce("link", F.lit("")).alias("link"),
        "name",
        "node_name",
        F.col("value").alias("mark"),
    )
    return merged_counts(marked)


def merged_counts(known: "DataFrame") -> "DataFrame":
    """Put marks of the same window together."""
    return known.groupBy("window_ns", *_COUNTER).agg(
        F.max("node_name").alias("node_name"), F.max("mark").alias("mark")
    )


def bus_counters(known: "DataFrame", window_ns: int) -> "DataFrame":
    """Say by how much each counter grew in each window."""
    return (
        _grown(known)
        .where(F.col("added") > 0)
        .withColumn("window_start", timestamp(F.col("window_ns")))
        .withColumn("window_end", timestamp(F.col("window_ns") + window_ns))
        .select(*SHAPES["bus_counters"].columns.names)
    )


def repairs(known: "DataFrame") -> "DataFrame":
    """Say how many frames of each publisher were repaired in each window."""
    is_repaired = (F.col("name") == "repaired") & (F.col("node_id") != "")
    return (
        _grown(known.where(is_repaired))
        .groupBy("window_ns", F.col("node_id").alias("source_id"), "incarnation")
        .agg(F.sum("added").alias("repairs"))
    )


def _grown(known: "DataFrame") -> "DataFrame":
    order = Window.partitionBy(*_COUNTER).orderBy("window_ns")
    before = F.coalesce(F.lag("mark").over(order), F.lit(0).cast("long"))
    # A recorder that was started again counts from nothing.
    grown = F.when(F.col("mark") >= before, F.col("mark") - before).otherwise(F.col("mark"))
    return known.withColumn("added", grown)
