"""The commands of a recording, as a user runs them: look at it, check it, prune it, play it."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader

from hubbub.cli.app import app
from hubbub.errors import HubbubError
from hubbub.store.checkpoints import register
from hubbub.store.convert import convert_segment
from hubbub.store.layout import data_files
from tests.commands.test_cli import TIMEOUT_S, Bus, finish, one_line
from tests.commands.test_cli import bus as bus
from tests.unit.store.recording import run, write_segment
from tests.unit.store.test_reading import at, make_store, values

MESSAGES = 18


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a recording of three seconds: converted, but for its last second."""
    path = make_store(tmp_path / "recording")
    for number in range(2):
        convert_segment(path, write_segment(path, values(number), number))
    write_segment(path, values(2), 2, is_closed=False, zeros=4096)
    return path


def load(done: subprocess.CompletedProcess[bytes]) -> Any:
    return json.loads(done.stdout)


def test_info_tells_what_there_is(bus: Bus, store: Path) -> None:
    done = bus.run("store", "info", str(store))
    text = done.stdout.decode()
    assert done.returncode == 0 and not done.stderr
    assert "2027-01-15 08:00:00.000 to 2027-01-15 08:00:02.500 UTC (2.5 s)" in text
    assert "18 (1.2 kB of payloads)" in text and "1 open, 0 closed" in text
    assert [line.split() for line in text.splitlines()[-2:]] == [
        ["/plant/rate", "Rate", "1", "9", "576", "B", "4.0"],
        ["/plant/temp", "-", "1", "9", "576", "B", "4.0"],
    ]
    fields = load(bus.run("store", "info", "--json", str(store)))
    assert (fields["messages"], fields["next_offset"], len(fields["topics"])) == (18, 18, 2)
    assert fields["segments"]["open"] == 1 and fields["rows"]["events"] == 3


def test_verify_finds_nothing_then_what_is_wrong(bus: Bus, store: Path) -> None:
    done = bus.run("store", "verify", str(store))
    assert done.returncode == 0 and b"everything is sound" in done.stdout
    broken = data_files(store, "messages")[0].path
    broken.write_bytes(b"rubbish")
    done = bus.run("store", "verify", "--json", str(store))
    assert done.returncode == 1 and str(broken) in one_line(done.stderr)
    (fault,) = load(done)["faults"]
    assert (fault["path"], fault["first"], fault["last"]) == (str(broken), 0, 5)


