"""What the tests of the whole bus share: a place of their own, processes, waiting with a deadline.

A place is a multicast group, a port and a domain on loopback that no other test has. An actor is a
module-level function of a test that runs in a process of its own; it tells its test what happens in
lines of JSON, and is told to go on or to stop by lines on its standard input.
"""

import gc
import importlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import hubbub
from tests.integration.link_probe import free_port
from tests.processes import Process

ROOT = Path(__file__).parents[2]
IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"
DEADLINE_S = 30.0  # Of what takes milliseconds: the machine may be busy with something else.


class Place(NamedTuple):
    """Where the nodes of one test meet."""

    group: str
    port: int
    domain: str

    def open(self, name: str | None = None, **options: Any) -> hubbub.Node:
        """Open a node here."""
        options.setdefault("channels", [hubbub.Channel(self.group, self.port)])
        options.setdefault("domain", self.domain)
        options.setdefault("interface", "127.0.0.1")
        options.setdefault("links", ["multicast"])
        return hubbub.open(name, **options)


def fresh_place() -> Place:
    """Name a place where nobody else is."""
    draw = random.SystemRandom()
    group = f"239.202.{draw.randrange(256)}.{draw.randrange(1, 255)}"
    return Place(group, free_port(), f"test-{draw.getrandbits(48):x}")


def tell_managers(nodes: Iterable[hubbub.Node]) -> dict[str, tuple[str, int]]:
    """Return of each service who says that it manages it, and its epoch."""
    lists = [(node, node.statistics().services) for node in nodes]
    return {
        one.name: (node.id.hex(), one.epoch)
        for node, services in lists
        for one in (services.managed if services is not None else ())
        if one.role == "managing"
    }


def wait_until(is_so: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
    """Wait until something is so, and return what makes it so."""
    end_s = time.monotonic() + timeout_s
    while not (result := is_so()):
        assert time.monotonic() < end_s, f"not so within {timeout_s} s: {is_so}"
        time.sleep(0.002)
    return result


def is_stopped(pid: int) -> bool:
    """Tell whether a process stands still; a signal may take a moment to reach all its threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


def descriptors() -> set[tuple[str, str]]:
    """Name the open descriptors with what they are; what older tests left may go at any time."""
    gc.collect()
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def take(subscription: hubbub.Subscription | hubbub.Consumer, count: int) -> list[hubbub.Message]:
    """Wait for so many messages, so long for each."""
    messages: list[hubbub.Message] = []
    while len(messages) < count:
        message = subscription.receive(DEADLINE_S)
        assert message is not None, f"{len(messages)} messages of {count}, then {DEADLINE_S} s none"
        messages.append(message)
    return messages


def payloads(messages: list[hubbub.Message]) -> list[Any]:
    """Leave out everything but the payloads."""
    return [message.payload for message in messages]


class Events(list[hubbub.Event]):
    """A listener that keeps what it hears."""

    def __call__(self, event: hubbub.Event) -> None:
        """Hear an event."""
        self.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of one kind."""
        return [event for event in list(self) if isinstance(event, kind)]

    def wait(self, kind: type[Any], timeout_s: float = DEADLINE_S) -> Any:
        """Wait for an event of one kind."""
        return wait_until(lambda: self.of(kind), timeout_s)[0]


class Actor:
    """A process that plays one function of a test."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        name = f"{function.__module__}:{function.__qualname__}"
        self.process = Process(
            ["-m", "tests.integration.bus", name, json.dumps(arguments)],
            imports=("hubbub", "pytest"), cwd=ROOT, stdin=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self.process.pid
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def hear(self, timeout_s: float = DEADLINE_S) -> Any:
        """Return what the actor says next."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"the actor said nothing for {timeout_s} s") from None
        assert line, f"the actor ended: {self.process.wait(5)} {''.join(self._errors)}"
        return json.loads(line)

    @property
    def has_spoken(self) -> bool:
        """Tell whether the actor has said something that nobody has heard yet."""
        return not self._lines.empty()

    def tell(self, word: str = "go") -> None:
        """Let the actor go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the actor's process."""
        self.process.send_signal(number)

    def ends(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    @property
    def errors(self) -> str:
        """Return what was written to standard error."""
        return "".join(self._errors)

    def close(self) -> None:
        """End the actor however it is."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        for reader in self._readers:
            reader.join(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)


@contextmanager
def acting(function: Callable[..., None], *arguments: Any) -> Iterator[Actor]:
    """Run an actor until the end of a block."""
    actor = Actor(function, *arguments)
    try:
        yield actor
    finally:
        actor.close()


def say(value: Any) -> None:
    """Tell the test something, from inside an actor."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def hear() -> str:
    """Wait for the test, from inside an actor; it ends when the test is gone."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(3)
    return line.strip()


def main() -> None:
    """Play the function that the command line names."""
    module, _, name = sys.argv[1].partition(":")
    getattr(importlib.import_module(module), name)(*json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
