"""Holes in what was received, exactly, and who reported them.

A sequence is missing if messages before and behind it were received, or if somebody reported it
lost. A recorder that comes late is owed nothing earlier, so nothing is missing before the first
message, unless it was reported; the same holds behind the last one.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, Window
from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.transforms.expressions import TOPIC, floor_to, nanoseconds, timestamp
from hubbub.pipeline.transforms.quality import QUARANTINED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Who lost what these report; the first that holds is told.
LOST_BY: Final = {
    "RecorderLost": "recorder",
    "SlowConsumer": "recorder",
    QUARANTINED: "recorder",
    "GapAbandoned": "bus",
    "PayloadRejected": "bus",
}
_DEPTHS: Final = ("received", *LOST_BY)
REPORT: Final = (*TOPIC, "source_name", "first", "last", "kind")


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


def reports_of_quarantine(rows: "DataFrame") -> "DataFrame":
    """Report what quarantine took away: it is missing, and it is no mystery."""
    return rows.where(F.col("sequence") >= 1).select(
        *TOPIC,
        F.lit(None).cast("string").alias("source_name"),
        F.col("sequence").alias("first"),
        F.col("sequence").alias("last"),
        F.lit(QUARANTINED).alias("kind"),
    )


def gaps(runs: "DataFrame", reported: "DataFrame") -> "DataFrame":
    """List the holes; one that several reported in parts is several."""
    steps = _steps(runs, reported)
    point = Window.partitionBy(*TOPIC).orderBy("point")
    until = point.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    behind = point.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    depths = {kind: F.sum(kind).over(until) for kind in LOST_BY}
    kind = F.lit(None).cast("string")
    for name in reversed(LOST_BY):
        kind = F.when(depths[name] > 0, F.lit(name)).otherwise(kind)
    pieces = steps.select(
        *TOPIC,
        "source_name",
        F.col("point").alias("first"),
        (F.lead("point").over(point) - 1).alias("last"),
        F.sum("received").over(until).alias("depth"),
        kind.alias("kind"),
        F.last("ended_ns", ignorenulls=True).over(until).alias("after_ns"),
        F.first("begun_ns", ignorenulls=True).over(behind).alias("before_ns"),
    )
    is_between = F.col("after_ns").isNotNull() & F.col("before_ns").isNotNull()
    is_hole = (F.col("depth") == 0) & F.col("last").isNotNull()
    holes = pieces.where(is_hole).where(is_between | F.col("kind").isNotNull())
    return _joined(holes).select(
        *TOPIC,
        "first_sequence",
        "source_name",
        "last_sequence",
        (F.col("last_sequence") - F.col("first_sequence") + 1).alias("count"),
        timestamp(F.col("after_ns")).alias("after"),
        timestamp(F.col("before_ns")).alias("before"),
        F.col("kind").isNotNull().alias("reported"),
        F.col("kind").alias("reported_as"),
        _lost_by(F.col("kind")).alias("lost_by"),
    )


def lost_by_window(found: "DataFrame", window_ns: int) -> "DataFrame":
    """Count what is missing in the window of the message behind it, else of the one before."""
    seen_ns = nanoseconds(F.coalesce("before", "after"))
    return (
        found.withColumn("window_ns", floor_to(seen_ns, window_ns))
        .where(F.col("window_ns").isNotNull())
        .groupBy("window_ns", *TOPIC)
        .agg(F.sum("count").alias("lost"))
    )


def _steps(runs: "DataFrame", reported: "DataFrame") -> "DataFrame":
    """Say at which sequence something begins or ends: +1 and -1, by what it is."""
    none = F.lit(None).cast("long")
    received = runs.select(
        *TOPIC,
        "source_name",
        F.lit("received").alias("kind"),
        F.explode(
            F.array(
                _step(F.col("first"), 1, F.col("first_ns"), none),
                _step(F.col("last") + 1, -1, none, F.col("last_ns")),
            )
        ).alias("step"),
    )
    lost = reported.select(
        *TOPIC,
        "source_name",
        "kind",
        F.explode(
            F.array(_step(F.col("first"), 1, none, none), _step(F.col("last") + 1, -1, none, none))
        ).alias("step"),
    )
    names = Window.partitionBy("source_id", "incarnation")
    change = F.col("step.change")
    return (
        received.unionByName(lost)
        .withColumn("source_name", F.max("source_name").over(names))
        .groupBy(*TOPIC, "source_name", "step.point")
        .agg(
            *(
                F.sum(F.when(F.col("kind") == what, change).otherwise(0)).alias(what)
                for what in _DEPTHS
            ),
            F.max("step.begun_ns").alias("begun_ns"),
            F.max("step.ended_ns").alias("ended_ns"),
        )
    )


def _step(point: Column, change: int, begun_ns: Column, ended_ns: Column) -> Column:
    return F.struct(
        point.alias("point"),
        F.lit(change).alias("change"),
        begun_ns.alias("begun_ns"),
        ended_ns.alias("ended_ns"),
    )


def _joined(holes: "DataFrame") -> "DataFrame":
    """Join neighbours that the same kind of event reported."""
    order = Window.partitionBy(*TOPIC).orderBy("first")
    is_same = (F.lag("last").over(order) == F.col("first") - 1) & F.lag("kind").over(
        order
    ).eqNullSafe(F.col("kind"))
    until = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        holes.withColumn("is_new", F.when(F.coalesce(is_same, F.lit(False)), 0).otherwise(1))
        .withColumn("hole", F.sum("is_new").over(until))
        .groupBy(*TOPIC, "source_name", "hole", "kind")
        .agg(
            F.min("first").alias("first_sequence"),
            F.max("last").alias("last_sequence"),
            F.max("after_ns").alias("after_ns"),
            F.max("before_ns").alias("before_ns"),
        )
    )


def _lost_by(kind: Column) -> Column:
    who = F.lit("unknown")
    for name, loser in LOST_BY.items():
        who = F.when(kind == name, F.lit(loser)).otherwise(who)
    return who
