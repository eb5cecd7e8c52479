"""Runs one measurement: two fresh processes, a deadline, and nothing left behind."""

import ctypes
import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from benchmarks import peers, work
from benchmarks.endpoint import Endpoint
from benchmarks.work import Signals, Task

START_SECONDS = 20.0
# A publisher whose queues are unbounded leaves its subscriber much to catch up with.
CATCH_UP_FACTOR = 20.0
LEAVE_SECONDS = 3.0
PR_SET_PDEATHSIG = 1

# What a process does, and the directions in which it sends and receives.
Role = tuple[Callable[[Endpoint, Task, Signals], dict[str, Any]], str, str]
# Kind -> the process that is only a receiver at first, and the one that starts the exchange.
ROLES: dict[str, tuple[Role, Role]] = {
    "throughput": ((work.subscribe, "", "there"), (work.publish, "there", "")),
    "latency": ((work.pong, "back", "there"), (work.ping, "there", "back")),
}


class PairFailed(Exception):
    """A measurement came to no result; the text says why."""


def measure(row: str, kind: str, size_bytes: int, seconds: float) -> dict[str, Any]:
    """Let one peer do one piece of work in two processes; raises PairFailed."""
    context = multiprocessing.get_context("spawn")
    task = Task(row, kind, size_bytes, seconds, secrets.token_hex(4))
    signals = Signals(context.Event(), (context.Event(), context.Event()))
    pipes: list[Connection] = []
    processes: list[SpawnProcess] = []
    patience_seconds = 0.0
    try:
        for role in range(2):
            ours, theirs = context.Pipe(duplex=False)
            pipes.append(ours)
            arguments = (role, task, signals, theirs, os.getpid())
            process = context.Process(target=_run, args=arguments, daemon=True)
            process.start()
            processes.append(process)
            theirs.close()
        results = _results(pipes, START_SECONDS + CATCH_UP_FACTOR * seconds)
        patience_seconds = LEAVE_SECONDS
        return _outcome(kind, results)
    finally:
        _end(processes, patience_seconds)


def _end(processes: list[SpawnProcess], patience_seconds: float) -> None:
    """Let the processes leave by themselves for a while, then end them."""
    deadline = time.monotonic() + patience_seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()


def _run(role: int, task: Task, signals: Signals, result: Connection, parent: int) -> None:
    """Be one of the two processes."""
    _die_with(parent)
    _silence()
    work_of_role, sends, receives = ROLES[task.kind][role]
    try:
        endpoint = peers.load(task.row)(
            sends=task.topic(sends),
            receives=task.topic(receives),
            size_bytes=task.size_bytes,
        )
        result.send(work_of_role(endpoint, task, signals))
        endpoint.close()
    except Exception as error:
        result.send(f"{type(error).__name__}: {error}")


def _die_with(parent: int) -> None:
    """Let the kernel end this process when the benchmark ends, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _silence() -> None:
    """Keep what the peers' native libraries print out of the progress lines."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _results(pipes: list[Connection], timeout_seconds: float) -> list[dict[str, Any]]:
    """Wait for both processes, or for the first that fails."""
    results: dict[Connection, dict[str, Any]] = {}
    deadline = time.monotonic() + timeout_seconds
    while len(results) < len(pipes):
        waiting = [pipe for pipe in pipes if pipe not in results]
        ready = wait(waiting, max(0.0, deadline - time.monotonic()))
        if not ready:
            raise PairFailed(f"no result after {timeout_seconds:.0f} s")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            try:
                result = pipe.recv()
            except EOFError:
                raise PairFailed("a process died") from None
            if isinstance(result, str):
                raise PairFailed(result)
            results[pipe] = result
    return [results[pipe] for pipe in pipes]


def _outcome(kind: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Put together what the two processes have seen."""
    receiver, starter = results
    cpu_seconds = {"cpu_seconds": [starter["cpu_seconds"], receiver["cpu_seconds"]]}
    if kind == "latency":
        samples = sorted(starter["samples_ns"])
        return cpu_seconds | {
            "round_trips": len(samples),
            "lost": starter["lost"],
            "p50_us": samples[len(samples) // 2] / 1e3,
            "p99_us": samples[len(samples) * 99 // 100] / 1e3,
        }
    phases = zip(("unread", "read"), starter["phases"], receiver["phases"], strict=True)
    return cpu_seconds | {
        name: {
            "sent": out["sent"],
            "received": into["received"],
            "seconds": (seconds := (into["end_ns"] - out["start_ns"]) / 1e9),
            "messages_per_second": into["received"] / seconds,
        }
        for name, out, into in phases
    }
