"""`python -m benchmarks.veth`: large messages between two hosts, by multicast and by the peers.

The hosts are network namespaces, joined by a veth pair with the MTU of an Ethernet. Only root may
make them; no real interface is ever used.
"""

import argparse
import shlex
import sys
from pathlib import Path

from benchmarks import namespaces, peers, report
from benchmarks.course import Course
from benchmarks.figures import Book
from benchmarks.options import RESULTS, rows_of, sizes_of
from benchmarks.rounds import run

SIZES = "64K,1M"
WHERE = "two network namespaces joined by a veth pair, MTU 1500"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.veth", description=__doc__)
    parser.add_argument("--sizes", default=SIZES, help=f"payload sizes (default {SIZES})")
    parser.add_argument("--rounds", type=int, default=10, help="interleaved rounds (default 10)")
    parser.add_argument("--seconds", type=float, default=0.5, help="time a measurement")
    parser.add_argument("--only", "--peers", help=f"rows, of: {', '.join(peers.VETH_ROWS)}")
    parser.add_argument("--json", type=Path, default=RESULTS / "veth.json")
    parser.add_argument("--write-readme", action="store_true", help="put the table into README.md")
    options = parser.parse_args(arguments)
    options.sizes = sizes_of(parser, options.sizes)
    options.rows = rows_of(parser, options.only, peers.VETH_ROWS)
    return options


def main(arguments: list[str]) -> int:
    """Make the hosts, run, print, write."""
    options = parse(arguments)
    book = Book()
    with namespaces.two_hosts() as hosts:
        if hosts is None:
            print(f"python -m benchmarks.veth {namespaces.NEEDS}", file=sys.stderr)
            return 2
        course = Course(
            options.rows, ["veth"], options.sizes, options.rounds, options.seconds, hosts=hosts
        )
        is_whole = run(course, book)
    command = shlex.join(["python", "-m", "benchmarks.veth", *arguments])
    report.publish(
        book, course, command=command, where=WHERE,
        is_whole=is_whole, json_path=options.json,
        place="benchmark-veth" if options.write_readme else "",
    )  # fmt: skip
    return 0 if is_whole else 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