def test_prune_shows_first_and_keeps_what_a_reader_needs(bus: Bus, store: Path) -> None:
    register(store, "pipeline", {"messages": 0})
    shown = load(bus.run("store", "prune", str(store), "--before", "2030-01-01", "--json"))
    assert shown["is_done"] is False and shown["removed"] == [
        str(data_files(store, "events")[0].path)
    ]
    done = bus.run(
        "store", "prune", str(store), "--before", "2030-01-01", "--forget", "pipeline", "--yes"
    )
    assert done.returncode == 0 and b"2 files with data" in done.stderr
    assert [file.first for file in data_files(store, "messages")] == [6]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["store", "info", "nowhere"], "nowhere is no store"),
        (["store", "info", sys.executable], "is no store: it is a file"),
        (["play", "nowhere"], "nowhere is no store"),
        (["play", "{store}", "--rate", "fast"], "--rate fast"),
        (["play", "{store}", "--from", "soon"], "'soon' is no time"),
        (["play", "{store}", "--remap", "/a"], "write A=B"),
        (["play", "{store}", "--subjects", "a"], "pattern"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_told(store: Path, arguments: list[str], complaint: str) -> None:
    with pytest.raises(HubbubError, match=complaint):
        app([one.format(store=store) for one in arguments], standalone_mode=False)


def test_play_publishes_it_again(bus: Bus, store: Path) -> None:
    with bus.start("sub", "/test/...", "--json", "-n", "9") as subscriber:
        done = bus.run(
            "play", str(store), "--rate", "max", "-w", "1", "--json",
            "--subjects", "/plant/temp", "--remap", "/plant/...=/test/...",
        )  # fmt: skip
        code, out, _ = finish(subscriber)
    assert (code, done.returncode) == (0, 0), done.stderr
    lines = [json.loads(line) for line in out.splitlines()]
    assert [int(line["payload"][:8]) for line in lines] == [0, 1, 2, 6, 7, 8, 12, 13, 14]
    assert {line["subject"] for line in lines} == {"/test/temp"}
    assert lines[0]["published_ns"] == 1000
    fields = load(done)
    assert (fields["messages"], fields["unheard"], fields["is_confirmed"]) == (9, 0, True)


def test_play_of_nothing_says_so(bus: Bus, store: Path) -> None:
    done = bus.run("play", str(store), "--from", "+10s")
    assert done.returncode == 1 and "holds nothing" in one_line(done.stderr)


def test_play_steps_through(bus: Bus, store: Path) -> None:
    done = bus.run("play", str(store), "--step", "--from", "+1s", stdin=b"\n\nq\n")
    lines = done.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["6", "7", "8"]
    assert b"2 messages" in done.stderr and done.returncode == 0
    done = bus.run("play", str(store), "--step", "--json", "--from", "+1s", stdin=b"\nq\n")
    assert json.loads(done.stdout)["messages"] == 1


def test_ctrl_c_ends_a_loop_cleanly(bus: Bus, tmp_path: Path) -> None:
    store = make_store(tmp_path / "recording")
    write_segment(store, [at(0, run(0)), at(0.05, run(3))])
    with (
        bus.start("sub", "/...", "-n", "12") as subscriber,
        bus.start("play", str(store), "--loop", "--json", "-w", "1") as player,
    ):
        assert finish(subscriber)[0] == 0
        player.send_signal(signal.SIGINT)
        code, out, err = finish(player)
    assert code == 130 and "Traceback" not in err
    assert json.loads(out)["rounds"] >= 1


def test_ctrl_c_ends_a_player_that_waits_for_what_is_due_in_an_hour(
    bus: Bus, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "recording")
    write_segment(store, [at(0, run(0)), at(3600, run(3))])
    with (
        bus.start("sub", "/...", "-n", "3") as subscriber,
        bus.start("play", str(store), "--json", "-w", "1") as player,
    ):
        assert finish(subscriber)[0] == 0
        player.send_signal(signal.SIGINT)
        code, out, err = finish(player)
    assert (code, err) == (130, "")
    assert json.loads(out)["messages"] == 3


def test_progress_is_shown_on_a_terminal(bus: Bus, tmp_path: Path) -> None:
    store = make_store(tmp_path / "recording")
    write_segment(store, [at(place / 10, run(3 * place)) for place in range(20)])
    ours, theirs = pty.openpty()
    bus.environment |= {"TERM": "xterm", "COLUMNS": "100"}
    with bus.process("play", str(store), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        end_s = time.monotonic() + TIMEOUT_S
        while b"of 1.9 s" not in shown:
            assert time.monotonic() < end_s
            shown += os.read(ours, 4096)
        try:
            while os.read(ours, 4096):
                pass
        except OSError:
            pass  # The terminal ends with the command.
        assert process.wait(TIMEOUT_S) == 0
    os.close(ours)


def test_export_writes_a_file_and_replaces_none(bus: Bus, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    done = bus.run("export", str(store), "--to", "mcap", "-o", str(path), "--json")
    assert (done.returncode, load(done)["rows"]) == (0, MESSAGES), done.stderr
    with path.open("rb") as stream:
        assert len(list(make_reader(stream).iter_messages())) == MESSAGES
    done = bus.run("export", str(store), "--to", "mcap", "-o", str(path))
    assert done.returncode == 2 and "is there already" in one_line(done.stderr)


def test_export_of_another_table_has_a_file_of_its_own(
    bus: Bus, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for options, name in (([], "{}.jsonl"), (["--table", "events"], "{}-events.jsonl")):
        done = bus.run("export", str(store), "--to", "jsonl", *options)
        assert done.returncode == 0, done
        assert (tmp_path / name.format(store.name)).exists()


def test_export_to_standard_output_and_a_reader_that_has_enough(bus: Bus, store: Path) -> None:
    done = bus.run("export", str(store), "--to", "jsonl", "-o", "-", "--until", "+1s")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["offset"] for row in rows] == list(range(6)) and not done.stderr
    with bus.start("export", str(store), "--to", "csv", "-o", "-") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 141 and process.stderr.read() == b""


def test_rest_is_converted_and_small_files_are_compacted(bus: Bus, store: Path) -> None:
    done = bus.run("store", "convert", str(store), "--json")
    assert (done.returncode, load(done)["messages"]) == (0, 6), done.stderr
    past = store / "messages" / "hour=2020-01-01-00"
    (store / "messages" / "hour=2027-01-15-08").rename(past)
    done = bus.run("store", "compact", str(store), "--json")
    assert load(done) == {"files": 1, "replaced": 2, "rows": 12}
    assert bus.run("store", "verify", str(store)).returncode == 0
