"""Tell rows that can be worked with from those that cannot, and say why.

Every row that is read ends in exactly one place: as a message, as a duplicate, or in quarantine
under the first reason that holds.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.digesting.quality import KEYS, MISSING_KEY, OTHER_SIZE, RANGES, asked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _is_so(check: str) -> str:
    """Write down as SQL what must be true of a row."""
    if check == MISSING_KEY:
        return " AND ".join(f"`{key}` IS NOT NULL" for key in KEYS)
    if check == OTHER_SIZE:
        return "size = length(payload)"
    column, least, beyond = RANGES[check]
    upto = "" if beyond is None else f" AND `{column}` < {beyond}L"
    return f"(`{column}` >= {least}L{upto})"


def good(
    rows: "DataFrame", *, with_payload: bool, proven: frozenset[str] = frozenset()
) -> "DataFrame":
    """Keep the rows that can be worked with; what is proven of all need not be looked at."""
    checks = asked(proven, with_payload=with_payload)
    return rows.where(" AND ".join(map(_is_so, checks))) if checks else rows


def quarantined(rows: "DataFrame", *, with_payload: bool) -> "DataFrame":
    """Keep the other rows, each with the first reason that holds."""
    reason = F.lit(None).cast("string")
    for name in reversed(asked(frozenset(), with_payload=with_payload)):
        is_so = F.expr(f"coalesce({_is_so(name)}, false)")
        reason = F.when(is_so, reason).otherwise(F.lit(name))
    facts = ("published_ns", "received_ns", "size", "link", "source_name")
    lengths = [F.length("payload").alias("payload_bytes")] if with_payload else []
    # A time that is not one must not be shown as one either.
    received = F.expr(f"if({_is_so('received_out_of_range')}, received, NULL)")
    return (
        rows.withColumn("reason", reason)
        .where(F.col("reason").isNotNull())
        .select(
            "recorder", "offset", "reason", "subject", "source_id", "incarnation", "sequence",
            received.alias("received"),
            F.to_json(F.struct(*facts, *lengths)).alias("detail"),
        )
    )  # fmt: skip
