"""What a reader can be told: the options of `spark.read.format("hubbub")`, checked once.

They are Kafka's where Kafka has them, so that who knows one knows the other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from hubbub.errors import ConfigurationError
from hubbub.limits import SOURCE_PARTITION_ROWS
from hubbub.subjects import check_pattern

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
TABLES: Final = ("messages", "events", "announcements", "counters")

# The end of a recording, the first row at or behind a time in ns, or a position by recorder.
Where: TypeAlias = str | int | dict[str, int]

KNOWN: Final = (
    *("path", "paths", "table", "subjects", "startingOffsets", "endingOffsets"),
    *("maxRowsPerTrigger", "maxRowsPerPartition", "failOnDataLoss", "checkpoint"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """How to read a recording."""

    path: Path
    table: str = "messages"
    subjects: tuple[str, ...] = ()  # Empty: all.
    starting: Where | None = None  # None: the earliest of a batch, the latest of a stream.
    ending: Where = LATEST
    rows_per_trigger: int = 0  # 0: all there are.
    rows_per_partition: int = SOURCE_PARTITION_ROWS
    is_loss_failure: bool = True
    checkpoint: str = ""  # Under which name a stream tells the store what it still needs.


def take_options(given: Mapping[str, str]) -> Options:
    """Check what was given; names are compared without case, as Spark does."""
    options = {name.lower(): value for name, value in given.items()}
    known = {name.lower(): name for name in KNOWN}
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise ConfigurationError(f"no option {', '.join(unknown)}; there are {', '.join(KNOWN)}")
    table = options.get("table", "messages")
    if table not in TABLES:
        raise ConfigurationError(f"table={table!r}: there are {', '.join(TABLES)}")
    subjects = _patterns(options.get("subjects", ""))
    if subjects and table == "counters":
        raise ConfigurationError("subjects: a counter has none; leave the option out")
    starting = options.get("startingoffsets")
    return Options(
        _path(options),
        table,
        subjects,
        None if starting is None else _where("startingOffsets", starting),
        _where("endingOffsets", options.get("endingoffsets", LATEST)),
        _count("maxRowsPerTrigger", options.get("maxrowspertrigger")) or 0,
        _count("maxRowsPerPartition", options.get("maxrowsperpartition")) or SOURCE_PARTITION_ROWS,
        _truth("failOnDataLoss", options.get("failondataloss", "true")),
        options.get("checkpoint", ""),
    )


def _path(options: Mapping[str, str]) -> Path:
    if "paths" in options:
        raise ConfigurationError(
            "one path can be loaded: that of a store, or of a folder with stores in it"
        )
    if not options.get("path"):
        raise ConfigurationError('no store named: write .load("STORE")')
    return Path(options["path"].removeprefix("file://"))


def _patterns(text: str) -> tuple[str, ...]:
    patterns = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for pattern in patterns:
        check_pattern(pattern)
    return patterns


def _where(name: str, text: str) -> Where:
    """Read a place in a recording: earliest, latest, JSON, or a time."""
    text = text.strip()
    if text in (EARLIEST, LATEST):
        return text
    if text.startswith("{"):
        return _positions(name, text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{name}={text!r}: write {EARLIEST}, {LATEST}, a time such as 2026-11-16T08:00:00Z,"
            ' or {"RECORDER": OFFSET}'
        ) from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    whole_s = int(time.replace(microsecond=0).timestamp())
    return whole_s * 1_000_000_000 + time.microsecond * 1000


def _positions(name: str, text: str) -> dict[str, int]:
    try:
        positions = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{name}={text!r} is not JSON: {error}") from None
    for recorder, position in positions.items():
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise ConfigurationError(f"{name}: {position!r} of {recorder} must be at least 0")
    return dict(positions)


def _count(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigurationError(f"{name}={text!r} must be a whole number, at least 1")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"{name}={text!r} must be true or false")
    return text.lower() == "true"
