"""The whole story in about two minutes: a bad network, a small fleet, a recording, a report.

    python examples/demo.py [--messages N] [--loss P] [--seconds S] [--output FOLDER] [--no-tables]

First a bus that loses frames and no message. Then a fleet, a process each: vehicles whose speed
and position are sampled when somebody is due a sample, a plant line on the bad network, a camera,
and one who looks at its pictures too slowly. In the midst of it a vehicle is killed. Everything is
recorded; Spark makes tables of it meanwhile, and a report says what went wrong. All of it happens
on the loopback interface of this machine, and leaves nothing behind but the output folder.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleet import lossy, plant, vehicles
from fleet.cast import Cast, open_node
from fleet.tables import LiveTables, report

import hubbub

VEHICLES = ["vehicle-1", "vehicle-2", "vehicle-3"]
VICTIM = "vehicle-2"
START_S = 30.0  # Python starts slowly on a busy machine.
MARKS = {"bad": "!!", "warning": "! ", "note": "- ", "good": "ok"}


def main() -> int:
    """Play both acts, record them, and tell how it went."""
    options = read_options()
    domain, output = f"demo-{time.time_ns()}", options.output
    shutil.rmtree(output, ignore_errors=True)  # Of a run before.
    output.mkdir(parents=True)
    recording = output / "recording"
    with contextlib.ExitStack() as stack:
        stack.enter_context(staying_in(output))
        recorder_node = stack.enter_context(open_node("recorder", domain))
        recorder = stack.enter_context(hubbub.Recorder(recorder_node, "/...", recording))
        tables = None
        if not options.no_tables:
            tables = stack.enter_context(
                LiveTables(recording, output / "tables", output / "pipeline.log")
            )
        count, loss = max(options.messages, 4), options.loss
        print(f"1. {count:,} messages to {lossy.SUBSCRIBERS} subscribers; {loss:.0%} of all frames")
        print("   are lost, on the way out and again on the way in:")
        if code := lossy.run(domain, loss, count):
            return code
        told = play_fleet(domain, loss, options.seconds, recorder, tables)
        if code := judge_fleet(told):
            return code
        recorder.close()
        print(f"{recorder.acknowledged:,} messages are on the disk")
        if tables is None:
            return 0
        return analyse(output, recorder, tables, told["sleeper"]["dropped"])


@contextlib.contextmanager
def staying_in(output: Path) -> Iterator[None]:
    """Let nodes meet, and Spark keep its log, in places that go away or are in the output."""
    with tempfile.TemporaryDirectory(prefix="hubbub-demo-") as meeting:
        os.environ["HUBBUB_RUNTIME_DIR"] = meeting
        os.environ["XDG_CACHE_HOME"] = str(output.absolute() / "cache")
        yield


def read_options() -> argparse.Namespace:
    """Read what the user wants otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=50_000, help="of the first act")
    parser.add_argument("--loss", type=float, default=0.1, help="share of frames, each way")
    parser.add_argument("--seconds", type=float, default=30, help="that the fleet drives")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--no-tables", action="store_true", help="end with the recording")
    return parser.parse_args()


def play_fleet(
    domain: str, loss: float, seconds: float, recorder: hubbub.Recorder, tables: LiveTables | None
) -> dict[str, dict[str, Any]]:
    """Let the fleet drive, kill one of it half-way, and return what the others say."""
    print(f"\n2. A fleet drives for {seconds:g} s, a process each: three vehicles and their")
    print("   control, a plant line on the same bad network, a camera, and two who look at it:")
    with Cast(domain) as cast:
        for name in VEHICLES:
            cast.start(name, vehicles.drive)
        cast.start("control", vehicles.control, VEHICLES)
        cast.start("viewer", plant.look, False)
        cast.start("sleeper", plant.look, True)
        cast.start("line1", plant.sense, loss)
        cast.start("north", plant.film)
        wait_for_everybody(recorder.node, count=len(VEHICLES) + 5)
        wait(seconds / 2, recorder, tables)
        cast.kill(VICTIM)
        print(f"   {VICTIM} is killed, without a goodbye")
        wait(seconds / 2, recorder, tables)
        return cast.finish("north")  # Who looks at its pictures is there until the last of them.


