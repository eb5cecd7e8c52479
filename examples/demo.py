"""One publisher, three subscribers, a recorder, and a network that loses a tenth; then tables.

    python examples/demo.py [--messages N] [--loss P] [--output FOLDER] [--no-tables]

Every node throws away 10 % of the frames that it sends and of those that it receives, so nearly
a fifth of all frames between two of them never arrive. The subscribers, each a process of its own,
check every message; the verdict is theirs. What flowed is recorded, Spark makes tables of it, and a
report shows them: the recording has to agree with the subscribers. All of it happens on the
loopback interface of this machine, and leaves nothing behind but the output folder.
"""

import argparse
import json
import multiprocessing
import queue
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hubbub

SUBSCRIBERS = 3
SUBJECT = "/demo/line1/temp"
SILENCE_S = 10.0


def open_node(name: str, domain: str, loss: float) -> hubbub.Node:
    """Open a node whose network loses frames on purpose."""
    return hubbub.open(
        name,
        domain=domain,
        interface="127.0.0.1",
        faults=hubbub.Faults(loss=loss),
        frame_bytes_max=1472,  # As on Ethernet: loopback would take a few large frames.
    )


def subscribe(number: int, domain: str, loss: float, count: int, reports: Any) -> None:
    """Receive until everything is there, and report every step to the parent."""
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
    with open_node("publisher", domain, loss) as node:
        publisher = node.publisher(SUBJECT)
        publisher.wait_for_subscribers(SUBSCRIBERS + 1, timeout=SILENCE_S)  # And the recorder.
        for number in range(count):
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


def hubbub_command(*arguments: str | Path) -> str:
    """Run a command as a user would, and return what it printed; its progress is seen meanwhile."""
    command = [sys.executable, "-m", "hubbub", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def analyse(output: Path, count: int) -> int:
    """Make tables of the recording and a report of these; tell whether they agree with us."""
    tables, page = output / "tables", output / "report.html"
    print("\nSpark makes tables of the recording:")
    began_s = time.monotonic()
    hubbub_command("pipeline", "run", output / "recording", "--out", tables)
    print(f"  done in {time.monotonic() - began_s:.0f} s, most of which Spark takes to start")
    hubbub_command("report", tables, "-o", page)
    report = json.loads(hubbub_command("report", tables, "--json"))
    print(f"\n{report['summary']}")
    [topic] = [one for one in report["topics"] if one["subject"] == SUBJECT]
    if topic["messages"] != count or topic["lost"]:
        print(f"FAILED: of {count:,} messages the tables have {topic['messages']:,}")
        return 1
    print(f"{count:,} messages recorded, none lost; {page} shows it in pictures. Try next:")
    command = find_command()
    print(f"  {command} report {tables} --format text")
    print(f"  {command} play {output / 'recording'} --interface 127.0.0.1 --rate 2")
    print(f"  {command} bench throughput")
    return 0


def find_command() -> str:
    """Return how the command of this environment is called from here."""
    own = Path(sys.executable).with_name("hubbub")
    if Path(shutil.which("hubbub") or "") == own:
        return "hubbub"
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)


def main() -> int:
    """Start everybody, and tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--loss", type=float, default=0.1)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--no-tables", action="store_true", help="end with the recording")
    options = parser.parse_args()
    count, loss, output = max(options.messages, 4), options.loss, options.output
    domain = f"demo-{time.time_ns()}"
    shutil.rmtree(output, ignore_errors=True)  # Of a run before.
    output.mkdir(parents=True)
    print(f"{count:,} messages to {SUBSCRIBERS} subscribers; {loss:.0%} of all frames are lost,")
    print("on the way out and again on the way in:")
    with (
        open_node("recorder", domain, loss) as node,
        hubbub.Recorder(node, "/demo/...", output / "recording") as recorder,
    ):
        code = run(domain, loss, count)
        recorder.flush()
        print(f"{recorder.acknowledged:,} messages are on the disk")
    return code if code or options.no_tables else analyse(output, count)


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
    code = judge(watch(reports), count)
    for process in processes:
        process.join(SILENCE_S)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
