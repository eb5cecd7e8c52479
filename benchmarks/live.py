"""How old a message is when it shows in the tables.

    python -m benchmarks.live [--seconds 60] [--rate 200] [--split-time 1s] [--only topic_health]

`hubbub rec` and `hubbub pipeline run --live` run as commands. A publisher here sends messages, and
looks at `topic_health` until they are counted there. Beside it stands Spark's own floor: how long
after a file was renamed a stream of Spark hands it to a function that does nothing.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import hubbub
from benchmarks.pipeline import cpu_seconds
from hubbub.limits import SECOND
from hubbub.pipeline import tables
from hubbub.pipeline.session import SMALL_STEPS, interpreting, start
from hubbub.pipeline.versions import Versions
from hubbub.store.layout import data_files

SUBJECT = "/live/number"
PAYLOAD = bytes(64)
LOOK_S = 0.02
START_S_MAX = 180.0
FLOOR_FILES = 30


def counted(folder: Path) -> int:
    """Return how many of our messages are in the table."""
    if Versions(folder).current is None:
        return 0
    table = tables.read(folder, "topic_health").select(["subject", "messages"])
    return sum(row["messages"] for row in table.to_pylist() if row["subject"] == SUBJECT)


class Watch:
    """What is sent, and when it was first seen in the recorder's files and in the tables."""

    def __init__(self, store: Path, folder: Path) -> None:
        self._store = store
        self._versions = Versions(folder)
        self._version: Path | None = None
        self.sent_ns: list[int] = []
        self.filed_ns: list[int] = []
        self.seen_ns: list[int] = []
        self.steps = 0

    def look(self) -> None:
        """Note which messages are new in the files, and in the tables."""
        filed = max((file.last + 1 for file in data_files(self._store, "messages")), default=0)
        self.filed_ns += [time.time_ns()] * (filed - len(self.filed_ns))
        current = self._versions.current
        if current == self._version:
            return
        self._version, self.steps = current, self.steps + 1
        now_ns = time.time_ns()
        self.seen_ns += [now_ns] * (counted(self._versions.root) - len(self.seen_ns))

    def ages_s(self, seen_ns: list[int], first: int) -> list[float]:
        """Return how old messages were, from the first that is to count."""
        pairs = zip(self.sent_ns[first:], seen_ns[first:], strict=False)
        return sorted((seen - sent) / SECOND for sent, seen in pairs)


def publish(publisher: Any, watch: Watch, rate: float, seconds: float) -> None:
    """Send for a while, looking at the tables in between."""
    end_s = time.monotonic() + seconds
    begin_s, count, look_s = time.monotonic(), 0, 0.0
    while (now_s := time.monotonic()) < end_s:
        if now_s >= begin_s + count / rate:
            watch.sent_ns.append(time.time_ns())
            publisher.publish(PAYLOAD)
            count += 1
        elif now_s >= look_s:
            watch.look()
            look_s = time.monotonic() + LOOK_S
        else:
            time.sleep(0.001)


def run_live(folder: Path, options: argparse.Namespace) -> None:
    """Start the commands, publish, and say how old messages were."""
    domain, store, out = f"live-{os.getpid()}", folder / "store", folder / "tables"
    command = [sys.executable, "-m", "hubbub.cli.main"]
    where = ["--domain", domain, "--interface", "127.0.0.1"]
    only = [word for name in options.only for word in ("--only", name)]
    recorder = subprocess.Popen(
        [*command, "rec", "/live/...", "-o", str(store), "--split-time", options.split_time, *where]
    )
    processes = [recorder]
    try:
        with hubbub.open("live", domain=domain, interface="127.0.0.1") as node:
            publisher = node.publisher(SUBJECT)
            while not publisher.subscribers():
                time.sleep(0.05)
            watch = Watch(store, out)
            publish(publisher, watch, 10, 3.0)  # So that there is something to begin with.
            live = [*command, "pipeline", "run", str(store), "--out", str(out), "--live", *only]
            pipeline = subprocess.Popen(live)
            processes.append(pipeline)
            deadline_s = time.monotonic() + START_S_MAX
            while counted(out) == 0 and time.monotonic() < deadline_s:
                publish(publisher, watch, 10, 0.5)
            publish(publisher, watch, options.rate, options.warm)
            measure(publisher, watch, pipeline.pid, options)
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGINT)
            process.wait(60)


def measure(publisher: Any, watch: Watch, pid: int, options: argparse.Namespace) -> None:
    """Publish for as long as is asked, wait for the rest, and print."""
    java = int(subprocess.check_output(["pgrep", "-P", str(pid), "java"]).split()[0])
    first, steps = len(watch.sent_ns), watch.steps
    used_s, begin_s = cpu_seconds(java) + cpu_seconds(pid), time.monotonic()
    publish(publisher, watch, options.rate, options.seconds)
    used_s = cpu_seconds(java) + cpu_seconds(pid) - used_s
    steps, passed_s = watch.steps - steps, time.monotonic() - begin_s
    end_s = time.monotonic() + 30
    while len(watch.seen_ns) < len(watch.sent_ns) and time.monotonic() < end_s:
        publish(publisher, watch, 1e-9, 0.1)
    ages, filed = watch.ages_s(watch.seen_ns, first), watch.ages_s(watch.filed_ns, first)
    print(
        f"publish to topic_health: p50 {_at(ages, 50):.2f} s, p90 {_at(ages, 90):.2f} s,"
        f" p99 {_at(ages, 99):.2f} s of {len(ages):,} messages at {options.rate:g}/s,"
        f" a segment every {options.split_time}"
    )
    print(f"of these, until the recorder's file is there: p50 {_at(filed, 50):.2f} s")
    print(
        f"{steps} steps in {passed_s:.0f} s, {used_s / max(steps, 1):.2f} s of processors each;"
        f" load {os.getloadavg()[0]:.1f}"
    )


def _at(ages: list[float], percent: int) -> float:
    return ages[min(len(ages) * percent // 100, len(ages) - 1)] if ages else float("nan")


def run_floor(folder: Path) -> None:
    """Say how long a stream that does nothing takes to hand over a file."""
    spark = start("local[*]", java_options=SMALL_STEPS)
    source = folder / "files"
    source.mkdir()
    seen_s: dict[int, float] = {}
    arrived = threading.Event()

    def take(_: Any, number: int) -> None:
        seen_s[number] = time.monotonic()
        arrived.set()

    with interpreting(spark):
        query = (
            spark.readStream.schema("n BIGINT").parquet(str(source)).writeStream.foreachBatch(take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime="0 milliseconds").start()
        )  # fmt: skip
    ages = []
    for number in range(FLOOR_FILES):
        pq.write_table(pa.table({"n": [number]}), folder / "next.parquet")
        arrived.clear()
        begin_s = time.monotonic()
        (folder / "next.parquet").rename(source / f"{number}.parquet")
        arrived.wait(START_S_MAX)
        ages.append(max(seen_s.values()) - begin_s)
        time.sleep(0.3)
    query.stop()
    spark.stop()
    warm = ages[FLOOR_FILES // 3 :]
    print(
        f"Spark's floor: a file is handed to a function after {statistics.median(warm):.2f} s"
        f" (p50 of {len(warm)}); load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Measure what is live, and the floor."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm", type=float, default=30.0, help="seconds before it counts")
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second")
    parser.add_argument("--split-time", default="1s", help="a segment of the recorder")
    parser.add_argument("--only", action="append", default=[], help="a table; default: all")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hubbub-live-"))
    try:
        run_live(folder, options)
        run_floor(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
