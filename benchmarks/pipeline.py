"""How fast recorded messages become tables.

    python -m benchmarks.pipeline [--rows 10000000] [--runs 3] [--folder KEPT]

It writes a recording of synthetic messages (64 bytes, 8 publishers, a little loss), starts Spark,
and makes `topic_health` and `gaps` in one run, beside a plain count of those files. The first run
of a fresh Java is what the user of a command sees, so nothing of the recording is read before it.
`--folder` keeps the recording for the next time: it takes a minute to write.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.limits import SECOND
from hubbub.pipeline import tables
from hubbub.pipeline.run import Pipeline, make_setup
from hubbub.pipeline.session import start
from hubbub.store.layout import file_name, hour_folder, hour_of
from hubbub.store.schema import MESSAGES

ROWS_PER_FILE = 250_000
PUBLISHERS = 8
PAYLOAD_BYTES = 64
START_NS = 1_800_000_000 * SECOND
SPACING_NS = 10_000  # A hundred thousand messages a second.


def write_recording(store: Path, rows: int) -> None:
    draw = np.random.default_rng(7)
    sequences = np.zeros(PUBLISHERS, dtype=np.int64)
    for segment, first in enumerate(range(0, rows, ROWS_PER_FILE)):
        count = min(ROWS_PER_FILE, rows - first)
        table = _segment(draw, sequences, first, count)
        folder = hour_folder(store, "messages", hour_of(START_NS + first * SPACING_NS))
        folder.mkdir(parents=True, exist_ok=True)
        name = file_name(segment, first, first + count - 1)
        pq.write_table(table, folder / name, compression="zstd", compression_level=1)


def _segment(draw: np.random.Generator, sequences: np.ndarray, first: int, count: int) -> pa.Table:
    publisher = draw.integers(0, PUBLISHERS, count)
    sequence = np.empty(count, dtype=np.int64)
    for one in range(PUBLISHERS):
        mine = publisher == one
        steps = 1 + (draw.random(int(mine.sum())) < 0.0005)  # One in two thousand is lost.
        sequence[mine] = sequences[one] + np.cumsum(steps)
        sequences[one] = sequence[mine][-1]
    received = START_NS + (first + np.arange(count, dtype=np.int64)) * SPACING_NS
    published = received - draw.lognormal(11, 0.5, count).astype(np.int64)
    payload = draw.integers(0, 256, count * PAYLOAD_BYTES, dtype=np.uint8).tobytes()
    ends = np.arange(count + 1, dtype=np.int32) * PAYLOAD_BYTES
    known = {
        "recorder": _constant("0123456789abcdef", count),
        "offset": pa.array(first + np.arange(count, dtype=np.int64)),
        "subject": _names([f"/plant/line{n}/temperature" for n in range(PUBLISHERS)], publisher),
        "source_name": _names([f"sensor-{n}" for n in range(PUBLISHERS)], publisher),
        "source_id": _names([f"{n:024x}" for n in range(PUBLISHERS)], publisher),
        "incarnation": pa.array(1_000_000 + publisher),
        "sequence": pa.array(sequence),
        "published_ns": pa.array(published),
        "received_ns": pa.array(received),
        "published": pa.array(published // 1000).cast(MESSAGES.field("published").type),
        "received": pa.array(received // 1000).cast(MESSAGES.field("received").type),
        "link": _constant("multicast", count),
        "size": pa.array(np.full(count, PAYLOAD_BYTES, dtype=np.int32)),
        "payload": pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(payload)]
        ),
    }
    columns = [
        known.get(field.name, pa.nulls(count, field.type)).cast(field.type) for field in MESSAGES
    ]
    return pa.table(columns, schema=MESSAGES)


def _names(names: list[str], index: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), names).cast(pa.string())


def _constant(text: str, count: int) -> pa.Array:
    return _names([text], np.zeros(count, dtype=np.int32))


def cpu_seconds(pid: int) -> float:
    """Return what a process has had of the processors: a busy machine does not change that much."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_batch(rows: int, folder: Path, cores: int, runs: int) -> None:
    store = folder / "store"
    if not store.exists():
        begin = time.perf_counter()
        write_recording(store, rows)
        print(f"{rows:,} rows written in {time.perf_counter() - begin:.1f} s")
    begin = time.perf_counter()
    spark = start(f"local[{cores}]")
    spark.range(1).count()
    print(f"Spark is up after {time.perf_counter() - begin:.1f} s")
    java = spark.sparkContext._gateway.proc.pid
    plain_s, full_s = [], []
    for number in range(runs):
        setup = make_setup(["topic_health", "gaps"])
        shutil.rmtree(folder / f"tables-{number}", ignore_errors=True)
        pipeline = Pipeline(spark, store, folder / f"tables-{number}", setup)
        with pipeline.versions.locked():
            begin, used_s = time.perf_counter(), cpu_seconds(java)
            summary = pipeline.run_batch()
            full_s.append(time.perf_counter() - begin)
            used_s = cpu_seconds(java) - used_s
        assert summary.counts.messages == rows
        begin = time.perf_counter()
        assert spark.read.parquet(str(store / "messages")).count() == rows
        plain_s.append(time.perf_counter() - begin)
        print(
            f"run {number + 1}: topic_health and gaps in {full_s[-1]:.2f} s,"
            f" {rows / full_s[-1] / 1e6:.2f} M rows/s; plain count {plain_s[-1]:.2f} s,"
            f" {rows / plain_s[-1] / 1e6:.1f} M rows/s; {used_s:.1f} s of processors;"
            f" load {os.getloadavg()[0]:.1f}"
        )
    gaps = tables.read(folder / "tables-0", "gaps")
    health = tables.read(folder / "tables-0", "topic_health")
    print(f"{gaps.num_rows:,} gaps, {health.num_rows:,} rows of topic_health")
    ratio = statistics.median(full_s) / statistics.median(plain_s)
    print(f"median: {rows / statistics.median(full_s) / 1e6:.2f} M rows/s, {ratio:.1f} x a count")
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where a recording of so many rows is kept")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        run_batch(arguments.rows, arguments.folder, arguments.cores, arguments.runs)
        return
    folder = Path(tempfile.mkdtemp(prefix="hubbub-bench-"))
    try:
        run_batch(arguments.rows, folder, arguments.cores, arguments.runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
