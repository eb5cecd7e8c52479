"""New rows of a recording, as Spark sees them: sorted out, digested, and written.

Everything here costs Spark a plan, and a plan costs more than a thousand rows do. So all digests
are one plan, and what need not be asked is not.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from hubbub.pipeline.digesting.quality import asked
from hubbub.pipeline.digesting.work import (
    RowGroup,
    Wanted,
    Work,
    digested_files,
    digested_rows,
)
from hubbub.pipeline.merging.groups import TOPIC
from hubbub.pipeline.merging.health import PART
from hubbub.pipeline.recording import Portion, literal
from hubbub.pipeline.registry import DIGESTS, Digest
from hubbub.pipeline.schemas import RESULTS, struct_of
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms import quality
from hubbub.pipeline.transforms.doubles import Doubles, duplicates, unique
from hubbub.pipeline.transforms.messages import with_value
from hubbub.store.parquet import read_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_PER_PROCESSOR: Final = 4  # So that none waits long for another.
_KINDS: Final = {name: struct_of(digest.columns).simpleString() for name, digest in DIGESTS.items()}
WORKED_ON: Final = tuple(SHAPES["late"].columns.names)


class RowsMustGo(Exception):
    """A new row takes the place of one that was counted before: all must be made again."""


class Rows:
    """New rows of all inputs, and rows that an earlier run had cut off."""

    def __init__(
        self,
        spark: "SparkSession",
        portion: Portion,
        late: list[Path],
        window_ns: int,
        wanted: set[str],
        staging: Callable[[str], Path],
    ) -> None:
        self._spark = spark
        self._portion = portion
        self._late = late
        self._window_ns = window_ns
        self._wanted = wanted
        self._staging = staging
        self._has_payload = not wanted.isdisjoint(("messages", "quarantine"))
        self._since_ns = 0
        self._is_unique = False
        self.frames: dict[str, Any] = {"window_ns": window_ns}

    def frame(self, name: str) -> Any:
        """Return what a function of data frames asks for; nothing is read before."""
        if name not in self.frames:
            self.frames[name] = self._good() if name == "messages" else self._recorded(name)
        return self.frames[name]

    def _good(self) -> DataFrame:
        recorded, portion = self._recorded("messages"), self._portion
        good = quality.good(recorded, with_payload=self._has_payload, proven=portion.proven)
        has_typed = "messages" in self._wanted and "typed" in portion.kinds
        good = with_value(good, has_typed=has_typed).select(*WORKED_ON)
        return good.unionByName(self._read("late", self._late)) if self._late else good

    def _recorded(self, table: str) -> DataFrame:
        """Return rows as they were recorded: few of them in one piece, to need no shuffle."""
        frame = self._portion.frame(self._spark, table)
        return frame.coalesce(1) if self._portion.is_small else frame

    def cut(self, cut_ns: int) -> None:
        """Take away the messages of windows that are final."""
        good = self.frame("messages")
        is_late = F.col("received_ns") < F.lit(cut_ns)
        self.frames |= {"messages": good.where(~is_late), "cut": good.where(is_late)}
        self._since_ns = cut_ns

    def find_bad(self) -> None:
        """Look for the rows that are not good."""
        self.frames["bad"] = quality.quarantined(
            self._recorded("messages"), with_payload=self._has_payload
        )

    def digest(self, names: Iterable[str]) -> dict[str, Any]:
        """Make digests, all in one job."""
        chosen = {name: DIGESTS[name] for name in sorted(names)}
        of_messages = {name: one for name, one in chosen.items() if one.is_of_messages}
        frames = [self._of_messages(of_messages)] if of_messages else []
        for name, digest in chosen.items():
            if name not in of_messages:
                made = digest.function(*map(self.frame, digest.inputs))
                row = ", ".join(f"`{one}`" for one in digest.columns.names)
                frames.append(made.selectExpr(f"struct({row}) AS {name}"))
        if not frames:
            return {}
        union = reduce(DataFrame.unionAll, (_with_all(frame, chosen) for frame in frames))
        found = self._fetched(union, self._staging("digest"))
        return {name: _rows_of(found[name], digest.columns) for name, digest in chosen.items()}

    def _of_messages(self, digests: dict[str, Digest]) -> DataFrame:
        """Let workers digest the messages: of files, unless doubles were taken out of them."""
        values = {"window_ns": self._window_ns}
        wanted = {
            name: Wanted(one.function, tuple(values[key] for key in one.inputs[1:]), one.columns)
            for name, one in digests.items()
        }
        reads = {column for one in digests.values() for column in one.reads}
        work = Work(wanted, tuple(sorted(reads)), self._since_ns)
        struct = ", ".join(f"{name} {_KINDS[name]}" for name in digests)
        if self._is_unique:
            # In their order, because pieces of what was shuffled would be single messages.
            rows: DataFrame = self.frame("messages").select(*work.reads)
            ordered = rows.repartition(*TOPIC).sortWithinPartitions(*TOPIC, "sequence")
            return ordered.mapInArrow(digested_rows(work), struct)
        groups = self._groups()
        slices = _TASKS_PER_PROCESSOR * self._spark.sparkContext.defaultParallelism
        slices = 1 if self._portion.is_small else max(min(slices, len(groups)), 1)
        places = self._spark.range(0, len(groups), 1, slices)
        return places.mapInArrow(digested_files(work, groups), struct)

    def _groups(self) -> list[RowGroup]:
        """List the row groups of all messages, and what is to be checked of them."""
        checks = asked(self._portion.proven, with_payload=self._has_payload)
        groups = [RowGroup(str(path), number, checks) for path, number in self._portion.groups]
        for path in self._late:
            count = read_end(path).num_row_groups
            groups += [RowGroup(str(path), number) for number in range(count)]
        return groups

    def drop_doubles(self, doubled: Any, overlapping: Any, known: DataFrame | None) -> Any:
        """Keep each message once; return what was left out, as parts of topic_health."""
        rows = self.frame("messages")
        before = rows.limit(0) if known is None else known.select(*WORKED_ON)
        if self._late:
            late = self._read("late", self._late).select("recorder", "offset")
            before = before.join(late, ["recorder", "offset"], "left_anti")
        doubles = Doubles(*map(self._spark.createDataFrame, (doubled, overlapping)))
        clean, must_go = unique(rows, before, doubles)
        if not must_go.isEmpty():
            raise RowsMustGo
        self.frames["messages"], self._is_unique = clean, True
        left_out = duplicates(rows, clean, self._window_ns)
        dropped = self._fetched(left_out, self._staging("duplicates"))
        return dropped.select(PART.names).cast(PART)

    def write(self, frame: DataFrame, folder: Path) -> list[Path]:
        """Write rows; return the files that have any."""
        frame.write.parquet(str(folder))
        return sorted(path for path in folder.glob("*.parquet") if pq.read_metadata(path).num_rows)

    def _read(self, table: str, files: list[Path]) -> DataFrame:
        return self._spark.read.schema(RESULTS[table]).parquet(*map(literal, files))

    def _fetched(self, frame: DataFrame, folder: Path) -> Any:
        """Bring rows here; many of them come faster by files."""
        if self._portion.is_small:
            return frame.toArrow()
        frame.write.parquet(str(folder))
        return pa.concat_tables(map(pq.read_table, sorted(folder.glob("*.parquet"))))


def _with_all(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """Add a column of nothing for each digest that this frame has none of."""
    there = set(frame.columns)
    return frame.selectExpr(
        *(name if name in there else f"CAST(NULL AS {_KINDS[name]}) AS {name}" for name in names)
    )


def _rows_of(structs: Any, columns: Any) -> Any:
    """Turn a column of structs, null where another digest has its rows, into a table."""
    parts = [
        pa.RecordBatch.from_struct_array(chunk.drop_null())
        for chunk in structs.chunks
        if chunk.null_count < len(chunk)
    ]
    if not parts:
        return columns.empty_table()
    return pa.Table.from_batches(parts).select(columns.names).cast(columns)
