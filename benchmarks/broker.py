"""What must run beside a peer: a server of its own, started for one measurement and ended after it.

Where it listens goes to the processes of the measurement by their environment, which they inherit.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_PORT: Final = "HUBBUB_BENCHMARK_BROKER_PORT"
_START_SECONDS: Final = 10.0


def port() -> int:
    """Return the port of the server that was started."""
    return int(os.environ[_PORT])


def find(program: str, advice: str) -> str:
    """Return where a server is; its package may have put it beside this interpreter."""
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.exists() else shutil.which(program, path=_search_path())
    if found is None:
        raise FileNotFoundError(f"there is no {program} here: {advice}")
    return found


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


def free_port() -> int:
    """Return a port of loopback that nobody has just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        number: int = probe.getsockname()[1]
        return number


@contextlib.contextmanager
def running(command: Sequence[str], number: int) -> Iterator[None]:
    """Run a server that listens by TCP, for as long as the measurement takes."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_until_it_listens(process, number)
            os.environ[_PORT] = str(number)
            yield
        finally:
            process.kill()


def _wait_until_it_listens(process: subprocess.Popen[bytes], number: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, number), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen at {HOST}:{number}")
