"""Who managed services; see merging/services.py."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CHANGED: Final = "ManagerChanged"


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
