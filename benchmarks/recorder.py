"""`python -m benchmarks.recorder`: what a recorder keeps, beside the mcap writer and beside dd.

A publisher in a process of its own sends to a recorder, at most so much ahead of what is kept that
nothing need be dropped. Ours has kept what is synced; the official Python writer of MCAP, fed by a
plain callback of the same bus, what it was given, and it syncs once at the end. Large messages
stand beside `dd bs=1M conv=fsync` to the same disk. All take turns, so that a disturbance of the
machine meets each of them. Needs `mcap`: `pip install 'hubbub[recorder]'`.
"""

import argparse
import json
import os
import resource
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import hubbub
from benchmarks.report import heading, size_text
from hubbub.store.journal import Run, open_segment, segments

SUBJECT = "/recorder/data"
SMALL, LARGE = 64, 1 << 20
AHEAD_BYTES = 64 << 20
AHEAD_MESSAGES = 200_000
SMALL_BAR, LARGE_BAR = 3.0, 0.7
LOOK_S = 0.002


def open_node(name: str, domain: str) -> hubbub.Node:
    return hubbub.open(name, domain=domain, interface="127.0.0.1", links=["local", "multicast"])


def ahead_of(size: int) -> int:
    """Return how many messages may be sent that are not kept yet."""
    return min(AHEAD_MESSAGES, AHEAD_BYTES // size)


def publish(domain: str, size: int, count: int) -> None:
    """Publish so many messages, not too far ahead of what standard input says is kept."""
    kept = 0

    def listen() -> None:
        nonlocal kept
        for line in sys.stdin:
            kept = int(line)

    payload, ahead = os.urandom(size), ahead_of(size)
    with open_node("publisher", domain) as node:
        publisher = node.publisher(SUBJECT)
        publisher.wait_for_subscribers(1, 30)
        threading.Thread(target=listen, daemon=True).start()
        print(time.time_ns(), flush=True)
        for number in range(count):
            if number - kept >= ahead:
                while number - kept >= ahead // 2:
                    time.sleep(0.0005)
            publisher.publish(payload)
        node.flush(60)


def feed(domain: str, size: int, count: int, kept: Callable[[], int]) -> int:
    """Let a publisher send everything; return when it began, once everything is kept."""
    arguments = ["publish", domain, str(size), str(count)]
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.recorder", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    begun_ns = int(child.stdout.readline())
    while (now := kept()) < count:
        with suppress(BrokenPipeError):  # It has sent everything.
            child.stdin.write(f"{now}\n")
            child.stdin.flush()
        time.sleep(LOOK_S)
    with suppress(BrokenPipeError):
        child.stdin.close()
    child.wait()
    child.stdout.close()
    return begun_ns


def record_hubbub(domain: str, size: int, count: int, folder: Path) -> dict[str, Any]:
    """Record with ours; what counts is acknowledged."""
    with (
        open_node("recorder", domain) as node,
        hubbub.Recorder(node, SUBJECT, folder, convert=False) as recorder,
    ):
        begun_ns = feed(
            domain, size, count, lambda: recorder.acknowledged + recorder.statistics().lost
        )
        ended_ns = time.time_ns()
        told = recorder.statistics()
    kept = 0
    for path in segments(folder):
        with open_segment(path) as segment:
            kept += sum(len(run.payloads) for run in segment if isinstance(run, Run))
    return outcome(begun_ns, ended_ns, count, kept) | {"commits": told.commits}


def record_mcap(domain: str, size: int, count: int, folder: Path) -> dict[str, Any]:
    """Record with the official writer of MCAP, by a callback."""
    from mcap.reader import make_reader
    from mcap.writer import Writer

    path, kept = folder / "data.mcap", 0
    with path.open("wb") as file, open_node("recorder", domain) as node:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel(topic=SUBJECT, message_encoding="", schema_id=0)

        def write(message: hubbub.Message) -> None:
            nonlocal kept
            writer.add_message(
                channel_id=channel, log_time=message.received_ns, data=bytes(message.payload),
                publish_time=message.published_ns, sequence=message.sequence,
            )  # fmt: skip
            kept += 1

        node.subscribe(SUBJECT, write, queue=4 * AHEAD_MESSAGES)
        begun_ns = feed(domain, size, count, lambda: kept)
        writer.finish()
        file.flush()
        os.fsync(file.fileno())
        ended_ns = time.time_ns()
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None and summary.statistics is not None
    return outcome(begun_ns, ended_ns, count, summary.statistics.message_count)


def outcome(begun_ns: int, ended_ns: int, count: int, kept: int) -> dict[str, Any]:
    """Say how fast it was, how much of it is there, and what it took."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    rate = count / (ended_ns - begun_ns) * 1e9
    return {"rate": rate, "lost": count - kept, "peak_bytes": peak}


RECORDERS = {"hubbub": record_hubbub, "mcap": record_mcap}


def measure(name: str, size: int, count: int, folder: Path) -> dict[str, Any]:
    """Run one recorder in a process of its own."""
    place = tempfile.mkdtemp(dir=folder)
    arguments = ["record", name, f"rec-{secrets.token_hex(4)}", str(size), str(count), place]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.recorder", *arguments],
            stdout=subprocess.PIPE, check=True, text=True,
        )  # fmt: skip
    finally:
        shutil.rmtree(place)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def measure_dd(count: int, folder: Path) -> float:
    """Return how many MiB a second dd writes and syncs."""
    path = folder / "dd"
    command = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={count}", "conv=fsync"]
    begin = time.perf_counter()
    try:
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return count / (time.perf_counter() - begin)
    finally:
        path.unlink(missing_ok=True)


def run(options: argparse.Namespace, folder: Path) -> dict[str, list[Any]]:
    """Let all take turns."""
    found: dict[str, list[Any]] = {"hubbub": [], "mcap": [], "large": [], "dd": []}
    for number in range(options.rounds):
        sys.stderr.write(f"round {number + 1} of {options.rounds}\n")
        found["hubbub"].append(measure("hubbub", SMALL, options.messages, folder))
        found["mcap"].append(measure("mcap", SMALL, options.messages // 4 or 1, folder))
        # A disk may give more to who comes after a pause, so they take turns in that, too.
        for name in ("dd", "large") if number % 2 else ("large", "dd"):
            if name == "dd":
                found[name].append(measure_dd(options.large, folder))
            else:
                found[name].append(measure("hubbub", LARGE, options.large, folder))
    return found


def middle(outcomes: list[dict[str, Any]]) -> float:
    return statistics.median(one["rate"] for one in outcomes)


def row(name: str, rate: str, outcomes: list[dict[str, Any]]) -> str:
    lost = sum(one["lost"] for one in outcomes)
    peak = max(one["peak_bytes"] for one in outcomes) / 1e6
    return f"| {name} | {rate} | {lost:,} | {peak:.0f} MB |"


def describe(found: dict[str, list[Any]]) -> list[str]:
    """Lay out the tables, and say whether the bars are met."""
    ours, mcap = middle(found["hubbub"]), middle(found["mcap"])
    large, disk = middle(found["large"]), statistics.median(found["dd"])
    return [
        f"| {size_text(SMALL)} | recorded | lost | peak memory |",
        "|---|---|---|---|",
        row("Hubbub, synced", f"{ours / 1e3:.0f} k/s", found["hubbub"]),
        row("mcap writer in a callback", f"{mcap / 1e3:.0f} k/s", found["mcap"]),
        "",
        f"{ours / mcap:.1f} times the mcap writer (bar: {SMALL_BAR:.0f})",
        "",
        f"| {size_text(LARGE)} | recorded | lost | peak memory |",
        "|---|---|---|---|",
        row("Hubbub, synced", f"{large * 1.048576:.0f} MB/s", found["large"]),
        f"| dd conv=fsync | {disk * 1.048576:.0f} MB/s | | |",
        "",
        f"{large / disk:.0%} of dd (bar: {LARGE_BAR:.0%})",
    ]


def main() -> int:
    """Run the rounds and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorder", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--messages", type=int, default=2_000_000, help=f"of {SMALL} bytes")
    parser.add_argument("--large", type=int, default=1000, help="messages of 1 MiB")
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found = run(options, options.folder.resolve())
    if options.json:
        print(json.dumps(found))
        return 0
    where = "a publisher and a recorder in two processes of one host, journals on one disk"
    print(heading("python -m benchmarks.recorder", where, options.rounds))
    print()
    print("\n".join(describe(found)))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["publish"]:
        publish(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["record"]:
        name, domain, size, count, folder = sys.argv[2:7]
        print(json.dumps(RECORDERS[name](domain, int(size), int(count), Path(folder))))
    else:
        sys.exit(main())
