"""The unit of systemd in docs/guide/operations.md is one that works."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.test_cli import TIMEOUT_S
from tests.integration.bus import ROOT


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
