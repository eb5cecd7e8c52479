"""Spark's view of the columns: derived from the one definition, never written twice."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from hubbub.pipeline.tables import SHAPES
from hubbub.store import schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def struct_of(columns: Any) -> "StructType":
    """Turn a `pyarrow.Schema` into Spark's."""
    return from_arrow_schema(columns)


def nothing(spark: "SparkSession", struct: "StructType") -> "DataFrame":
    """Return a frame without rows that Spark knows to be empty: what it is joined to vanishes."""
    columns = (f"CAST(NULL AS {one.dataType.simpleString()}) AS `{one.name}`" for one in struct)
    return spark.sql(f"SELECT {', '.join(columns)} WHERE false")


RECORDED = {name: struct_of(columns) for name, columns in schema.TABLES.items()}
RESULTS = {name: struct_of(shape.columns) for name, shape in SHAPES.items()}
