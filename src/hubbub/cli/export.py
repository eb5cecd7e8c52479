"""`hubbub export`: a recording in the formats of others."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub.cli.options import Json
from hubbub.cli.play import Subjects, parse_times
from hubbub.cli.progress import Progress
from hubbub.cli.screen import write_until_the_end
from hubbub.cli.session import EXIT_INTERRUPTED, end_on_sigterm
from hubbub.cli.store import Place, open_store
from hubbub.cli.terminal import note, plural, print_json, size
from hubbub.cli.times import From, Until
from hubbub.errors import ConfigurationError

if TYPE_CHECKING:
    from hubbub.store import Store
    from hubbub.store.export import Exported

_STREAM = Path("-")


def export(
    path: Place,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="mcap, csv, jsonl or parquet.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to; - is standard output (csv, jsonl). [default: STORE.FORMAT, and"
            " STORE-TABLE.FORMAT with --table]",
        ),
    ] = None,
    subjects: Subjects = None,
    start: From = None,
    end: Until = None,
    table: Annotated[
        str, typer.Option(metavar="NAME", help="messages, events, announcements or counters.")
    ] = "messages",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Write a recording as MCAP (for Foxglove), CSV, JSON or Parquet.

    The file appears when it is whole. Exits with 1 when some of the recording cannot be read.
    """
    end_on_sigterm()
    store = open_store(path)
    name = path.resolve().name if table == "messages" else f"{path.resolve().name}-{table}"
    target = output or Path(f"{name}.{to}")
    if target != _STREAM and target.exists() and not force:
        raise ConfigurationError(f"{target} is there already: name another file, or say --force")
    span = parse_times(path, start, end)
    work = _Work(store, target, to, table, tuple(subjects or ()), span)
    code = write_until_the_end(work.run)
    if not work.is_interrupted and work.done is not None and target != _STREAM:
        _report(target, work, as_json)
    raise typer.Exit(code)


class _Work:
    """One export, and how it went."""

    def __init__(
        self, store: "Store", target: Path, to: str, table: str, subjects: tuple[str, ...],
        span: tuple[int | None, int | None],
    ) -> None:  # fmt: skip
        self._store, self._target, self._to, self._table = store, target, to, table
        self._subjects, self._span = subjects, span
        self.faults = 0
        self.is_interrupted = False
        self.done: Exported | None = None

    def run(self) -> int:
        from hubbub.store.export import export as write
        from hubbub.store.info import converted_messages

        is_all = self._table == "messages" and not self._subjects and self._span == (None, None)
        total = converted_messages(self._store.path) if is_all else None
        try:
            with Progress(total, " of payloads") as progress:
                self.done = write(
                    self._store,
                    sys.stdout.buffer if self._target == _STREAM else self._target, self._to,
                    table=self._table, subjects=self._subjects, start=self._span[0],
                    end=self._span[1], on_fault=self._tell,
                    on_progress=lambda done: progress.show(done.rows, size(done.size_bytes)),
                )  # fmt: skip
        except KeyboardInterrupt:
            self.is_interrupted = True
            note("interrupted: nothing was written")
            return EXIT_INTERRUPTED
        return 1 if self.faults else 0

    def _tell(self, fault: str) -> None:
        self.faults += 1
        note(fault)


def _report(target: Path, work: _Work, as_json: bool) -> None:
    assert work.done is not None
    size_bytes = target.stat().st_size
    if as_json:
        print_json(
            {
                "file": str(target),
                "rows": work.done.rows,
                "payload_bytes": work.done.size_bytes,
                "bytes": size_bytes,
                "faults": work.faults,
            }
        )
        return
    note(f"{plural(work.done.rows, 'row')} in {target}, {size(size_bytes)}")
