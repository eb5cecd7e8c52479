"""`hubbub simulate --spark`: the same runs, shared out over Spark, and judged by it once more."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.cli.terminal import escape, note, plural
from hubbub.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hubbub.simulation import Result

FAULTS_SHOWN = 20


class OnSpark:
    """A sweep of seeds on Spark."""

    def __init__(self, names: list[str], seeds: range, traces: Path, master: str | None) -> None:
        from hubbub.pipeline.session import start

        try:
            from hubbub.pipeline.sweep import Sweep
        except ImportError:
            raise MissingExtra("Spark is not installed: pip install 'hubbub[spark]'") from None
        self._sweep = Sweep(names, seeds, traces)
        self._sweep.prepare()
        # Few rows: Spark decides while it runs how few tasks they are worth.
        settings = {"spark.sql.adaptive.enabled": "true"}
        self._spark: SparkSession = start(master, name="hubbub simulate", settings=settings)

    def run(self) -> "Iterator[Result]":
        """Return how runs went, as they end."""
        return self._sweep.run(self._spark)

    def judge(self) -> list[dict[str, Any]]:
        """Let Spark look at what was recorded; return what is wrong with it."""
        return judge(self._spark, self._sweep.store)

    def stop(self) -> None:
        """End Spark."""
        self._spark.stop()


def judge(spark: "SparkSession", store: Path) -> list[dict[str, Any]]:
    """Return what is wrong with a recording, or with simulated ones."""
    from hubbub.pipeline.checks import FAULT, check
    from hubbub.pipeline.sweep import read

    faults = check(*read(spark, store)).orderBy(*FAULT)
    return [row.asDict() for row in faults.collect()]


def print_faults(faults: list[dict[str, Any]], store: Path) -> None:
    """Print what is wrong, the first of it."""
    for fault in faults[:FAULTS_SHOWN]:
        span = f"{fault['first_sequence']}..{fault['last_sequence']}"
        where = f"{fault['subject']} of {fault['source_id'][-6:]}"
        print(escape(f"{fault['recorder']}: {where} {span} {fault['fault']}"))
    if len(faults) > FAULTS_SHOWN:
        note(f"and {len(faults) - FAULTS_SHOWN:,} more; --json prints all")
    verdict = plural(len(faults), "fault") if faults else "nothing missing, nothing twice, in order"
    print(f"{store}: {verdict}")
