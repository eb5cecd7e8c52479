"""`python -m benchmarks.sides`: what one subscriber elsewhere costs those of this host.

A subscriber with pipes reads as fast as it can: alone, beside one that is reached by multicast and
wants another subject (one small message in a hundred), and beside one that wants the same. All are
processes on loopback; the one elsewhere just has no pipes. A reliable publisher waits for its
slowest receiver, so the last figure is also what multicast carries. Runs take turns.
"""

import argparse
import secrets
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

import hubbub
from benchmarks.report import heading, size_text

NEAR_LINKS, FAR_LINKS = "local+multicast", "multicast"
SUBJECT, OTHER = "/sides/data", "/sides/other"
MARK, END = b"mark", b"end"
SETTLE_S = 0.5
BESIDE = {"alone": None, "another subject elsewhere": OTHER, "the same subject elsewhere": SUBJECT}


def open_node(name: str, domain: str, links: str) -> hubbub.Node:
    """Open a node on loopback."""
    return hubbub.open(name, domain=domain, interface="127.0.0.1", links=links.split("+"))


def follow(domain: str, links: str, subject: str) -> None:
    """Receive until the end, and say how many messages a second came behind the mark."""
    with open_node("follower", domain, links) as node:
        subscription = node.subscribe(subject, queue=100_000)
        print("ready", flush=True)
        first, start_ns, by = 0, 0, ""
        for message in subscription:
            if message.payload == MARK:
                first, start_ns = message.sequence, message.received_ns
            elif message.payload == END:
                seconds = (message.received_ns - start_ns) / 1e9
                print((message.sequence - first) / seconds, by, flush=True)
                return
            by = message.link


def publish(domain: str, subscribers: int, size: int, seconds: float) -> None:
    """Publish at full speed, a mark once all is settled, and the end."""
    payload = bytes(size)
    with open_node("publisher", domain, NEAR_LINKS) as node:
        publisher, other = node.publisher(SUBJECT), node.publisher(OTHER)
        end_s = time.monotonic() + 10
        while publisher.receivers + other.receivers < subscribers and time.monotonic() < end_s:
            time.sleep(0.01)
        time.sleep(SETTLE_S)
        for time_s, last in ((SETTLE_S, MARK), (seconds, END)):
            end_s, count = time.monotonic() + time_s, 0
            while time.monotonic() < end_s:
                publisher.publish(payload)
                count += 1
                if count % 100 == 0:
                    other.publish(payload[:64])
            publisher.publish(last)
        other.publish(END)
        node.flush(5.0)


def start(stack: ExitStack, domain: str, links: str, subject: str) -> subprocess.Popen[str]:
    """Start a subscriber in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sides", "follow", domain, links, subject],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise SystemExit("a subscriber did not start")
    return process


def throughput(subject: str | None, size: int, seconds: float) -> tuple[float, str]:
    """Run once; return the messages a second of the subscriber here, and by which link."""
    domain = f"sides-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        near = start(stack, domain, NEAR_LINKS, SUBJECT)
        if subject is not None:
            start(stack, domain, FAR_LINKS, subject)
        publish(domain, 1 + (subject is not None), size, seconds)
        assert near.stdout is not None
        rate, _, by = near.stdout.readline().strip().partition(" ")
        return float(rate), by


def measure(size: int, options: argparse.Namespace) -> str:
    """Measure the rounds of one size; return a row of the table."""
    rates: dict[str, list[float]] = {name: [] for name in BESIDE}
    by: dict[str, str] = {}
    for _ in range(options.rounds):
        for name, subject in BESIDE.items():
            rate, by[name] = throughput(subject, size, options.seconds)
            rates[name].append(rate)
    cells = []
    for name, found in rates.items():
        rate = statistics.median(found)
        megabytes = f", {rate * size / 1e6:,.0f} MB/s" if size > 1000 else ""
        cells.append(f"{rate / 1e3:.1f} k/s{megabytes} ({by[name]})")
    return f"| {size_text(size)} | {' | '.join(cells)} |"


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sides", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--sizes", default="64,1024,65536,1048576")
    options = parser.parse_args()
    rows = [measure(int(size), options) for size in options.sizes.split(",")]
    print(
        heading("python -m benchmarks.sides", "a subscriber with pipes, loopback", options.rounds)
    )
    print()
    print(f"| size | {' | '.join(BESIDE)} |")
    print("|---" * (len(BESIDE) + 1) + "|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        follow(*sys.argv[2:5])
    else:
        sys.exit(main())
