"""What holds of every recording, simulated or real: nothing missing, nothing twice, order kept.

Per recorder, publisher incarnation and subject: what was recorded is in order and comes once, and
each hole in the sequences was reported. A hole counts only between what one run of the recorder
recorded; where it is known what was owed, as in a simulation, it counts from there to there.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOPIC: Final = ("recorder", "source_id", "incarnation", "subject")
FAULT: Final = (*TOPIC, "fault", "first_sequence", "last_sequence")

MISSING: Final = "missing"
TWICE: Final = "twice"
DISORDERED: Final = "out of order"

# Sequences are 64 bits without a sign, kept as numbers with one: with the highest bit turned over
# they are in their order again.
_TURN: Final = -(1 << 63)

# Events that tell of messages which will not come; without a range, of any of a publisher's (or,
# if they name none, of anybody's).
REPORTS: Final = ("GapAbandoned", "RecorderLost", "SlowConsumer")
STARTED: Final = "RecorderStarted"
MATCHED: Final = "PublisherMatched"


def check(
    messages: "DataFrame", events: "DataFrame", owed: "DataFrame | None" = None
) -> "DataFrame":
    """Return all faults of a recording; none, if it is as it must be."""
    found, heard = messages.transform(turned), events.transform(turned)
    promised = None if owed is None else owed.transform(turned)
    return (
        missing(found, heard, promised)
        .unionByName(twice(found))
        .unionByName(disordered(found))
        .transform(turned)
    )


def turned(frame: "DataFrame") -> "DataFrame":
    """Bring sequences into an order that Spark can compare; done again, it is undone."""
    names = [name for name in frame.columns if name.endswith("sequence")]
    return frame.withColumns({name: F.col(name).bitwiseXOR(F.lit(_TURN)) for name in names})


def twice(messages: "DataFrame") -> "DataFrame":
    """Return what was recorded more than once."""
    return (
        messages.groupBy(*TOPIC, "sequence")
        .agg(F.count("*").alias("times"))
        .where("times > 1")
        .select(
            *TOPIC,
            F.lit(TWICE).alias("fault"),
            F.col("sequence").alias("first_sequence"),
            F.col("sequence").alias("last_sequence"),
        )
    )


def disordered(messages: "DataFrame") -> "DataFrame":
    """Return what was recorded behind a later message of its topic."""
    in_order = Window.partitionBy(*TOPIC).orderBy("offset")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    return (
        messages.select(*TOPIC, "sequence", F.max("sequence").over(before).alias("highest"))
        .where("sequence < highest")
        .select(
            *TOPIC,
            F.lit(DISORDERED).alias("fault"),
            F.col("sequence").alias("first_sequence"),
            F.col("sequence").alias("last_sequence"),
        )
    )


def missing(
    messages: "DataFrame", events: "DataFrame", owed: "DataFrame | None" = None
) -> "DataFrame":
    """Return the holes that nobody reported."""
    found = holes(with_session(messages, events), owed)
    return (
        found.transform(without_reported, events)
        .transform(without_vague, events)
        .transform(without_best_effort, events)
        .select(*TOPIC, F.lit(MISSING).alias("fault"), "first_sequence", "last_sequence")
    )


def with_session(messages: "DataFrame", events: "DataFrame") -> "DataFrame":
    """Number the runs of each recorder: nobody owes it what came while it did not run."""
    starts = events.where(F.col("kind") == STARTED).select(
        "recorder", F.get_json_object("detail", "$.offset").cast("long").alias("offset")
    )
    marked = (
        messages.select(*TOPIC, "sequence", "offset", F.lit(0).alias("starts"))
        .unionByName(
            starts.select(
                "recorder",
                F.lit(None).cast("string").alias("source_id"),
                F.lit(None).cast("long").alias("incarnation"),
                F.lit(None).cast("string").alias("subject"),
                F.lit(None).cast("long").alias("sequence"),
                "offset",
                F.lit(1).alias("starts"),
            )
        )
        .withColumn(
            "session",
            F.sum("starts").over(
                Window.partitionBy("recorder")
                .orderBy("offset", F.desc("starts"))
                .rowsBetween(Window.unboundedPreceding, Window.currentRow)
            ),
        )
    )
    return marked.where("starts = 0").select(*TOPIC, "sequence", "session")


def holes(messages: "DataFrame", owed: "DataFrame | None" = None) -> "DataFrame":
    """Return the sequences that are missing between others, or of those that were owed."""
    edges = messages if owed is None else messages.unionByName(_edges(owed))
    following = F.lead("sequence").over(Window.partitionBy(*TOPIC, "session").orderBy("sequence"))
    return (
        edges.select(*TOPIC, "sequence", following.alias("following"))
        .where("following > sequence + 1")
        .select(
            *TOPIC,
            (F.col("sequence") + 1).alias("first_sequence"),
            (F.col("following") - 1).alias("last_sequence"),
        )
    )


def _edges(owed: "DataFrame") -> "DataFrame":
    """Return rows just outside of what was owed, as if they had come."""
    outside = F.array(F.col("first_sequence") - 1, F.col("last_sequence") + 1)
    return owed.select(
        *TOPIC, F.explode(outside).alias("sequence"), F.lit(0).cast("long").alias("session")
    )


def reported_ranges(events: "DataFrame") -> "DataFrame":
    """Return what was reported as lost, with ranges that meet or overlap put together."""
    ranges = events.where(
        F.col("kind").isin(*REPORTS) & F.col("first_sequence").isNotNull()
    ).select(
        "recorder",
        F.col("node_id").alias("source_id"),
        "incarnation",
        "subject",
        "first_sequence",
        "last_sequence",
    )
    by_first = Window.partitionBy(*TOPIC).orderBy("first_sequence", "last_sequence")
    reached = F.max("last_sequence").over(by_first.rowsBetween(Window.unboundedPreceding, -1))
    is_apart = F.coalesce(F.col("first_sequence") > reached + 1, F.lit(True)).cast("int")
    island = F.sum("is_apart").over(
        by_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        ranges.withColumn("is_apart", is_apart)
        .withColumn("island", island)
        .groupBy(*TOPIC, "island")
        .agg(
            F.min("first_sequence").alias("reported_first"),
            F.max("last_sequence").alias("reported_last"),
        )
        .drop("island")
    )


def without_reported(found: "DataFrame", events: "DataFrame") -> "DataFrame":
    """Leave out holes that lie in what was reported."""
    reports = reported_ranges(events).alias("report")
    is_reported = (
        _same_topic("hole", "report")
        & (F.col("reported_first") <= F.col("hole.first_sequence"))
        & (F.col("reported_last") >= F.col("hole.last_sequence"))
    )
    return found.alias("hole").join(reports, is_reported, "left_anti")


def _same_topic(left: str, right: str) -> "Column":
    pairs = [F.col(f"{left}.{name}") == F.col(f"{right}.{name}") for name in TOPIC]
    return pairs[0] & pairs[1] & pairs[2] & pairs[3]


def without_vague(found: "DataFrame", events: "DataFrame") -> "DataFrame":
    """Leave out holes that a report without a range may mean: its publisher died, say."""
    vague = (
        events.where(F.col("kind").isin(*REPORTS) & F.col("first_sequence").isNull())
        .where(~F.col("kind").eqNullSafe("SlowConsumer"))
        .select("recorder", "node_id")
        .distinct()
        .alias("vague")
    )
    may_mean = (F.col("hole.recorder") == F.col("vague.recorder")) & F.coalesce(
        F.col("vague.node_id") == F.col("hole.source_id"), F.lit(True)
    )
    return found.alias("hole").join(vague, may_mean, "left_anti")


def without_best_effort(found: "DataFrame", events: "DataFrame") -> "DataFrame":
    """Leave out topics that promise no more than order."""
    topics = (
        events.where(
            (F.col("kind") == MATCHED)
            & (F.get_json_object("detail", "$.is_reliable") == F.lit("false"))
        )
        .select("recorder", F.col("node_id").alias("source_id"), "incarnation", "subject")
        .distinct()
    )
    return found.join(topics, list(TOPIC), "left_anti")
