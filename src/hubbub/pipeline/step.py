"""One step: new rows of a recording, and what the tables are then.

A step reads and writes files, but changes nothing that anybody sees: it returns the files that the
tables are to be made of. All three kinds of runs are made of steps, and tables do not depend on how
a recording was cut into them; that is what makes the three equal.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.errors import StoreError
from hubbub.pipeline.files import count_rows, hours_of, read, write, write_by, write_hours
from hubbub.pipeline.merging import gaps, health, periods, runs, settling
from hubbub.pipeline.merging.groups import UNKNOWN, nanoseconds, numbers, united
from hubbub.pipeline.recording import INPUTS, Portion
from hubbub.pipeline.registry import DIGESTS, REGISTRY, SETTLING, Sink, Table
from hubbub.pipeline.rows import Rows
from hubbub.pipeline.versions import Versions, hour_of
from hubbub.store.layout import HOUR_NS, hour_start_ns
from hubbub.store.layout import hour_of as name_hour

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NEWS: Final = ("runs", "reports", "starts")


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
        return {name for name in DIGESTS if name in asked} | {"pieces", "parts"}


class Counts(NamedTuple):
    """Where the rows of messages went: what was read is the sum of the others."""

    read: int = 0
    messages: int = 0
    duplicates: int = 0
    quarantined: int = 0
    late: int = 0

    @property
    def by_table(self) -> dict[str, int]:
        """Return how many rows each table gets that has a row for a row."""
        return {"messages": self.messages, "quarantine": self.quarantined}


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
        if self._late:  # Whatever they are.
            self._changes |= {"messages", "periods", "services"}
        wanted = {table.name for table in setup.tables}
        self._rows = Rows(spark, portion, self._late, setup.window_ns, wanted, versions.staging)
        self._values: dict[str, Any] = {"window_ns": setup.window_ns}
        self._files: dict[str, list[Path]] = {}
        self._staged: dict[str, list[Path]] = {}
        self._hours = {name.hour for name in portion.names if portion.rows.get(name.table)}
        self._touched_hours: set[str] | None = None
        self._is_reopened = False
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
        self._settle()
        self._check_written()
        return Outcome(self._files, self._counts, self._newest_ns)

    def _take_rows(self) -> None:
        """Digest the new rows, and sort the messages out: good, bad, late, there before."""
        self._say("reading")
        self._changes |= self._portion.kinds
        late = self._cut_late()
        self._digest(self._setup.digests)
        if "messages" in self._changes:
            self._take_messages(self._take_runs(), late)
        self._reopen_for_reports()

    def _take_messages(self, dropped: Any, late: int) -> None:
        parts = self._values["parts"]
        total = pc.sum(parts["messages"]).as_py() or 0
        newest_ns = pc.max(parts["newest_ns"]).as_py() or 0
        self._newest_ns = max(self._was_newest_ns, newest_ns)
        doubles = pc.sum(dropped["duplicates"]).as_py() or 0
        self._values["parts"] = united(dropped, parts)
        self._hours |= hours_of(numbers(self._values["parts"]["window_ns"]))
        read = self._portion.rows["messages"] + sum(map(count_rows, self._late))
        bad = read - total - doubles - late
        self._counts = Counts(read, total, doubles, bad, late)
        if bad:
            self._rows.find_bad()
            self._changes.add("bad")
            self._digest({"quarantined"} & self._setup.digests)

    def _check_written(self) -> None:
        """Refuse what does not balance: Arrow has counted the rows that Spark has written."""
        for table, counted in self._counts.by_table.items():
            if table not in self._files:
                continue  # Nobody wants it.
            written = sum(map(count_rows, self._staged.get(table, [])))
            if written != counted:
                raise StoreError(
                    f"{written} rows of {table} were written, but {counted} were counted: nothing"
                    " of this step was committed, and the tables are as they were; run it again,"
                    " and if that does not help, `hubbub store verify` the recording"
                )

    def _digest(self, names: set[str]) -> None:
        self._values |= self._rows.digest(self._changing(names))

    def _changing(self, names: set[str]) -> set[str]:
        return {name for name in names if not self._changes.isdisjoint(DIGESTS[name].made_of)}

    def _cut_late(self) -> int:
        """Write down what came behind the watermark, in a live run; return how many rows."""
        cut_ns = self._final_ns(self._was_newest_ns)
        oldest_ns = self._portion.oldest_ns
        is_all_new = oldest_ns is not None and oldest_ns >= cut_ns
        if not self._is_live or cut_ns <= 0 or is_all_new or "messages" not in self._changes:
            return 0
        self._rows.cut(cut_ns - cut_ns % self._setup.window_ns)
        self._make(REGISTRY["late"])
        return sum(map(count_rows, self._staged["late"]))

    def _take_runs(self) -> Any:
        """Find out which sequences there are; return what was left out, as parts."""
        new = runs.merged(self._values["pieces"])
        self._is_reopened = self._is_settled_touched(runs=new)
        known = self._before(".runs")
        doubled = runs.overlaps(self._values["pieces"])
        overlapping = runs.overlaps(known, new)
        dropped = health.PART.empty_table()
        if doubled.num_rows or overlapping.num_rows:
            self._say("duplicates")
            rows = self._known() if self._known is not None and not self._is_fresh else None
            dropped = self._rows.drop_doubles(doubled, overlapping, rows)
            of_messages = {name for name in DIGESTS if DIGESTS[name].is_of_messages}
            self._digest(of_messages & self._setup.digests)
            new = self._values["pieces"]
        self._values["runs"] = runs.merged(known, new)
        return dropped

    def _is_settled_touched(self, **new: Any) -> bool:
        """Tell whether new rows change what was settled."""
        rows = {name: REGISTRY[f".{name}"].columns.empty_table() for name in _NEWS} | new
        return settling.is_touched(self._before(".lines"), **rows)

    def _reopen_for_reports(self) -> None:
        """Take all at hand if a report, or a start of a recorder, is about holes long settled."""
        if not self._is_reopened:
            told = united(self._value("reports"), self._value("quarantined"))
            if not self._is_settled_touched(reports=told, starts=self._value("starts")):
                return
            opened = self._values["runs"] if "runs" in self._values else self._before(".runs")
            self._values["runs"] = united(opened, read(".runs", self._closed_files(".runs")))
            self._is_reopened = True
        self._changes.add("reopened")

    def _settle(self) -> None:
        """Put aside, once an hour of the recording, what nothing will change any more."""
        lines = REGISTRY[".lines"].columns.empty_table()
        lines = lines if self._is_reopened else self._before(".lines")
        before_ns = self._final_ns(self._newest_ns) // HOUR_NS * HOUR_NS - HOUR_NS
        if before_ns <= (pc.max(lines["before_ns"]).as_py() or 0):
            return
        runs, reports, gaps = opened = [
            self._value(table) if table in self._files else read(table, []) for table in SETTLING
        ]
        found = settling.settled(lines, runs, reports, gaps, before_ns)
        self._files[".lines"] = self._stage(".lines", found.lines)
        for table, rows, is_settled in zip(SETTLING, opened, found[1:], strict=True):
            if table in self._files:
                self._put_aside(table, rows, pa.array(is_settled), before_ns)

    def _put_aside(self, table: str, rows: Any, is_settled: Any, before_ns: int) -> None:
        aside, left = rows.filter(is_settled), rows.filter(pc.invert(is_settled))
        kept = [file for file in self._files[table] if hour_of(file)]
        folder = self._versions.staging(table)
        if table == "gaps":
            aside = aside.sort_by("before")
            staged = write_by(aside, nanoseconds(aside["before"]), folder)
        else:
            staged = write(aside, folder / f"hour={name_hour(before_ns)}")
        self._files[table] = [*kept, *staged, *self._stage(table, left)]

    def _stage(self, table: str, rows: Any) -> list[Path]:
        return write(rows.select(REGISTRY[table].columns.names), self._versions.staging(table))

    def _final_ns(self, newest_ns: int) -> int:
        return max(newest_ns - self._setup.watermark_ns, 0)

    def _touched(self) -> set[str]:
        """Name the hours whose rows may change; asked for only when the gaps are known."""
        if self._touched_hours is None:
            self._touched_hours = self._hours | self._open_hours() | self._gap_hours()
            self._touched_hours |= self._counter_hours() | self._slot_hours() | self._stay_hours()
        return self._touched_hours

    def _counter_hours(self) -> set[str]:
        """Name the hours from the first new mark of a counter on."""
        hours = hours_of(numbers(self._value("marks")["window_ns"]))
        return hours | self._known_since(hours, ".counts")

    def _stay_hours(self) -> set[str]:
        """Name the hours from the first on in which somebody came or left, or a recorder began."""
        times_ns = [numbers(self._value(name)["time_ns"]) for name in ("presence", "starts")]
        return self._known_since(hours_of(np.concatenate(times_ns)), "topic_health")

    def _known_since(self, hours: set[str], table: str) -> set[str]:
        known = {hour_of(file) for file in self._before_files(table)} if hours else set()
        return {hour for hour in known if hour >= min(hours)}

    def _slot_hours(self) -> set[str]:
        """Name the hours of slots that came, that are owed since, and that consumers told of."""
        hours = hours_of(numbers(self._value("consumed")["window_ns"]))
        slots = self._value("slots")
        if not slots.num_rows:
            return hours
        changed = periods.hours_changed(self._before(".spells"), slots, self._setup.window_ns)
        return hours | {name_hour(hour * HOUR_NS) for hour in changed}

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
        if name == "hours":
            return np.array(
                sorted(hour_start_ns(hour) // HOUR_NS for hour in self._touched()), dtype=np.int64
            )
        if name.startswith("reopened."):
            table = name.removeprefix("reopened.")
            return read(table, self._in_hours(table, self._before_files(table)))
        if name.startswith("before."):
            return self._before(name.removeprefix("before."))
        if name.startswith("touched."):
            table = name.removeprefix("touched.")
            return read(table, self._in_hours(table, self._files[table]))
        return read(name, self._open_of(name, self._files[name]))

    def _touched_parts(self) -> Any:
        old = self._in_hours("topic_health", self._before_files("topic_health"))
        known = health.taken_apart(read("topic_health", old))
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
                before, self._values[table.name] = self._closed_files(table.name), made
            if table.sink is Sink.HOURS:
                before = [file for file in before if hour_of(file) not in self._touched()]
                staged = write_hours(made, folder, self._touched())
            else:
                staged = write(made, folder)
        self._staged[table.name] = staged
        self._files[table.name] = [*before, *staged]

    def _before_files(self, table: str) -> list[Path]:
        return [] if self._is_fresh else self._versions.files(table)

    def _before(self, table: str) -> Any:
        return read(table, self._open_of(table, self._before_files(table)))

    def _open_of(self, table: str, files: list[Path]) -> list[Path]:
        """Leave out the files of what is settled."""
        if table not in SETTLING or self._is_reopened:
            return files
        return [file for file in files if not hour_of(file)]

    def _closed_files(self, table: str) -> list[Path]:
        if table not in SETTLING or self._is_reopened:
            return []
        return [file for file in self._before_files(table) if hour_of(file)]

    def _in_hours(self, table: str, files: list[Path]) -> list[Path]:
        """Choose the files of touched hours; what has just been written is of no hour yet."""
        return [file for file in files if not hour_of(file) or hour_of(file) in self._touched()]
