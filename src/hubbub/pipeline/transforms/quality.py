"""Tell rows that can be worked with from those that cannot, and say why.

Every row that is read ends in exactly one place: as a message, as a duplicate, or in quarantine
under the first reason that holds.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import RECORDED_TIME_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS: Final = ("recorder", "offset", "subject", "source_id", "incarnation", "sequence")


def _is_time(column: str) -> str:
    return f"({column} >= 0 AND {column} < {RECORDED_TIME_MAX}L)"


def _checks(*, with_payload: bool) -> dict[str, str]:
    """Name what must be true of a row, by what is wrong if it is not."""
    checks = {
        "missing_key": " AND ".join(f"`{key}` IS NOT NULL" for key in _KEYS),
        "offset_out_of_range": "`offset` >= 0",
        "sequence_out_of_range": "sequence >= 1",
        "published_out_of_range": _is_time("published_ns"),
        "received_out_of_range": _is_time("received_ns"),
        "size_out_of_range": "size >= 0",
    }
    if with_payload:
        checks["size_is_not_the_payloads"] = "size = length(payload)"
    return checks


def good(
    rows: "DataFrame", *, with_payload: bool, proven: frozenset[str] = frozenset()
) -> "DataFrame":
    """Keep the rows that can be worked with; what is proven of all need not be looked at."""
    checks = _checks(with_payload=with_payload)
    asked = [is_so for name, is_so in checks.items() if name not in proven]
    return rows.where(" AND ".join(asked)) if asked else rows


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
        reason = F.when(F.expr(f"coalesce({is_so}, false)"), reason).otherwise(F.lit(name))
    facts = ("published_ns", "received_ns", "size", "link", "source_name")
    lengths = [F.length("payload").alias("payload_bytes")] if with_payload else []
    # A time that is not one must not be shown as one either.
    received = F.expr(f"if({_is_time('received_ns')}, received, NULL)")
    return (
        rows.withColumn("reason", reason)
        .where(F.col("reason").isNotNull())
        .select(
            "recorder", "offset", "reason", "subject", "source_id", "incarnation", "sequence",
            received.alias("received"),
            F.to_json(F.struct(*facts, *lengths)).alias("detail"),
        )
    )  # fmt: skip
