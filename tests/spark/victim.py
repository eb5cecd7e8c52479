"""A run of the pipeline that kills itself, and its Java, at a moment that the test names.

    python -m tests.spark.victim STORE TABLES KIND STEP MOMENT

`begun`: the step before is done, Spark knows, and nothing of this one is there. `before`: all its
files are written, nothing is committed. `between`: the new version is there, but not yet the
current one. `pointed`: it is the current one, but not all is tidied up. `after`: it is committed,
and Spark does not know yet.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from hubbub.pipeline import run as runs
from hubbub.pipeline.noticing import Notices
from hubbub.pipeline.registry import PUBLIC
from hubbub.pipeline.run import Pipeline, Progress, Summary, make_setup
from hubbub.pipeline.versions import Versions
from tests.integration.bus import IS_SOAK
from tests.spark.tiny import start_tiny

ONLY = PUBLIC if IS_SOAK else ("topic_health", "gaps", "node_timeline")
WATERMARK_S = 1.0  # So short that a live run cuts something.
FILES_A_STEP = 1 if IS_SOAK else 3
STEP_ROWS = 30  # Of a run in one go: a file of messages, or little more.
NOTE = "died"  # Beside the tables: where a victim died.


def run_kind(spark: SparkSession, store: Path, tables: Path, kind: str, **options: Any) -> Summary:
    """Do a run of a kind to its end, in small steps."""
    setup = make_setup(ONLY, watermark_s=WATERMARK_S)
    pipeline = Pipeline(spark, store, tables, setup, **{"files_max": FILES_A_STEP} | options)
    with pipeline.versions.locked(), patch.object(runs, "STEP_ROWS", STEP_ROWS):
        if kind == "live":
            return pipeline.run_live(lambda: not Notices(store).waiting(pipeline._done))
        assert pipeline.is_new == (kind == "batch"), kind
        return pipeline.run_incremental()


def main() -> None:
    """Run, and die."""
    store, tables, kind, step, moment = sys.argv[1:]
    spark = start_tiny()
    java = spark.sparkContext._gateway.proc.pid
    left = int(step)

    def die_if(now: str) -> None:
        if left == 0 and moment == now:
            Path(tables).with_name(NOTE).write_text(f"{step} {moment}")
            os.kill(java, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def count(progress: Progress) -> None:
        nonlocal left
        if progress.doing == "reading":
            left -= 1
            die_if("begun")

    commit, point_at = Versions.commit, Versions._point_at

    def deadly_commit(self: Versions, *what: Any) -> None:
        die_if("before")
        commit(self, *what)
        die_if("after")

    def deadly_point_at(self: Versions, folder: Path) -> None:
        die_if("between")
        point_at(self, folder)
        die_if("pointed")

    Versions.commit = deadly_commit  # type: ignore[method-assign]
    Versions._point_at = deadly_point_at  # type: ignore[method-assign]
    run_kind(spark, Path(store), Path(tables), kind, report=count)


if __name__ == "__main__":
    main()
