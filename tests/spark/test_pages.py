"""What the pages of the guide do with Spark, on the session and the recording that tests share.

`make soak` plays the same commands as programs, with a Spark of their own
(documents/test_pages.py). Here a command ends as there, but leaves the session to the next.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import hubbub
from hubbub.cli import app
from hubbub.cli import pipeline as pipeline_module
from hubbub.pipeline.versions import Versions
from tests.integration.bus import fresh_place
from tests.pages import PAGES, ROOT, blocks, read_commands, read_snippets
from tests.spark.soak import only_in_soak
from tests.unit.pipeline.recording import Recording

GUIDE = ROOT / "docs" / "guide"
STORES = ("recording", "STORE")  # As pages call them.
FOLDERS = {*STORES, "tables", "health"}
# The same with less: how right the protocol is, is not the question.
SMALLER = {"--seeds 0:200": "--seeds 0:2"}
LIVE = "--live"
# They read every row with Python, in processes of its own: minutes on a busy machine.
SLOW = ("hubbub simulate ", "hubbub pipeline check ")
COMMANDS = list(
    dict.fromkeys(
        shlex.join(shlex.split(command.text, comments=True))
        for page in PAGES
        for command in read_commands(page)
        if command.needs_spark and not command.is_run_elsewhere
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a reader who has recorded something."""
    made = tmp_path_factory.mktemp("reader")
    for name in STORES:
        recording = Recording(made / name)
        recording.add("/plant/line1/temp", *(b"%d" % number for number in range(50)))
        recording.close()
    return made


@pytest.fixture
def reader(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], int]:
    """Type commands in that folder, where Spark outlives them."""
    place = fresh_place()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HUBBUB_INTERFACE", "127.0.0.1")
    monkeypatch.setenv("HUBBUB_DOMAIN", place.domain)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    # A call to Java must not be interrupted; test_live_command.py ends one by Ctrl-C.
    monkeypatch.setattr(pipeline_module, "_until_interrupted", _until_there_are_tables)

    def run(text: str) -> int:
        # Java is in the folder in which it was started.
        words = [str(folder / one) if one in FOLDERS else one for one in shlex.split(text)]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            app.run()
        return int(ended.value.code or 0)

    return run


def _until_there_are_tables(look: Callable[[], None] | None) -> Callable[[], bool]:
    def is_over() -> bool:
        if look is not None:
            look()
        return Versions(Path("tables")).current is not None

    return is_over


def test_commands_of_the_pages_work_one_after_the_other(
    reader: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    quick = [command for command in COMMANDS if not command.startswith(SLOW)]
    assert len(quick) >= 7
    for command in sorted(quick, key=lambda text: LIVE in text):  # Live ones go on from there.
        assert reader(command) == 0, (command, capsys.readouterr())


@only_in_soak
@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith(SLOW)])
def test_command_that_checks_with_spark_works(command: str, reader: Callable[[str], int]) -> None:
    for long, short in SMALLER.items():
        command = command.replace(long, short)
    assert reader(command) == 0


@only_in_soak
def test_python_of_the_spark_page_runs(
    reader: Callable[[str], int], folder: Path, spark: SparkSession
) -> None:
    reading, publishing = read_snippets(GUIDE / "spark.md", with_spark=True)
    names: dict[str, Any] = {"spark": spark}
    exec(reading.replace('"STORE"', f'"{folder}/STORE"'), names)
    assert names["messages"].count() == 50
    alarms = names["live"].select("subject", "payload")
    names |= {"frame": names["messages"], "alarms": alarms}
    with hubbub.open("reader") as node:
        heard = node.subscribe("/plant/...")
        here = f'"{os.environ["HUBBUB_DOMAIN"]}").option("interface", "127.0.0.1")'
        publishing = publishing.replace('"plant")', here)  # Workers have another environment.
        publishing = publishing.replace('"checkpoints"', f'"{folder}/checkpoints"')
        exec(publishing.replace("alarms.", "query = alarms."), names)
        assert heard.receive(30) is not None
        query = names["query"]
        query.processAllAvailable()
        query.stop()


def test_python_and_sql_of_the_pipeline_page_run(
    reader: Callable[[str], int], folder: Path, spark: SparkSession
) -> None:
    if not (folder / "tables").exists():
        reader("hubbub pipeline run recording --out tables")
    page = GUIDE / "pipeline.md"
    [read] = read_snippets(page, with_spark=True)
    names: dict[str, object] = {}
    exec(read, names)
    [query] = blocks(page, "sql")
    # DuckDB's way to name files, and Spark's.
    asked = re.sub(r"'(tables/\w+)/\*\.parquet'", rf"parquet.`{folder}/\1`", query).rstrip(";\n")
    [row] = spark.sql(asked).collect()
    assert row[:2] == ("/plant/line1/temp", 50)
