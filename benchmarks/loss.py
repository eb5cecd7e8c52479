"""`python -m benchmarks.loss`: how much goodput is left when frames are lost.

Pairs of runs, one without and one with injected loss, take turns, so that a disturbance of the
machine meets both. Once on loopback with its large frames, and once between two network namespaces
over a veth pair, with frames of an Ethernet's size.
"""

import argparse
import contextlib
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.report import heading, size_text
from hubbub.cli.bench_plan import Plan
from hubbub.cli.bench_processes import run

VETH = "hub0"
ADDRESSES = ("10.99.0.1/24", "10.99.0.2/24")


@dataclass(frozen=True)
class Place:
    """A network to measure on: its interface, and how a subscriber gets to the other end."""

    name: str
    interface: str
    elsewhere: tuple[str, ...] = ()


@contextlib.contextmanager
def veth_pair() -> Iterator[Place | None]:
    """Make two namespaces with a veth pair between them; None: only root may."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        yield None
        return
    with contextlib.ExitStack() as stack:
        holders = [
            stack.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "infinity"]))
            for _ in ADDRESSES
        ]
        for holder in holders:
            stack.callback(holder.kill)
        _await_namespaces(holders)
        here, there = (("nsenter", "--net", "--target", str(holder.pid)) for holder in holders)
        _ip(here, f"link add {VETH} type veth peer name {VETH} netns {holders[1].pid}")
        for inside, address in zip((here, there), ADDRESSES, strict=True):
            _ip(inside, "link set lo up")
            _ip(inside, f"addr add {address} dev {VETH}")
            _ip(inside, f"link set {VETH} up multicast on")
            _ip(inside, f"route add 224.0.0.0/4 dev {VETH}")
        with open(f"/proc/{holders[0].pid}/ns/net", encoding="ascii") as namespace:
            _enter(namespace.fileno())
        yield Place("veth, frames of 1500 bytes", VETH, there)


def _await_namespaces(holders: list[subprocess.Popen[bytes]]) -> None:
    """Wait until the processes are in namespaces of their own."""
    ours = os.readlink("/proc/self/ns/net")
    while any(os.readlink(f"/proc/{holder.pid}/ns/net") == ours for holder in holders):
        time.sleep(0.01)


def _ip(inside: tuple[str, ...], arguments: str) -> None:
    subprocess.run([*inside, "ip", *arguments.split()], check=True)


def _enter(namespace: int) -> None:
    """Move this process into a namespace; Python has `os.setns` since 3.12."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


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
    without, with_loss = [], []
    for number in range(options.pairs):
        sys.stderr.write(f"{place.name}: pair {number + 1} of {options.pairs}\n")
        without.append(goodput(place, options.size, options.seconds, 0.0))
        with_loss.append(goodput(place, options.size, options.seconds, options.loss))
    best, left = statistics.median(without), statistics.median(with_loss)
    return f"| {place.name} | {best / 1e3:.0f} k/s | {left / 1e3:.0f} k/s | {left / best:.0%} |"


def main() -> int:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loss", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=1024, help="payload in bytes")
    parser.add_argument("--loss", type=float, default=0.05, help="share of frames lost")
    options = parser.parse_args()
    rows = [measure(Place("loopback, large frames", "127.0.0.1"), options)]
    with veth_pair() as place:
        rows.append(measure(place, options) if place else "| veth | needs root | | |")
    print(heading("python -m benchmarks.loss", "one subscriber that receives", options.pairs))
    print()
    print(f"| {size_text(options.size)} | no loss | {options.loss:.0%} of frames lost | left |")
    print("|---|---|---|---|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
