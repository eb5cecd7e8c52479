"""examples/recording_in_spark.py runs in the Spark of these tests."""

import runpy
import sys

import pytest
from pyspark.sql import SparkSession

from tests.integration.bus import ROOT, fresh_place


def test_notebook_shows_what_it_recorded(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(ROOT / "examples" / "recording_in_spark.py")
    monkeypatch.setattr(sys, "argv", [path])
    monkeypatch.setenv("HUBBUB_INTERFACE", "127.0.0.1")
    monkeypatch.setenv("HUBBUB_DOMAIN", fresh_place().domain)
    names = runpy.run_path(path)
    shown = capsys.readouterr().out
    assert names["spark"] is spark
    for row in ("|/plant/line1/temp|100     |24.95|", "|/plant/line2/temp|100     |18.5 |"):
        assert row in shown
