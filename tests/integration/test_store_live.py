"""A recorder and its converter are killed again and again: the store stays sound, and whole."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hubbub.store import Store
from hubbub.store.converter import convert_rest
from hubbub.store.journal import segments
from hubbub.store.verify import verify
from tests.integration.bus import IS_SOAK, ROOT, wait_until

KILLS = 100 if IS_SOAK else 2
RECORD = """
import os, sys, hubbub
from pathlib import Path
store, told = sys.argv[1:]
with (
    hubbub.open(domain=f"live-{os.getpid()}", links=["local"], network=False) as node,
    hubbub.Recorder(node, "/...", store, split_size=64 << 10, split_time=0.05) as recorder,
):
    publisher = node.publisher("/live", type=None)
    number = 0
    while True:
        for _ in range(20):
            publisher.publish(b"%d" % number)
            number += 1
        recorder.flush(10)
        Path(told + ".new").write_text(str(recorder.acknowledged))
        os.replace(told + ".new", told)
"""


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


@pytest.mark.soak
def test_killed_recorder_and_converter_leave_a_sound_store(tmp_path: Path) -> None:
    store, told = tmp_path / "store", tmp_path / "told"
    draw = random.Random(7)
    acknowledged = 0
    for _ in range(KILLS):
        told.unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", RECORD, str(store), str(told)], cwd=ROOT) as (
            recorder
        ):
            wait_until(told.exists)
            time.sleep(draw.random() / 2)
            converters = children(recorder.pid)
            if draw.random() < 0.5:
                os.kill(converters[0], signal.SIGKILL)
            recorder.kill()
        acknowledged = max(acknowledged, int(told.read_text()))
        offsets = [
            offset
            for batch in Store(store).messages(columns=["offset"])
            for offset in batch["offset"].to_pylist()
        ]
        assert offsets == list(range(len(offsets))) and len(offsets) >= acknowledged
    wait_until(lambda: not [pid for pid in converters if Path(f"/proc/{pid}/exe").exists()])
    convert_rest(store)
    assert segments(store) == []
    assert [fault for looked in verify(store) for fault in looked.faults] == []
    assert Store(store).info().messages >= acknowledged
