"""Runs of the pipeline: in one go, bit by bit, or live; all by the same steps.

The first run reads everything there is, large files included. Later ones are streams of Spark,
whose micro-batches are steps over the small files that are new (noticing.py). What was read, and by
which step, is part of the version of the tables, so a step that was killed is done again, and no
file is read twice.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.errors import ConfigurationError, HubbubError
from hubbub.limits import (
    CHECKPOINT_INTERVAL_S,
    SECOND,
    STEP_FILES_MAX,
    STEP_ROWS,
    WATERMARK_S,
    WATERMARK_S_MAX,
    WINDOW_S,
    WINDOW_S_MAX,
)
from hubbub.pipeline.done import FILES, Closed, Done, table_of
from hubbub.pipeline.failures import SPARK_ERRORS, find_unreadable, told_in_one_line
from hubbub.pipeline.noticing import Notices, Signals
from hubbub.pipeline.parts import thinned
from hubbub.pipeline.recording import (
    INPUTS,
    Portion,
    everything,
    first_needed,
    literal,
    name_of,
    portion,
    without,
)
from hubbub.pipeline.registry import choose
from hubbub.pipeline.rows import RowsMustGo
from hubbub.pipeline.session import interpreting
from hubbub.pipeline.step import Counts, Outcome, Setup, Step
from hubbub.pipeline.transforms import quality
from hubbub.pipeline.transforms.messages import with_value
from hubbub.pipeline.versions import Versions
from hubbub.store.checkpoints import advance, register
from hubbub.store.identity import identity_path, read_identity
from hubbub.store.layout import DataFile
from hubbub.store.manifest import compact_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_FORMAT: Final = 7
_LOOK_S: Final = 0.1  # So often a live run looks whether it is to end.


class Progress(NamedTuple):
    """How far a run is: rows of messages and seconds so far, and what it does now."""

    rows: int
    total: int | None  # None: nobody knows.
    seconds: float
    doing: str


class Summary(NamedTuple):
    """What a run has done."""

    steps: int
    counts: Counts
    seconds: float
    unreadable: list[str]

    @property
    def rows_per_second(self) -> float:
        """Return how many messages were read a second, Spark's start not counted."""
        return self.counts.read / self.seconds if self.seconds else 0.0


