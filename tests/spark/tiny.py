"""A Spark for ten rows: what makes it quick for millions only keeps it busy."""

from pyspark.sql import SparkSession

from hubbub.pipeline.session import start


def start_tiny() -> SparkSession:
    """Start Spark for tiny data: one thread, one partition, the quick compiler only."""
    return start(
        "local[1]",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            # Compiling a plan takes longer than it takes to interpret it for ten rows.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
        java_options=("-XX:TieredStopAtLevel=1",),
    )
