"""`python -m benchmarks.services`: by a manager to eight subscribers, and by the brokers of others.

One process publishes, eight subscribe, and what is between them is a process of its own: a node of
ours that manages the service, a nats-server, a mosquitto. Round trips go through it twice.
"""

import argparse
import shlex
import sys
from pathlib import Path

from benchmarks import isolation, peers, report
from benchmarks.course import Course
from benchmarks.figures import Book
from benchmarks.options import RESULTS, rows_of, sizes_of
from benchmarks.rounds import run

SIZES = "64,1K"
KINDS = ("fan-out", "latency")
SUBSCRIBERS = 8


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.services", description=__doc__)
    parser.add_argument("--sizes", default=SIZES, help=f"payload sizes (default {SIZES})")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time a measurement")
    parser.add_argument("--only", "--peers", help=f"rows, of: {', '.join(peers.SERVICE_ROWS)}")
    parser.add_argument("--kind", choices=KINDS, help="throughput to eight, or round trips alone")
    parser.add_argument("--json", type=Path, default=RESULTS / "services.json")
    parser.add_argument("--write-readme", action="store_true", help="put the table into README.md")
    options = parser.parse_args(arguments)
    options.sizes = sizes_of(parser, options.sizes)
    options.rows = rows_of(parser, options.only, peers.SERVICE_ROWS)
    options.kinds = [kind for kind in KINDS if options.kind in (kind, None)]
    return options


def main(arguments: list[str]) -> int:
    """Run, print, write."""
    options = parse(arguments)
    where = isolation.enter(arguments, "benchmarks.services")
    book = Book(subscribers=SUBSCRIBERS)
    course = Course(
        options.rows, options.kinds, options.sizes, options.rounds, options.seconds,
        subscribers=SUBSCRIBERS,
    )  # fmt: skip
    is_whole = run(course, book)
    command = shlex.join(["python", "-m", "benchmarks.services", *arguments])
    report.publish(
        book, course, command=command, where=where,
        is_whole=is_whole, json_path=options.json,
        place="benchmark-services" if options.write_readme else "",
    )  # fmt: skip
    return 0 if is_whole else 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
