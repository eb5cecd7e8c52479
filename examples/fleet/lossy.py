"""One publisher, three subscribers, and a network that loses a tenth of all frames, both ways.

Every node throws away 10 % of the frames that it sends and of those that it receives, so nearly
a fifth of all frames between two of them never arrive. The subscribers, each a process of its own,
check every message; the verdict is theirs.
"""

import multiprocessing
import queue
import signal
import time
from typing import Any

import hubbub
from fleet.cast import open_node

SUBSCRIBERS = 3
SUBJECT = "/demo/line1/temp"
RATE = 20_000  # Messages a second: as fast as it goes, they would only wait for each other.
SILENCE_S = 30.0  # Python starts slowly on a busy machine.


def subscribe(number: int, domain: str, loss: float, count: int, reports: Any) -> None:
    """Receive until everything is there, and report every step to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open_node(f"subscriber-{number}", domain, loss) as node:
        gaps: list[hubbub.Event] = []
        node.on_event(lambda event: gaps.append(event) if is_gap(event) else None)
        subscription = node.subscribe("/demo/*/temp", queue=count + 1)
        reports.put((number, "ready", None))
        received: list[int] = []
        while len(received) < count:
            message = subscription.receive(SILENCE_S)
            if message is None:
                break
            received.append(int(message.payload))
            if len(received) % (count // 4) == 0:
                reports.put((number, "progress", len(received)))
        extra = subscription.receive(0.2)
        [channel] = node.statistics().channels
        lost = channel.link.faults_in.lost if channel.link.faults_in else 0
        verdict = {
            "missing": count - len(set(received)),
            "twice": len(received) - len(set(received)) + (extra is not None),
            "is_ordered": received == sorted(received),
            "gaps": len(gaps),
            "lost": lost,
        }
        reports.put((number, "done", verdict))


def is_gap(event: hubbub.Event) -> bool:
    """Tell whether an event reports lost messages."""
    return isinstance(event, hubbub.GapAbandoned)


def publish(domain: str, loss: float, count: int) -> None:
    """Publish numbered messages to everybody, then wait until all have them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open_node("publisher", domain, loss) as node:
        publisher = node.publisher(SUBJECT)
        publisher.wait_for_subscribers(SUBSCRIBERS + 1, timeout=SILENCE_S)  # And the recorder.
        begin_s = time.monotonic()
        for number in range(count):
            if not number % 100:
                time.sleep(max(0.0, begin_s + number / RATE - time.monotonic()))
            publisher.publish(b"%d" % number)
        node.flush(SILENCE_S)


def watch(reports: Any) -> dict[int, dict[str, Any]]:
    """Print the progress, and collect the verdicts of all subscribers."""
    verdicts: dict[int, dict[str, Any]] = {}
    while len(verdicts) < SUBSCRIBERS:
        try:
            number, what, value = reports.get(timeout=2 * SILENCE_S)
        except queue.Empty:
            break
        if what == "progress":
            print(f"  subscriber {number}: {value:,} messages")
        elif what == "done":
            verdicts[number] = value
            print(f"  subscriber {number}: done, though {value['lost']} frames never came in")
    return verdicts


def judge(verdicts: dict[int, dict[str, Any]], count: int) -> int:
    """Print the verdict over all subscribers and return the exit code."""
    bad = {
        number: verdict
        for number, verdict in verdicts.items()
        if verdict["missing"] or verdict["twice"] or verdict["gaps"] or not verdict["is_ordered"]
    }
    silent = SUBSCRIBERS - len(verdicts)
    if bad or silent:
        print(f"FAILED: {silent} subscribers said nothing, and of the others: {bad}")
        return 1
    print(f"{SUBSCRIBERS} x {count:,} messages: nothing missing, nothing twice, in order")
    return 0


def run(domain: str, loss: float, count: int) -> int:
    """Let processes publish and subscribe, and return the exit code."""
    context = multiprocessing.get_context("spawn")
    reports = context.Queue()
    processes = [
        context.Process(target=subscribe, args=(number, domain, loss, count, reports), daemon=True)
        for number in range(1, SUBSCRIBERS + 1)
    ]
    processes.append(context.Process(target=publish, args=(domain, loss, count), daemon=True))
    for process in processes:
        process.start()
    try:
        return judge(watch(reports), count)
    finally:
        for process in processes:
            process.join(1)
            process.kill()
