"""What Spark raises fills a screen; what people see is one line."""

import pytest
from pyspark.errors import PySparkException

from hubbub.errors import StoreError
from hubbub.pipeline.failures import told_in_one_line


def test_what_spark_raises_is_told_in_one_line_that_says_where_to_look() -> None:
    with (
        pytest.raises(StoreError, match=r"\ASpark failed: no page; more is in .*spark.log\Z"),
        told_in_one_line(),
    ):
        raise PySparkException("no page\nat org.apache.spark\nat java.lang")
