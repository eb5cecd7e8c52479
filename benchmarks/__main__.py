"""`python -m benchmarks`: measure Hubbub and its peers in one run and print the tables."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from benchmarks import isolation, peers, report
from benchmarks.course import Course
from benchmarks.figures import Book
from benchmarks.options import RESULTS, rows_of, sizes_of
from benchmarks.rounds import run

SIZES = "64,1K,16K,64K,1M,4M"
FEW_SIZES = "64,64K,1M"
PAIR_KINDS = ("throughput", "latency")
FAN_OUT = "fan-out"
SUBSCRIBERS = 8
SUBSCRIBERS_MAX = 63


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the flags; --quick and --fan-out only change what is not given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--sizes", help=f"payload sizes (default {SIZES})")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default 10)")
    parser.add_argument("--seconds", type=float, help="time a measurement (default 0.5)")
    parser.add_argument("--only", "--peers", help=f"rows to measure, of: {', '.join(peers.ROWS)}")
    parser.add_argument("--kind", choices=(*PAIR_KINDS, "both"))
    parser.add_argument(
        "--fan-out", type=int, nargs="?", const=SUBSCRIBERS, metavar="N",
        help=f"one publisher and N subscribers (default {SUBSCRIBERS}) instead of pairs",
    )  # fmt: skip
    parser.add_argument("--cores", help="run on these cores only, such as 0 or 0,1")
    parser.add_argument("--quick", action="store_true", help="3 sizes, 3 rounds, 0.3 s")
    parser.add_argument("--json", type=Path, help=f"default {RESULTS}/latest.json or fan-out.json")
    parser.add_argument("--write-readme", action="store_true", help="put the tables into README.md")
    options = parser.parse_args(arguments)
    quick, fan_out = options.quick, options.fan_out
    if fan_out is not None and not 1 <= fan_out <= SUBSCRIBERS_MAX:
        parser.error(f"--fan-out {fan_out}: from 1 to {SUBSCRIBERS_MAX} subscribers")
    if fan_out and options.kind:
        parser.error("--kind is of pairs: leave out --fan-out")
    options.kinds = [FAN_OUT] if fan_out else [
        kind for kind in PAIR_KINDS if options.kind in (kind, "both", None)
    ]  # fmt: skip
    sizes = options.sizes or (FEW_SIZES if quick or fan_out else SIZES)
    options.sizes = sizes_of(parser, sizes)
    options.rounds = options.rounds or (3 if quick else 10)
    options.seconds = options.seconds or (0.3 if quick else 0.5)
    options.rows = rows_of(parser, options.only, peers.ROWS)
    options.json = options.json or RESULTS / ("fan-out.json" if fan_out else "latest.json")
    return options


def main(arguments: list[str]) -> int:
    """Run, print, write; an interrupted run still prints what it has."""
    options = parse(arguments)
    where = isolation.enter(arguments)
    if options.cores:
        os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    course = Course(
        options.rows, options.kinds, options.sizes, options.rounds, options.seconds,
        subscribers=options.fan_out or 1,
    )  # fmt: skip
    book = Book(subscribers=course.subscribers)
    is_whole = run(course, book)
    command = shlex.join(["python", "-m", "benchmarks", *arguments])
    place = "benchmark-fan-out" if options.fan_out else "benchmark"
    report.publish(
        book, course, command=command, where=where,
        is_whole=is_whole, json_path=options.json, place=place if options.write_readme else "",
    )  # fmt: skip
    return 0 if is_whole else 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
