"""`python -m benchmarks.conversion`: how fast a closed segment becomes Parquet files, on one core.

Segments hold messages of one size in runs of several lengths, as they come in frames: a busy
publisher fills them, a quiet one sends each message alone. Arrow may use one thread. The processor
time counts, because the process that converts is meant to run beside others; writing the same
columns by plain pyarrow, made before the clock starts, is what would be left at best.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks.report import size_text
from hubbub.limits import ROW_GROUP_ROWS
from hubbub.store import records
from hubbub.store.convert import convert_segment
from hubbub.store.journal import segment_path
from hubbub.store.layout import data_files
from hubbub.store.parquet import Writer
from hubbub.store.reading import read_table
from hubbub.store.records import Begin, Chain, End, Topic

RUNS = (1000, 100, 10, 1)
TOPICS = 10
START_NS = 1_800_000_000_000_000_000


def write_segment(store: Path, messages: int, size: int, run: int) -> Path:
    """Write a segment as a recorder does; a third of each payload never comes again."""
    path = segment_path(store, 0)
    path.parent.mkdir(parents=True)
    chain = Chain(1)
    labels = [
        records.encode_label(Topic(f"/plant/line{n}", "lidar", bytes(12), 1, "", 0), "local")
        for n in range(TOPICS)
    ]
    noise = os.urandom(1 << 20)
    with path.open("wb") as file:
        begin = records.encode_begin(Begin(bytes(16), 0, 0, 0, START_NS))
        file.writelines(chain.add(records.BEGIN, begin))
        for place, offset in enumerate(range(0, messages, run)):
            starts = [n * size % (len(noise) - size) for n in range(offset, offset + run)]
            payloads = [noise[at : at + size] for at in starts]
            times = [START_NS + 1000 * n for n in range(offset, offset + run)]
            body = records.encode_run(
                labels[place % TOPICS], offset, offset // TOPICS, payloads, times, times[-1]
            )
            file.writelines(chain.add(records.RUN, body))
        file.writelines(chain.add(records.END, records.encode_end(End(messages, 0))))
    return path


def clock(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of the processor and of the clock that something takes."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - cpu_s, time.perf_counter() - wall_s


def measure(messages: int, size: int, run: int) -> None:
    """Convert a segment, and print a row of the table."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = Path(folder)
        path = write_segment(store, messages, size, run)
        cpu_s, wall_s = clock(lambda: convert_segment(store, path))
        (file,) = data_files(store, "messages")
        kept = file.path.stat().st_size / messages
        tables = list(read_table(store, "messages"))
        plain_s, _ = clock(lambda: write_plainly(store / "plain.parquet", tables))
        read_s, _ = clock(lambda: sum(one.num_rows for one in read_table(store, "messages")))
    rates = (messages / seconds / 1e6 for seconds in (cpu_s, wall_s, plain_s, read_s))
    print(f"{run:>8,}" + "".join(f"{rate:>14.2f}" for rate in rates) + f"{kept:>14.1f}")


def write_plainly(path: Path, tables: list[pa.Table]) -> None:
    """Write columns that are there already."""
    with Writer(path, tables[0].schema) as writer:
        for table in tables:
            for start in range(0, table.num_rows, ROW_GROUP_ROWS):
                writer.write(table.slice(start, ROW_GROUP_ROWS))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=64, help="bytes of a payload")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # What is slow only once.
        convert_segment(Path(folder), write_segment(Path(folder), 1000, options.size, 10))
    print(f"{options.messages:,} messages of {size_text(options.size)}, M messages/s")
    titles = ("convert", "by the clock", "plain write", "read", "bytes each")
    print(f"{'in runs of':>8}" + "".join(f"{title:>14}" for title in titles))
    for run in RUNS:
        measure(options.messages, options.size, run)


if __name__ == "__main__":
    main()
