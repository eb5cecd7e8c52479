"""New rows of a recording, as Spark sees them: sorted out, digested, and written.

Everything here costs Spark a plan, and a plan costs more than a thousand rows do. So all digests
are one plan, and what need not be asked is not.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812

from hubbub.limits import TINY_STEP_ROWS
from hubbub.pipeline.merging.health import PART
from hubbub.pipeline.recording import Portion
from hubbub.pipeline.registry import DIGESTS
from hubbub.pipeline.schemas import RESULTS, struct_of
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms import quality
from hubbub.pipeline.transforms.doubles import Doubles, unique
from hubbub.pipeline.transforms.messages import with_value
from hubbub.pipeline.transforms.parts import duplicates
from hubbub.pipeline.transforms.words import times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORD_SHIFT: Final = 6
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
        self.shift = 0 if portion.rows["messages"] <= TINY_STEP_ROWS else _WORD_SHIFT
        self.frames: dict[str, Any] = {"window_ns": window_ns, "shift": self.shift}

    def frame(self, name: str) -> Any:
        """Return what a function of data frames asks for; nothing is read before."""
        if name not in self.frames:
            self.frames[name] = self._good() if name == "messages" else self._recorded(name)
        return self.frames[name]

    def _good(self) -> "DataFrame":
        recorded, portion = self._recorded("messages"), self._portion
        good = quality.good(recorded, with_payload=self._has_payload, proven=portion.proven)
        has_typed = "messages" in self._wanted and "typed" in portion.kinds
        good = with_value(good, has_typed=has_typed).select(*WORKED_ON)
        return good.unionByName(self._read("late", self._late)) if self._late else good

    def _recorded(self, table: str) -> "DataFrame":
        """Return rows as they were recorded: few of them in one piece, to need no shuffle."""
        frame = self._portion.frame(self._spark, table)
        return frame.coalesce(1) if self._portion.is_small else frame

    def cut(self, cut_ns: int) -> None:
        """Take away the messages of windows that are final."""
        good = self.frame("messages")
        is_late = F.col("received_ns") < F.lit(cut_ns)
        self.frames |= {"messages": good.where(~is_late), "cut": good.where(is_late)}

    def find_bad(self) -> None:
        """Look for the rows that are not good."""
        self.frames["bad"] = quality.quarantined(
            self._recorded("messages"), with_payload=self._has_payload
        )

    def digest(self, names: Iterable[str]) -> dict[str, Any]:
        """Make digests, all in one job."""
        return self._digested(names, self._staging("digest"))

    @contextmanager
    def digesting(self, names: Iterable[str]) -> Iterator[Callable[[], dict[str, Any]]]:
        """Make digests beside whatever is done meanwhile; the call that is given waits for them."""
        folder = self._staging("digest")  # Here: only one thread may ask for it.
        self.frame("messages")  # So that both find it made.
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(self._digested, names, folder).result

    def _digested(self, names: Iterable[str], folder: Path) -> dict[str, Any]:
        chosen = {name: DIGESTS[name] for name in sorted(names)}
        union: DataFrame | None = None
        for name, digest in chosen.items():
            made = digest.function(*map(self.frame, digest.inputs))
            row = {name: f"struct({', '.join(f'`{one}`' for one in digest.columns.names)})"}
            one = made.selectExpr(
                *(
                    f"{row.get(other, f'CAST(NULL AS {_KINDS[other]})')} AS {other}"
                    for other in chosen
                )
            )
            union = one if union is None else union.unionAll(one)
        if union is None:
            return {}
        found = self._fetched(union, folder)
        return {name: _rows_of(found[name], digest.columns) for name, digest in chosen.items()}

    def times(self, wanted: Any) -> Any:
        """Look up when these sequences were received: rows of topics, `sequence`, `time_ns`."""
        frame = self._spark.createDataFrame(wanted)
        return self._fetched(times(self.frame("messages"), frame), self._staging("times"))

    def drop_doubles(self, doubled: Any, overlapping: Any, known: "DataFrame | None") -> Any:
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
        self.frames["messages"] = clean
        left_out = duplicates(rows, clean, self._window_ns)
        dropped = self._fetched(left_out, self._staging("duplicates"))
        return dropped.select(PART.names).cast(PART)

    def write(self, frame: "DataFrame", folder: Path) -> list[Path]:
        """Write rows; return the files that have any."""
        frame.write.parquet(str(folder))
        return sorted(path for path in folder.glob("*.parquet") if pq.read_metadata(path).num_rows)

    def _read(self, table: str, files: list[Path]) -> "DataFrame":
        return self._spark.read.schema(RESULTS[table]).parquet(*map(str, files))

    def _fetched(self, frame: "DataFrame", folder: Path) -> Any:
        """Bring rows here; many of them come faster by files."""
        if self._portion.is_small:
            return frame.toArrow()
        frame.write.parquet(str(folder))
        return pa.concat_tables(map(pq.read_table, sorted(folder.glob("*.parquet"))))


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
