"""A run of the pipeline that kills itself, and its Java, at a moment that the test names.

    python -m tests.spark.victim STORE TABLES STEP before|between|after

`before`: all files of the step are written, nothing is committed. `between`: the new version is
there, but not yet the current one. `after`: it is committed, and Spark does not know yet.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from hubbub.pipeline.registry import PUBLIC
from hubbub.pipeline.run import Pipeline, make_setup
from hubbub.pipeline.versions import Versions
from tests.integration.bus import IS_SOAK
from tests.spark.tiny import start_tiny

ONLY = PUBLIC if IS_SOAK else ("topic_health", "gaps", "node_timeline")


def main() -> None:
    """Run, and die."""
    store, tables, step, moment = sys.argv[1:]
    spark = start_tiny()
    java = spark.sparkContext._gateway.proc.pid
    left = int(step)

    def die() -> None:
        os.kill(java, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    commit, point_at = Versions.commit, Versions._point_at

    def counted_commit(self: Versions, *what: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0 and moment == "before":
            die()
        commit(self, *what)
        if left == 0 and moment == "after":
            die()

    def counted_point_at(self: Versions, folder: Path) -> None:
        if left == 0 and moment == "between":
            die()
        point_at(self, folder)

    Versions.commit = counted_commit  # type: ignore[method-assign]
    Versions._point_at = counted_point_at  # type: ignore[method-assign]
    pipeline = Pipeline(
        spark, Path(store), Path(tables), make_setup(ONLY, watermark_s=1.0), files_max=1
    )
    with pipeline.versions.locked():
        pipeline.run_incremental()


if __name__ == "__main__":
    main()
