"""`python -m benchmarks`: measure Hubbub and its peers in one run and print the tables."""

import argparse
import importlib.metadata
import os
import shlex
import sys
import time
from pathlib import Path

from benchmarks import isolation, pair, peers, report
from benchmarks.figures import MEASURES, Book

HERE = Path(__file__).parent
SIZES = "64,1K,16K,64K,1M,4M"
QUICK_SIZES = "64,64K,1M"
# A cell that failed this often is not tried again: each try may take half a minute.
FAILURES_MAX = 2


def size_bytes(text: str) -> int:
    """Read 64, 16K or 4M."""
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    value = int(text[:-1] if unit > 1 else text) * unit
    if value < 64:
        raise argparse.ArgumentTypeError(f"{value} bytes: the smallest payload is 64 bytes")
    return value


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the flags; --quick only changes what is not given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--sizes", help=f"payload sizes (default {SIZES})")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default 10)")
    parser.add_argument("--seconds", type=float, help="time a measurement (default 0.5)")
    parser.add_argument("--only", help=f"rows to measure, of: {', '.join(peers.ROWS)}")
    parser.add_argument("--kind", choices=("throughput", "latency", "both"), default="both")
    parser.add_argument("--cores", help="run on these cores only, such as 0 or 0,1")
    parser.add_argument("--quick", action="store_true", help="3 sizes, 3 rounds, 0.3 s")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "latest.json")
    parser.add_argument("--write-readme", action="store_true", help="put the tables into README.md")
    options = parser.parse_args(arguments)
    quick = options.quick
    sizes = options.sizes or (QUICK_SIZES if quick else SIZES)
    try:
        options.sizes = [size_bytes(text) for text in sizes.split(",")]
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(f"--sizes {sizes}: {error}")
    options.rounds = options.rounds or (3 if quick else 10)
    options.seconds = options.seconds or (0.3 if quick else 0.5)
    options.rows = options.only.split(",") if options.only else list(peers.ROWS)
    if unknown := [row for row in options.rows if row not in peers.ROWS]:
        parser.error(f"--only {','.join(unknown)}: there are {', '.join(peers.ROWS)}")
    options.kinds = [k for k in dict.fromkeys(MEASURES.values()) if options.kind in (k, "both")]
    return options


def look_around(book: Book, rows: list[str]) -> list[str]:
    """Find out which peers are here; the others stay in the table with the reason."""
    here = []
    for row in rows:
        try:
            adapter = peers.load(row)
            importlib.metadata.version(adapter.distribution)
        except Exception as error:
            book.unavailable[row] = f"{type(error).__name__}: {error}"
            continue
        here.append(row)
        if adapter.spins:
            book.spinning.add(row)
    return here


def run(options: argparse.Namespace, book: Book) -> None:
    """Measure every cell once a round, one peer after the other."""
    rows = look_around(book, options.rows)
    cells = [(k, s, row) for k in options.kinds for s in options.sizes for row in rows]
    started = time.monotonic()
    for number in range(options.rounds):
        for index, (kind, size, row) in enumerate(cells):
            done = (number * len(cells) + index) / (options.rounds * len(cells))
            cell = f"{kind} {report.size_text(size)} {row}"
            say(f"{done:4.0%}, {remaining(started, done)}, round {number + 1}: {cell}")
            if len(book.failures.get((row, kind, size), ())) < FAILURES_MAX:
                measure(book, row, kind, size, options.seconds)


def measure(book: Book, row: str, kind: str, size: int, seconds: float) -> None:
    """Measure one cell once."""
    try:
        book.add(row, kind, size, pair.measure(row, kind, size, seconds))
    except pair.PairFailed as failure:
        book.fail(row, kind, size, str(failure))
        say(f"{row} {kind} {report.size_text(size)}: {failure}\n")


def remaining(started: float, done: float) -> str:
    """Guess the minutes left from what has been done so far."""
    if not done:
        return "a while left"
    return f"{(time.monotonic() - started) * (1 - done) / done / 60:.0f} min left"


def say(text: str) -> None:
    """Show progress beside the tables, which go to stdout; a terminal keeps only the last line."""
    is_terminal = sys.stderr.isatty()
    sys.stderr.write(f"\r\x1b[K{text}" if is_terminal else f"{text.rstrip()}\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Run, print, write; an interrupted run still prints what it has."""
    options = parse(arguments)
    where = isolation.enter(arguments)
    if options.cores:
        os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    book = Book()
    interrupted = False
    try:
        run(options, book)
    except KeyboardInterrupt:
        interrupted = True
    say("interrupted\n" if interrupted else "done\n")
    command = shlex.join(["python", "-m", "benchmarks", *arguments])
    heading = report.heading(command, where, book.rounds)
    tables = report.render(book, options.rows, options.sizes, options.kinds)
    settings = report.settings(options.rows, book)
    print(f"{heading}\n\n{tables}\n{settings}", end="")
    about = {"heading": heading, "command": command, "isolation": where, "interrupted": interrupted}
    report.write_json(options.json, book, options.rows, options.sizes, about)
    if interrupted:
        return 130
    if options.write_readme:
        report.write_readme(HERE.parent / "README.md", f"\n{heading}\n\n{tables}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
