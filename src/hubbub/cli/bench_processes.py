"""Start the processes of a benchmark, hear what they say, and leave none behind."""

import contextlib
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Self

import msgspec

from hubbub.cli.bench_plan import Outcome, Plan
from hubbub.errors import HubbubError

START_TIMEOUT_S = 30.0
GRACE_S = 15.0
_END_TIMEOUT_S = 2.0


class Worker:
    """One child process in one role."""

    def __init__(self, role: str, plan: Plan, prefix: Sequence[str] = ()) -> None:
        self.role = role
        self._process = subprocess.Popen(
            [
                *(*prefix, sys.executable, "-m", "hubbub.cli.bench_worker"),
                *(role, msgspec.json.encode(plan).decode()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        process = self._process
        with contextlib.suppress(OSError):
            process.terminate()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def wait_ready(self) -> None:
        """Wait until it is ready to be measured."""
        line = self._read(START_TIMEOUT_S)
        if line is None:
            raise HubbubError(f"the {self.role} did not start within {START_TIMEOUT_S:.0f} s")
        if line.strip() != b"ready":
            self._outcome(line)

    def outcome(self, timeout_s: float) -> Outcome:
        """Wait for the outcome; one that is late is told to stop, and asked again."""
        line = self._read(timeout_s)
        if line is None:
            self._stop()
            line = self._read(GRACE_S)
        if line is None:
            raise HubbubError(f"the {self.role} did not end")
        return self._outcome(line)

    def _outcome(self, line: bytes) -> Outcome:
        if not line:
            raise HubbubError(f"the {self.role} ended without a result")
        outcome = msgspec.json.decode(line, type=Outcome)
        if outcome.error:
            raise HubbubError(f"{self.role}: {outcome.error}")
        return outcome

    def _stop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"stop\n")
            self._process.stdin.flush()

    def _read(self, timeout_s: float) -> bytes | None:
        """Read a line; None: none came in time, empty: the process is gone."""
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            return stdout.readline() if selector.select(timeout_s) else None


def run(plan: Plan, elsewhere: Sequence[str] = ()) -> tuple[Outcome, list[Outcome]]:
    """Run a benchmark; return the publisher's outcome and those of the subscribers.

    `elsewhere` is a command that runs subscribers in another place, such as another namespace.
    """
    with contextlib.ExitStack() as stack:
        subscribers = [
            stack.enter_context(Worker(f"subscriber-{index}", plan, elsewhere))
            for index in range(plan.subscribers)
        ]
        for subscriber in subscribers:
            subscriber.wait_ready()
        publisher = stack.enter_context(Worker("publisher", plan))
        publisher.wait_ready()
        published = publisher.outcome(plan.seconds + GRACE_S)
        end_s = time.monotonic() + GRACE_S
        received = [one.outcome(max(0.0, end_s - time.monotonic())) for one in subscribers]
        return published, received
