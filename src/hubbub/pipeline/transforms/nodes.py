"""What nodes did when, and what they wanted."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms.consumers import COUNTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A subscriber's pattern, and from when to when it was there.
PRESENCE: Final = (
    *("recorder", "node_id", "incarnation", "node_name", "subject", "link"),
    *("time_ns", "is_present"),
)
_TIMELINE: Final = tuple(SHAPES["node_timeline"].columns.names)


def timeline(events: "DataFrame", announcements: "DataFrame") -> "DataFrame":
    """Put what nodes reported and what they announced into one order."""
    verb = F.when(F.col("role") == "publisher", F.lit("Publish")).otherwise(F.lit("Subscription"))
    end = F.when(F.col("is_present"), F.lit("Begun")).otherwise(F.lit("Ended"))
    facts = F.struct("role", "subject", "schema", "host", "pid", "link")
    announced = announcements.select(
        "node_id", "incarnation", "time_ns", "number", "node_name", "time",
        F.concat(verb, end).alias("kind"),
        F.to_json(facts).alias("detail"),
    )  # fmt: skip
    is_told = F.col("node_id").isNotNull() & ~F.col("kind").eqNullSafe(COUNTED)
    return events.where(is_told).select(*_TIMELINE).unionByName(announced)


def presence(announcements: "DataFrame") -> "DataFrame":
    """Keep of the announcements who wants what from when on."""
    return announcements.where(F.col("role") == "subscriber").select(*PRESENCE)


def departures(events: "DataFrame") -> "DataFrame":
    """Note nodes that left: whatever they wanted ended with them."""
    return events.where(F.col("kind") == "PeerLeft").select(
        "recorder", "node_id", "incarnation", "node_name",
        F.lit(None).cast("string").alias("subject"),
        F.lit(None).cast("string").alias("link"),
        "time_ns",
        F.lit(False).alias("is_present"),
    )  # fmt: skip
