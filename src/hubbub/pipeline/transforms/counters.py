"""How far the counters of the bus had come, window by window; see merging/counters.py."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.transforms.expressions import floor_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNTER: Final = ("recorder", "node_id", "incarnation", "link", "name")


def marks(counters: "DataFrame", window_ns: int) -> "DataFrame":
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
    # Strings are grouped by, never aggregated: Spark would sort all rows for it.
    return marked.groupBy("window_ns", *_COUNTER, "node_name").agg(F.max("mark").alias("mark"))
