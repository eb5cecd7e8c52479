"""A run that is killed between any two micro-batches, and started again, loses and doubles nothing.

`make soak` kills fifty: first runs in one go, incremental and live ones, and those that merge what
a live run had cut; the first step, the last one and those in between, at every moment of a commit.
All tables are compared. `make test` kills one live run, HUBBUB_KILLS=3 one of each of three kinds.
"""

import os
import random
import signal
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from hubbub.pipeline import tables
from hubbub.pipeline.versions import Versions
from tests.integration.bus import IS_SOAK, ROOT
from tests.spark.test_run import all_tables, assert_same, record, run, segments
from tests.spark.victim import FILES_A_STEP, NOTE, ONLY, run_kind

KILLS_MAX = 50
KILLS = int(os.environ.get("HUBBUB_KILLS", KILLS_MAX if IS_SOAK else 1))
MOMENTS = ("begun", "before", "between", "pointed", "after")
COMMITTED = ("pointed", "after")
# How many steps a run of each kind has, here: one for each file or three that wait, or portion.
FILES = 27 // FILES_A_STEP
STEPS = {"live": FILES, "incremental": FILES, "batch": 6, "merge": 1, "merge and more": 4}
FILES_AT_ONCE = 9  # Where nobody is killed.


class Kill(NamedTuple):
    """Where a run is killed: in which of all its steps, those of runs killed before included."""

    step: int
    moment: str


class Course(NamedTuple):
    """A run of a kind that is killed so often, and then brought to its end."""

    kind: str
    kills: tuple[Kill, ...]

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{step}-{moment}" for step, moment in self.kills)])


def third_of(kind: str, step: int) -> int:
    return (step - 1) * 3 // STEPS[kind]


def plan() -> list[Course]:
    """Draw fifty kills: in each course one of the first, of the middle and of the last steps."""
    draw, moments = random.Random(5), cycle(MOMENTS)
    found = []
    for number in range(5):
        for kind in ("live", "incremental", "batch")[: 2 if number == 4 else 3]:
            every = range(1, STEPS[kind] + 1)
            steps = [draw.choice([n for n in every if third_of(kind, n) == k]) for k in range(3)]
            if number == 0:
                steps[0], steps[-1] = every[0], every[-1]
            found.append(Course(kind, tuple(Kill(step, next(moments)) for step in steps)))
    alone = tuple(Kill(1, moment) for moment in MOMENTS[:4])
    beside = (Kill(1, "before"), Kill(1, "after"), Kill(3, "between"), Kill(4, "begun"))
    return [*found, Course("merge", alone), Course("merge and more", beside)]


def chosen() -> list[Course]:
    """Return all courses, or one kill of each of the first ones, at another place each."""
    if KILLS >= KILLS_MAX:
        return plan()
    turns = enumerate(plan()[:KILLS], 1)
    return [Course(one.kind, (one.kills[turn % len(one.kills)],)) for turn, one in turns]


def test_fifty_kills_meet_every_kind_of_run_early_and_late_and_at_every_moment() -> None:
    courses = plan()
    kills = [(course.kind, kill) for course in courses for kill in course.kills]
    assert len(kills) == KILLS_MAX
    for kind in ("live", "incremental", "batch"):
        mine = [kill for of, kill in kills if of == kind]
        assert {kill.moment for kill in mine} == set(MOMENTS)
        steps = {kill.step for kill in mine}
        assert {1, STEPS[kind]} <= steps and len(steps) > STEPS[kind] / 3
        assert [third_of(kind, kill.step) for kill in mine] == [0, 1, 2] * (len(mine) // 3)
    merges = [kill for kind, kill in kills if kind.startswith("merge")]
    assert {kill.moment for kill in merges if kill.step == 1} == set(MOMENTS)


class Victims:
    """A recording, and runs that are killed while they make tables of it."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        self._spark = spark
        self._kind = kind
        self._run = kind.replace("merge and more", "merge").replace("merge", "incremental")
        self._store, self.tables = folder / "store", folder / "tables"
        self._prepare()
        self._versions = self._count_versions()

    def _prepare(self) -> None:
        """Make the tables that a run goes on with, and record what it has to do."""
        recording = record(self._store, [])
        parts, batch, live = segments(), 2, 2
        if self._kind == "batch":
            batch = live = 0
        elif self._kind != "incremental":
            # The first messages come when newer ones were read: a live run cuts them.
            parts = [*parts[1:21], parts[0], *parts[21:]]
        if self._kind.startswith("merge"):
            live = len(parts) - ("more" in self._kind)
        for some, kind in ((parts[:batch], "batch"), (parts[batch:live], "live")):
            for table, rows in some:
                recording.add(rows, table)
            if some:
                run_kind(self._spark, self._store, self.tables, kind, files_max=FILES_AT_ONCE)
        for table, rows in parts[live:]:
            recording.add(rows, table)

    def _count_versions(self) -> int:
        current = Versions(self.tables).current
        return int(current.name) if current else 0

    @property
    def steps(self) -> int:
        """Return how many steps were done by all runs that were killed."""
        return self._count_versions() - self._versions

    def kill(self, kill: Kill) -> None:
        """Let a run of its own go on, and die where it is to."""
        before = self.steps
        # A run in one go begins with the first step again.
        step = kill.step if self._kind == "batch" else kill.step - before
        note = self.tables.with_name(NOTE)
        note.unlink(missing_ok=True)
        arguments = map(str, (self._store, self.tables, self._run, step, kill.moment))
        victim = subprocess.run(
            [sys.executable, "-m", "tests.spark.victim", *arguments],
            cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert victim.returncode == -signal.SIGKILL, f"it was through: {victim.stderr}"
        assert note.read_text() == f"{step} {kill.moment}"
        assert self.steps - before == step - (kill.moment not in COMMITTED)

    def finish(self) -> None:
        """Bring the run to its end, and see that it had as many steps as it was planned for."""
        kind, steps, before = self._run, STEPS[self._kind], 0
        if kind == "batch":
            before = self.steps
            if Versions(self.tables).state().get("is_whole"):  # It died behind its last commit.
                kind, steps = "incremental", 0
        run_kind(self._spark, self._store, self.tables, kind)
        assert self.steps - before == steps
        is_late = self._run == "live"
        assert (tables.read(self.tables, "late").num_rows > 0) == is_late
        if is_late:
            run(self._spark, self._store, self.tables, only=ONLY)


def names_in(folder: Path) -> list[str]:
    """Name the tables that a person sees."""
    return sorted(one.name for one in folder.iterdir() if one.name[0] != "." and one.exists())


@pytest.fixture(scope="module")
def clean(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tables of one clean run."""
    folder = tmp_path_factory.mktemp("clean")
    store = record(folder / "store", segments()).path
    run(spark, store, folder / "tables", "batch", only=ONLY)
    return folder / "tables"


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("course", chosen(), ids=str)
def test_killed_runs_give_the_tables_of_one_clean_run(
    spark: SparkSession, tmp_path: Path, clean: Path, course: Course
) -> None:
    victims = Victims(spark, tmp_path, course.kind)
    for kill in course.kills:
        victims.kill(kill)
    victims.finish()
    assert_same(all_tables(victims.tables), all_tables(clean))
    assert names_in(victims.tables) == names_in(clean)
