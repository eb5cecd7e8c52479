"""`hubbub rec` as a user runs it."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from hubbub.cli.quantities import parse_duration, parse_size
from hubbub.store.journal import Run, open_segment, segments
from tests.commands.test_cli import TIMEOUT_S, Bus, Process, finish, one_line
from tests.commands.test_cli_look import node_of
from tests.integration.bus import wait_until


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@contextmanager
def recording(bus: Bus, store: Path, *arguments: str) -> Iterator[Process]:
    """Record without conversion, so that the journal can be looked at."""
    with bus.start("rec", "/...", "-o", str(store), "--no-convert", *arguments) as process:
        yield process


def payloads(store: Path) -> list[bytes]:
    found: list[bytes] = []
    for path in segments(store):
        with open_segment(path) as segment:  # Asked for until all is there, it would use all files.
            for run in segment:
                found += run.payloads if isinstance(run, Run) else []
    return found


def test_ctrl_c_ends_a_recording_and_everything_is_kept(bus: Bus, store: Path) -> None:
    with recording(bus, store) as recorder:
        sent = bus.run("pub", "/plant/temp", "21.5", "-n", "100", "-w", "1")
        assert sent.returncode == 0
        wait_until(lambda: len(payloads(store)) == 100)
        recorder.send_signal(signal.SIGINT)
        code, out, err = finish(recorder)
    assert (code, out) == (130, b"")
    begun, done = err.splitlines()
    assert begun == f"hubbub: recording /... into {store} from offset 0; Ctrl-C ends it"
    assert done.startswith("hubbub: 100 messages (400 B) ")
    assert done.endswith(" recorded; 100 in the store are acknowledged")
    assert payloads(store) == [b"21.5"] * 100


def test_recording_ends_by_itself_and_sums_up_as_json(bus: Bus, store: Path) -> None:
    # The publisher is there before the time of the recorder begins.
    with node_of(bus, "p") as node, recording(bus, store, "--for", "3s", "--json") as recorder:
        publisher = node.publisher("/plant/temp")
        assert publisher.wait_for_subscribers(1, TIMEOUT_S)
        for _ in range(50):
            publisher.publish(bytes(1000))
        assert node.flush(TIMEOUT_S)
        code, out, _ = finish(recorder)
    told = json.loads(out)
    assert code == 0
    assert (told["recorded"], told["acknowledged"], told["lost"]) == (50, 50, 0)
    assert (told["store"], told["patterns"]) == (str(store), ["/..."])
    assert told["journal_bytes"] > told["payload_bytes"] >= 50_000


def test_closed_segments_are_converted_also_when_ctrl_c_comes_early(bus: Bus, store: Path) -> None:
    # To the whole group of processes, as a terminal does.
    process = bus.process("rec", "/...", "-o", str(store), start_new_session=True)
    wait_until(lambda: segments(store))
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert len(err.splitlines()) == 2, err
    assert segments(store) == []
    assert list((store / "events").rglob("*.parquet"))


def test_store_that_is_recorded_into_is_refused(bus: Bus, store: Path) -> None:
    with recording(bus, store) as recorder:
        wait_until((store / "store.json").exists)
        second = bus.run("rec", "/...", "-o", str(store))
        assert second.returncode == 2
        text = f"{store} is being recorded into by process {recorder.pid}: end it first"
        assert text in one_line(second.stderr)


def test_signal_writes_what_the_last_seconds_brought(bus: Bus, store: Path) -> None:
    with recording(bus, store, "--pre", "30s", "--for", "1s") as recorder:
        bus.run("pub", "/plant/temp", "before", "-n", "10", "-w", "1")
        assert segments(store) == []
        recorder.send_signal(signal.SIGUSR1)
        code, _, err = finish(recorder)
    assert code == 0
    held, triggered, done = err.splitlines()
    assert held.startswith("hubbub: holding back /... into ")
    assert triggered == "hubbub: triggered"
    assert done.startswith("hubbub: 10 messages (60 B) ")
    assert payloads(store) == [b"before"] * 10


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--for", "soon"], "'soon' is no duration"),
        (["--quota", "much"], "'much' is no size"),
        (["--quota", "1MB"], "quota=1000000: give at least two segments"),
        (["--split-size", "1"], "split_size=1: give bytes between"),
    ],
)
def test_option_that_cannot_work_is_refused(
    bus: Bus, store: Path, arguments: list[str], text: str
) -> None:
    done = bus.run("rec", "/...", "-o", str(store), *arguments)
    assert done.returncode == 2
    assert text in done.stderr.decode()
    assert not store.exists()


def test_store_that_cannot_be_made_is_one_line(bus: Bus, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = bus.run("rec", "/...", "-o", str(tmp_path / "file" / "store"))
    assert done.returncode == 2
    assert "cannot be recorded into" in one_line(done.stderr)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500", 500), ("64MiB", 64 << 20), ("1.5kB", 1500), ("2G", 2 * 10**9)]
)  # fmt: skip
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("5m", 300), ("1h30m", 5400), ("20ms", 0.02)]
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "-1", "1e9", "m5", "5 weeks", "."])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_size(text)
    with pytest.raises(typer.BadParameter):
        parse_duration(text)
