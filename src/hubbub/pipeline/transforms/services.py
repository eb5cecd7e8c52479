"""What was published in services, and who managed them; see merging/services.py."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH: Final = ("service", "epoch")
_CHANGED: Final = "ManagerChanged"


def tenures(rows: "DataFrame") -> "DataFrame":
    """Count what was published in each epoch of a service, whoever managed it."""
    is_managed = F.col("service").isNotNull() & F.col("epoch").isNotNull()
    return (
        rows.where(is_managed)
        .groupBy(*_EPOCH)
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.min("received_ns").alias("since_ns"),
            F.max("received_ns").alias("until_ns"),
            F.expr("CAST(NULL AS STRING) AS manager_id"),
            F.expr("CAST(NULL AS STRING) AS manager_name"),
        )
    )


def terms(events: "DataFrame") -> "DataFrame":
    """Keep of the events who became the manager of a service."""
    told = events.where((F.col("kind") == _CHANGED) & F.col("time_ns").isNotNull()).selectExpr(
        "get_json_object(detail, '$.service') AS service",
        "CAST(get_json_object(detail, '$.epoch') AS BIGINT) AS epoch",
        "0L AS messages",
        "time_ns AS since_ns",
        "time_ns AS until_ns",
        "node_id AS manager_id",
        "node_name AS manager_name",
    )
    return told.where(F.col("service").isNotNull() & F.col("epoch").isNotNull())
