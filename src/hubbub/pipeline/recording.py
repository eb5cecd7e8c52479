"""The files of a recording, as a step reads them: which there are, and what their ends say."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from hubbub.limits import SMALL_STEP_ROWS
from hubbub.pipeline.digesting import quality
from hubbub.pipeline.schemas import RECORDED, nothing
from hubbub.store.layout import DataFile, data_files, parse_name
from hubbub.store.manifest import read_manifest, readable, sources_of
from hubbub.store.parquet import read_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INPUTS: Final = tuple(RECORDED)
_HINTS: Final = {"schema": "typed", "period_ns": "periods", "service": "services"}


class Name(NamedTuple):
    """Which file of a store: what stays the same wherever the store is mounted."""

    table: str
    hour: str
    name: str


class Portion(NamedTuple):
    """Files that a step reads, how many rows they hold, and which kinds of rows they may hold."""

    files: dict[str, list[Path]]
    rows: dict[str, int]
    names: list[Name]
    unreadable: list[tuple[Path, str]]
    kinds: frozenset[str]
    oldest_ns: int | None  # Of the messages; None: not known.
    proven: frozenset[str]  # Checks that all messages pass.
    groups: list[tuple[Path, int]]  # Row groups of messages: their files and numbers.

    @property
    def is_small(self) -> bool:
        """Tell whether so few rows are quicker in one piece."""
        return sum(self.rows.values()) <= SMALL_STEP_ROWS

    def frame(self, spark: "SparkSession", table: str) -> "DataFrame":
        """Return the rows of a table."""
        paths = [literal(path) for path in self.files[table]]
        if not paths:
            return nothing(spark, RECORDED[table])
        return spark.read.schema(RECORDED[table]).parquet(*paths)


def literal(path: Path) -> str:
    """Write a path so that Spark, which takes paths for patterns, means this one."""
    return re.sub(r"([\\*?\[\]{}^])", r"\\\1", str(path))


def name_of(file: DataFile) -> Name:
    """Name a file within its store."""
    return Name(file.table, file.hour, file.path.name)


def everything(store: Path) -> tuple[list[DataFile], list[Name]]:
    """Return the files that hold each row once, and the names of those they stand for."""
    files = [file for table in INPUTS for file in readable(store, table)]
    manifest = read_manifest(store)
    names = [name_of(file) for file in files]
    for table in INPUTS:
        names += [Name(table, hour, name) for hour, name in sources_of(manifest, table)]
    return files, list(dict.fromkeys(names))


def first_needed(store: Path, is_done: "Callable[[DataFile], bool]") -> dict[str, int]:
    """Return the first row of each table that lies in a file which was not read."""
    needs = {}
    for table in INPUTS:
        files = data_files(store, table)
        waiting = [file.first for file in files if not is_done(file)]
        behind = max((file.last + 1 for file in files), default=0)
        needs[table] = min(waiting, default=behind)
    return needs


def portion(files: Iterable[DataFile], names: Iterable[Name]) -> Portion:
    """Look at the ends of files: how many rows, and what cannot be among them."""
    paths: dict[str, list[Path]] = {table: [] for table in INPUTS}
    rows = dict.fromkeys(INPUTS, 0)
    unreadable, groups = [], []
    known = Extremes()
    for file in files:
        try:
            end = read_end(file.path)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # The system's fault, not the file's: it must not be passed over.
            unreadable.append((file.path, str(error).splitlines()[0]))
            continue
        paths[file.table].append(file.path)
        rows[file.table] += end.num_rows
        if file.table == "messages":
            known.add(end)
            groups += [(file.path, number) for number in range(end.num_row_groups)]
    oldest_ns = known.smallest.get("received_ns")
    checks = quality.proven(known.smallest, known.largest)
    return Portion(
        paths, rows, list(names), unreadable, frozenset(known.kinds), oldest_ns, checks, groups
    )


def without(some: Portion, rotten: Mapping[Path, str]) -> Portion:
    """Leave out files that cannot be read, though their ends can."""
    paths = [path for paths in some.files.values() for path in paths]
    if not (found := [path for path in paths if path in rotten]):
        return some
    left = [parse_name(path) for path in paths if path not in rotten]
    told = [*some.unreadable, *((path, rotten[path]) for path in found)]
    return portion(filter(None, left), some.names)._replace(unreadable=told)


class Extremes:
    """What the ends of files prove of the columns: the smallest and largest value, and no null."""

    def __init__(self) -> None:
        self.smallest: dict[str, Any] = {}
        self.largest: dict[str, Any] = {}
        self.kinds: set[str] = set()
        self._unknown: set[str] = set()

    def add(self, end: Any) -> None:
        """Look at the end of one more file."""
        names = end.schema.names
        for group in (end.row_group(number) for number in range(end.num_row_groups)):
            for index in range(group.num_columns):
                self._add(names[index], group.column(index).statistics)

    def _add(self, name: str, known: Any) -> None:
        if name in _HINTS and (known is None or known.num_values > 0):
            self.kinds.add(_HINTS[name])
        if known is None or not known.has_min_max or known.null_count != 0:
            self._unknown.add(name)
        if name in self._unknown:
            self.smallest.pop(name, None)
            self.largest.pop(name, None)
            return
        self.smallest[name] = min(self.smallest.get(name, known.min), known.min)
        self.largest[name] = max(self.largest.get(name, known.max), known.max)
