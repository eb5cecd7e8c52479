"""`hubbub report`: what the tables of a recording say, for people."""

from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub.cli.options import Json
from hubbub.cli.screen import Screen, write_until_the_end
from hubbub.cli.terminal import note, print_json, size
from hubbub.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from hubbub.report.figures import Figures


class Format(StrEnum):
    """How a report is written."""

    HTML = "html"
    TEXT = "text"


def report(
    tables: Annotated[
        Path, typer.Argument(metavar="TABLES", help="What `hubbub pipeline run` has written.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write the page (report.html), or the text (the screen).",
        ),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="A page with pictures, or text for the screen.")
    ] = Format.HTML,
    as_json: Json = False,
) -> None:
    """Show what was recorded, in plain words, pictures and tables.

    The page is one file that needs no network and no script. Neither Spark nor Java is needed.
    """
    figures = _read(tables)
    raise typer.Exit(write_until_the_end(lambda: _write(figures, output, format_, as_json)))


def _read(path: Path) -> "Figures":
    try:
        from hubbub.report.building import build
        from hubbub.report.reading import read_tables
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise MissingExtra("reports need pyarrow: pip install 'hubbub[recorder]'") from None
    return build(read_tables(path))


def _write(figures: "Figures", output: Path | None, format_: Format, as_json: bool) -> int:
    from hubbub.report.findings import find, summarise

    if as_json:
        found = [{**asdict(one), "level": one.level.name.lower()} for one in find(figures)]
        print_json({"summary": summarise(figures), "findings": found, **asdict(figures)})
        return 0
    if format_ is Format.TEXT:
        from hubbub.cli.report_text import write_text

        screen = Screen()
        text = "\n".join(write_text(figures, screen.width)) + "\n"
        if output is not None:
            return _save(output, text)
        print(text, end="", flush=True)
        return 0
    from importlib.metadata import version  # 20 ms that other commands need not wait.

    from hubbub.report.page import write_page

    made = f"Made on {datetime.now(UTC):%Y-%m-%d at %H:%M} by hubbub {version('hubbub')}."
    return _save(output or Path("report.html"), write_page(figures, made))


def _save(path: Path, text: str) -> int:
    """Write a file, whole or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    data = text.encode()
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    note(f"{path} written ({size(len(data))})")
    return 0
