"""A run that is killed between any two micro-batches, and started again, loses and doubles nothing.

`make soak` kills fifty, and compares all tables; `make test` one, HUBBUB_KILLS=3 three.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.bus import IS_SOAK, ROOT
from tests.spark.test_run import all_tables, assert_same, record, run, segments
from tests.spark.victim import ONLY

KILLS = int(os.environ.get("HUBBUB_KILLS", "50" if IS_SOAK else "1"))
KILLS_A_COURSE = min(KILLS, 3)
MOMENTS = ("between", "before", "after")


def kill(store: Path, tables: Path, step: int, moment: str) -> int:
    """Let a run of its own die at a moment; return how it ended."""
    victim = subprocess.run(
        [sys.executable, "-m", "tests.spark.victim", store, tables, str(step), moment],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert victim.returncode in (0, -signal.SIGKILL), victim.stderr
    return victim.returncode


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_killed_runs_give_the_tables_of_one_clean_run(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, record(tmp_path / "again", segments()).path, tmp_path / "clean", "batch", only=ONLY)
    expected = all_tables(tmp_path / "clean")
    draw = random.Random(5)
    killed = 0
    for course in range(-(-KILLS // KILLS_A_COURSE)):
        folder = tmp_path / f"course-{course}"
        recording = record(folder / "store", segments()[:2])
        run(spark, recording.path, folder / "tables", only=ONLY)
        for table, rows in segments()[2:]:
            recording.add(rows, table)
        # Each of them goes on where the one before was killed.
        for number in range(KILLS_A_COURSE):
            moment = MOMENTS[(number + course) % len(MOMENTS)]
            step = 1 if number else draw.randrange(1, 3)
            killed += kill(recording.path, folder / "tables", step, moment) == -signal.SIGKILL
        run(spark, recording.path, folder / "tables", only=ONLY)
        assert_same(all_tables(folder / "tables"), expected)
    assert killed >= KILLS