def wait_for_everybody(node: hubbub.Node, count: int) -> None:
    """Wait until the whole cast is on the bus, and a little more for it to begin."""
    end_s = time.monotonic() + START_S
    while len(node.peers()) < count and time.monotonic() < end_s:
        time.sleep(0.1)
    time.sleep(1)


def wait(seconds: float, recorder: hubbub.Recorder, tables: LiveTables | None) -> None:
    """Say every few seconds what is recorded, and in tables."""
    began_s = time.monotonic()
    while (left_s := seconds - (time.monotonic() - began_s)) > 0.1:
        time.sleep(min(5.0, left_s))
        line = f"   {recorder.statistics().recorded:,} messages recorded"
        if tables is not None:
            made = tables.messages
            line += f", {made:,} of them in tables" if made else ", Spark is starting"
        print(line)


def judge_fleet(told: dict[str, dict[str, Any]]) -> int:
    """Print what everybody said, and return the exit code."""
    missing = {"control", "viewer", "sleeper", "line1", "north"} - told.keys()
    if missing:
        print(f"FAILED: {', '.join(sorted(missing))} said nothing")
        return 1
    for vehicle, (served, missed) in told["control"].items():
        print(f"   {vehicle}: the speed came in {served:,} slots of 50 ms, {missed:,} stayed empty")
    line, frames = told["line1"], told["north"]["frames"]
    print(f"   line1: {line['readings']:,} readings; {line['frames_lost']:,} frames were lost on"
          f" their way, and {line['repairs']:,} sent again")  # fmt: skip
    viewer, sleeper = told["viewer"], told["sleeper"]
    print(f"   camera: {frames:,} frames of {plant.FRAME_BYTES // 1000} kB; the viewer saw"
          f" {viewer['seen']:,}, the sleeper {sleeper['seen']:,}: its own queue dropped"
          f" {sleeper['dropped']:,}, and held up nobody")  # fmt: skip
    if viewer["seen"] != frames or not sleeper["dropped"]:
        print(f"FAILED: the camera made {frames} frames; the viewer and the sleeper say {told}")
        return 1
    return 0


def analyse(output: Path, recorder: hubbub.Recorder, tables: LiveTables, dropped: int) -> int:
    """Wait for the tables, write the report, and point out what went wrong."""
    count = recorder.acknowledged
    print(f"\n3. Spark goes on until all {count:,} messages are in tables ...")
    if not tables.catch_up(count):
        print(f"FAILED: {tables.messages:,} are; see {output / 'pipeline.log'}")
        return 1
    page = output / "report.html"
    said = report(tables.tables, page)
    slow = f"and {dropped:,} messages were dropped."
    end_s = time.monotonic() + START_S
    while slow not in str(said) and time.monotonic() < end_s:  # Events may come a step later.
        said = report(tables.tables, page)
    print(f"\n{said['summary']}")
    for finding in said["findings"]:
        print(f"{MARKS[finding['level']]} {finding['text']}")
    wrong = [one for one in said["findings"] if one["text"].startswith(f"Publisher {VICTIM}#")]
    if not wrong:
        print(f"FAILED: the report does not tell that {VICTIM} was killed")
        return 1
    if slow not in str(said):
        print(f"FAILED: the report does not tell that the sleeper was slow, {slow}")
        return 1
    print(f"\nWhat went wrong: {wrong[0]['text']}")
    print(f"Evidence: {'; '.join(wrong[0]['evidence'])}. {page} shows it in pictures. Try next:")
    command = find_command()
    print(f"  {command} report {tables.tables} --format text")
    print(f"  {command} play {output / 'recording'} --interface 127.0.0.1 --rate 2")
    print(f"  {command} top --interface 127.0.0.1      # in another terminal, while it plays")
    return 0


def find_command() -> str:
    """Return how the command of this environment is called from here."""
    own = Path(sys.executable).with_name("hubbub")
    if Path(shutil.which("hubbub") or "") == own:
        return "hubbub"
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nended; what was recorded is in the output folder")
        sys.exit(130)
