"""What nodes did when, and who talks to whom."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, Window
from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms.expressions import nanoseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A subscriber's pattern, and from when to when it was there.
PRESENCE: Final = ("node_id", "incarnation", "node_name", "subject", "time_ns", "is_present")
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
    told = events.where(F.col("node_id").isNotNull()).select(*_TIMELINE)
    return told.unionByName(announced)


def presence(announcements: "DataFrame") -> "DataFrame":
    """Keep of the announcements who wants what from when on."""
    return announcements.where(F.col("role") == "subscriber").select(*PRESENCE)


def departures(events: "DataFrame") -> "DataFrame":
    """Note nodes that left: whatever they wanted ended with them."""
    return events.where(F.col("kind") == "PeerLeft").select(
        "node_id", "incarnation", "node_name",
        F.lit(None).cast("string").alias("subject"),
        "time_ns",
        F.lit(False).alias("is_present"),
    )  # fmt: skip


def traffic(health: "DataFrame", present: "DataFrame") -> "DataFrame":
    """Give each receiver what was published while it wanted it, by windows."""
    stays = _stays(present)
    pairs = (
        health.select("subject")
        .distinct()
        .join(F.broadcast(stays.select("pattern").distinct()))
        .where(F.rlike(F.col("subject"), pattern_as_regex(F.col("pattern"))))
    )
    start_ns = nanoseconds(F.col("window_start"))
    end_ns = nanoseconds(F.col("window_end"))
    is_there = (F.col("from_ns") < end_ns) & (
        F.col("until_ns").isNull() | (F.col("until_ns") > start_ns)
    )
    keys = ("window_start", "source_id", "incarnation", "subject", "receiver_id")
    return (
        health.join(F.broadcast(pairs), "subject", "inner")
        .join(F.broadcast(stays), "pattern", "inner")
        .where(is_there)
        .groupBy(*keys)
        .agg(
            F.max("source_name").alias("source_name"),
            F.max("receiver_name").alias("receiver_name"),
            F.max("messages").alias("messages"),
            F.max("bytes").alias("bytes"),
        )
        .groupBy("window_start", "source_id", "subject", "receiver_id")
        .agg(
            F.max("source_name").alias("source_name"),
            F.max("receiver_name").alias("receiver_name"),
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
        )
        .where(F.col("messages") > 0)
        .select(*SHAPES["traffic_matrix"].columns.names)
    )


def pattern_as_regex(pattern: Column) -> Column:
    r"""Turn a pattern into a regular expression: `/a/*/...` becomes `^/\Qa\E/[^/]+/.+$`."""

    def level(text: Column) -> Column:
        quoted = F.concat(
            F.lit("\\Q"), F.replace(text, F.lit("\\E"), F.lit("\\E\\\\E\\Q")), F.lit("\\E")
        )
        return (
            F.when(text == "", F.lit(""))
            .when(text == "*", F.lit("[^/]+"))
            .when(text == "...", F.lit("(?s).+"))
            .otherwise(quoted)
        )

    levels = F.transform(F.split(pattern, "/"), level)
    return F.concat(F.lit("^"), F.array_join(levels, "/"), F.lit("$"))


def _stays(present: "DataFrame") -> "DataFrame":
    """Turn beginnings and ends into stays of a node with a pattern."""
    node = ("node_id", "incarnation")
    wanted = present.where(F.col("subject").isNotNull())
    left = (
        present.where(F.col("subject").isNull())
        .groupBy(*node)
        .agg(F.max("time_ns").alias("left_ns"))
    )
    order = Window.partitionBy(*node, "subject").orderBy("time_ns", "is_present")
    return (
        wanted.withColumn("next_ns", F.lead("time_ns").over(order))
        .where(F.col("is_present"))
        .join(left, [*node], "left")
        .select(
            F.col("subject").alias("pattern"),
            F.col("node_id").alias("receiver_id"),
            F.col("node_name").alias("receiver_name"),
            F.col("time_ns").alias("from_ns"),
            F.least("next_ns", "left_ns").alias("until_ns"),
        )
    )
