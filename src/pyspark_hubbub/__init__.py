"""The data source `hubbub`, under a name by which Spark finds it once it is installed.

Spark imports every installed module whose name begins with `pyspark_`, whatever is asked for. So
nothing is imported here but Spark itself, and the work is in `hubbub.pipeline.source`.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from hubbub.pipeline.source.sink import BatchWriter, StreamWriter
    from hubbub.pipeline.source.spark import BatchReader, StreamReader


class DefaultSource(DataSource):
    """A recording as rows, and rows to the bus.

    spark.read.format("hubbub").option("subjects", "/plant/...").load("STORE")
    df.write.format("hubbub").option("domain", "plant").mode("append").save()
    """

    @classmethod
    def name(cls) -> str:
        """Return what `format()` is given."""
        return "hubbub"

    def schema(self) -> StructType:
        """Return the columns of the table that is read."""
        from hubbub.pipeline.source.spark import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> "BatchReader":
        """Read what there is."""
        from hubbub.pipeline.source.spark import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802
        """Read what there is and what comes."""
        from hubbub.pipeline.source.spark import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Publish rows."""
        from hubbub.pipeline.source.sink import BatchWriter

        return BatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802
        """Publish the rows of a stream."""
        from hubbub.pipeline.source.sink import StreamWriter

        return StreamWriter(self.options, schema)
