"""A process that has imported what many tests need, and forks the processes that they start.

To start Python and import the package takes 0.4 s of processor; to fork this takes 0.01 s. A child
is a process like any other: its own standard streams, environment, signals and exit code, and it
ends as Python ends. It imports itself whatever the forker was not told to import. Usage:
python -m tests.forker DESCRIPTOR MODULE...
"""

import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NamedTuple, TextIO

# An order and its answer; far more than any environment has.
MESSAGE_BYTES_MAX = 1 << 20
HELD_BACK = {signal.SIGINT, signal.SIGCHLD}


class Order(NamedTuple):
    """What to run, as Python takes it: "-m" and a module, or "-c" and a program; arguments."""

    command: list[str]
    environment: dict[str, str]
    folder: str
    is_session: bool


class Forker:
    """Forks a child for each order, and tells how each ended."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._ends: dict[int, int] = {}

    def serve(self) -> Order | None:
        """Fork until nobody gives orders any more; a child returns with its order."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who give the orders.
        signal.signal(signal.SIGCHLD, self._reap)
        while True:
            text, descriptors, _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES_MAX, 4)
            if not text:
                return None
            *streams, end = descriptors
            signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
            pid = os.fork()
            if pid == 0:
                self._channel.close()
                os.close(end)
                order = Order(**json.loads(text))
                become(order, streams)
                return order
            self._ends[pid] = end
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
            for descriptor in streams:
                os.close(descriptor)
            self._channel.send(str(pid).encode())

    def _reap(self, *_: object) -> None:
        while self._ends:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return  # Another signal came in between, and its handler has reaped the last one.
            if pid == 0:
                return
            end = self._ends.pop(pid)
            with suppress(BrokenPipeError):  # Nobody wants to know.
                os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(end)


def become(order: Order, streams: list[int]) -> None:
    """Make this child what Python is when it has just been started."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if order.is_session:
        os.setsid()
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    sys.argv = ["-c", *order.command[2:]]
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = output(1, sys.stdout)
    sys.stderr = sys.__stderr__ = output(2, sys.stderr)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)


def output(number: int, model: TextIO) -> TextIO:
    """Open a standard stream as Python does when it starts."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = open(number, "wb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        raw, model.encoding, model.errors, line_buffering=number == 2 or raw.isatty(),
        write_through=is_unbuffered,
    )  # fmt: skip


def main() -> None:
    """Serve; in a child, run what was ordered."""
    descriptor, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # Else every child looks through all of it once more at its end.
    order = Forker(socket.socket(fileno=int(descriptor))).serve()
    if order is None:
        return
    kind, what = order.command[:2]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})


if __name__ == "__main__":
    main()
