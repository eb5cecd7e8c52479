"""Messages counted by topic, window and bucket of latency: what topic_health is made of."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.merging.groups import TOPIC
from hubbub.pipeline.merging.health import PART
from hubbub.pipeline.transforms.expressions import BUCKET, floor_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parts(rows: "DataFrame", window_ns: int) -> "DataFrame":
    """Count messages by topic, window and bucket of latency."""
    window = f"{floor_to('received_ns', window_ns)} AS window_ns"
    # Services do not carry when something was published: of these no latency is known.
    latency = "received_ns - nullif(published_ns, 0L) AS latency_ns"
    timed = rows.selectExpr("*", window, latency, *BUCKET)
    # Strings are grouped by, never aggregated: Spark would sort all rows for it.
    return timed.groupBy("window_ns", *TOPIC, "source_name", "bucket").agg(
        F.expr("count(1) AS messages"),
        F.expr("sum(size) AS bytes"),
        F.expr("max(latency_ns) / 1000D AS latency_max_us"),
        F.expr("0L AS duplicates"),
        F.expr("max(received_ns) AS newest_ns"),
    )


def duplicates(rows: "DataFrame", kept: "DataFrame", window_ns: int) -> "DataFrame":
    """Count rows that were left out because another is the same message."""
    window = f"{floor_to('received_ns', window_ns)} AS window_ns"
    there = rows.selectExpr(window, *TOPIC, "source_name", "1L AS duplicates")
    taken = kept.selectExpr(window, *TOPIC, "source_name", "-1L AS duplicates")
    return (
        there.unionByName(taken)
        .groupBy("window_ns", *TOPIC, "source_name")
        .agg(F.sum("duplicates").alias("duplicates"))
        .where(F.col("duplicates") > 0)
        .selectExpr(
            "*", "0L AS messages", "0L AS bytes", "CAST(NULL AS INT) AS bucket",
            "CAST(NULL AS DOUBLE) AS latency_max_us",
        )
        .select(*PART.names)
    )  # fmt: skip
