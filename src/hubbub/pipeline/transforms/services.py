"""Who managed each service, epoch by epoch."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms.expressions import timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH: Final = ("service", "epoch")
TENURE: Final = (*_EPOCH, "source_id", "source_name", "messages", "since_ns", "until_ns")


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


def merged_tenures(parts: "DataFrame") -> "DataFrame":
    """Add up counts of the same epoch and source."""
    return parts.groupBy(*_EPOCH, "source_id", "source_name").agg(
        F.sum("messages").alias("messages"),
        F.min("since_ns").alias("since_ns"),
        F.max("until_ns").alias("until_ns"),
    )


def managers(counted: "DataFrame") -> "DataFrame":
    """Name the manager of each epoch: who spoke for it first, if there was a quarrel."""
    first = Window.partitionBy(*_EPOCH).orderBy("since_ns", "source_id")
    return (
        counted.withColumn("rank", F.row_number().over(first))
        .where(F.col("rank") == 1)
        .withColumn("manager_id", F.col("source_id"))
        .withColumn("manager_name", F.col("source_name"))
        .withColumn("since", timestamp(F.col("since_ns")))
        .withColumn("until", timestamp(F.col("until_ns")))
        .select(*SHAPES["service_managers"].columns.names)
    )
