"""`hubbub hz`, `bw`, `delay` and `ps` as a user runs them; nothing depends on exact times."""

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import pytest

import hubbub
from tests.commands.test_cli import TIMEOUT_S, Bus, Process, finish, one_line

WATCHING = ["hz", "bw", "delay"]
CAUTION = "hubbub: between hosts, latencies contain the difference of two clocks"

EMPTY = {"nodes": [], "far": [], "gateways": []}


@pytest.fixture
def bus() -> Bus:
    return Bus()


@contextmanager
def publishing(bus: Bus, subject: str, rate: int, size_bytes: int = 10) -> Iterator[Process]:
    """Publish until the end of the block, from its beginning on."""
    with bus.start("pub", subject, "--size", str(size_bytes), "-r", str(rate)) as publisher:
        wait_for_messages(bus, subject, publisher.pid)
        yield publisher


def wait_for_messages(bus: Bus, subject: str, pid: int) -> None:
    environment = bus.environment
    with hubbub.open(
        domain=environment["HUBBUB_DOMAIN"], interface=environment["HUBBUB_INTERFACE"]
    ) as node:
        subscription = node.subscribe(subject)
        while (message := subscription.receive(TIMEOUT_S)) is not None:
            if f"-{pid}@" in message.source.name:
                return
    raise AssertionError(f"{pid} never published")


def read_until_seen(watcher: Process, messages: int) -> dict[str, Any]:
    """Read reports until the only topic has so many messages."""
    assert watcher.stdout is not None
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        report: dict[str, Any] = json.loads(watcher.stdout.readline())
        if sum(topic["messages"] for topic in report["topics"]) >= messages:
            return report
    raise AssertionError(f"never saw {messages} messages")


def interrupt(process: Process) -> tuple[int, list[dict[str, Any]], str]:
    """Press Ctrl-C; return the exit code, the reports that were still to be read, and stderr."""
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("command", WATCHING)
def test_known_number_of_messages_is_seen_and_none_is_lost(bus: Bus, command: str) -> None:
    with bus.start(command, "/known", "--json", "--interval", "0.2") as watcher:
        sent = bus.run("pub", "/known", "--size", "10", "-n", "50", "-r", "200", "-w", "1")
        assert sent.returncode == 0
        read_until_seen(watcher, 50)
        code, reports, err = interrupt(watcher)
    (topic,) = reports[-1]["topics"]
    assert (code, reports[-1]["dropped"], reports[-1]["others"]) == (130, 0, 0)
    assert (topic["subject"], topic["messages"], topic["lost"]) == ("/known", 50, 0)
    assert len(topic["source_id"]) == 24 and topic["source"]
    assert err.count("\n") == err.count("hubbub: ")


def test_hz_tells_rate_and_regularity(bus: Bus) -> None:
    with publishing(bus, "/paced", 100):
        ended = bus.run("hz", "/paced", "-n", "2", "--json")
    first, second = (json.loads(line) for line in ended.stdout.splitlines())
    assert (ended.returncode, first["interval"], second["interval"]) == (0, 1, 2)
    (topic,) = second["topics"]
    # The pace makes up for what it missed, so that only a machine at a standstill is out of this.
    assert 50 < topic["messages_per_second_in_all"] < 150
    assert topic["messages_per_second"] > 0
    assert 0 <= topic["gap_min_us"] <= 10_500 and topic["gap_max_us"] >= 9500
    assert topic["gap_deviation_us"] < topic["gap_max_us"]


def test_bw_tells_bytes_and_sizes(bus: Bus) -> None:
    with publishing(bus, "/sized", 100, size_bytes=1000):
        ended = bus.run("bw", "/sized", "-n", "1", "--interval", "1.5", "--json")
    (topic,) = json.loads(ended.stdout)["topics"]
    assert (topic["size_min"], topic["size_mean"], topic["size_max"]) == (1000, 1000, 1000)
    assert topic["bytes"] == 1000 * topic["messages"]
    assert topic["bytes_per_second"] == pytest.approx(1000 * topic["messages_per_second"], rel=0.01)


