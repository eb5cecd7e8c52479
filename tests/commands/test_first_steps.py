"""docs/guide/first-steps.md as somebody new would type it, and the unit of operations.md."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.commands.test_cli import TIMEOUT_S
from tests.integration.bus import IS_SOAK, ROOT, fresh_place, wait_until

PAGE = (ROOT / "docs" / "guide" / "first-steps.md").read_text()
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.S)
    for line in block.splitlines()
    if line.startswith("$ ")
]
IN_THE_BACKGROUND = "hubbub pub /plant/line1/temp 21.5 -r"  # In another terminal.
NEEDS_SPARK = ("hubbub pipeline", "hubbub report")


def start(command: str, folder: Path, place: dict[str, str]) -> subprocess.Popen[str]:
    words = shlex.split(command)
    assert words[0] == "hubbub"
    return subprocess.Popen(
        [sys.executable, "-m", "hubbub", *words[1:]], cwd=folder, env={**os.environ, **place},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def is_done(command: str, folder: Path, place: dict[str, str]) -> bool:
    """Run a command; False: on a busy machine nothing came in time, as its exit code says."""
    process = start(command, folder, place)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode in (0, 1), (command, out, err)
    return process.returncode == 0


@pytest.mark.soak
def test_every_command_of_the_first_steps_works_as_it_stands(tmp_path: Path) -> None:
    exported = COMMANDS[0].removeprefix("export ").split()
    place = dict(one.split("=") for one in exported) | {"HUBBUB_DOMAIN": fresh_place().domain}
    assert place["HUBBUB_INTERFACE"] == "127.0.0.1"
    heard = start(COMMANDS[1], tmp_path, place)
    others = []
    try:
        for command in COMMANDS[2:]:
            if command.startswith(NEEDS_SPARK) and not IS_SOAK:
                continue
            if command.startswith(IN_THE_BACKGROUND):
                others.append(start(command, tmp_path, place))
            else:
                wait_until(partial(is_done, command, tmp_path, place))
        heard.send_signal(signal.SIGINT)
        out, err = heard.communicate(timeout=TIMEOUT_S)
        assert heard.returncode == 130 and " /plant/line1/temp " in out, err
    finally:
        for process in (heard, *others):
            process.kill()
            process.communicate()


def unit() -> str:
    page = (ROOT / "docs" / "guide" / "operations.md").read_text()
    [found] = re.findall(r"```ini\n(.*?)```", page, re.S)
    return found


def test_unit_starts_a_command_that_there_is() -> None:
    [line] = re.findall(r"^ExecStart=(.*)$", unit(), re.M)
    words = shlex.split(line)
    help_text = subprocess.run(
        [sys.executable, "-m", "hubbub", words[1], "--help"],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    ).stdout  # fmt: skip
    assert all(word in help_text for word in words if word.startswith("-"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    path = tmp_path / "hubbub-recorder.service"
    path.write_text(unit().replace("/opt/hubbub/bin/hubbub", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert "hubbub-recorder.service" not in done.stderr, done.stderr
