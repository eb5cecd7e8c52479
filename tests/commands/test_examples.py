"""Every example runs as it is; what it prints is what its text promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.bus import DEADLINE_S, IS_SOAK, ROOT, fresh_place

EXAMPLES = ROOT / "examples"
TRIED = {
    "demo.py",
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


def run(name: str, *arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        env=environment(), capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip


def test_every_example_is_tried_here() -> None:
    assert {path.name for path in Path(EXAMPLES).glob("*.py")} == TRIED


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_demo_loses_frames_and_no_message_and_shows_it(tmp_path: Path) -> None:
    arguments = ["--messages", "20000", "--output", str(tmp_path / "out")]
    arguments += [] if IS_SOAK else ["--no-tables"]  # Which take Spark half a minute.
    done = run("demo.py", *arguments, timeout_s=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 x 20,000 messages: nothing missing, nothing twice, in order" in done.stdout
    lost = [int(number) for number in re.findall(r"though (\d+) frames", done.stdout)]
    assert len(lost) == 3 and sum(lost) > 0
    assert "20,000 messages are on the disk" in done.stdout
    if IS_SOAK:
        assert "20,000 messages recorded, none lost" in done.stdout
        assert "<svg" in (tmp_path / "out" / "report.html").read_text()


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


@pytest.mark.parametrize(
    ("context", "subjects"),
    [
        ("exactly", ["/plant/line1/temp"]),
        ("one level", ["/plant/line1/temp", "/plant/line2/temp"]),
        ("many levels", ["/plant/line1/temp", "/plant/line2/temp", "/plant/line2/pump/speed"]),
    ],
)
def test_wildcard_example_delivers_to_each_pattern(context: str, subjects: list[str]) -> None:
    done = run("wildcards_and_callbacks.py")
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    heard = [line.split()[-2] for line in lines if line.startswith(f"{context}:")]
    assert heard == subjects
