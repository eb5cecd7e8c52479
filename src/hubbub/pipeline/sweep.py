"""Simulated runs on Spark: seeds are shared out, and what happened is written for it to judge.

A task runs some seeds and writes their traces as one part of a store, in a folder that all workers
share. The same seed does the same again, so a task that is run twice writes the same file twice,
and that is all.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from hubbub.errors import ConfigurationError
from hubbub.limits import SWEEP_RUNS_PER_TASK
from hubbub.pipeline.traces import OWED, read_results, write
from hubbub.simulation import Result, Trace, run
from hubbub.simulation.bugs import planted
from hubbub.store.layout import make_folder
from hubbub.store.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOOK_S: Final = 0.1


class Sweep:
    """Seeds of some scenarios, cut into tasks."""

    def __init__(self, scenarios: list[str], seeds: range, store: Path, bug: str = "") -> None:
        self.scenarios = scenarios
        self.seeds = seeds
        self.store = store.absolute()
        self.bug = bug  # Planted, to see that it is found.
        self.runs = len(scenarios) * len(seeds)
        self.tasks = -(-self.runs // SWEEP_RUNS_PER_TASK)

    def prepare(self) -> None:
        """Make the folder; what another sweep left there would be judged with ours."""
        if self.store.exists() and any(self.store.iterdir()):
            raise ConfigurationError(
                f"{self.store} is not empty: remove it, or name another folder with --traces"
            )
        make_folder(self.store)

    def run(self, spark: "SparkSession") -> Iterator[Result]:
        """Run everything; results come as tasks end, in any order."""
        seen: set[Path] = set()
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(self._run_all, spark)
            try:
                is_over = False
                while not is_over:
                    is_over = _wait(job)
                    yield from read_results(self.store, seen)
            except BaseException:
                spark.sparkContext.cancelAllJobs()
                raise
        job.result()

    def _run_all(self, spark: "SparkSession") -> None:
        def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column("id").to_pylist():
                    self.run_task(task)
                yield batch

        spark.range(0, self.tasks, 1, self.tasks).mapInArrow(run_tasks, "id long").collect()

    def run_task(self, task: int) -> None:
        """Run what belongs to a task, and write what happened; in a worker."""
        first = task * SWEEP_RUNS_PER_TASK
        results, traces = [], []
        for index in range(first, min(first + SWEEP_RUNS_PER_TASK, self.runs)):
            scenario = self.scenarios[index // len(self.seeds)]
            seed = self.seeds[index % len(self.seeds)]
            trace = Trace(f"{scenario}-{seed}")
            results.append(self._run(scenario, seed, trace))
            traces.append(trace)
        write(self.store, task, traces, results)

    def _run(self, scenario: str, seed: int, trace: Trace) -> Result:
        if not self.bug:
            return run(scenario, seed, trace)
        with planted(self.bug):
            return run(scenario, seed, trace)


def _wait(job: "Future[None]") -> bool:
    """Wait a little; True: the job is over."""
    time.sleep(_LOOK_S)
    return job.done()


def read(spark: "SparkSession", store: Path) -> tuple["DataFrame", "DataFrame", "DataFrame | None"]:
    """Read messages, events and, of simulated runs, what was owed.

    A store that somebody records into is read by the format `hubbub`, the open segment included.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    def traced(name: str, schema: Any) -> "DataFrame":
        columns = from_arrow_schema(schema)
        if not (store / name).exists():
            return spark.createDataFrame([], columns)
        return spark.read.schema(columns).parquet(str(store / name)).select(*columns.names)

    if (store / "results").exists():
        messages, events = (traced(name, TABLES[name]) for name in ("messages", "events"))
        return messages, events, traced("owed", OWED)
    messages, events = (
        spark.read.format("hubbub").options(table=name, failOnDataLoss="false").load(str(store))
        for name in ("messages", "events")
    )
    return messages, events, None
