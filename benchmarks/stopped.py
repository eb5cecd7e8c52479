"""`python -m benchmarks.stopped`: what one stopped subscriber costs the others.

Pairs of runs, one without and one with a subscriber that takes nothing, take turns, so that a
disturbance of the machine meets both: a process stopped by SIGSTOP, reached by pipes and by
multicast on loopback, and a callback that never returns in the process of another subscriber. What
is compared is the throughput of the slowest of two subscribers that go on, once the other has been
left behind; being held up for `slow_ms` before that is the once-only part of the price.
"""

import argparse
import contextlib
import secrets
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import hubbub
from benchmarks.report import compare, heading, size_text

SUBJECT = "/stopped/data"
MARK, END = b"mark", b"end"
SETTLE_S = 0.7
FOLLOWERS = 2
PLACES = {
    "pipes, a stopped process": (["local", "multicast"], False),
    "multicast, a stopped process": (["multicast"], False),
    "pipes, a callback that blocks": (["local", "multicast"], True),
}


def open_node(name: str, domain: str, links: list[str]) -> hubbub.Node:
    """Open a node on loopback that takes nobody for gone because it is silent."""
    return hubbub.open(
        name, domain=domain, interface="127.0.0.1", links=links, peer_timeout_ms=600_000
    )


def follow(domain: str, links: list[str], is_blocked: bool) -> None:
    """Receive until the end, and say how many messages a second came behind the mark."""
    with open_node("follower", domain, links) as node:
        if is_blocked:
            node.subscribe(SUBJECT, lambda message: threading.Event().wait(), queue=10)
        subscription = node.subscribe(SUBJECT, queue=1_000_000)
        print("ready", flush=True)
        first, start_ns = 0, 0
        for message in subscription:
            if message.payload == MARK:
                first, start_ns = message.sequence, message.received_ns
            elif message.payload == END:
                seconds = (message.received_ns - start_ns) / 1e9
                print((message.sequence - first) / seconds, subscription.dropped, flush=True)
                return


def publish(domain: str, links: list[str], subscribers: int, options: argparse.Namespace) -> None:
    """Publish at full speed, a mark once all is settled, and the end."""
    payload = bytes(options.size)
    with open_node("publisher", domain, links) as node:
        publisher = node.publisher(SUBJECT)
        publisher.wait_for_subscribers(subscribers, 10)
        for seconds, last in ((SETTLE_S, MARK), (options.seconds, END)):
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                publisher.publish(payload)
            publisher.publish(last)
        node.flush(1.0)


class Follower:
    """A subscriber in a process of its own."""

    def __init__(self, domain: str, links: list[str], is_blocked: bool) -> None:
        arguments = ["follow", domain, "+".join(links), str(int(is_blocked))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stopped", *arguments],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def read(self) -> str:
        """Return the next line that it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        """End it, however it is."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def throughput(place: str, options: argparse.Namespace, has_victim: bool) -> float:
    """Run once; return the messages a second of the slowest of those that go on."""
    links, is_callback = PLACES[place]
    domain = f"stopped-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        followers = []
        for place_number in range(FOLLOWERS):
            is_blocked = is_callback and has_victim and place_number == 0
            followers.append(Follower(domain, links, is_blocked))
            stack.callback(followers[-1].close)
        victims = [Follower(domain, links, False)] if has_victim and not is_callback else []
        for victim in victims:
            stack.callback(victim.close)
        for one in [*followers, *victims]:
            if one.read() != "ready":
                raise SystemExit("a subscriber did not start")
        for victim in victims:
            victim.process.send_signal(signal.SIGSTOP)
        publish(domain, links, FOLLOWERS + len(victims), options)
        outcomes = [one.read().split() for one in followers]
        if any(dropped != "0" for _, dropped in outcomes):
            raise SystemExit(f"{place}: a subscriber that goes on has dropped messages")
        return min(float(rate) for rate, _ in outcomes)


def main() -> int:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stopped", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=1024, help="payload in bytes")
    options = parser.parse_args()
    rows = [compare(place, options.pairs, partial(throughput, place, options)) for place in PLACES]
    where = f"two subscribers that receive, and one stopped; {SETTLE_S} s to leave it behind"
    print(heading("python -m benchmarks.stopped", where, options.pairs))
    print()
    print(f"| {size_text(options.size)} | without it | beside it | left |")
    print("|---|---|---|---|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        follow(sys.argv[2], sys.argv[3].split("+"), sys.argv[4] == "1")
    else:
        sys.exit(main())
