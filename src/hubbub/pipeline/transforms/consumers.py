"""What consumers of time-triggered topics told of their slots; see merging/consumers.py."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.transforms.expressions import floor_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTED: Final = "SlotsCounted"  # Each second, by each node that has consumers.
CONSUMER: Final = ("node_id", "incarnation", "subject", "port", "period_ns")
COUNTS: Final = ("served", "missed", "late", "vacant")
_TOLD: Final = (
    "array<struct<subject: string, port: bigint, period_ns: bigint,"
    " served: bigint, missed: bigint, late: bigint, vacant: bigint>>"
)


def consumed(events: "DataFrame", window_ns: int) -> "DataFrame":
    """Add up by window what each consumer told."""
    told = events.where((F.col("kind") == COUNTED) & F.col("time_ns").isNotNull()).selectExpr(
        f"{floor_to('time_ns', window_ns)} AS window_ns",
        "node_id",
        "incarnation",
        "node_name",
        f"inline(from_json(detail, '{_TOLD}'))",
    )
    # Strings are grouped by, never aggregated: Spark would sort all rows for it.
    return told.groupBy("window_ns", *CONSUMER, "node_name").agg(
        *(F.expr(f"coalesce(sum({name}), 0L) AS {name}") for name in COUNTS)
    )
