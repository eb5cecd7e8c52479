"""Messages counted by topic, window and bucket of latency: what topic_health is made of."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.merging.groups import TOPIC
from hubbub.pipeline.merging.health import PART
from hubbub.pipeline.transforms.expressions import floor_to, with_bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parts(rows: "DataFrame", window_ns: int) -> "DataFrame":
    """Count messages by topic, window and bucket of latency."""
    window = floor_to(F.col("received_ns"), window_ns).alias("window_ns")
    timed = with_bucket(rows, F.col("received_ns") - F.col("published_ns"), window)
    # Strings are grouped by, never aggregated: Spark would sort all rows for it.
    return timed.groupBy("window_ns", *TOPIC, "source_name", "bucket").agg(
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
        .select(*PART.names)
    )
