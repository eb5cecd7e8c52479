"""The pages of the guide as somebody would type them: each command, in order, in one folder.

A page is played in a network namespace of its own, where the domains that it names are free. A
command that does not end soon has a terminal of its own: it goes on until the page is over, and is
then ended as Ctrl-C does it. What a page takes for granted (somebody who publishes) is there.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.bus import IS_SOAK
from tests.integration.namespace import ROOT, run_scenario

START_S = 8.0  # Until a command says something,
PATIENCE_S = 4.0  # and then so long it has the page to itself.
LONGER_S = {"pipeline": 400.0, "report": 60.0, "simulate": 200.0, "bench": 60.0}
LAST_S = 60.0
PAGE_S = 900.0
INTERRUPTED = 130
# What other terminals do meanwhile.
AROUND = {
    "command-line": ["hubbub pub /plant/line1/temp 21.5 -r 10"],
    "gateways": [
        "hubbub sub /plant/... --domain office",
        "hubbub pub /plant/line1/temp 21.5 -r 10 --domain plant",
    ],
    "recording": ["hubbub pub /plant/line1/temp 21.5 -r 10"],
    "report": ["hubbub pub /plant/line1/temp 21.5 -r 10"],
}
QUICK = {"services"}  # The share of `make test`.


class Command:
    """A command of a page, and what the page shows below it."""

    def __init__(self, text: str, shown: list[str]) -> None:
        self.text = text
        self.shown = shown
        self.process: subprocess.Popen[str] | None = None
        self.screen: Path | None = None

    @property
    def output(self) -> str:
        """Return what it has written so far."""
        return "" if self.screen is None else self.screen.read_text(errors="replace")

    @property
    def status_shown(self) -> int | None:
        """Return the exit status that the page shows."""
        return int(self.shown[-1]) if self.text.endswith("; echo $?") else None

    @property
    def patience_s(self) -> float:
        """Return how long it may take by itself."""
        words = self.text.split()
        return max([LONGER_S.get(word, PATIENCE_S) for word in words])


def read_commands(page: Path) -> list[Command]:
    """Return the commands of a page; one that goes on in the next line is one."""
    commands: list[Command] = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.S):
        is_open = False
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:], []))
            elif is_open:
                commands[-1].text += "\n" + line
            elif commands:
                commands[-1].shown.append(line)
            is_open = line.endswith("\\")
    return commands


class Terminals:
    """The terminals of one reader, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "HUBBUB_INTERFACE": "127.0.0.1",
            "HUBBUB_RUNTIME_DIR": str(folder / "run"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.running: list[Command] = []
        self.jobs: list[Command] = []  # Those with a `&`.

    def play(self, command: Command) -> None:
        """Type a command."""
        text = command.text.split("  #")[0].strip()
        if text.startswith("export "):
            self.environment |= dict(one.split("=") for one in text.split()[1:])
        elif text.startswith("kill "):
            job = int(text.rpartition("%")[2])
            process = self.jobs[job - 1].process
            assert process is not None
            process.send_signal(getattr(signal, f"SIG{text.split()[1][1:]}"))
        elif text.startswith("cat "):
            (self.folder / text.split()[1]).write_text("\n".join(command.shown) + "\n")
        else:
            self._start(command, text)

    def begin(self, text: str) -> None:
        """Type what the page takes for granted."""
        self._start(Command(text, []), f"{text} &")
        self.jobs.clear()

    def _start(self, command: Command, text: str) -> None:
        # The shell becomes the command, so that signals reach it.
        is_plain = text.startswith("hubbub ") and not re.search(r"[|;]", text)
        script = f"exec {text.removesuffix('&')}" if is_plain else text
        screen = self.folder / f"screen-{len(self.running)}-{time.monotonic_ns()}"
        with screen.open("w") as shown:
            command.process = subprocess.Popen(
                ["bash", "-c", script], cwd=self.folder, env=self.environment, text=True,
                stdin=subprocess.DEVNULL, stdout=shown, stderr=subprocess.STDOUT,
            )  # fmt: skip
        command.screen = screen
        self.running.append(command)
        if text.endswith("&"):
            self.jobs.append(command)
            self._wait(command, START_S, lambda: bool(command.output))
            return
        self._wait(command, START_S, lambda: bool(command.output))
        self._wait(command, command.patience_s, lambda: False)
        if command.process.poll() is not None:
            self._end(command)
        elif "Ctrl-C ends it" in command.text:
            self._interrupt(command)

    @staticmethod
    def _wait(command: Command, timeout_s: float, is_over: Callable[[], bool]) -> None:
        """Wait until a command has ended, or something else is so."""
        assert command.process is not None
        deadline = time.monotonic() + timeout_s
        while command.process.poll() is None and not is_over() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _interrupt(self, command: Command) -> None:
        assert command.process is not None
        command.process.send_signal(signal.SIGINT)
        command.process.wait(timeout=LAST_S)
        self._end(command, INTERRUPTED)

    def _end(self, command: Command, *others: int) -> None:
        """Check that a command ended as its page says."""
        self.running.remove(command)
        assert command.process is not None
        status, output = command.process.returncode, command.output
        told = f"{command.text}\nstatus {status}\n{output[-2000:]}"
        assert "Traceback" not in output, told
        if command.status_shown is not None:
            assert int(output.splitlines()[-1]) == command.status_shown, told
        else:
            assert status in (0, *others), told

    def close(self) -> None:
        """Interrupt what is still running."""
        for command in list(self.running):
            self._interrupt(command)

    def kill(self) -> None:
        """End all at once: something went wrong."""
        for command in self.running:
            assert command.process is not None
            command.process.kill()
            command.process.wait()


def play_page() -> None:
    page = ROOT / "docs" / "guide" / f"{os.environ['HUBBUB_TEST_PAGE']}.md"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "CONTRIBUTING.md").write_text("read me")
        terminals = Terminals(Path(folder))
        for text in AROUND.get(page.stem, []):
            terminals.begin(text)
        try:
            for command in read_commands(page):
                terminals.play(command)
            terminals.close()
        finally:
            terminals.kill()


PAGES = sorted(page.stem for page in (ROOT / "docs" / "guide").glob("*.md") if read_commands(page))


@pytest.mark.soak
@pytest.mark.netns
@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_works_as_it_stands(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name not in QUICK and not IS_SOAK:
        pytest.skip("takes a minute; run by `make soak`")
    monkeypatch.setenv("HUBBUB_TEST_PAGE", name)
    run_scenario(play_page, PAGE_S)
