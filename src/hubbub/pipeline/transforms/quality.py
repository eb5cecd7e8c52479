"""Tell rows that can be worked with from those that cannot, and say why.

Every row that is read ends in exactly one place: as a message, as a duplicate, or in quarantine
under the first reason that holds.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import RECORDED_TIME_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS: Final = ("recorder", "offset", "subject", "source_id", "incarnation", "sequence")


def _is_time(column: Column) -> Column:
    return (column >= 0) & (column < F.lit(RECORDED_TIME_MAX))


def _checks(*, with_payload: bool) -> dict[str, Column]:
    """Name what must be true of a row, by what is wrong if it is not."""
    has_keys = F.lit(True)
    for key in _KEYS:
        has_keys = has_keys & F.col(key).isNotNull()
    checks = {
        "missing_key": has_keys,
        "offset_out_of_range": F.col("offset") >= 0,
        "sequence_out_of_range": F.col("sequence") >= 1,
        "published_out_of_range": _is_time(F.col("published_ns")),
        "received_out_of_range": _is_time(F.col("received_ns")),
        "size_out_of_range": F.col("size") >= 0,
    }
    if with_payload:
        checks["size_is_not_the_payloads"] = F.col("size") == F.length("payload")
    return checks


def good(
    rows: "DataFrame", *, with_payload: bool, proven: frozenset[str] = frozenset()
) -> "DataFrame":
    """Keep the rows that can be worked with; what is proven of all need not be looked at."""
    is_good = F.lit(True)
    for name, is_so in _checks(with_payload=with_payload).items():
        if name not in proven:
            is_good = is_good & is_so
    return rows.where(is_good)


def proven(smallest: Mapping[str, Any], largest: Mapping[str, Any]) -> frozenset[str]:
    """Name the checks that every row passes, by what is known of columns without a null."""
    from_zero = {name for name, value in smallest.items() if _is_at_least(value, 0)}
    times = {name for name, value in largest.items() if _is_at_least(RECORDED_TIME_MAX - 1, value)}
    found = {
        "missing_key": smallest.keys() >= set(_KEYS),
        "offset_out_of_range": "offset" in from_zero,
        "sequence_out_of_range": _is_at_least(smallest.get("sequence"), 1),
        "published_out_of_range": "published_ns" in from_zero & times,
        "received_out_of_range": "received_ns" in from_zero & times,
        "size_out_of_range": "size" in from_zero,
    }
    return frozenset(name for name, is_so in found.items() if is_so)


def _is_at_least(value: Any, bound: Any) -> bool:
    return isinstance(value, int) and isinstance(bound, int) and value >= bound


def quarantined(rows: "DataFrame", *, with_payload: bool) -> "DataFrame":
    """Keep the other rows, each with the first reason that holds."""
    reason = F.lit(None).cast("string")
    for name, is_so in reversed(_checks(with_payload=with_payload).items()):
        reason = F.when(F.coalesce(is_so, F.lit(False)), reason).otherwise(F.lit(name))
    facts = ("published_ns", "received_ns", "size", "link", "source_name")
    lengths = [F.length("payload").alias("payload_bytes")] if with_payload else []
    # A time that is not one must not be shown as one either.
    received = F.when(_is_time(F.col("received_ns")), F.col("received"))
    return (
        rows.withColumn("reason", reason)
        .where(F.col("reason").isNotNull())
        .select(
            "recorder", "offset", "reason", "subject", "source_id", "incarnation", "sequence",
            received.alias("received"),
            F.to_json(F.struct(*facts, *lengths)).alias("detail"),
        )
    )  # fmt: skip