def test_delay_tells_latencies_and_is_cautious_once(bus: Bus) -> None:
    with publishing(bus, "/late", 100):
        ended = bus.run("delay", "/late", "-n", "2", "--json")
    (topic,) = json.loads(ended.stdout.splitlines()[-1])["topics"]
    assert topic["min_us"] <= topic["p50_us"] <= topic["p99_us"] <= topic["max_us"]
    assert 0 <= topic["jitter_us"] <= topic["max_us"] - topic["min_us"]
    assert (topic["negative"] > 0) == (topic["min_us"] < 0)
    assert ended.stderr.decode().count(CAUTION) == 1


@pytest.mark.parametrize("command", WATCHING)
def test_without_a_terminal_every_interval_is_a_block_of_lines(bus: Bus, command: str) -> None:
    with publishing(bus, "/block/a", 200), publishing(bus, "/block/b", 200):
        ended = bus.run(command, "/block/*", "-n", "2", "--interval", "1.5")
    blocks = ended.stdout.decode().split("\n\n")
    assert (ended.returncode, len(blocks)) == (0, 2)
    titles, *rows = blocks[1].splitlines()
    assert titles.split()[:2] == ["subject", "publisher"]
    assert titles.split()[-2:] == ["lost", "messages"]
    assert [row.split()[0] for row in rows] == ["/block/a", "/block/b"]
    assert b"\x1b" not in ended.stdout


def test_publishers_of_one_subject_are_told_apart(bus: Bus) -> None:
    with publishing(bus, "/shared", 100), publishing(bus, "/shared", 100):
        ended = bus.run("hz", "/shared", "-n", "1", "--json", "--interval", "2")
    topics = json.loads(ended.stdout)["topics"]
    assert [topic["subject"] for topic in topics] == ["/shared", "/shared"]
    assert topics[0]["source_id"] != topics[1]["source_id"]
    assert [topic["lost"] for topic in topics] == [0, 0]


def test_patterns_that_overlap_count_a_message_once(bus: Bus) -> None:
    with bus.start("hz", "/both", "/*", "/...", "--json", "--interval", "0.2") as watcher:
        bus.run("pub", "/both", "x", "-n", "20", "-r", "100", "-w", "1")
        read_until_seen(watcher, 20)
        _, reports, _ = interrupt(watcher)
    (topic,) = reports[-1]["topics"]
    assert (topic["messages"], topic["lost"]) == (20, 0)


@pytest.mark.parametrize("command", WATCHING)
def test_silence_is_told_once_and_waited_through(bus: Bus, command: str) -> None:
    with bus.start(command, "/later", "/more", "--json", "--interval", "0.1") as watcher:
        assert watcher.stdout is not None
        for _ in range(20):
            assert json.loads(watcher.stdout.readline())["topics"] == []
        bus.run("pub", "/later", "x", "-n", "3", "-w", "1")
        read_until_seen(watcher, 3)
        code, _, err = interrupt(watcher)
    assert code == 130
    assert err.count("nothing yet on /later, /more (nobody else on the bus)") == 1


def test_reports_without_anything_end_with_exit_code_1(bus: Bus) -> None:
    ended = bus.run("hz", "/silence", "-n", "2", "--interval", "0.1")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr.endswith(b"hubbub: nothing came on /silence (nobody else on the bus)\n")


def test_interrupted_watcher_reports_what_was_seen(bus: Bus) -> None:
    with bus.start("hz", "/long", "--interval", "1000") as watcher:
        bus.run("pub", "/long", "x", "-n", "30", "-r", "100", "-w", "1")
        watcher.send_signal(signal.SIGINT)
        code, out, err = finish(watcher)
    lines = out.decode().splitlines()
    assert (code, len(lines)) == (130, 2)
    assert "Traceback" not in err
    assert lines[1].split()[0] == "/long" and lines[1].split()[-1] == "30"


