"""The pages of the guide as somebody would type them: each command, in order, in one folder.

A page is played in a network namespace of its own, where the domains that it names are free. A
command that goes on for ever has a terminal of its own until the page is over, and is then ended as
Ctrl-C does it. What a page takes for granted (somebody who publishes) is there. What needs Spark is
played here by `make soak` alone; `make test` has it in spark/test_pages.py.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.test_cli import COMMAND, IMPORTS
from tests.integration.bus import IS_SOAK
from tests.integration.namespace import run_scenario
from tests.pages import PAGES, ROOT, Command, blocks, read_commands
from tests.processes import Process

DEADLINE_S = 400.0 if IS_SOAK else 60.0  # Spark takes its time.
PAGE_S = 1800.0 if IS_SOAK else 300.0
TRIES = 5  # On a busy machine nothing may come in time, as the exit code 1 says.
INTERRUPTED = 130
# What goes on until Ctrl-C; all others must end.
GOES_ON = re.compile(
    r"hubbub (gateway(?!.*--check)|rec (?!.*--for)|produce|service sub|pipeline run .*--live"
    r"|sub (?!.*(-n|--timeout) )|pub (?!.*-n ).*-r )"
)
IS_FOR_A_SHELL = re.compile(r"[|<>]|^(openssl|printf|python) ")
# The same, for a shorter time: how fast this machine is, is not the question.
SHORTER = {
    "--seconds 3": "--seconds 0.3", "--seconds 2": "--seconds 0.3", "-n 100000": "-n 10000",
    "--for 12s": "--for 7s", "--for 10s": "--for 2s", "--seeds 0:20": "--seeds 0:2",
}  # fmt: skip
# What other terminals do meanwhile.
AROUND = {
    "command-line": [
        "hubbub pub /plant/line1/temp 21.5 -r 10",
        "hubbub sub /plant/line1/temp /log/... /files/...",
        "hubbub pub /files/readme text -r 10",
        "hubbub pub /f 1 -n 1000 -w 1 --timeout 100",
    ],
    "gateways": [
        "hubbub pub /plant/line1/temp 21.5 -r 10 --domain plant",
        "hubbub sub /plant/... --domain office",
        "hubbub sub /plant/... --domain yard",
        "hubbub gateway --name gw-2 --side name=plant,domain=plant --side name=yard,domain=yard",
    ],
    "pipeline": ["hubbub pub /plant/line1/temp 21.5 -r 10", "hubbub rec /... -o recording"],
    "recording": ["hubbub pub /plant/line1/temp 21.5 -r 10"],
    "replay-and-export": ["hubbub sub /replay/... --domain plant"],
    "report": ["hubbub pub /plant/line1/temp 21.5 -r 10"],
    "spark": ["hubbub pub /plant/line1/temp 21.5 -r 10", "hubbub rec /... -o STORE"],
}
# What lies in the folder of the reader.
FILES = {"command-line": {"hubbub.toml": "toml"}}


class Terminals:
    """The terminals of one reader, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._meeting = folder / "run"
        self._environment = {
            **os.environ,
            "HUBBUB_INTERFACE": "127.0.0.1",
            "HUBBUB_RUNTIME_DIR": str(self._meeting),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self._jobs: list[Job] = []  # Those with a `&`, as the shell numbers them.
        self._running: list[Job] = []

    def play(self, command: Command) -> None:
        """Type a command, and wait until it has ended, or goes on by itself."""
        text = command.text if IS_SOAK else shortened(command.text)
        first, *words = shlex.split(text, comments=True)
        if first == "export":
            self._environment |= dict(one.split("=") for one in words)
        elif first == "kill":
            job = self._jobs[int(words[-1].removeprefix("%")) - 1]
            job.process.send_signal(getattr(signal, f"SIG{words[0].removeprefix('-')}"))
        elif first == "cat":
            (self._folder / words[0]).write_text("\n".join(command.shown) + "\n")
        else:
            self._type(text, command)

    def begin(self, text: str) -> None:
        """Type what the page takes for granted."""
        self._running.append(self._start(text))

    def _type(self, text: str, command: Command) -> None:
        for _ in range(TRIES):
            job = self._start(text, command)
            if GOES_ON.match(job.text) or job.is_background:
                self._running.append(job)
                self._jobs += [job] if job.is_background else []
                if "# Ctrl-C ends it" in text:
                    self._interrupt(job)
                return
            job.process.wait(DEADLINE_S)
            if job.process.returncode in (job.status_wanted, 0):
                break
        job.check()

    def _start(self, text: str, command: Command | None = None) -> "Job":
        nodes = self._nodes()
        screen = self._folder / f"screen-{time.monotonic_ns()}"
        job = Job(text, command, screen, self._environment)
        if GOES_ON.match(job.text):
            wait_for(lambda: job.is_over or job.output or self._nodes() > nodes)
        return job

    def _nodes(self) -> int:
        """Count the nodes that are there: each has a socket in the directory where they meet."""
        return len(list(self._meeting.glob("[!.]*")))

    def end_block(self) -> None:
        """Wait for what was begun in a block and ends by itself."""
        for job in self._jobs:
            if job in self._running and not GOES_ON.match(job.text):
                job.process.wait(DEADLINE_S)
                self._running.remove(job)
                job.check()

    def _interrupt(self, job: "Job") -> None:
        job.process.send_signal(signal.SIGINT)
        job.process.wait(DEADLINE_S)
        self._running.remove(job)
        job.check(INTERRUPTED)

    def close(self) -> None:
        """Interrupt what is still running."""
        for job in list(self._running):
            self._interrupt(job)

    def kill(self) -> None:
        """End all at once: something went wrong."""
        for job in self._running:
            job.process.kill()
            job.process.wait()


class Job:
    """A command that runs, or has run, and its screen."""

    process: "Process | subprocess.Popen[bytes]"

    def __init__(
        self, text: str, command: Command | None, screen: Path, environment: dict[str, str]
    ) -> None:
        self.shown = command.shown if command else ()
        text, _, _ = text.partition("  #")
        text, is_asked, _ = text.partition("; echo $?")
        self.status_wanted = int(self.shown[-1]) if is_asked else 0
        self.is_background = text.rstrip().endswith("&")
        self.text = text.rstrip(" &")
        self._screen = screen
        with screen.open("w") as out:
            if IS_FOR_A_SHELL.search(self.text):
                # The shell becomes the command, so that signals reach it.
                script = self.text if "|" in self.text else f"exec {self.text}"
                self.process = subprocess.Popen(
                    ["bash", "-c", script], cwd=screen.parent,
                    env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                )  # fmt: skip
                return
            words = shlex.split(self.text)
            while "=" in words[0]:
                name, _, value = words.pop(0).partition("=")
                environment = {**environment, name: value}
            assert words[0] == "hubbub", self.text
            self.process = Process(
                [*COMMAND, *words[1:]], imports=IMPORTS, env=environment, cwd=screen.parent,
                stdout=out, stderr=out,
            )  # fmt: skip

    @property
    def output(self) -> str:
        """Return what it has written so far."""
        return self._screen.read_text(errors="replace")

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def check(self, *others: int) -> None:
        """Check that it ended, and looks, as its page says."""
        status, output = self.process.returncode, self.output
        told = f"{self.text}\nstatus {status}\n{output[-2000:]}"
        assert "Traceback" not in output, told
        assert status in (self.status_wanted, *others), told
        assert all(self._has(one) for one in filter(is_lasting, self.shown)), told

    def _has(self, shown: str) -> bool:
        wanted = shape(shown)
        return any(shape(line) == wanted for line in self.output.splitlines())


def shape(line: str) -> object:
    """Return what of a line is the same in every run: the fields of an object, else the words."""
    return [*json.loads(line)] if line.startswith("{") else line.split()


def is_lasting(line: str) -> bool:
    """Tell whether a line that a page shows is the same in every run: titles, names of fields."""
    return (
        line.startswith("{") or re.fullmatch(r"[a-z]+(  +[a-z]+( [a-z]+)*){2,}", line) is not None
    )


def shortened(text: str) -> str:
    """Return a command for less time."""
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def wait_for(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def play_page() -> None:
    page = Path(os.environ["HUBBUB_TEST_PAGE"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "CONTRIBUTING.md").write_text("read me")
        for file, language in FILES.get(page.stem, {}).items():
            (folder / file).write_text(blocks(page, language)[0])
        terminals = Terminals(folder)
        try:
            for text in AROUND.get(page.stem, []):
                terminals.begin(text)
            before = 0
            for command in played(page):
                if command.block != before:
                    terminals.end_block()
                before = command.block
                terminals.play(command)
            terminals.end_block()
            terminals.close()
            check_sides(page, folder)
        finally:
            terminals.kill()


def check_sides(page: Path, folder: Path) -> None:
    """Let every file of a gateway that a page shows be read, beside the certificates it names."""
    for text in blocks(page, "toml") if page.stem == "gateways" else []:
        sides = text if text.count("[[side]]") > 1 else f'{text}[[side]]\nname = "here"\n'
        (folder / "sides.toml").write_text(sides)
        words = ["gateway", "--config", "sides.toml", "--check"]
        done = Process([*COMMAND, *words], imports=IMPORTS, cwd=folder)
        _, said = done.communicate(timeout=DEADLINE_S)
        assert done.returncode == 0, (text, said)


def played(page: Path) -> list[Command]:
    """Return the commands of a page that are played here."""
    return [
        command
        for command in read_commands(page)
        if not command.is_run_elsewhere and (IS_SOAK or not command.needs_spark)
    ]


PLAYED = [page for page in PAGES if played(page)]


@pytest.mark.soak
@pytest.mark.netns
@pytest.mark.timeout(PAGE_S + 10)
@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.stem)
def test_every_command_of_a_page_works_as_it_stands(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBBUB_TEST_PAGE", str(page))
    run_scenario(play_page, PAGE_S)


def test_every_page_with_commands_is_played() -> None:
    assert len(PLAYED) >= 10 and ROOT / "README.md" in PLAYED
