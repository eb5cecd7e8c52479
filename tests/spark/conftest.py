"""One Spark for all tests: it takes seconds to start, and a fraction of one to work."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hubbub.pipeline.session import start


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start Spark for tiny data: one thread, one partition, the quick compiler only."""
    session = start(
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
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Be patient: who is interrupted in a call to Java leaves a session that nobody can use."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(400))