def test_reader_that_has_enough_ends_the_watcher_in_silence(bus: Bus) -> None:
    with publishing(bus, "/pipe", 50), bus.start("bw", "/pipe", "--interval", "0.2") as watcher:
        assert watcher.stdout is not None and watcher.stderr is not None
        assert watcher.stdout.readline()
        watcher.stdout.close()
        assert watcher.wait(TIMEOUT_S) == 141
        assert b"Error" not in watcher.stderr.read()


def test_bad_pattern_is_one_line_and_exit_code_2(bus: Bus) -> None:
    ended = bus.run("delay", "no-slash", "-n", "1")
    assert ended.returncode == 2
    assert "does not begin with '/'" in ended.stderr.decode().splitlines()[-1]


def on_a_terminal(bus: Bus, *arguments: str) -> str:
    """Run a command whose output is a terminal, and return what it wrote there."""
    ours, theirs = pty.openpty()
    bus.environment |= {"TERM": "xterm", "COLUMNS": "120", "LINES": "20"}
    try:
        process = bus.process(*arguments, stdout=theirs, stderr=subprocess.DEVNULL)
        process.wait(TIMEOUT_S)
        os.close(theirs)
        return _read_all(ours)
    finally:
        os.close(ours)


def _read_all(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 65_536):
            parts.append(part)
    except OSError:  # How a terminal says that its other end is closed.
        pass
    return b"".join(parts).decode()


def test_on_a_terminal_the_table_is_drawn_in_place(bus: Bus) -> None:
    with publishing(bus, "/drawn", 200):
        shown = on_a_terminal(bus, "hz", "/drawn", "-n", "3")
    assert shown.count("subject") == 3
    assert shown.count("\x1b[2F\x1b[J") == 2  # Back over the titles and the only row.


# Who is there.


def test_ps_shows_the_nodes_that_are_there(bus: Bus) -> None:
    with publishing(bus, "/a", 10) as one, publishing(bus, "/b", 10) as other:
        nodes = wait_for_nodes(bus, 2)
        shown = bus.run("ps", "--wait", "1")
    assert {node["pid"] for node in nodes} == {one.pid, other.pid}
    for node in nodes:
        assert node["link"] in ("local", "multicast")
        assert len(node["id"]) == 24 and node["name"] and node["host"] and node["address"]
        assert node["heard_ms_ago"] >= 0
        assert node["version"] == version("hubbub") and 0 <= node["uptime_s"] < TIMEOUT_S
    titles, *rows = shown.stdout.decode().splitlines()
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert titles.split() == ["name", "id", "host", "pid", "uptime", "link", "address", "heard"]
    assert len({node["index"] for node in nodes}) == 2
    assert sorted(row.split()[1] for row in rows) == sorted(node["id"][:6] for node in nodes)


def wait_for_nodes(bus: Bus, count: int) -> list[dict[str, Any]]:
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        nodes: list[dict[str, Any]] = json.loads(bus.run("ps", "--json").stdout)["nodes"]
        if len(nodes) == count:
            return nodes
    raise AssertionError(f"never saw {count} nodes")


def test_ps_of_an_empty_bus_is_one_line_and_exit_code_1(bus: Bus) -> None:
    ended = bus.run("ps")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert "nobody else is in domain test-" in one_line(ended.stderr)
    ended = bus.run("ps", "--json")
    assert (ended.returncode, json.loads(ended.stdout)) == (1, EMPTY)


def test_ps_watches_until_it_is_interrupted(bus: Bus) -> None:
    with bus.start("ps", "--watch", "--json") as watcher:
        assert watcher.stdout is not None
        assert json.loads(watcher.stdout.readline()) == EMPTY
        with publishing(bus, "/a", 10) as publisher:
            end_s = time.monotonic() + TIMEOUT_S
            pids: list[int] = []
            while pids != [publisher.pid] and time.monotonic() < end_s:
                pids = [node["pid"] for node in json.loads(watcher.stdout.readline())["nodes"]]
            assert pids == [publisher.pid]
        code, _, err = interrupt(watcher)
    assert code == 130
    assert err.count("nobody else is in domain") in (1, 2)  # Again, if the publisher was missed.
