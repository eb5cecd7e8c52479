"""Every example runs as it is; what it prints is what its text promises."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from tests.integration.bus import DEADLINE_S, IS_SOAK, ROOT, fresh_place, wait_until

EXAMPLES = ROOT / "examples"
TRIED = {
    "demo.py",
    "gateway.py",
    "hello.py",
    "image_by_loan.py",
    "image_without_a_copy.py",
    "record_and_read.py",
    "recording_in_spark.py",  # By tests/spark, which has a Spark that runs.
    "service_without_multicast.py",
    "time_triggered.py",
    "quickstart_publisher.py",
    "quickstart_subscriber.py",
    "asyncio_subscriber.py",
    "typed.py",
    "wildcards_and_callbacks.py",
}


def environment() -> dict[str, str]:
    """Keep the examples off every real network, and away from each other."""
    own = {"HUBBUB_INTERFACE": "127.0.0.1", "HUBBUB_DOMAIN": fresh_place().domain}
    return {**os.environ, **own, "PYTHONUNBUFFERED": "1"}


def run(
    name: str, *arguments: str, timeout_s: float = 60, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        env={**environment(), **variables}, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip


def test_every_example_is_tried_here() -> None:
    assert {path.name for path in Path(EXAMPLES).glob("*.py")} == TRIED


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_demo_loses_frames_and_no_message_and_points_out_who_was_killed(tmp_path: Path) -> None:
    arguments = ["--messages", "10000", "--seconds", "30" if IS_SOAK else "4"]
    arguments += ["--output", str(tmp_path / "out")]
    arguments += [] if IS_SOAK else ["--no-tables"]  # Which take Spark half a minute.
    elsewhere = {name: str(tmp_path / name) for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR")}
    for folder in elsewhere.values():
        Path(folder).mkdir()
    done = run("demo.py", *arguments, timeout_s=580, **elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 x 10,000 messages: nothing missing, nothing twice, in order" in done.stdout
    lost = [int(number) for number in re.findall(r"though (\d+) frames", done.stdout)]
    assert len(lost) == 3 and sum(lost) > 0
    assert "vehicle-2 is killed" in done.stdout and "held up nobody" in done.stdout
    assert "messages are on the disk" in done.stdout
    left = [path for folder in elsewhere.values() for path in Path(folder).iterdir()]
    assert left == [], "the demo leaves nothing behind but its output"
    if IS_SOAK:
        assert "What went wrong: Publisher vehicle-2#" in done.stdout
        assert "!! Consumer sleeper#" in done.stdout
        assert "<svg" in (tmp_path / "out" / "report.html").read_text()


def running_in_session(session: int) -> list[str]:
    """Name the processes of a session that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = status.read_text().rpartition(")")
            state, _, _, owner = rest.split()[:4]
            if int(owner) == session and state != "Z":
                found.append(name)
    return found


def test_demo_ends_at_ctrl_c_and_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "demo.py", "--no-tables", "--output", tmp_path / "out"]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if "subscriber" in line and "messages" in line and line.startswith("  sub"):
                break
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does: to all of them.
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "ended; what was recorded is in the output folder" in out
    wait_until(lambda: not running_in_session(process.pid))


def test_quickstart_subscriber_prints_what_the_publisher_prints() -> None:
    place = environment()
    command = [sys.executable, str(EXAMPLES / "quickstart_publisher.py")]
    with subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True) as publisher:
        try:
            done = subprocess.run(
                [sys.executable, EXAMPLES / "quickstart_subscriber.py", "3"],
                env=place, capture_output=True, text=True, timeout=DEADLINE_S, check=True,
            )  # fmt: skip
        finally:
            publisher.kill()
        assert publisher.stdout is not None
        published = publisher.stdout.read().splitlines()
    heard = [line.split()[1] for line in done.stdout.splitlines()]
    sent = [line.split()[0] for line in published]
    assert len(heard) == 3
    assert any(sent[at : at + 3] == heard for at in range(len(sent))), (sent, heard)


def test_hello_hears_itself() -> None:
    done = run("hello.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "hello says 21.5 on /plant/line1/temp\n"


def test_hello_is_ten_lines_long() -> None:
    lines = (EXAMPLES / "hello.py").read_text().splitlines()
    assert len([line for line in lines[1:] if line]) <= 10


def test_images_are_seen_where_they_were_written() -> None:
    done = run("image_without_a_copy.py", "3")
    assert done.returncode == 0, done.stderr
    seen = done.stdout.splitlines()
    assert len(seen) >= 3 and all(
        line.endswith(": read where it was written") for line in seen[-3:]
    )


def test_images_are_drawn_where_they_are_seen() -> None:
    done = run("image_by_loan.py", "3")
    assert done.returncode == 0, done.stderr
    seen = done.stdout.splitlines()
    assert len(seen) >= 3 and all(line.endswith(": read where it was drawn") for line in seen[-3:])


def test_time_triggered_example_gets_samples_a_period_apart() -> None:
    # A busy machine may skip a tick, and who would miss its slot then gets a sample out of turn, at
    # any time. One run of a few is not disturbed.
    for _ in range(5):
        done = run("time_triggered.py")
        assert done.returncode == 0, done.stderr
        brakes, display, sent = done.stdout.splitlines()
        assert sent.endswith("without consumers there are none")
        apart_ms = [int(line.split()[-2]) for line in (brakes, display)]
        assert all(one > 0 for one in apart_ms)
        if apart_ms == [40, 100]:
            return
    pytest.fail(f"samples are {apart_ms} ms apart, not 40 and 100")


def test_service_example_needs_no_multicast() -> None:
    done = run("service_without_multicast.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["published to 1 subscriber", "line 1 is running"]


def test_gateway_joins_two_networks_and_says_what_crossed() -> None:
    done = run("gateway.py")
    assert done.returncode == 0, done.stderr
    assert "sensor says 21.5 on /plant/line1/temp" in done.stdout
    assert "to office: 1 passed on" in done.stdout and "to plant: 0 passed on" in done.stdout


def test_recorded_messages_are_read_again(tmp_path: Path) -> None:
    done = run("record_and_read.py", str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "5 messages are safe in store",
        *(f"{number}: /plant/line1/temp 20.{number + 1}" for number in range(5)),
    ]


def test_asyncio_example_receives_in_order() -> None:
    done = run("asyncio_subscriber.py", "5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"/plant/line1/count {number}" for number in range(1, 6)]


def test_typed_example_decodes_one_type_and_reports_the_other() -> None:
    done = run("typed.py")
    assert done.returncode == 0, done.stderr
    assert "north: 21.5 °C" in done.stdout
    assert "schema mismatch: typed#" in done.stdout
    assert "line 2: None" in done.stdout


@cache
def wildcards() -> subprocess.CompletedProcess[str]:
    return run("wildcards_and_callbacks.py")


@pytest.mark.parametrize(
    ("context", "subjects"),
    [
        ("exactly", ["/plant/line1/temp"]),
        ("one level", ["/plant/line1/temp", "/plant/line2/temp"]),
        ("many levels", ["/plant/line1/temp", "/plant/line2/temp", "/plant/line2/pump/speed"]),
    ],
)
def test_wildcard_example_delivers_to_each_pattern(context: str, subjects: list[str]) -> None:
    done = wildcards()
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    heard = [line.split()[-2] for line in lines if line.startswith(f"{context}:")]
    assert heard == subjects
