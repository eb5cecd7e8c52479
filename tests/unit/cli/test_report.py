"""`hubbub report` from tables on disk to a page, to text and to JSON."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hubbub.cli.app import app
from hubbub.cli.report_text import _mean, write_text
from hubbub.errors import ConfigurationError, MissingExtra
from hubbub.pipeline.versions import Versions
from hubbub.report.building import build
from hubbub.report.figures import Clock, Figures, Series
from hubbub.report.findings import summarise
from hubbub.report.reading import Tables, read_tables
from tests.unit.report.literal import (
    BEGIN_US,
    GPS,
    counted,
    event,
    gap,
    health,
    morning,
    sent,
    table,
    tables,
)
from tests.unit.report.test_page import HOSTILE, hostile

TEXT = """\
Hubbub report: tables
2026-11-16 08:00:00.000 to 2026-11-16 08:00:20.000 UTC

3 nodes, 2 subjects and 22 messages (2.2 kB) in at most 20 s.

!! 3 messages lost on /points by publisher lidar#aa0000 between 08:00:12.000 and 08:00:13.000,
   reported by the bus as GapAbandoned. [1 hole in the sequence]
!! Publisher gps#cc0000 was killed or crashed at 08:00:14.000. [the bus says: died]
-  Half of all messages were on their way for 200 µs or less, 99 % for 200 µs or less; the slowest
   took 200 µs. [slowest: /points from lidar#aa0000, p99 200 µs; between hosts this contains the
   difference of their clocks]
ok The bus counted the same: 3 messages lost.
ok The recorder lost nothing.

Messages a second
subject  over time  mean  most
/points  |██|          1     1
/fix     |█ |        0.1   0.2

Bytes a second
subject  over time   mean   most
/points  |██|       100 B  100 B
/fix     |█ |        10 B   20 B

Topics (2 rows)
subject  publisher     messages   data     p50     p95     p99     max  jitter  lost  twice
/points  lidar#aa0000        20   2 kB  200 µs  200 µs  200 µs  200 µs    0 µs     3      0
/fix     gps#cc0000           2  200 B  100 µs  100 µs  100 µs  100 µs    0 µs     0      0

Holes in the sequences (1 row)
subject  publisher     lost  first  last         after        before  reported      lost by
/points  lidar#aa0000     3      7     9  08:00:12.000  08:00:13.000  GapAbandoned  bus

Who talks to whom (1 row)
publisher   receiver     messages   data  subjects
gps#cc0000  dash#bb0000         2  200 B  /fix

What happened to the nodes (1 row)
                   time  node        what  detail
2026-11-16 08:00:14.000  gps#cc0000  left  died

What the recorder's node counted (1 row)
counter        value
messages_lost      3
"""


def small() -> Tables:
    return tables(
        topic_health=[
            health(0, "/points"),
            health(1, "/points", lost=3),
            health(0, "/fix", GPS, latencies_us=[100, 100]),
        ],
        gaps=[gap("/points", 7, 9)],
        node_timeline=[event(14, "PeerLeft", GPS, reason="died")],
        bus_counters=[counted("messages_lost", 3)],
        traffic_matrix=[sent(GPS, "bb0000" * 4, "/fix", 2)],
    )


def write(found: Tables, folder: Path) -> Path:
    """Write tables as the pipeline does."""
    versions = Versions(folder)
    files = {}
    for name, rows in found.tables.items():
        staged = versions.staging(name)
        staged.mkdir(parents=True)
        pq.write_table(rows, staged / "part.parquet")
        files[name] = [staged / "part.parquet"]
    versions.commit(files, {})
    return folder


def test_text_says_the_findings_and_shows_the_tables() -> None:
    assert "\n".join(write_text(build(small()), None)) + "\n" == TEXT


def test_text_fits_the_terminal() -> None:
    assert all(len(line) <= 60 for line in write_text(build(morning()), 60))


def test_text_never_reaches_the_terminal_as_a_control_sequence() -> None:
    lines = list(write_text(build(hostile()), None))
    assert all(line.isprintable() for line in lines)
    assert any(HOSTILE.split("\x1b")[0] in line for line in lines)


def test_page_is_written_and_said_to_be(tmp_path: Path) -> None:
    page = tmp_path / "my report.html"
    folder = write(morning(), tmp_path / "tables")
    done = CliRunner().invoke(app, ["report", str(folder), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert re.fullmatch(r"hubbub: .*my report\.html written \(\d+\.\d kB\)\n", done.stderr)
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "14 messages lost on /points by publisher lidar#aa0000" in text
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_tables_on_disk_give_the_figures_of_those_in_memory(tmp_path: Path) -> None:
    read = build(read_tables(write(morning(), tmp_path)))
    assert read.topics == build(morning()).topics
    assert read.missing == ()


def test_length_of_a_recording_is_that_of_its_messages(tmp_path: Path) -> None:
    times = [{"received_ns": (BEGIN_US + ms * 1000) * 1000} for ms in (1500, 500, 18_000)]
    found = small()
    messages = {"messages": table("messages", times)}
    figures = build(read_tables(write(replace(found, tables=found.tables | messages), tmp_path)))
    assert figures.span_us == (BEGIN_US + 500_000, BEGIN_US + 18_000_000)
    assert summarise(figures).endswith(" in 17.5 s.")


def test_text_is_printed_or_saved(tmp_path: Path) -> None:
    folder = write(small(), tmp_path / "tables")
    printed = CliRunner().invoke(app, ["report", str(folder), "--format", "text"])
    assert printed.stdout.splitlines()[1:3] == TEXT.splitlines()[1:3]
    saved = tmp_path / "report.txt"
    CliRunner().invoke(app, ["report", str(folder), "--format", "text", "-o", str(saved)])
    assert saved.read_text() == printed.stdout


def test_json_has_the_figures_and_the_findings(tmp_path: Path) -> None:
    folder = write(small(), tmp_path)
    done = CliRunner().invoke(app, ["report", str(folder), "--json"])
    told = json.loads(done.stdout)
    assert told["messages"] == 22
    assert told["losses"][0]["messages"] == 3
    assert told["findings"][0]["level"] == "bad"
    # A table that was never written is missing, not empty.
    assert "quarantine" in told["missing"]


@pytest.mark.parametrize("is_there", [False, True])
def test_wrong_folder_is_one_clear_line(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "elsewhere"
    if is_there:
        folder.mkdir()
    with pytest.raises(ConfigurationError, match=r"^\S+ (is no folder of|holds no) tables"):
        read_tables(folder)


def test_page_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    folder = write(small(), tmp_path / "tables")
    done = CliRunner().invoke(app, ["report", str(folder), "-o", str(tmp_path / "no" / "x.html")])
    assert isinstance(done.exception, ConfigurationError)
    assert str(done.exception).startswith("cannot write ")


def test_report_without_its_extra_says_in_one_line_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("hubbub.report", "pyarrow"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(done.exception, MissingExtra)
    assert str(done.exception) == "reports need pyarrow: pip install 'hubbub[recorder]'"


def test_report_needs_no_spark() -> None:
    code = "import hubbub.report.building, hubbub.report.page, sys; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_mean_is_over_the_time_that_was_recorded_and_never_above_the_most() -> None:
    span_us = (9_500_000, 19_500_000)
    clock = Clock(*span_us, column_us=10_000_000, columns=2)
    series = Series("/temp", (5.0, 10.0))  # Five in half a second, but of a second.
    assert _mean(series, Figures(clock=clock, span_us=span_us)) == pytest.approx(10.0)
