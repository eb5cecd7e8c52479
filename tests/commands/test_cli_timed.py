"""`hubbub produce`, `consume` and `schedule` as a user runs them."""

import json
import signal
from pathlib import Path

import pytest

from tests.commands.test_cli import Bus, finish, one_line
from tests.integration.bus import wait_until

SPEED = "/vehicle/speed"


@pytest.fixture
def bus() -> Bus:
    return Bus()


def test_samples_are_made_and_printed_once_a_period(bus: Bus) -> None:
    with bus.start("produce", SPEED, "--value", "13.9", "--json") as producer:
        done = bus.run("consume", SPEED, "--period", "20ms", "-n", "5", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode in (0, 3), done.stderr
        assert [line["payload"] for line in lines] == ["13.9"] * 5
        slots = [line["tick_ns"] // 20_000_000 for line in lines]
        assert slots == sorted(set(slots))
        producer.send_signal(signal.SIGINT)
        code, out, _ = finish(producer)
        assert code == 130
        assert json.loads(out)["samples"] >= 5


def test_samples_of_a_command_and_of_a_file(bus: Bus, tmp_path: Path) -> None:
    with bus.start("produce", SPEED, "--command", "echo 42"):
        done = bus.run("consume", SPEED, "--period", "50ms", "-n", "1", "--raw")
        assert done.stdout == b"42"
    table = tmp_path / "speeds.csv"
    table.write_text("time,speed\n1,10\n2,20\n3,30\n")
    with bus.start("produce", "/x", "--csv", str(table), "--column", "speed") as producer:
        done = bus.run("consume", "/x", "--period", "20ms", "-n", "3", "--raw")
        assert done.stdout == b"102030"
        code, _, err = finish(producer)
        assert code == 0 and "3 samples of /x, 0 skipped, 0 failed" in err


def test_schedule_shows_producers_consumers_and_load(bus: Bus) -> None:
    with (
        bus.start("produce", SPEED, "--value", "x", "--schedule", "strict"),
        bus.start("consume", SPEED, "--period", "100ms"),
        bus.start("consume", SPEED, "--period", "150ms", "--nearest"),
    ):
        found: dict[str, object] = {}

        def is_complete() -> bool:
            answer = json.loads(bus.run("schedule", "--json").stdout)
            producers = answer["producers"]
            found.update(producers[0] if producers else {})
            return bool(producers) and len(producers[0]["consumers"]) == 2 and found["sent"]

        wait_until(is_complete)
        assert (found["subject"], found["schedule"]) == (SPEED, "strict")
        assert (found["tick_ms"], found["ticks_hz"]) == (50, 20)
        assert {one["mode"] for one in found["consumers"]} == {"all", "nearest"}  # type: ignore[attr-defined]
        shown = bus.run("schedule").stdout.decode().splitlines()
        assert shown[0].split()[:4] == ["subject", "who", "port", "role"]
        assert "makes" in shown[1] and "20.0/s" in shown[1]
        assert sum("wants" in line for line in shown) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["produce", SPEED], "one of --value"),
        (["produce", SPEED, "--value", "x", "--column", "y"], "--csv"),
        (["produce", SPEED, "--command", 'unbalanced "'], "No closing quotation"),
        (["produce", SPEED, "--command", " "], "--command is empty"),
        (["produce", SPEED, "--csv", "/dev/null"], "is empty: give a row a sample"),
        (["consume", SPEED, "--period", "soon"], "100ms"),
        (["consume", SPEED, "--period", "1s", "--json", "--raw"], "one of --json"),
    ],
)
def test_misuse_is_told_with_what_to_do(bus: Bus, arguments: list[str], text: str) -> None:
    done = bus.run(*arguments)
    assert done.returncode == 2
    assert text in done.stderr.decode()


def test_wrong_values_are_one_line(bus: Bus) -> None:
    for arguments in (
        ["produce", SPEED, "--csv", "/nowhere"],
        ["produce", "no subject", "--value", "x"],
        ["produce", SPEED, "--value", "x", "--schedule", "often"],
        ["consume", SPEED, "--period", "0.1us"],
        ["consume", SPEED, "--period", "100000s"],
    ):
        done = bus.run(*arguments)
        assert done.returncode == 2
        one_line(done.stderr)


def test_nobody_there_is_an_exit_code(bus: Bus) -> None:
    assert bus.run("schedule", "--wait", "0.2").returncode == 1
    done = bus.run("consume", SPEED, "--period", "10ms", "--timeout", "1.5")
    assert done.returncode == 1
    assert "nobody makes /vehicle/speed, which is wanted each 10 ms" in done.stderr.decode()
