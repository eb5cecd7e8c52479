"""One step: new rows of a recording, and what the tables are then.

A step reads and writes files, but changes nothing that anybody sees: it returns the files that the
tables are to be made of. All three kinds of runs are made of steps, and tables do not depend on how
a recording was cut into them; that is what makes the three equal.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hubbub.limits import SECOND
from hubbub.pipeline.merging import gaps, health, runs
from hubbub.pipeline.merging.groups import UNKNOWN, nanoseconds, numbers, united
from hubbub.pipeline.recording import INPUTS, Portion
from hubbub.pipeline.registry import DIGESTS, REGISTRY, Sink, Table
from hubbub.pipeline.rows import Rows
from hubbub.pipeline.versions import Versions, hour_of
from hubbub.store.layout import hour_of as name_hour

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_NS: Final = 3600 * SECOND


class Setup(NamedTuple):
    """What a folder of tables is made for; it stays the same from its first run on."""

    tables: list[Table]
    window_ns: int
    watermark_ns: int

    @property
    def names(self) -> list[str]:
        """Return the names of the tables that people see."""
        return [table.name for table in self.tables if not table.name.startswith(".")]

    @property
    def digests(self) -> set[str]:
        """Return the digests that the tables are made of."""
        asked = {name for table in self.tables for name in table.inputs}
        return {name for name in DIGESTS if name in asked} | {"words", "parts"}


class Counts(NamedTuple):
    """Where the rows of messages went: what was read is the sum of the others."""

    read: int = 0
    messages: int = 0
    duplicates: int = 0
    quarantined: int = 0
    late: int = 0


class Outcome(NamedTuple):
    """What a step has made."""

    files: dict[str, list[Path]]
    counts: Counts
    newest_ns: int


class Step:
    """New rows on their way into the tables."""

    def __init__(
        self,
        spark: "SparkSession",
        versions: Versions,
        setup: Setup,
        portion: Portion,
        *,
        newest_ns: int = 0,
        is_live: bool = False,
        is_fresh: bool = False,
        known: "Callable[[], DataFrame] | None" = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._versions = versions
        self._setup = setup
        self._portion = portion
        self._was_newest_ns = newest_ns
        self._newest_ns = newest_ns
        self._is_live = is_live
        self._is_fresh = is_fresh
        self._known = known
        self._say = say
        self._changes = {table for table in INPUTS if portion.rows[table]}
        self._late = [] if is_live else self._before_files("late")
        if self._late:
            self._changes.add("messages")
        wanted = {table.name for table in setup.tables}
        self._rows = Rows(spark, portion, self._late, setup.window_ns, wanted, versions.staging)
        self._values: dict[str, Any] = {"window_ns": setup.window_ns}
        self._files: dict[str, list[Path]] = {}
        self._staged: dict[str, list[Path]] = {}
        self._hours = {name.hour for name in portion.names if portion.rows.get(name.table)}
        self._touched_hours: set[str] | None = None
        self._counts = Counts()

    def run(self) -> Outcome:
        """Make what changes, and name the files of all tables."""
        self._take_rows()
        for table in self._setup.tables:
            if table.name in self._files:
                continue
            if self._changes.isdisjoint(table.changes_with):
                self._files[table.name] = self._before_files(table.name)
            else:
                self._say(table.name)
                self._make(table)
        if not self._is_live:
            self._files["late"] = []  # They are among the messages now.
        return Outcome(self._files, self._counts, self._newest_ns)

    def _take_rows(self) -> None:
        """Digest the new rows, and sort the messages out: good, bad, late, there before."""
        self._say("reading")
        self._changes |= self._portion.kinds
        late = self._cut_late()
        self._digest(self._setup.digests)
        if "messages" not in self._changes:
            return
        dropped = self._take_runs()
        parts = self._values["parts"]
        total = pc.sum(parts["messages"]).as_py() or 0
        newest_ns = pc.max(parts["newest_ns"]).as_py() or 0
        self._newest_ns = max(self._was_newest_ns, newest_ns)
        doubles = pc.sum(dropped["duplicates"]).as_py() or 0
        self._values["parts"] = united(dropped, parts)
        windows_ns = numbers(self._values["parts"]["window_ns"])
        self._hours |= {name_hour(int(hour) * HOUR_NS) for hour in np.unique(windows_ns // HOUR_NS)}
        read = self._portion.rows["messages"] + sum(map(_count, self._late))
        bad = read - total - doubles - late
        self._counts = Counts(read, total, doubles, bad, late)
        if bad:
            self._rows.find_bad()
            self._changes.add("bad")
            self._digest({"quarantined"} & self._setup.digests)

    def _digest(self, names: set[str]) -> None:
        made = {name for name in names if not self._changes.isdisjoint(DIGESTS[name].made_of)}
        self._values |= self._rows.digest(sorted(made))

    def _cut_late(self) -> int:
        """Write down what came behind the watermark, in a live run; return how many rows."""
        cut_ns = self._final_ns(self._was_newest_ns)
        oldest_ns = self._portion.oldest_ns
        is_all_new = oldest_ns is not None and oldest_ns >= cut_ns
        if not self._is_live or cut_ns <= 0 or is_all_new or "messages" not in self._changes:
            return 0
        self._rows.cut(cut_ns - cut_ns % self._setup.window_ns)
        self._make(REGISTRY["late"])
        return sum(map(_count, self._staged["late"]))

    def _take_runs(self) -> Any:
        """Find out which sequences there are; return what was left out, as parts."""
        known = self._before(".runs")
        new = runs.from_words(self._values["words"], self._rows.shift)
        doubled = runs.doubled(self._values["words"], self._rows.shift)
        overlapping = runs.overlaps(known, new)
        dropped = health.PART.empty_table()
        if doubled.num_rows or overlapping.num_rows:
            self._say("duplicates")
            rows = self._known() if self._known is not None and not self._is_fresh else None
            dropped = self._rows.drop_doubles(doubled, overlapping, rows)
            of_messages = {name for name in DIGESTS if "messages" in DIGESTS[name].inputs}
            self._digest(of_messages & self._setup.digests)
            new = runs.from_words(self._values["words"], self._rows.shift)
        found = runs.merged(known, new)
        wanted = runs.timeless(found)
        if wanted.num_rows:
            found = runs.with_times(found, self._rows.times(wanted))
        self._values["runs"] = found
        return dropped

    def _final_ns(self, newest_ns: int) -> int:
        return max(newest_ns - self._setup.watermark_ns, 0)

    def _touched(self) -> set[str]:
        """Name the hours whose rows may change; asked for only when the gaps are known."""
        if self._touched_hours is None:
            self._touched_hours = self._hours | self._open_hours() | self._gap_hours()
        return self._touched_hours

    def _open_hours(self) -> set[str]:
        """Name the hours of windows that were not final."""
        first_ns = self._final_ns(self._was_newest_ns) - self._setup.window_ns
        first_ns -= first_ns % HOUR_NS
        open_hours = range(max(first_ns, 0), self._was_newest_ns + 1, HOUR_NS)
        return {name_hour(time_ns) for time_ns in open_hours} if self._was_newest_ns else set()

    def _gap_hours(self) -> set[str]:
        """Name the hours in which a hole was seen that is now another one."""
        if "gaps" not in self._staged or self._is_fresh:
            return set()
        changed = gaps.changed(self._before("gaps"), self._value("gaps"))
        seen_ns = nanoseconds(pc.coalesce(changed["before"], changed["after"]))
        hours = np.unique(seen_ns[seen_ns != UNKNOWN] // HOUR_NS)
        return {name_hour(int(hour) * HOUR_NS) for hour in hours}

    def _value(self, name: str) -> Any:
        """Return what a function of Arrow tables asks for."""
        if name == "final_ns":
            return self._final_ns(self._newest_ns)
        if name == "touched_parts":
            return self._touched_parts()
        if name in self._values:
            return self._values[name]
        if name in DIGESTS:
            return DIGESTS[name].columns.empty_table()
        if name.startswith("before."):
            return self._before(name.removeprefix("before."))
        if name.startswith("touched."):
            table = name.removeprefix("touched.")
            return _read(table, self._in_hours(table, self._files[table]))
        return _read(name, self._files[name])

    def _touched_parts(self) -> Any:
        old = self._in_hours("topic_health", self._before_files("topic_health"))
        known = health.taken_apart(_read("topic_health", old))
        return united(known, self._value("parts"))

    def _make(self, table: Table) -> None:
        folder = self._versions.staging(table.name)
        before = self._before_files(table.name)
        if table.sink is Sink.ROWS:
            result = table.function(*map(self._rows.frame, table.inputs)).select(
                *table.columns.names
            )
            result = result.orderBy(*table.keys)  # Spark packs files as it likes.
            staged = self._rows.write(result, folder)
        else:
            made = table.function(*map(self._value, table.inputs)).select(table.columns.names)
            made = made.sort_by([(key, "ascending") for key in table.keys]) if table.keys else made
            if table.sink is Sink.WHOLE:
                before, self._values[table.name] = [], made
            if table.sink is Sink.HOURS:
                before = [file for file in before if hour_of(file) not in self._touched()]
                staged = _write_hours(made, folder)
            else:
                staged = _write(made, folder)
        self._staged[table.name] = staged
        self._files[table.name] = [*before, *staged]

    def _before_files(self, table: str) -> list[Path]:
        return [] if self._is_fresh else self._versions.files(table)

    def _before(self, table: str) -> Any:
        return _read(table, self._before_files(table))

    def _in_hours(self, table: str, files: list[Path]) -> list[Path]:
        staged = set(self._staged.get(table, ()))
        return [file for file in files if file in staged or hour_of(file) in self._touched()]


def _read(table: str, files: list[Path]) -> Any:
    columns = REGISTRY[table].columns
    parts = (pq.read_table(file, schema=columns, partitioning=None) for file in files)
    return pa.concat_tables([columns.empty_table(), *parts])


def _write(rows: Any, folder: Path) -> list[Path]:
    """Write a file, unless there is nothing to write."""
    if not rows.num_rows:
        return []
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "rows.parquet", compression="zstd")
    return [folder / "rows.parquet"]


def _write_hours(rows: Any, folder: Path) -> list[Path]:
    """Write a file for each hour of rows that are sorted by their windows."""
    hours = nanoseconds(rows["window_start"]) // HOUR_NS
    bounds = [*np.unique(hours, return_index=True)[1].tolist(), len(hours)]
    files = []
    for begin, end in pairwise(bounds):
        hour = name_hour(int(hours[begin]) * HOUR_NS)
        files += _write(rows.slice(begin, end - begin), folder / f"hour={hour}")
    return files


def _count(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)
