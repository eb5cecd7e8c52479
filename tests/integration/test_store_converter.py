"""The process that converts: in step with the recorder, gone with it, and none the worse for it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from hubbub.errors import StoreError
from hubbub.store.checkpoints import register
from hubbub.store.converter import _Work, closed_segments, conversion_lock, convert_rest
from hubbub.store.converting import Converter
from hubbub.store.journal import segments
from hubbub.store.layout import data_files
from hubbub.store.lock import StoreLock
from hubbub.store.manifest import read_manifest, readable_files, write_manifest
from tests.integration.bus import wait_until
from tests.unit.store.recording import run, write_segment
from tests.unit.store.test_reading import make_store

RUNS = 40


def offsets(store: Path) -> list[int]:
    files = data_files(store, "messages")
    return [
        offset
        for file in files
        for offset in pq.read_table(file.path, columns=["offset"], partitioning=None)[
            "offset"
        ].to_pylist()
    ]


def write_many(store: Path, first: int, count: int) -> None:
    """Write closed segments, each of three messages."""
    for number in range(first, first + count):
        write_segment(store, [run(3 * number)], number)


def test_what_is_closed_is_converted_and_what_is_open_is_not(tmp_path: Path) -> None:
    write_many(tmp_path, 0, 3)
    write_segment(tmp_path, [run(9)], 3, is_closed=False, zeros=4096)
    converter = Converter(tmp_path)
    wait_until(lambda: len(segments(tmp_path)) == 1)
    assert offsets(tmp_path) == list(range(9))
    write_segment(tmp_path, [run(9)], 3)
    converter.nudge()
    wait_until(lambda: not segments(tmp_path))
    assert os.getpriority(os.PRIO_PROCESS, converter.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert converter.finish()
    assert offsets(tmp_path) == list(range(12)) and converter.restarts == 0


def test_finish_converts_what_was_closed_before(tmp_path: Path) -> None:
    converter = Converter(tmp_path)
    write_many(tmp_path, 0, 5)
    assert converter.finish(30)
    assert offsets(tmp_path) == list(range(15)) and not segments(tmp_path)


def test_killed_converter_is_started_again_and_loses_nothing(tmp_path: Path) -> None:
    converter = Converter(tmp_path)
    for number in range(0, RUNS, 10):
        write_many(tmp_path, number, 10)
        os.kill(converter.pid, signal.SIGKILL)
        os.waitid(os.P_PID, converter.pid, os.WEXITED | os.WNOWAIT)
        converter.nudge()
    wait_until(lambda: not segments(tmp_path))
    assert converter.finish() and converter.restarts == RUNS // 10
    assert offsets(tmp_path) == list(range(3 * RUNS))
    assert not list(tmp_path.rglob(".*.tmp"))


def test_converter_ends_when_its_parent_dies(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from hubbub.store.converting import Converter;"
        "converter = Converter(Path(sys.argv[1])); print(converter.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_until((tmp_path / "converter.lock").exists)
        parent.kill()
    wait_until(lambda: is_gone(child))


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_second_converter_leaves_the_work_to_the_first(tmp_path: Path) -> None:
    write_many(tmp_path, 0, 1)
    with conversion_lock(tmp_path) as is_ours:
        assert is_ours
        second = Converter(tmp_path)
        assert second.finish(30) and segments(tmp_path)
    assert Converter(tmp_path).finish(30) and not segments(tmp_path)


def test_segment_that_was_given_up_waits_for_its_successor(tmp_path: Path) -> None:
    bad = write_segment(tmp_path, [run(0), run(3)], 0, is_closed=False)
    assert closed_segments(tmp_path) == []
    path = write_segment(tmp_path, [run(3), run(6)], 1, is_closed=False)
    sound = path.read_bytes()
    path.write_bytes(bytes(4096))
    assert closed_segments(tmp_path) == []
    path.write_bytes(sound)
    assert closed_segments(tmp_path) == [bad]
    assert Converter(tmp_path).finish(30)
    assert offsets(tmp_path) == [0, 1, 2]  # What follows is in the next segment.


def test_disk_that_refuses_is_told_and_tried_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_many(tmp_path, 0, 1)
    blocked = tmp_path / "messages"
    blocked.touch()  # A file where a folder must be.
    converter = Converter(tmp_path)
    text = ""
    while "not converted" not in text:
        text += wait_until(lambda: capfd.readouterr().err)
    blocked.unlink()
    wait_until(lambda: not segments(tmp_path))
    assert converter.finish() and offsets(tmp_path) == [0, 1, 2]


def test_converter_compacts_when_nothing_else_is_to_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_many(tmp_path, 0, 4)  # Of the year 1970: an hour that is over.
    work = _Work(tmp_path)
    monkeypatch.setattr(work, "_tidy_at_s", 0.0)
    assert work._convert()
    work._tidy()
    assert [entry.rows for entry in read_manifest(tmp_path).entries] == [9]
    assert len(readable_files(tmp_path, "messages")) == 2 and offsets(tmp_path) == list(range(12))


def test_converter_sweeps_what_is_compacted_and_needed_by_no_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_many(tmp_path, 0, 4)
    work = _Work(tmp_path)
    assert work._convert()

    def tidy() -> int:
        monkeypatch.setattr(work, "_tidy_at_s", 0.0)
        work._tidy()
        return len(data_files(tmp_path, "messages"))

    assert tidy() == 4  # Who has just listed them finds them.
    manifest = read_manifest(tmp_path)
    long_ago = [msgspec.structs.replace(entry, made_ns=0) for entry in manifest.entries]
    write_manifest(tmp_path, msgspec.structs.replace(manifest, entries=long_ago))
    register(tmp_path, "stream", {"messages": 3})
    assert tidy() == 3
    register(tmp_path, "stream", {"messages": 12})
    assert tidy() == 1
    assert len(readable_files(tmp_path, "messages")) == 2


def test_rest_that_a_killed_recorder_left_is_converted(tmp_path: Path) -> None:
    make_store(tmp_path)
    write_many(tmp_path, 0, 1)
    path = write_segment(tmp_path, [run(3), run(6)], 1, is_closed=False)
    path.write_bytes(path.read_bytes()[:-5] + bytes(4096))
    rest = convert_rest(tmp_path)
    assert [one.messages for one in rest.conversions] == [3, 3]
    assert [torn.segment for torn in rest.torn] == [1] and all(
        one.is_whole for one in rest.conversions
    )
    assert offsets(tmp_path) == list(range(6)) and not segments(tmp_path)
    (event,) = [
        row
        for file in data_files(tmp_path, "events")
        for row in pq.read_table(file.path, partitioning=None).to_pylist()
    ]
    assert event["kind"] == "RecorderTorn"
    assert json.loads(event["detail"])["bytes"] == rest.torn[0].size_bytes
    assert convert_rest(tmp_path).conversions == []


def test_recorder_may_begin_while_the_rest_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path)
    write_many(tmp_path, 0, 1)

    def record(_: float) -> None:
        StoreLock(tmp_path).release()
        raise InterruptedError("it was free")

    monkeypatch.setattr(time, "sleep", record)
    with conversion_lock(tmp_path), pytest.raises(InterruptedError, match="it was free"):
        convert_rest(tmp_path)


def test_rest_is_not_touched_while_somebody_records(tmp_path: Path) -> None:
    make_store(tmp_path)
    write_segment(tmp_path, [run(0)], 0, is_closed=False, zeros=4096)
    lock = StoreLock(tmp_path)
    with pytest.raises(StoreError, match="being recorded"):
        convert_rest(tmp_path)
    lock.release()
    with pytest.raises(StoreError, match="is no store"):
        convert_rest(tmp_path / "nowhere")
    assert len(segments(tmp_path)) == 1
