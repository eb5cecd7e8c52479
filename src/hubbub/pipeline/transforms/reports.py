"""What was reported lost, and what quarantine took away."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.merging.gaps import LOST_BY, PAUSED, QUARANTINED
from hubbub.pipeline.merging.groups import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def reports(events: "DataFrame") -> "DataFrame":
    """Keep of the events what says which messages are lost."""
    has_range = F.col("subject").isNotNull() & F.col("first_sequence").isNotNull()
    return (
        events.where(F.col("kind").isin(*LOST_BY))
        .where(has_range)
        .select(
            F.col("node_id").alias("source_id"),
            "incarnation",
            "subject",
            F.col("node_name").alias("source_name"),
            F.col("first_sequence").alias("first"),
            F.coalesce("last_sequence", "first_sequence").alias("last"),
            "kind",
        )
    )


def starts(events: "DataFrame") -> "DataFrame":
    """Note when recorders were started: what came before that, nobody owes them."""
    return events.where((F.col("kind") == PAUSED) & F.col("time_ns").isNotNull()).select(
        "recorder", "time_ns"
    )


def reports_of_quarantine(rows: "DataFrame") -> "DataFrame":
    """Report what quarantine took away: it is missing, and it is no mystery."""
    return rows.where(F.col("sequence") >= 1).select(
        *TOPIC,
        F.lit(None).cast("string").alias("source_name"),
        F.col("sequence").alias("first"),
        F.col("sequence").alias("last"),
        F.lit(QUARANTINED).alias("kind"),
    )
