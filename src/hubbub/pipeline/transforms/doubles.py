"""Messages that were recorded twice: by two recorders, or because a file is there twice.

The copy that was received first is the message. This is the slow road: it is taken only for ranges
of sequences in which something is known to occur twice.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.merging.groups import TOPIC
from hubbub.pipeline.merging.health import PART
from hubbub.pipeline.transforms.expressions import floor_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW: Final = ("recorder", "offset")


class Doubles(NamedTuple):
    """Ranges of sequences that occur twice: among new rows, and in new rows and known ones."""

    doubled: "DataFrame"
    overlapping: "DataFrame"


def unique(new: "DataFrame", known: "DataFrame", doubles: Doubles) -> "tuple[DataFrame, DataFrame]":
    """Return the new rows that are messages, and known rows that must make way for new ones."""
    ranges = doubles.doubled.unionByName(doubles.overlapping)
    copies = (
        within(new, ranges)
        .withColumn("is_new", F.lit(True))
        .unionByName(within(known, doubles.overlapping).withColumn("is_new", F.lit(False)))
    )
    placed = ranked(copies)
    losers = placed.where("is_new").groupBy(*ROW).agg(F.min("rank").alias("rank")).where("rank > 1")
    must_go = (
        placed.where("NOT is_new")
        .where("rank > 1")
        .join(
            placed.where("is_new").where("rank = 1").select(*TOPIC, "sequence"),
            [*TOPIC, "sequence"],
            "left_semi",
        )
    )
    # A file that is there twice has the same row twice: one of the two is as good as the other.
    return new.dropDuplicates([*ROW]).join(losers, [*ROW], "left_anti"), must_go


def within(rows: "DataFrame", ranges: "DataFrame") -> "DataFrame":
    """Keep the rows whose sequence lies in one of these ranges."""
    row, wanted = rows.alias("row"), ranges.alias("wanted")
    is_same = F.lit(True)
    for key in TOPIC:
        is_same = is_same & (F.col(f"row.{key}") == F.col(f"wanted.{key}"))
    is_in = F.col("row.sequence").between(F.col("wanted.first"), F.col("wanted.last"))
    return row.join(F.broadcast(wanted), is_same & is_in, "left_semi")


def ranked(copies: "DataFrame") -> "DataFrame":
    """Number the copies of each message: the one that was received first is the message."""
    order = Window.partitionBy(*TOPIC, "sequence").orderBy(
        "received_ns", "recorder", "offset", "is_new"
    )
    return copies.withColumn("rank", F.row_number().over(order))


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
