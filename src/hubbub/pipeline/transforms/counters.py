"""How far the counters of the bus had come, window by window; see merging/counters.py."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.transforms.expressions import floor_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNTER: Final = ("recorder", "since_ns", "node_id", "incarnation", "link", "name")


def marks(counters: "DataFrame", window_ns: int) -> "DataFrame":
    """Note how far each counter had come in each window."""
    marked = counters.where("value IS NOT NULL").selectExpr(
        f"{floor_to('time_ns', window_ns)} AS window_ns",
        "recorder",
        "coalesce(since_ns, 0L) AS since_ns",
        "coalesce(node_id, '') AS node_id",
        "coalesce(incarnation, 0L) AS incarnation",
        "coalesce(link, '') AS link",
        "name",
        "node_name",
        "value AS mark",
    )
    # Strings are grouped by, never aggregated: Spark would sort all rows for it.
    return marked.groupBy("window_ns", *_COUNTER, "node_name").agg(F.max("mark").alias("mark"))
