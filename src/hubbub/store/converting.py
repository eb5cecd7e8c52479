"""The recorder's side of the process that converts (`hubbub.store.converter`).

Spawned, not forked: it shares nothing with a process that has threads and a node. If it dies it is
started again at the next segment; what it left half done is done again.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from hubbub.limits import CONVERTER_GRACE_S


class Converter:
    """A child process that converts closed segments. No method waits but `finish`."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.restarts = 0
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-m", "hubbub.store.converter", str(self._store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the recorder, also while this still starts.
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    @property
    def pid(self) -> int:
        """Return the process that converts."""
        return self._process.pid

    def nudge(self) -> None:
        """Say that a segment was closed."""
        if self._process.poll() is not None:
            self.restarts += 1
            self._close()
            self._process = self._start()
        assert self._process.stdin is not None
        # A full pipe says it already; a broken one is seen next time.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._process.stdin.fileno(), b"\n")

    def finish(self, timeout_s: float = CONVERTER_GRACE_S) -> bool:
        """Let it convert what is closed, and end; False: it did not, and goes on next time."""
        self._close()
        try:
            return self._process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False

    def _close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
