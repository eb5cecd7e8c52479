"""What each source sent as the manager of a service; see merging/services.py."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH: Final = ("service", "epoch")


def tenures(rows: "DataFrame") -> "DataFrame":
    """Count what each source sent as the manager of an epoch."""
    is_managed = F.col("service").isNotNull() & F.col("epoch").isNotNull()
    return (
        rows.where(is_managed)
        .groupBy(*_EPOCH, "source_id", "source_name")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.min("received_ns").alias("since_ns"),
            F.max("received_ns").alias("until_ns"),
        )
    )
