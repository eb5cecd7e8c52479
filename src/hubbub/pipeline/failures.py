"""What Spark raises: which files it cannot read, and one line instead of a screen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from hubbub.errors import StoreError
from hubbub.pipeline.digesting.work import checked_files, nothing, unreadable
from hubbub.pipeline.recording import literal
from hubbub.pipeline.schemas import RECORDED
from hubbub.pipeline.session import cache_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_ERRORS: Final = (PySparkException, Py4JError)
_SHOWN_CHARACTERS: Final = 300
_REFUSED: Final = "path string, why string"
_OF_A_WORKER: Final = "An exception was thrown from the Python worker"


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

    Where workers cannot read what is sound here, it is not the file's fault: nothing may be passed
    over for a worker without a package, or without the folder.
    """

    def by_spark(some: list[Path]) -> dict[Path, str]:
        rows = spark.read.schema(RECORDED[table]).parquet(*map(literal, some))
        rows.write.format("noop").mode("overwrite").save()
        return {}

    def by_workers(some: list[Path]) -> dict[Path, str]:
        places = spark.range(0, len(some), 1, 1)
        refused = places.mapInArrow(checked_files([str(path) for path in some]), _REFUSED)
        return {Path(row.path): row.why for row in refused.collect()}

    found = _halved(spark, by_spark, paths)
    refused = _halved(spark, by_workers, [path for path in paths if path not in found])
    for path, why in refused.items():
        if not list(unreadable([str(path)])):
            raise StoreError(f"Spark's workers cannot read {path}, which is sound here: {why}")
    return found | refused


def _halved(
    spark: "SparkSession", look: Callable[[list[Path]], dict[Path, str]], paths: list[Path]
) -> dict[Path, str]:
    """Try halves where a look fails: Spark names but one file, and a worker that dies none."""
    if not paths:
        return {}
    try:
        return look(paths)
    except SPARK_ERRORS as error:
        if len(paths) == 1:
            # If not even that works, it is not the file's fault.
            spark.range(1).mapInArrow(nothing, _REFUSED).collect()
            return {paths[0]: _line_of(error)}
        half = len(paths) // 2
        return _halved(spark, look, paths[:half]) | _halved(spark, look, paths[half:])


def _line_of(error: Exception) -> str:
    told = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    lines = told.strip().splitlines() or [type(error).__name__]
    # A worker tells in Python's way, the error last.
    return lines[-1 if lines[0].startswith(_OF_A_WORKER) else 0][:_SHOWN_CHARACTERS]
