"""Which sequences were received, as words with a bit for each, and when at their ends.

Why not `lag` over all rows: sorting costs three times as much as this aggregate. What the words
mean is found out where they are few (merging/runs.py).
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.merging.groups import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def words(rows: "DataFrame", shift: int) -> "DataFrame":
    """Set a bit for every sequence; a word of more rows than bits has a sequence twice."""
    mask = f"bit_or(shiftleft(1L, int(sequence & {(1 << shift) - 1}L)))"
    word = F.expr(f"shiftright(sequence, {shift}) AS word")
    return rows.groupBy(*TOPIC, "source_name", word).agg(
        F.expr(f"{mask} AS mask"),
        F.expr(f"count(1) > bit_count({mask}) AS is_doubled"),
        F.expr("min_by(received_ns, sequence) AS first_ns"),
        F.expr("max_by(received_ns, sequence) AS last_ns"),
    )


def times(rows: "DataFrame", wanted: "DataFrame") -> "DataFrame":
    """Look up when these sequences were received."""
    # One number made of two is looked up several times as fast as three strings; the few rows that
    # are left are compared in full.
    place = F.xxhash64("incarnation", "sequence")
    return (
        rows.select(*TOPIC, "sequence", F.col("received_ns").alias("time_ns"), place.alias("place"))
        .join(F.broadcast(wanted.select(place.alias("place"))), "place", "left_semi")
        .join(F.broadcast(wanted), [*TOPIC, "sequence"], "left_semi")
        .drop("place")
    )
