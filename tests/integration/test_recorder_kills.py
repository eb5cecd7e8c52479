"""A recorder that is killed at any instant has kept everything that it acknowledged."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from hubbub.store.disk import Disk
from hubbub.store.journal import Run, open_segment, segments
from hubbub.store.lock import StoreLock
from hubbub.store.recovery import Recovered, recover
from tests.integration.bus import IS_SOAK, ROOT, wait_until
from tests.integration.killed_recorder import SUBJECT, acknowledged

KILLS = 1000 if IS_SOAK else 6
KILLED_WITHIN_S = 0.2
_log = logging.getLogger(__name__)


@contextmanager
def forker() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.killed_recorder"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # A recorder that was spared would record for ever.
        process.communicate()


def recover_when_it_is_gone(store: Path) -> Recovered:
    """Take the lock that a killed process leaves, and see that the store can be gone on with."""

    def take() -> StoreLock | None:
        try:
            return StoreLock(store)
        except Exception:
            return None

    lock = wait_until(take)
    recovered = recover(store, time.time_ns(), Disk())
    lock.release()
    return recovered


def check(store: Path, offset: int, number: int) -> tuple[int, int]:
    """Read everything from an offset on; return up to where it goes."""
    sequences: dict[int, int] = {}
    for path in segments(store):
        with open_segment(path) as segment:
            assert segment.is_closed or path != segments(store)[-1]
            for value in segment:
                if not isinstance(value, Run):
                    assert value.number == number
                    number += 1
                    continue
                assert value.offset == offset
                assert value.topic.subject == SUBJECT
                incarnation = value.topic.incarnation
                assert value.first == sequences.get(incarnation, value.first)
                sequences[incarnation] = value.first + len(value.payloads)
                assert all(payload.endswith(b";") for payload in value.payloads)
                offset = value.end_offset
            assert (segment.damaged, segment.missing, segment.torn_bytes) == ([], [], 0)
    return offset, number


@pytest.mark.soak
@pytest.mark.timeout(0)  # What is waited for has a deadline of its own.
def test_killed_recorder_has_kept_what_it_acknowledged(tmp_path: Path) -> None:
    store, told = tmp_path / "store", tmp_path / "told"
    random = Random()
    offset = number = torn = recorded = 0
    with forker() as process:
        assert process.stdin is not None and process.stdout is not None
        for kill in range(KILLS):
            told.write_bytes(bytes(16))
            process.stdin.write(f"{store} {told}\n")
            process.stdin.flush()
            pid = int(process.stdout.readline())
            drawn = random.random()
            if not kill or drawn < 0.4:
                wait_until(lambda: acknowledged(told))
            elif drawn < 0.8:  # Else while it still starts.
                wait_until(lambda: any(told.read_bytes()))
            time.sleep(random.random() * KILLED_WITHIN_S)
            os.kill(pid, signal.SIGKILL)
            recovered = recover_when_it_is_gone(store)
            offset, number = check(store, offset, number)
            assert offset == recovered.start.offset >= acknowledged(told)
            assert recovered.damaged == 0
            torn += len(recovered.torn)
            recorded = offset
            for path in segments(store):
                path.unlink()
            keep_the_end(store, recovered)
    assert recorded > 0
    _log.info("%d kills, %d messages, %d torn tails", KILLS, recorded, torn)


def keep_the_end(store: Path, recovered: Recovered) -> None:
    """Say where the recording goes on, as files that were made of its segments would."""
    start = recovered.start
    for table, end in (("messages", start.offset), ("events", start.number)):
        folder = store / table / "hour=2026-11-16-09"
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        if end:
            (folder / f"{start.segment - 1:012}-{0:016}-{end - 1:016}.parquet").touch()
