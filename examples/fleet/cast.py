"""Processes that play until they are told to stop; what each has to say comes at the end."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self

import hubbub

PATIENCE_S = 20.0
Part = Callable[..., dict[str, Any]]


class Stop:
    """Tells a part that it is over: a pipe, which also ends when who holds the other end dies.

    An event of multiprocessing would wait for ever for a process that was killed.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is over; False: it is not, after so long."""
        return self._pipe.poll(timeout_s)


class Cast:
    """Start parts as processes, kill some of them, and hear from the others how it went."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._context = multiprocessing.get_context("spawn")
        self._players: dict[str, tuple[Any, Connection]] = {}

    def start(self, name: str, part: Part, *arguments: Any) -> None:
        """Let somebody play a part."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_play, args=(part, name, self._domain, theirs, *arguments), daemon=True
        )
        process.start()
        theirs.close()
        self._players[name] = (process, ours)

    def kill(self, name: str) -> None:
        """End somebody as a crash would: without a goodbye."""
        process, _ = self._players.pop(name)
        process.kill()
        process.join()

    def finish(self, *first: str) -> dict[str, dict[str, Any]]:
        """Tell everybody to stop, some before the others, and return what they say."""
        heard: dict[str, dict[str, Any]] = {}
        for names in (first, [name for name in self._players if name not in first]):
            for name in names:
                with suppress(OSError):
                    self._players[name][1].send("stop")
            heard |= self._hear(names)
        return heard

    def _hear(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        heard = {}
        for name in names:
            process, pipe = self._players[name]
            with suppress(EOFError, OSError):
                if pipe.poll(PATIENCE_S):
                    heard[name] = pipe.recv()
            process.join(PATIENCE_S)
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for process, _ in self._players.values():
            process.kill()
            process.join()


def open_node(name: str, domain: str, loss: float = 0.0) -> hubbub.Node:
    """Open a node on loopback; with a loss its frames go by multicast, and some never arrive."""
    faults = {"faults": hubbub.Faults(loss=loss), "frame_bytes_max": 1472} if loss else {}
    return hubbub.open(name, domain=domain, interface="127.0.0.1", **faults)


def _play(part: Part, name: str, domain: str, pipe: Connection, *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us.
    told = part(name, domain, Stop(pipe), *arguments)
    with suppress(OSError):
        pipe.send(told)
