"""Runs one measurement: fresh processes, a deadline, and nothing left behind.

A pair mostly: one process that starts the exchange, and one that receives. In a fan-out many do.
"""

import ctypes
import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from benchmarks import peers, work
from benchmarks.endpoint import Endpoint
from benchmarks.namespaces import Host
from benchmarks.work import PHASES, AllOf, Signals, Task

START_SECONDS = 20.0
START_SECONDS_EACH = 2.0
# A publisher whose queues are unbounded leaves its subscriber much to catch up with.
CATCH_UP_FACTOR = 20.0
LEAVE_SECONDS = 3.0
PR_SET_PDEATHSIG = 1

# What a process does, and the directions in which it sends and receives.
Role = tuple[Callable[[Endpoint, Task, Signals], dict[str, Any]], str, str]
SUBSCRIBE: Role = (work.subscribe, "", "there")
PUBLISH: Role = (work.publish, "there", "")
# Kind -> what is only a receiver at first, and what starts the exchange.
ROLES: dict[str, tuple[Role, Role]] = {
    **dict.fromkeys(PHASES, (SUBSCRIBE, PUBLISH)),
    "latency": ((work.pong, "back", "there"), (work.ping, "there", "back")),
}


class PairFailed(Exception):
    """A measurement came to no result; the text says why."""


def measure(
    row: str,
    kind: str,
    size_bytes: int,
    seconds: float,
    subscribers: int = 1,
    hosts: tuple[Host, Host] | None = None,
) -> dict[str, Any]:
    """Let one peer do one piece of work in fresh processes; raises PairFailed.

    `hosts` are those of the starter and of its receivers; without them all run where we are.
    """
    context = multiprocessing.get_context("spawn")
    task = Task(row, kind, size_bytes, seconds, secrets.token_hex(4))
    signals = [
        Signals(context.Event(), (context.Event(), context.Event())) for _ in range(subscribers)
    ]
    starter_host, receiver_host = hosts or (None, None)
    parts = [(0, one, receiver_host) for one in signals] + [(1, _all_of(signals), starter_host)]
    pipes: list[Connection] = []
    processes: list[SpawnProcess] = []
    patience_seconds = 0.0
    try:
        for role, heard, host in parts:
            ours, theirs = context.Pipe(duplex=False)
            pipes.append(ours)
            arguments = (role, task, heard, theirs, os.getpid(), host)
            process = context.Process(target=_run, args=arguments, daemon=True)
            process.start()
            processes.append(process)
            theirs.close()
        start_seconds = START_SECONDS + START_SECONDS_EACH * subscribers
        *received, started = _results(pipes, start_seconds + CATCH_UP_FACTOR * seconds)
        patience_seconds = LEAVE_SECONDS
        return _outcome(kind, started, received)
    finally:
        _end(processes, patience_seconds)


def _all_of(signals: Sequence[Signals]) -> Signals:
    """Make one of the signals of all subscribers; those of a pair are set from both sides."""
    if len(signals) == 1:
        return signals[0]
    ended = zip(*(one.ended for one in signals), strict=True)
    first, second = (AllOf(events) for events in ended)
    return Signals(AllOf([one.heard for one in signals]), (first, second))


def _end(processes: list[SpawnProcess], patience_seconds: float) -> None:
    """Let the processes leave by themselves for a while, then end them."""
    deadline = time.monotonic() + patience_seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()


def _run(
    role: int,
    task: Task,
    signals: Signals,
    result: Connection,
    parent: int,
    host: Host | None,
) -> None:
    """Be one of the processes."""
    _die_with(parent)
    _silence()
    if host:
        host.enter()
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
    """Wait for all processes, or for the first that fails."""
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


def _outcome(
    kind: str, started: dict[str, Any], received: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Put together what the processes have seen."""
    cpu_seconds = {"cpu_seconds": [one["cpu_seconds"] for one in (started, *received)]}
    if kind == "latency":
        samples = sorted(started["samples_ns"])
        return cpu_seconds | {
            "round_trips": len(samples),
            "lost": started["lost"],
            "p50_us": samples[len(samples) // 2] / 1e3,
            "p99_us": samples[len(samples) * 99 // 100] / 1e3,
        }
    return cpu_seconds | {
        name: _phase(started["phases"][index], [one["phases"][index] for one in received])
        for index, name in enumerate(PHASES[kind])
    }


def _phase(out: dict[str, int], into: Sequence[dict[str, int]]) -> dict[str, Any]:
    """Add up what all subscribers got, in the time until the last of them had it."""
    each = [one["received"] for one in into]
    if max(each) > out["sent"]:
        raise PairFailed(f"{max(each)} messages arrived of {out['sent']} that were sent")
    seconds = (max(one["end_ns"] for one in into) - out["start_ns"]) / 1e9
    return {
        "sent": out["sent"] * len(into),
        "received": sum(each),
        "received_each": each,
        "seconds": seconds,
        "messages_per_second": sum(each) / seconds,
    }
