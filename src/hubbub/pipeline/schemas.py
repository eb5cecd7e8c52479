"""Spark's view of the columns: derived from the one definition, never written twice."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from hubbub.pipeline.tables import SHAPES
from hubbub.store import schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def struct_of(columns: Any) -> "StructType":
    """Turn a `pyarrow.Schema` into Spark's."""
    return from_arrow_schema(columns)


RECORDED = {name: struct_of(columns) for name, columns in schema.TABLES.items()}
RESULTS = {name: struct_of(shape.columns) for name, shape in SHAPES.items()}
