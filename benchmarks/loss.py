"""`python -m benchmarks.loss`: how much goodput is left when frames are lost.

Pairs of runs, one without and one with injected loss, take turns, so that a disturbance of the
machine meets both. Once on loopback with its large frames, and once between two network namespaces
over a veth pair, with frames of an Ethernet's size.
"""

import argparse
import secrets
import sys
from dataclasses import dataclass

from benchmarks import namespaces
from benchmarks.report import compare, heading, size_text
from hubbub.cli.bench_plan import Plan
from hubbub.cli.bench_processes import run


@dataclass(frozen=True)
class Place:
    """A network to measure on: its interface, and how a subscriber gets to the other end."""

    name: str
    interface: str
    elsewhere: tuple[str, ...] = ()


def goodput(place: Place, size_bytes: int, seconds: float, loss: float) -> float:
    """Run once; return the messages a second that arrived, all of them."""
    plan = Plan(
        benchmark="throughput", link="multicast", size=size_bytes, seconds=seconds, subscribers=1,
        loss=loss, rate=None, mode="receive", interface=place.interface,
        domain=f"loss-{secrets.token_hex(4)}",
    )  # fmt: skip
    published, (received,) = run(plan, place.elsewhere)
    if received.messages != published.messages or received.duplicates:
        raise SystemExit(f"{place.name}: {published.messages} sent, {received.messages} received")
    return received.messages / received.seconds


def measure(place: Place, options: argparse.Namespace) -> str:
    """Measure the pairs of one place; return a row of the table."""

    def run_once(has_loss: bool) -> float:
        return goodput(place, options.size, options.seconds, options.loss if has_loss else 0.0)

    return compare(place.name, options.pairs, run_once)


def main() -> int:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loss", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=1024, help="payload in bytes")
    parser.add_argument("--loss", type=float, default=0.05, help="share of frames lost")
    options = parser.parse_args()
    rows = [measure(Place("loopback, large frames", "127.0.0.1"), options)]
    with namespaces.two_hosts() as hosts:
        if hosts is None:
            rows.append(f"| veth | {namespaces.NEEDS} | | |")
        else:
            here, there = hosts
            here.enter()
            place = Place("veth, frames of 1500 bytes", namespaces.VETH, there.prefix)
            rows.append(measure(place, options))
    print(heading("python -m benchmarks.loss", "one subscriber that receives", options.pairs))
    print()
    print(f"| {size_text(options.size)} | no loss | {options.loss:.0%} of frames lost | left |")
    print("|---|---|---|---|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
