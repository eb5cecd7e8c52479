"""Which sequences of each topic were received, as runs without a hole: first to last.

A run also says when its first and its last message were received. Runs are what is kept of
sequences between one part of a recording and the next: merged, they are the runs of both, so gaps
do not depend on how a recording was cut into parts.

Why not `lag` over all rows: sorting costs three times as much as the aggregate here, which sets one
bit per message in words of 64 sequences and looks closer only at words that are not full.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, Window
from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.transforms.expressions import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUN: Final = (*TOPIC, "source_name", "first", "last", "first_ns", "last_ns")
_WORD_BITS: Final = 64
_WORD_SHIFT: Final = 6
_FULL: Final = -1


def words(rows: "DataFrame") -> "DataFrame":
    """Set a bit for every sequence: per topic and word a mask, and how many rows it is made of."""
    sequence = F.col("sequence")
    bit = sequence.bitwiseAND(F.lit(_WORD_BITS - 1).cast("long")).cast("int")
    mask = F.call_function("shiftleft", F.lit(1).cast("long"), bit)
    word = F.shiftright(sequence, _WORD_SHIFT).alias("word")
    return rows.groupBy(*TOPIC, "source_name", word).agg(
        F.bit_or(mask).alias("mask"),
        F.count(F.lit(1)).alias("rows"),
        F.min_by("received_ns", "sequence").alias("first_ns"),
        F.max_by("received_ns", "sequence").alias("last_ns"),
    )


def doubled(counted: "DataFrame") -> "DataFrame":
    """Name the ranges in which a sequence occurs more than once."""
    first = F.shiftleft(F.col("word"), _WORD_SHIFT)
    return counted.where(F.col("rows") > F.bit_count("mask")).select(
        *TOPIC, first.alias("first"), (first + _WORD_BITS - 1).alias("last")
    )


def runs(counted: "DataFrame") -> "DataFrame":
    """Turn words into runs. Times are null where a run ends within a word: see `with_times`."""
    mask = F.col("mask")
    starts = mask.bitwiseAND(F.bitwise_not(F.shiftleft(mask, 1)))
    ends = mask.bitwiseAND(F.bitwise_not(F.shiftrightunsigned(mask, 1)))
    pairs = F.arrays_zip(_bits(starts).alias("start"), _bits(ends).alias("end"))
    whole = F.array(F.struct(F.lit(0).alias("start"), F.lit(_WORD_BITS - 1).alias("end")))
    pieces = F.when(mask == _FULL, whole).otherwise(pairs)
    first = F.shiftleft(F.col("word"), _WORD_SHIFT)
    is_first = F.col("piece.start") == F.col("pieces")[0]["start"]
    is_last = F.col("piece.end") == F.element_at("pieces", -1)["end"]
    parts = (
        counted.withColumn("pieces", pieces)
        .withColumn("piece", F.explode("pieces"))
        .select(
            *TOPIC,
            "source_name",
            (first + F.col("piece.start")).alias("first"),
            (first + F.col("piece.end")).alias("last"),
            F.when(is_first, F.col("first_ns")).alias("first_ns"),
            F.when(is_last, F.col("last_ns")).alias("last_ns"),
            (F.col("rows") > F.bit_count("mask")).alias("is_doubled"),
        )
    )
    return _joined(parts, F.max("is_doubled").alias("is_doubled"))


def merged(parts: "DataFrame") -> "DataFrame":
    """Join runs that touch or overlap."""
    return _joined(parts)


def _joined(parts: "DataFrame", *also: Column) -> "DataFrame":
    reach = _reach()
    is_apart = reach.isNull() | (F.col("first") > reach + 1)
    whole = (
        Window.partitionBy(*TOPIC)
        .orderBy("first", "last")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        parts.withColumn("is_apart", is_apart)
        .withColumn("island", F.sum(F.col("is_apart").cast("int")).over(whole))
        .groupBy(*TOPIC, "island")
        .agg(
            F.max("source_name").alias("source_name"),
            F.min("first").alias("begin"),
            F.max("last").alias("end"),
            F.min_by("first_ns", "first").alias("first_ns"),
            F.max_by("last_ns", "last").alias("last_ns"),
            *also,
        )
        .withColumnsRenamed({"begin": "first", "end": "last"})
        .drop("island")
    )


def overlaps(known: "DataFrame", new: "DataFrame") -> "DataFrame":
    """Name the ranges that are in both; neither overlaps with itself."""
    return (
        known.select(*TOPIC, "first", "last")
        .unionByName(new.select(*TOPIC, "first", "last"))
        .withColumn("reach", _reach())
        .where(F.col("first") <= F.col("reach"))
        .select(*TOPIC, "first", F.least("last", "reach").alias("last"))
    )


def with_times(found: "DataFrame", rows: "DataFrame") -> "DataFrame":
    """Look up the times of ends that no word knew, in the rows themselves."""
    ends = F.filter(
        F.array(
            F.when(F.col("first_ns").isNull(), F.col("first")),
            F.when(F.col("last_ns").isNull(), F.col("last")),
        ),
        lambda end: end.isNotNull(),
    )
    wanted = found.select(*TOPIC, F.explode(F.array_distinct(ends)).alias("sequence"))
    # One number is looked up several times as fast as three strings; the few rows that are left
    # are compared in full.
    place = F.xxhash64(*TOPIC, "sequence")
    times = (
        rows.select(*TOPIC, "sequence", "received_ns", place.alias("place"))
        .join(F.broadcast(wanted.select(place.alias("place"))), "place", "left_semi")
        .join(F.broadcast(wanted), [*TOPIC, "sequence"], "left_semi")
        .groupBy(*TOPIC, "sequence")
        .agg(F.min("received_ns").alias("time_ns"))
    )
    for end in ("first", "last"):
        known = times.select(
            *TOPIC, F.col("sequence").alias(end), F.col("time_ns").alias("found_ns")
        )
        found = (
            found.join(known, [*TOPIC, end], "left")
            .withColumn(f"{end}_ns", F.coalesce(f"{end}_ns", "found_ns"))
            .drop("found_ns")
        )
    return found.select(*RUN)


def _reach() -> Column:
    """Return how far the runs before this one go."""
    before = (
        Window.partitionBy(*TOPIC)
        .orderBy("first", "last")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return F.max("last").over(before)


def _bits(mask: Column) -> Column:
    """List the bits that are set."""
    positions = F.sequence(F.lit(0), F.lit(_WORD_BITS - 1))
    one = F.lit(1).cast("long")
    return F.filter(
        positions, lambda bit: F.call_function("shiftright", mask, bit).bitwiseAND(one) == one
    )