def make_setup(
    only: Iterable[str] = (), window_s: float = WINDOW_S, watermark_s: float = WATERMARK_S
) -> Setup:
    """Say which tables are wanted, and how long a window is."""
    if not 0.001 <= window_s <= WINDOW_S_MAX:
        raise ConfigurationError(f"a window of {window_s} s: from 0.001 to {WINDOW_S_MAX:.0f} s")
    if not 0 <= watermark_s <= WATERMARK_S_MAX:
        raise ConfigurationError(
            f"a watermark of {watermark_s} s: from 0 to {WATERMARK_S_MAX:.0f} s"
        )
    window_ns = round(window_s * 1000) * (SECOND // 1000)
    return Setup(choose(only), window_ns, round(watermark_s * SECOND))


class Pipeline:
    """A store, a folder of tables, and what turns the one into the other.

    Use it inside `with versions.locked()`: one run at a time.
    """

    def __init__(
        self,
        spark: "SparkSession",
        store: Path,
        tables: Path,
        setup: Setup,
        report: Callable[[Progress], None] = lambda _: None,
        *,
        is_anew: bool = False,
        files_max: int = STEP_FILES_MAX,
    ) -> None:
        # Workers open files, too, and may be in another folder.
        store, tables = store.absolute(), tables.absolute()
        self.versions = Versions(tables)
        self.after_step: Callable[[], None] = lambda: None
        self._spark = spark
        self._store = store
        self._setup = setup
        self._report = report
        self._files_max = files_max
        self._stepping = threading.Lock()
        self._signals: Signals | None = None
        self._is_ending = False
        self._refused: HubbubError | None = None
        # A run that was killed before its first commit must come again under the same name.
        self._reader = f"pipeline-{sha1(str(tables.absolute()).encode()).hexdigest()[:12]}"
        self._recorder = _recorder_of(store)
        self._state = self.versions.state()
        if is_anew or not self._state.get("is_whole"):
            self._state = {}
        else:
            self._check_state()
        closed = self._state.get("closed")
        self._notices = Notices(store, Closed(*closed) if closed else None)
        self._done = Done.read(self._state.get("settled", 0), self._read_files())
        self._counts = Counts()
        self._steps = 0
        self._unreadable: list[str] = []
        self._rotten: dict[Path, str] = {}
        self._total: int | None = None
        self._start_s = time.monotonic()
        self._told_s = 0.0

    @property
    def is_new(self) -> bool:
        """Tell whether there are no tables yet that a run could go on with."""
        return not self._state.get("is_whole")

    def run_batch(self) -> Summary:
        """Make all tables from everything there is, whatever was there before."""
        self._state, self._done = {}, Done()
        register(self._store, self._reader, dict.fromkeys(INPUTS, 0))
        self._begin()
        files, names = everything(self._store)
        portions = _cut(files)
        self._total = sum(file.rows for file in files if file.table == "messages")
        known = {name_of(file) for file in files}
        replaced = [name for name in names if name not in known]
        for index, some in enumerate(portions):
            is_last = index == len(portions) - 1
            names_of_some = [*map(name_of, some), *(replaced if is_last else [])]
            with told_in_one_line():
                self._step(portion(some, names_of_some), is_fresh=index == 0, is_whole=is_last)
        self._forget_streams()
        self._total = None
        return self._end()

    def run_incremental(self) -> Summary:
        """Take in what is new since the last run, and what a live run had cut off."""
        if self.is_new:
            return self.run_batch()
        self._begin()
        with told_in_one_line():
            self._follow(self._stream(is_live=False), lambda: False)
            if self.versions.files("late"):
                self._step(portion([], []))
        return self._end()

    def run_live(self, is_over: Callable[[], bool], interval_s: float = 0.0) -> Summary:
        """Take in what is recorded while it is recorded, until it is over."""
        if self.is_new:
            self.run_batch()  # It is of this run, and told with it.
        else:
            self._begin()
        with told_in_one_line():
            self._follow(self._stream(is_live=True, interval_s=interval_s), is_over)
        return self._end()

    def _follow(self, query: "StreamingQuery", is_over: Callable[[], bool]) -> None:
        """Wait for the end of a stream, or end it between two steps."""
        try:
            while query.isActive and not is_over():
                time.sleep(_LOOK_S)
                self._idle()
            if (error := query.exception()) is not None:
                raise self._refused or error
        finally:
            with self._stepping:  # A step that has begun is brought to its end.
                self._is_ending = True
                query.stop()

    def _idle(self) -> None:
        """Between two steps: say that we wait, and let the store know that we are there."""
        if self._stepping.acquire(blocking=False):
            try:
                self._say("waiting for more")
                if self._signals is not None and self._notices.waiting(self._done):
                    self._signals.give()
                if time.monotonic() - self._told_s > CHECKPOINT_INTERVAL_S:
                    self._tell_store()
            finally:
                self._stepping.release()

    def _begin(self) -> None:
        self._counts, self._steps, self._unreadable = Counts(), 0, []
        self._start_s = time.monotonic()
        self._tell_store()

    def summary(self) -> Summary:
        """Return what was done so far."""
        seconds = time.monotonic() - self._start_s
        return Summary(self._steps, self._counts, seconds, self._unreadable)

    def _end(self) -> Summary:
        self._tell_store()
        return self.summary()

    def _stream(self, *, is_live: bool, interval_s: float = 0.0) -> "StreamingQuery":
        """Start a stream whose micro-batches are steps: these find the new files, and read them."""
        checkpoint = self.versions.root / self._state["checkpoint"]
        signals = Signals(checkpoint / "signals")
        if is_live:
            self._signals = signals
        else:
            signals.give(-(-len(self._notices.waiting(self._done)) // self._files_max))
        given = self._spark.readStream.option("maxFilesPerTrigger", 1).text(literal(signals.folder))

        def take(_: "DataFrame", number: int) -> None:
            with self._stepping:
                signals.taken()
                if self._is_ending:
                    # Not to return: Spark would believe that the step was done.
                    raise InterruptedError("the run is ending")
                if number > self._state.get("batch", -1):
                    try:
                        self._take(number, is_live=is_live)
                    except HubbubError as error:
                        self._refused = error  # Spark would tell it as a screen of its own.
                        raise

        writer = given.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        if is_live:
            writer = writer.trigger(processingTime=f"{round(interval_s * 1000)} milliseconds")
        else:
            writer = writer.trigger(availableNow=True)
        with interpreting(self._spark):  # A stream keeps what holds when it is started.
            return writer.start()

    def _take(self, number: int, *, is_live: bool) -> None:
        """Do the step of one micro-batch, with all that is there by now.

        The files of one segment come one after the other, and would else make two steps. A
        micro-batch whose files were taken before it finds nothing to do.
        """
        if some := self._notices.waiting(self._done)[: self._files_max]:
            self._step(portion(some, map(name_of, some)), batch=number, is_live=is_live)

    def _step(
        self,
        some: Portion,
        *,
        batch: int | None = None,
        is_live: bool = False,
        is_fresh: bool = False,
        is_whole: bool = True,
    ) -> None:
        """Do one step, and make what it made the tables."""
        done = self._done.with_names(some.names, self._notices.settled)
        try:
            some, outcome = self._made(some, is_live=is_live, is_fresh=is_fresh)
        except RowsMustGo:
            read = self._processed(self._done.with_names(some.names, 0))
            some, is_fresh = portion(read, map(name_of, read)), True
            some, outcome = self._made(some, is_live=False, is_fresh=True)
        self._unreadable += [f"{path}: {why}" for path, why in some.unreadable]
        state = self._next_state(outcome, batch, is_fresh=is_fresh)
        state |= {"is_whole": is_whole, "settled": done.settled, "closed": self._notices.closed}
        files = {table: thinned(self.versions, paths) for table, paths in outcome.files.items()}
        files[".files"] = thinned(self.versions, self._with_names(done))
        self.versions.commit(files, state)
        self._state, self._done = state, done
        self._counts = Counts(*map(sum, zip(self._counts, outcome.counts, strict=True)))
        self._steps += 1
        self._say("committed")
        if time.monotonic() - self._told_s > CHECKPOINT_INTERVAL_S:
            self._tell_store()
        self.after_step()

    def _made(self, some: Portion, *, is_live: bool, is_fresh: bool) -> tuple[Portion, Outcome]:
        """Do a step with what Spark can read of its files; return what that was."""
        while True:
            some = without(some, self._rotten)
            try:
                return some, self._outcome(some, is_live=is_live, is_fresh=is_fresh)
            except SPARK_ERRORS:
                read = [some, without(portion(self._processed(self._done), []), self._rotten)]
                rotten = (
                    find_unreadable(self._spark, table, one.files[table])
                    for one in read
                    for table in INPUTS
                )
                if not (found := next(filter(None, rotten), None)):
                    raise
                self._rotten |= found

    def _outcome(self, some: Portion, *, is_live: bool, is_fresh: bool) -> Outcome:
        newest_ns = 0 if is_fresh else self._state.get("newest_ns", 0)
        step = Step(
            self._spark, self.versions, self._setup, some,
            newest_ns=newest_ns, is_live=is_live, is_fresh=is_fresh,
            known=self._known_rows, say=self._say,
        )  # fmt: skip
        with interpreting(self._spark, is_on=some.is_small):
            return step.run()

    def _known_rows(self) -> "DataFrame":
        """Return the messages that were read before, as far as they are still there."""
        there = without(portion(self._processed(self._done), []), self._rotten)
        rows = quality.good(there.frame(self._spark, "messages"), with_payload=False)
        return with_value(rows, has_typed=False)

    def _processed(self, done: Done) -> list[DataFile]:
        """Return the files that were read, or that others were compacted to since."""
        compacted = compact_folder(self._store)
        return [
            file
            for file in everything(self._store)[0]
            if done.has(file) or file.path.is_relative_to(compacted)
        ]

    def _forget_streams(self) -> None:
        """Remove the checkpoints of streams that came before these tables."""
        for folder in self.versions.root.glob(".stream-*"):
            if folder.name != self._state["checkpoint"]:
                shutil.rmtree(folder, ignore_errors=True)

    def _next_state(self, outcome: Outcome, batch: int | None, *, is_fresh: bool) -> dict[str, Any]:
        known = {} if is_fresh else self._state.get("counts", {})
        return {
            "format": _FORMAT,
            "recorder": self._recorder,
            "tables": self._setup.names,
            "window_ns": self._setup.window_ns,
            "watermark_ns": self._setup.watermark_ns,
            "checkpoint": self._state.get("checkpoint") or f".stream-{uuid4().hex[:12]}",
            "batch": self._state.get("batch", -1) if batch is None else batch,
            "newest_ns": outcome.newest_ns,
            "counts": {
                name: known.get(name, 0) + value for name, value in outcome.counts._asdict().items()
            },
        }

    def _check_state(self) -> None:
        """Refuse to go on with tables that were made for something else."""
        if not self._state:
            return
        setup = self._setup
        asked: dict[str, Any] = {
            "format": _FORMAT,
            "recorder": self._recorder,
            "tables": setup.names,
            "window_ns": setup.window_ns,
            "watermark_ns": setup.watermark_ns,
        }
        made = {name: self._state.get(name) for name in asked}
        if made != asked:
            differs = next(name for name in asked if made[name] != asked[name])
            raise ConfigurationError(
                f"{self.versions.root} was made with other {differs}"
                f" ({made[differs]}, not {asked[differs]}):"
                " use another folder, or make all again with --batch"
            )

    def _read_files(self) -> Any:
        return pa.concat_tables(
            [FILES.empty_table(), *map(pq.read_table, self.versions.files(".files"))]
        )

    def _with_names(self, done: Done) -> list[Path]:
        """Write down which files were read; return the files that say so."""
        is_more = done.settled == self._done.settled and done.names >= self._done.names
        folder = self.versions.staging(".files")
        folder.mkdir()
        new = done.names - self._done.names if is_more else done.names
        pq.write_table(table_of(new), folder / "names.parquet")
        kept = self.versions.files(".files") if is_more and self._done.names else []
        return [*kept, folder / "names.parquet"]

    def _tell_store(self) -> None:
        """Let the store keep what was not read yet."""
        self._told_s = time.monotonic()
        advance(self._store, self._reader, first_needed(self._store, self._done.has))

    def _say(self, doing: str) -> None:
        seconds = time.monotonic() - self._start_s
        shown = "tables" if doing.startswith(".") else doing  # Those are kept for the next step.
        self._report(Progress(self._counts.read, self._total, seconds, shown))


def _recorder_of(store: Path) -> str | None:
    """Return whose recording it is; None: it does not say, as one made by hand."""
    return read_identity(store).recorder if identity_path(store).exists() else None


def _cut(files: list[DataFile]) -> list[list[DataFile]]:
    """Cut a recording into portions of bounded size; one at least."""
    portions: list[list[DataFile]] = [[]]
    rows = 0
    for file in sorted(files, key=lambda file: (file.hour, file.table, file.first)):
        if rows and rows + file.rows > STEP_ROWS and file.table == "messages":
            portions.append([])
            rows = 0
        portions[-1].append(file)
        rows += file.rows if file.table == "messages" else 0
    return portions
