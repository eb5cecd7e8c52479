"""Processes that tests start by the hundred: forked from one that has imported the package.

They are used as those of `subprocess` are. What a test says about how Python starts, about imports
or about an installation needs `subprocess` itself.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

from tests.forker import MESSAGE_BYTES_MAX

ROOT = Path(__file__).parents[1]


class _Forker:
    """Our end of a forker: it ends when we do."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forker", str(theirs.fileno()), *modules],
                cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
        atexit.register(self.close)

    def fork(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """Have a child forked, and return its number."""
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(order).encode()], descriptors)
            return int(self._channel.recv(MESSAGE_BYTES_MAX))

    def close(self) -> None:
        """End the forker; its children go on."""
        self._channel.close()
        self._process.wait()


@cache
def _forker(*modules: str) -> _Forker:
    return _Forker(modules)


class Process:
    """A forked process, used as `subprocess.Popen` is; its command is what Python would be given.

    `imports` are the modules that it finds imported: those that its program would import first
    thing, lest a test miss an import that the program forgot.
    """

    def __init__(
        self, command: list[str], *, imports: tuple[str, ...],
        env: dict[str, str] | None = None, cwd: Path | str | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL, stdout: int | IO[Any] = subprocess.PIPE,
        stderr: int | IO[Any] = subprocess.PIPE, text: bool = False,
        start_new_session: bool = False,
    ) -> None:  # fmt: skip
        self.args = command
        self.returncode: int | None = None
        self.stdin, near = _stream(stdin, "w", is_text=text)
        self.stdout, out = _stream(stdout, "r", is_text=text)
        self.stderr, errors = _stream(stderr, "r", is_text=text)
        self._end, end = os.pipe()
        descriptors = [near, out, errors, end]
        order = {
            "command": command, "environment": dict(os.environ if env is None else env),
            "folder": str(cwd or os.getcwd()), "is_session": start_new_session,
        }  # fmt: skip
        try:
            self.pid = _forker(*imports).fork(order, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, if it has ended."""
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self._read_end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._read_end()
        assert self.returncode is not None
        return self.returncode

    def _read_end(self) -> None:
        code = os.read(self._end, 100)
        os.close(self._end)
        self.returncode = int(code)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # It has ended, and we are about to be told.
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it however it is."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Write its input, read its output to the end, and wait for it."""
        readers = [_Reader(stream) for stream in (self.stdout, self.stderr)]
        if self.stdin is not None:
            with suppress(BrokenPipeError):  # It has ended, or wants no more.
                if input:
                    self.stdin.write(input)
                self.stdin.close()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(timeout)
        return readers[0].text, readers[1].text


class _Reader(threading.Thread):
    """Reads a stream to its end and closes it."""

    def __init__(self, stream: IO[Any] | None) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.text: Any = None
        self.start()

    def run(self) -> None:
        if self._stream is not None and not self._stream.closed:
            with self._stream as stream:
                self.text = stream.read()


def _stream(wanted: int | IO[Any], mode: str, *, is_text: bool) -> tuple[IO[Any] | None, int]:
    """Return our end of a standard stream, if it has one, and a descriptor of theirs."""
    if wanted == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    if wanted != subprocess.PIPE:
        return None, os.dup(wanted if isinstance(wanted, int) else wanted.fileno())
    reading, writing = os.pipe()
    ours, theirs = (writing, reading) if mode == "w" else (reading, writing)
    return open(ours, mode if is_text else mode + "b"), theirs


def run(
    command: list[str], *, input: Any = None, timeout: float, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a process to its end, as `subprocess.run` does."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    process = Process(command, stdin=stdin, **options)
    try:
        out, errors = process.communicate(input, timeout)
    finally:
        process.kill()
        process.wait()
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)
