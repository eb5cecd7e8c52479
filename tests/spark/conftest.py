"""One Spark for all tests: it takes seconds to start, and a fraction of one to work."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.tiny import start_tiny


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start Spark, and stop it when all tests are through."""
    session = start_tiny()
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Be patient: who is interrupted in a call to Java leaves a session that nobody can use."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(400))
