"""The live pipeline beside a recorder, and the report of what it made."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Self

CATCH_UP_S = 180.0


def command(*arguments: str | Path) -> list[str]:
    """Return how a command is run here, as a user would."""
    return [sys.executable, "-m", "hubbub", *map(str, arguments)]


class LiveTables:
    """`hubbub pipeline run --live`: Spark makes tables of a recording while it is written."""

    def __init__(self, recording: Path, tables: Path, log: Path) -> None:
        self.tables = tables
        self._recording = recording
        self._log: IO[str] = log.open("w")
        self._process = subprocess.Popen(
            command("pipeline", "run", recording, "--out", tables, "--live", "--window", "1s"),
            stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    @property
    def messages(self) -> int:
        """Return how many messages the tables have counted; 0 until there are some."""
        from hubbub.errors import HubbubError
        from hubbub.pipeline import tables

        try:
            found = tables.read(self.tables, "topic_health")
        except (HubbubError, OSError):
            return 0
        return sum(found.column("messages").to_pylist())

    def catch_up(self, count: int) -> bool:
        """Wait until so many messages are counted; False: Spark took too long, or ended."""
        end_s = time.monotonic() + CATCH_UP_S
        while self.messages < count:
            if time.monotonic() > end_s or self._process.poll() is not None:
                return False
            time.sleep(0.5)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def report(tables: Path, page: Path) -> dict[str, Any]:
    """Write the page, and return what it says."""
    subprocess.run(command("report", tables, "-o", page), check=True, stderr=subprocess.DEVNULL)
    done = subprocess.run(
        command("report", tables, "--json"), check=True, stdout=subprocess.PIPE, text=True
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said
