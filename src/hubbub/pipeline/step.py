"""One step: new rows of a recording, and what the tables are then.

A step reads and writes files, but changes nothing that anybody sees: it returns the files that the
tables are to be made of. All three kinds of runs are made of steps, and tables do not depend on how
a recording was cut into them; that is what makes the three equal.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import SECOND
from hubbub.pipeline.recording import INPUTS, Portion
from hubbub.pipeline.registry import REGISTRY, Sink, Table
from hubbub.pipeline.schemas import RESULTS, nothing, struct_of
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms import health, quality, runs
from hubbub.pipeline.transforms.doubles import Doubles, unique
from hubbub.pipeline.transforms.expressions import TOPIC, floor_to
from hubbub.pipeline.transforms.messages import with_value
from hubbub.pipeline.versions import Versions, hour_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HOUR_NS: Final = 3600 * SECOND
_HOUR: Final = "yyyy-MM-dd-HH"
_WORKED_ON: Final = tuple(SHAPES["late"].columns.names)


class Setup(NamedTuple):
    """What a folder of tables is made for; it stays the same from its first run on."""

    tables: list[Table]
    window_ns: int
    watermark_ns: int

    @property
    def names(self) -> list[str]:
        """Return the names of the tables that people see."""
        return [table.name for table in self.tables if not table.name.startswith(".")]


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


class RowsMustGo(Exception):
    """A new row takes the place of one that was counted before: all must be made again."""


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
        self._spark = spark
        self._versions = versions
        self._setup = setup
        self._portion = portion
        self._was_newest_ns = newest_ns
        self._newest_ns = newest_ns
        self._is_live = is_live
        self._is_fresh = is_fresh
        self._known = known
        self._say = say
        self._values: dict[str, Any] = {"window_ns": setup.window_ns}
        self._changes = {table for table in INPUTS if portion.rows[table]}
        self._files: dict[str, list[Path]] = {}
        self._staged: dict[str, list[Path]] = {}
        self._hours: set[str] = set()
        self._touched_hours: set[str] | None = None
        self._has_holes = True
        self._kept: list[DataFrame] = []
        self._counts = Counts()

    def run(self) -> Outcome:
        """Make what changes, and name the files of all tables."""
        try:
            self._take_others()
            self._take_messages()
            for table in self._setup.tables:
                if self._changes.isdisjoint(table.changes_with):
                    self._files[table.name] = self._before_files(table.name)
                elif table.name == "gaps" and not self._has_holes and not self._files[".reports"]:
                    self._files[table.name] = self._staged[table.name] = []
                else:
                    self._say(table.name)
                    self._make(table)
            if not self._is_live:
                self._files["late"] = []  # They are among the messages now.
            return Outcome(self._files, self._counts, self._newest_ns)
        finally:
            for frame in self._kept:
                frame.unpersist()

    def _take_others(self) -> None:
        for table in INPUTS[1:]:
            self._values[table] = self._portion.frame(self._spark, table)
        self._hours |= {
            name.hour for name in self._portion.names if self._portion.rows.get(name.table)
        }

    def _take_messages(self) -> None:
        """Sort the new messages out: good, bad, late, and those that were there before."""
        recorded = self._portion.frame(self._spark, "messages")
        wanted = {table.name for table in self._setup.tables}
        has_payload = not wanted.isdisjoint(("messages", "quarantine"))
        good = quality.good(recorded, with_payload=has_payload, proven=self._portion.proven)
        has_typed = "messages" in wanted and "typed" in self._portion.kinds
        good = with_value(good, has_typed=has_typed).select(*_WORKED_ON)
        read = self._portion.rows["messages"]
        if not self._is_live and (late := self._before_files("late")):
            good = good.unionByName(self._table_frame("late", late))
            late_rows = sum(pq.read_metadata(path).num_rows for path in late)
            self._changes.add("messages")
            read += late_rows
        good, cut = self._without_late(good)
        self._values["cut"] = self._table_frame("late", [])
        self._values["bad"] = nothing(self._spark, RESULTS["quarantine"])
        if "messages" not in self._changes:
            return
        self._say("reading")
        dropped = self._find_runs(good)
        counted = self._keep(health.parts(self._values["messages"], self._setup.window_ns))
        total = self._summarise(counted)
        self._values["new_parts"] = counted.select(*health.PART)
        if dropped is not None:
            self._values["new_parts"] = self._values["new_parts"].unionByName(dropped)
        doubles = 0 if dropped is None else _first(dropped.agg(F.sum("duplicates"))) or 0
        late_count = 0 if cut is None else cut.count()
        bad = read - total - doubles - late_count
        self._counts = Counts(read, total, doubles, bad, late_count)
        if cut is not None and late_count:
            self._values["cut"] = cut
            self._changes.add("cut")
        if bad:
            self._values["bad"] = quality.quarantined(recorded, with_payload=has_payload)
            self._changes.add("bad")
        self._changes |= self._portion.kinds

    def _without_late(self, good: "DataFrame") -> "tuple[DataFrame, DataFrame | None]":
        """Cut off what came behind the watermark, in a live run."""
        cut_ns = self._final_ns(self._was_newest_ns)
        oldest_ns = self._portion.oldest_ns
        if not self._is_live or cut_ns <= 0 or (oldest_ns is not None and oldest_ns >= cut_ns):
            return good, None
        cut_ns -= cut_ns % self._setup.window_ns
        is_late = F.col("received_ns") < F.lit(cut_ns)
        return good.where(~is_late), good.where(is_late)

    def _find_runs(self, good: "DataFrame") -> "DataFrame | None":
        """Find out which sequences there are; return what was counted twice, if anything was."""
        known = self._before(".runs")
        has_known = bool(self._before_files(".runs"))
        words = runs.words(good)
        new = self._keep(runs.runs(words))
        found = runs.merged(known.unionByName(new.select(*runs.RUN))) if has_known else new
        no_time = F.col("first_ns").isNull() | F.col("last_ns").isNull()
        doubled, overlapping = runs.doubled(words), runs.overlaps(known, new)
        suspects = {"doubled": new.where("is_doubled"), "timeless": new.where(no_time)}
        if has_known:
            suspects["overlapping"] = overlapping
        suspects["holes"] = found.groupBy(*TOPIC).count().where("count > 1")
        there = _which(suspects)
        self._has_holes = "holes" in there
        dropped = None
        if there & {"doubled", "overlapping"}:
            self._say("duplicates")
            clean = self._drop_doubles(good, Doubles(doubled, overlapping))
            window_ns = self._setup.window_ns
            dropped = self._keep(health.duplicates(good, clean, window_ns))
            self._changes.add("doubles")
            good = clean
            new = runs.runs(runs.words(good))
            found = runs.merged(known.unionByName(new.select(*runs.RUN)))
            there.add("timeless")
            self._has_holes = True
        self._values["messages"] = good
        self._values["runs"] = runs.with_times(found, good) if "timeless" in there else found
        return dropped

    def _drop_doubles(self, good: "DataFrame", doubles: Doubles) -> "DataFrame":
        known = self._known() if self._known is not None and not self._is_fresh else good.limit(0)
        late = self._before_files("late")
        if late:
            rows = self._table_frame("late", late).select("recorder", "offset")
            known = known.join(rows, ["recorder", "offset"], "left_anti")
        clean, must_go = unique(good, known.select(*_WORKED_ON), doubles)
        if not must_go.isEmpty():
            raise RowsMustGo
        return clean

    def _summarise(self, counted: "DataFrame") -> int:
        """Note the newest time and the hours of new messages; return how many there are."""
        hour_ns = floor_to(F.col("window_ns"), HOUR_NS)
        total, newest_ns, hours = counted.agg(
            F.sum("messages"), F.max("newest_ns"), F.collect_set(_hour(hour_ns))
        ).first() or (0, 0, [])
        self._newest_ns = max(self._was_newest_ns, newest_ns or 0)
        self._hours |= set(hours)
        return int(total or 0)

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
        return {_hour_name(time_ns) for time_ns in open_hours} if self._was_newest_ns else set()

    def _gap_hours(self) -> set[str]:
        """Name the hours in which a hole was seen that is now another one."""
        if "gaps" not in self._staged or self._is_fresh:
            return set()
        columns = SHAPES["gaps"].columns
        before, after = (
            {tuple(row.values()) for path in paths for row in _rows(path, columns)}
            for paths in (self._before_files("gaps"), self._files["gaps"])
        )
        at = [columns.names.index(name) for name in ("before", "after")]
        times = (next((row[index] for index in at if row[index]), None) for row in before ^ after)
        return {time.strftime("%Y-%m-%d-%H") for time in times if time is not None}

    def _value(self, name: str) -> Any:
        """Return what a function asks for."""
        if name == "final_ns":
            return self._final_ns(self._newest_ns)
        if name == "parts":
            return self._parts()
        if name in self._values:
            return self._values[name]
        if name.startswith("before."):
            return self._before(name.removeprefix("before."))
        if name.startswith("touched."):
            table = name.removeprefix("touched.")
            return self._table_frame(table, self._in_hours(self._files[table], self._touched()))
        return self._table_frame(name, self._files[name])

    def _parts(self) -> "DataFrame":
        old = self._in_hours(self._before_files("topic_health"), self._touched())
        parts = health.taken_apart(self._table_frame("topic_health", old))
        new = self._values.get("new_parts")
        return parts if new is None else parts.unionByName(new)

    def _make(self, table: Table) -> None:
        result = table.function(*map(self._value, table.inputs)).select(*table.columns.names)
        folder = self._versions.staging(table.name)
        before = self._before_files(table.name)
        if table.sink is Sink.APPEND:
            result.write.parquet(str(folder))
        elif table.sink is Sink.WHOLE:
            before = []
            result.coalesce(1).sortWithinPartitions(*(table.keys or result.columns)).write.parquet(
                str(folder)
            )
        else:
            touched = self._touched()
            before = [file for file in before if hour_of(file) not in touched]
            (
                result.withColumn("hour", F.date_format("window_start", _HOUR))
                .coalesce(1)
                .sortWithinPartitions("hour", *table.keys)
                .write.partitionBy("hour")
                .parquet(str(folder))
            )
        staged = sorted(path for path in folder.rglob("*.parquet") if _has_rows(path))
        self._staged[table.name] = staged
        self._files[table.name] = [*before, *staged]

    def _before_files(self, table: str) -> list[Path]:
        return [] if self._is_fresh else self._versions.files(table)

    def _before(self, table: str) -> "DataFrame":
        return self._table_frame(table, self._before_files(table))

    def _table_frame(self, table: str, files: list[Path]) -> "DataFrame":
        struct = struct_of(REGISTRY[table].columns)
        if not files:
            return nothing(self._spark, struct)
        return self._spark.read.schema(struct).parquet(*map(str, files))

    def _in_hours(self, files: list[Path], hours: set[str]) -> list[Path]:
        staged = set(self._staged.get("topic_health", ()))
        return [file for file in files if file in staged or hour_of(file) in hours]

    def _keep(self, frame: "DataFrame") -> "DataFrame":
        self._kept.append(frame.persist())
        return frame


def _which(frames: "dict[str, DataFrame]") -> set[str]:
    """Tell which frames have rows, in one job."""
    found: DataFrame | None = None
    for name, frame in frames.items():
        one = frame.select(F.lit(name).alias("name")).limit(1)
        found = one if found is None else found.unionByName(one)
    return set() if found is None else {name for (name,) in found.collect()}


def _rows(path: Path, columns: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path, schema=columns).to_pylist()
    return rows


def _first(frame: "DataFrame") -> Any:
    row = frame.first()
    return None if row is None else row[0]


def _hour(time_ns: "Column") -> "Column":
    return F.date_format(F.timestamp_micros(F.call_function("div", time_ns, F.lit(1000))), _HOUR)


def _hour_name(time_ns: int) -> str:
    from hubbub.store.layout import hour_of as name_hour

    return name_hour(time_ns)


def _has_rows(path: Path) -> bool:
    return bool(pq.read_metadata(path).num_rows)
