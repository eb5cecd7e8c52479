"""What Spark calls to read a recording. It is thin: planner and reader know nothing of Spark.

Spark makes these objects in processes of its own, plans with one of them, and sends a copy to the
workers, so they hold options and no files. Only the planner of a stream keeps something open: it is
asked many times a second how far the recording has come.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from hubbub.errors import ConfigurationError
from hubbub.pipeline.source.files import read_parquet
from hubbub.pipeline.source.options import EARLIEST, LATEST, Options, take_options
from hubbub.pipeline.source.planner import Position, Span, admit, ordered
from hubbub.pipeline.source.recordings import Recordings
from hubbub.pipeline.source.rows import Rows, Subjects
from hubbub.pipeline.source.whereabouts import Hint, Whereabouts
from hubbub.store.schema import TABLES


class Part(InputPartition):
    """What one task reads: rows of a store, or a file with rows about damage."""

    def __init__(self, store: Path, span: Span, hint: Hint | None, file: Path | None) -> None:
        super().__init__(span)
        self.store = store
        self.span = span
        self.hint = hint
        self.file = file


def schema_of(given: Mapping[str, str]) -> StructType:
    """Return the columns of the table that the options name."""
    return from_arrow_schema(TABLES[take_options(given).table])


def _check_schema(given: StructType, table: str) -> None:
    own = from_arrow_schema(TABLES[table])
    if given != own:
        raise ConfigurationError(
            f"the columns of {table} are what they are: leave .schema() out, and .select() others"
        )


def _read(options: Options, part: Part) -> Iterator[pa.RecordBatch]:
    """Read a part, in a worker."""
    subjects = Subjects(options.subjects) if options.subjects else None
    if part.file is not None:
        tables = read_parquet(options.table, part.file)
    else:
        rows = Rows(Whereabouts(part.store, options.table), is_loss_failure=options.is_loss_failure)
        tables = rows.read(part.span.first, part.span.end, part.hint)
    for table in tables:
        picked = table if subjects is None else subjects.pick(table)
        yield from picked.combine_chunks().to_batches()


class BatchReader(DataSourceReader):
    """Reads what there is between two places of a recording."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = take_options(given)
        _check_schema(schema, self._options.table)

    def partitions(self) -> Sequence[InputPartition]:
        """Say what tasks read."""
        options, recordings = self._options, Recordings(self._options)
        starting = EARLIEST if options.starting is None else options.starting
        end = recordings.resolve(options.ending)
        start = recordings.resolve(starting)
        start = {name: min(row, end[name]) for name, row in start.items()}
        parts = [Part(*planned, None) for planned in recordings.plan(start, end)]
        if options.ending == LATEST and starting == EARLIEST:
            for where in recordings.by_recorder().values():
                span = Span(where.recorder, 0, 0)
                parts += [Part(where.store, span, None, file) for file in where.damage_files()]
        recordings.close()
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part; where there is none, Spark asks for an empty one all the same."""
        if not isinstance(partition, Part):
            return iter(())
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a recording from a place on, as it grows."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = take_options(given)
        _check_schema(schema, self._options.table)
        if self._options.ending != LATEST:
            raise ConfigurationError("endingOffsets is for batches: a stream has no end")
        self._recordings: Recordings | None = Recordings(self._options)
        self._target: Position | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave open files behind: workers have no use for them."""
        return {**self.__dict__, "_recordings": None}

    def _planned(self) -> Recordings:
        assert self._recordings is not None, "workers plan nothing"
        return self._recordings

    def initialOffset(self) -> Position:  # noqa: N802
        """Say where a new query begins."""
        starting = self._options.starting
        position = self._planned().resolve(LATEST if starting is None else starting)
        self._planned().keep_from(position)
        return position

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:  # noqa: N802
        """Say how far the next batch goes; `start` is where the last one ended."""
        ends = self._planned().ends() if self._target is None else self._target
        # A recording never gets shorter, but numbers of its last rows may be those of other tables.
        ends = {name: max(end, start.get(name, 0)) for name, end in ends.items()}
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        return admit(start, ends, rows_max)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Say how many rows a batch may have."""
        rows = self._options.rows_per_trigger
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def reportLatestOffset(self) -> Position:  # noqa: N802
        """Say how far the recordings have come, whatever the batches read."""
        return self._planned().ends()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what there is: the query ends there."""
        self._target = self._planned().ends()

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """Say what tasks read; after a failure Spark asks again for the same batch."""
        planned = self._planned().plan(ordered(start), end, is_stable=True)
        return [Part(*one, None) for one in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part."""
        assert isinstance(partition, Part)
        return _read(self._options, partition)

    def commit(self, end: Position) -> None:
        """Take note that nobody will ask for what lies before; told a batch late."""
        self._planned().keep_from(end)

    def stop(self) -> None:
        """Let go of open files."""
        if self._recordings is not None:
            self._recordings.close()
