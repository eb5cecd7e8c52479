"""What Spark raises: which files it cannot read, and one line instead of a screen."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from hubbub.errors import StoreError
from hubbub.pipeline.digesting.work import checked_files
from hubbub.pipeline.schemas import RECORDED
from hubbub.pipeline.session import cache_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_ERRORS: Final = (PySparkException, Py4JError)
_SHOWN_CHARACTERS: Final = 300


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn what Spark raises, which fills a screen, into an error that says where to look."""
    try:
        yield
    except SPARK_ERRORS as error:
        log = cache_directory() / "spark.log"
        raise StoreError(f"Spark failed: {_line_of(error)}; more is in {log}") from error


def find_unreadable(spark: "SparkSession", table: str, paths: list[Path]) -> dict[Path, str]:
    """Return the files that Spark or its workers cannot read, and why.

    Spark names but one, and a worker that dies none, so halves are tried.
    """
    if not paths:
        return {}
    try:
        rows = spark.read.schema(RECORDED[table]).parquet(*map(str, paths))
        rows.write.format("noop").mode("overwrite").save()
        refused = spark.range(0, len(paths), 1, 1).mapInArrow(
            checked_files([str(path) for path in paths]), "path string, why string"
        )
        return {Path(row.path): row.why for row in refused.collect()}
    except SPARK_ERRORS as error:
        if len(paths) == 1:
            spark.range(1).collect()  # If not even that works, it is not the file's fault.
            return {paths[0]: _line_of(error)}
        half = len(paths) // 2
        first, second = paths[:half], paths[half:]
        return find_unreadable(spark, table, first) | find_unreadable(spark, table, second)


def _line_of(error: Exception) -> str:
    told = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    lines = told.strip().splitlines() or [type(error).__name__]
    return lines[0][:_SHOWN_CHARACTERS]
