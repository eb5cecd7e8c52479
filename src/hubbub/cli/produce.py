"""`hubbub produce`: make samples from the command line, when somebody wants them."""

import csv
import itertools
import shlex
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

import hubbub
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.publishing import as_typed
from hubbub.cli.session import EXIT_INTERRUPTED, open_node
from hubbub.cli.terminal import note, plural, print_json

_LOOK_S = 0.05
_COMMAND_TIMEOUT_S = 10.0
_TOLD = (
    hubbub.SampleFailed, hubbub.InterestRefused, hubbub.TicksSkipped, hubbub.DataTypeMismatch,
)  # fmt: skip


@on_the_bus
def produce(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="What is made, such as /vehicle/speed.")
    ],
    value: Annotated[str | None, typer.Option("--value", help="The same sample each time.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", help="Run this for each sample: its output is it.")
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="A row a sample; ends with the last one."),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--column", metavar="NAME", help="Only this column of the rows, by its title."
        ),
    ] = None,
    schedule: Annotated[
        str, typer.Option("--schedule", help="due, strict or harmonised: when samples are made.")
    ] = "due",
    floor: Annotated[
        float, typer.Option("--floor", metavar="MS", help="Samples are at least so far apart.")
    ] = 1.0,
    cap: Annotated[
        int, typer.Option("--cap", metavar="HZ", help="At most so many samples a second.")
    ] = 1000,
    copies: Annotated[
        int, typer.Option("--copies", metavar="N", help="Send each sample so often, for safety.")
    ] = 1,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after so many samples.")
    ] = None,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Make samples of a subject, as often as consumers want them.

    Without consumers nothing is made. Ctrl-C ends it. Exits with 1 when a sample could not be made.
    """
    if sum(one is not None for one in (value, command, csv_file)) != 1:
        raise typer.BadParameter("give one of --value, --command and --csv")
    if column is not None and csv_file is None:
        raise typer.BadParameter("--column is for --csv")
    read = _reader(value, command, csv_file, column)
    failures: list[hubbub.Event] = []
    with open_node(bus) as node:
        node.on_event(lambda event: _tell(event, failures))
        producer = node.produce(
            subject, read, schedule=schedule, floor_ms=floor, cap_hz=cap, copies=copies
        )
        code = _wait(producer, read, count)
        statistics = producer.statistics()
    failed = statistics.failed - (read.asked_too_often if isinstance(read, Rows) else 0)
    _report(statistics, failed, as_json)
    raise typer.Exit(code or (1 if failures else 0))


class Rows:
    """Samples that end: the rows of a file."""

    def __init__(self, rows: Iterable[bytes]) -> None:
        self._rows = deque(rows)
        self.asked_too_often = 0  # After the last row.

    @property
    def is_over(self) -> bool:
        """Tell whether the last row was taken."""
        return not self._rows

    def __call__(self) -> bytes | None:
        """Return the next row; None: there is none."""
        if self._rows:
            return self._rows.popleft()
        self.asked_too_often += 1
        return None


def _reader(
    value: str | None, command: str | None, path: Path | None, column: str | None
) -> Callable[[], bytes | None]:
    if value is not None:
        sample = as_typed(value)
        return lambda: sample
    if command is not None:
        words = _words(command)
        return lambda: _run(words)
    assert path is not None
    return Rows(_rows(path, column))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise typer.BadParameter(f"--command {command!r}: {error}") from None
    if not words:
        raise typer.BadParameter("--command is empty")
    return words


def _run(words: list[str]) -> bytes:
    """Return what a command prints; one that fails has said why, or its code is all there is."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except OSError as error:
        raise hubbub.HubbubError(f"{words[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise hubbub.HubbubError(f"{words[0]} took more than {_COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = said[-1] if said else "and said nothing"
        raise hubbub.HubbubError(f"{words[0]} ended with {done.returncode}: {why}")
    return done.stdout.removesuffix(b"\n")


def _rows(path: Path, column: str | None) -> list[bytes]:
    """Read the rows of a file; a file that cannot be read is an error before anything is made."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise hubbub.ConfigurationError(f"--csv {path}: {error}") from None
    if not text.strip():
        raise hubbub.ConfigurationError(f"--csv {path} is empty: give a row a sample")
    if column is None:
        return [line.encode() for line in text.splitlines()]
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or column not in rows[0]:
        there = ", ".join(rows[0]) if rows else "no row"
        raise hubbub.ConfigurationError(f"--column {column}: {path} has {there}")
    return [(row[column] or "").encode() for row in rows]


def _wait(producer: hubbub.Producer, read: Callable[[], bytes | None], count: int | None) -> int:
    try:
        for _ in itertools.count():
            is_over = isinstance(read, Rows) and read.is_over
            is_enough = count is not None and producer.statistics().sent >= count
            time.sleep(_LOOK_S)  # Also after the last row was taken: it is still to be sent.
            if is_over or is_enough:
                return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _tell(event: hubbub.Event, failures: list[hubbub.Event]) -> None:
    if isinstance(event, hubbub.SampleFailed):
        failures.append(event)
        if len(failures) > 1:
            return  # The first says what is wrong.
    if isinstance(event, _TOLD):
        note(str(event))


def _report(statistics: hubbub.ProducerStatistics, failed: int, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "subject": statistics.subject,
                "data_type": statistics.data_type,
                "schedule": statistics.schedule,
                "samples": statistics.sent,
                "skipped": statistics.skipped,
                "failed": failed,
                "refused": statistics.refused,
            }
        )
        return
    what = plural(statistics.sent, "sample")
    note(f"{what} of {statistics.subject}, {statistics.skipped} skipped, {failed} failed")
