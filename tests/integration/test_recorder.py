"""A recorder on a real bus: all that came is there, with its envelope, also after trouble."""

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hubbub
from hubbub.errors import ConfigurationError, StoreError
from hubbub.store.disk import Disk
from hubbub.store.journal import Row, Run, open_segment, segments
from tests.integration.bus import Place, fresh_place, wait_until


class Temperature(msgspec.Struct):
    celsius: float


def read(store: Path) -> tuple[list[Run], list[Row]]:
    """Return everything that a journal holds, and see that it has no hole."""
    runs: list[Run] = []
    rows: list[Row] = []
    for path in segments(store):
        with open_segment(path) as segment:
            for value in segment:
                if isinstance(value, Run):
                    assert value.offset == (runs[-1].end_offset if runs else 0)
                    runs.append(value)
                else:
                    assert value.number == len(rows)
                    rows.append(value)
            assert (segment.damaged, segment.missing, segment.torn_bytes) == ([], [], 0)
    return runs, rows


def payloads_of(runs: Sequence[Run]) -> list[bytes]:
    return [payload for run in runs for payload in run.payloads]


def rows_of(rows: Sequence[Row], table: str, **wanted: Any) -> list[dict[str, Any]]:
    return [
        row.values
        for row in rows
        if row.table == table and all(row.values[name] == value for name, value in wanted.items())
    ]


def record(place: Place, store: Path, patterns: Any = "/...", **options: Any) -> hubbub.Recorder:
    settings = {"convert": False, **options}
    return hubbub.Recorder(
        {"name": "recorder", "domain": place.domain, "interface": "127.0.0.1",
         "channels": [hubbub.Channel(place.group, place.port)],
         "links": ["local", "inproc", "multicast"]},
        patterns, store, **settings,
    )  # fmt: skip


def publish(node: hubbub.Node, subject: str, count: int, first: int = 0, size: int = 0) -> None:
    """Publish numbered messages to whoever records."""
    publisher = node.publisher(subject)
    assert publisher.wait_for_subscribers(1, timeout=30)
    for number in range(first, first + count):
        publisher.publish(f"{number};".encode().ljust(size, b"."))


def wait_recorded(recorder: hubbub.Recorder, count: int) -> None:
    wait_until(lambda: recorder.acknowledged >= count)


@pytest.fixture
def place() -> Place:
    return fresh_place()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_every_message_is_recorded_with_its_envelope(place: Place, store: Path) -> None:
    before = time.time_ns()
    with place.open("lidar", links=["local", "multicast"]) as node:
        with record(place, store) as recorder:
            publish(node, "/plant/temp", 2000)
            wait_recorded(recorder, 2000)
        source = (node.name, node.id, node.identity.incarnation)
    runs, _ = read(store)
    assert payloads_of(runs) == [f"{number};".encode() for number in range(2000)]
    assert {run.topic.subject for run in runs} == {"/plant/temp"}
    assert {run.topic[1:4] for run in runs} == {source}
    assert runs[0].first == 1
    assert all(one.first + len(one.payloads) == two.first for one, two in pairwise(runs))
    assert all(before < at <= run.received_ns for run in runs for at in run.published_ns)
    assert {run.link for run in runs} <= {"local", "multicast", "inproc"}
    assert recorder.statistics().recorded == 2000
    assert recorder.statistics().lost == 0


def test_own_node_is_used_and_left_open(place: Place, store: Path) -> None:
    with place.open("both", links=["inproc", "multicast"]) as node:
        with hubbub.Recorder(node, "/a/*", store, convert=False) as recorder:
            for number in range(10):
                node.publish("/a/b", str(number).encode())
                node.publish("/c", b"not wanted")
            wait_until(lambda: recorder._tap.received == 10)
            assert recorder.flush(30)
            assert recorder.acknowledged == 10
        assert not node.is_closed
    runs, _ = read(store)
    assert payloads_of(runs) == [str(number).encode() for number in range(10)]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_what_the_own_node_published_before_the_end_is_recorded(
    place: Place, store: Path, is_flushed: bool
) -> None:
    with place.open() as node, hubbub.Recorder(node, "/...", store, convert=False) as recorder:
        for number in range(200):  # Fast enough to be held back.
            node.publish("/plant/temp", b"%d" % number)
        if is_flushed:
            recorder.flush()
            assert recorder.acknowledged == 200
    assert payloads_of(read(store)[0]) == [b"%d" % number for number in range(200)]


def test_message_that_matches_several_patterns_is_recorded_once(place: Place, store: Path) -> None:
    with (
        place.open("both") as node,
        hubbub.Recorder(node, ["/a/*", "/*/b", "/..."], store, convert=False) as recorder,
    ):
        for subject in ("/a/b", "/a/c", "/d/b", "/e"):
            node.publish(subject, subject.encode())
        wait_recorded(recorder, 4)
    assert sorted(payloads_of(read(store)[0])) == [b"/a/b", b"/a/c", b"/d/b", b"/e"]


def test_types_and_replays_are_told(place: Place, store: Path) -> None:
    with (
        place.open("both") as node,
        hubbub.Recorder(node, "/...", store, convert=False) as recorder,
    ):
        node.publisher("/typed", type=Temperature).publish(Temperature(21.5))
        node.publisher("/again", replayed_ns=77).publish(b"x")
        wait_recorded(recorder, 2)
    runs = {run.topic.subject: run for run in read(store)[0]}
    assert runs["/typed"].topic.schema_name.endswith("Temperature")
    assert runs["/typed"].topic.schema_hash
    assert runs["/typed"].replayed_ns is None
    assert runs["/again"].replayed_ns == 77


def test_large_payloads_of_shared_memory_are_recorded(place: Place, store: Path) -> None:
    with (
        place.open("camera", links=["local", "multicast"]) as node,
        record(place, store) as recorder,
    ):
        publish(node, "/image", 40, size=1 << 20)
        wait_recorded(recorder, 40)
        wait_until(lambda: recorder.statistics().queue_bytes == 0)
    runs, _ = read(store)
    assert payloads_of(runs) == [f"{n};".encode().ljust(1 << 20, b".") for n in range(40)]


def test_nodes_that_were_there_before_the_recorder_are_told_from_those_that_join(
    place: Place, store: Path
) -> None:
    with place.open("recording") as ours, place.open("early") as early:
        wait_until(lambda: ours.peers())
        with hubbub.Recorder(ours, "/...", store, convert=False), place.open("late") as late:
            wait_until(lambda: len(ours.peers()) == 2)
            publish(late, "/plant/temp", 1)
    _, rows = read(store)
    told = {
        name: "was_there" in row["detail"]
        for name in ("early", "late")
        for row in rows_of(rows, "events", kind="PeerJoined", node_name=name)
    }
    assert told == {"early": True, "late": False}
    assert early.is_closed


def test_what_the_bus_does_is_in_tables_of_its_own(place: Place, store: Path) -> None:
    with record(place, store) as recorder:
        with place.open("lidar", links=["local", "multicast"]) as node:
            subscription = node.subscribe("/wanted/*")
            publish(node, "/plant/temp", 100)
            wait_recorded(recorder, 100)
            wait_until(lambda: recorder._watch._announced.keys() & _roles(node, "publisher"))
            wait_until(lambda: "messages" in {c[2] for c in list(recorder._watch._counted)})
            subscription.close()
        wait_until(lambda: not recorder.node.peers())
    _, rows = read(store)
    lidar = {"node_name": "lidar", "node_id": node.id.hex()}
    [joined] = rows_of(rows, "events", kind="PeerJoined", **lidar)
    assert joined["incarnation"] == node.identity.incarnation
    assert json.loads(joined["detail"])["pid"] == os.getpid()
    [left] = rows_of(rows, "events", kind="PeerLeft", **lidar)
    assert json.loads(left["detail"])["reason"] == "closed"
    [begun] = rows_of(rows, "events", kind="RecorderStarted")
    assert json.loads(begun["detail"])["patterns"] == ["/..."]
    assert rows_of(rows, "events", kind="RecorderStopped")
    published = rows_of(rows, "announcements", role="publisher", subject="/plant/temp", **lidar)
    assert [row["is_present"] for row in published] == [True, False]
    wanted = rows_of(rows, "announcements", role="subscriber", subject="/wanted/*", **lidar)
    assert wanted[0]["is_present"] is True
    ours = rows_of(rows, "announcements", role="subscriber", subject="/...", node_name="recorder")
    assert ours[0]["pid"] == os.getpid()
    counted = rows_of(rows, "counters", name="messages", **lidar)
    assert sum({row["link"]: row["value"] for row in counted}.values()) == 100
    values = [row["value"] for row in rows_of(rows, "counters", name="recorder_recorded")]
    assert values == sorted(values) and values[-1] == 100


def test_what_another_node_dropped_is_recorded_as_that_nodes_own(place: Place, store: Path) -> None:
    with record(place, store, "/plant/temp") as recorder:
        with place.open("slow", links=["local", "multicast"]) as slow:
            wait_until(slow.peers)
            subscription = slow.subscribe("/plant/...", queue=10)
            publish(recorder.node, "/plant/temp", 100)
            wait_until(lambda: subscription.dropped == 90)
            recorder.node.publish(f"/hubbub/events/{slow.id.hex()}", b"no JSON")
        wait_until(lambda: not recorder.node.peers())
    _, rows = read(store)
    [told] = rows_of(rows, "events", kind="ConsumerDropped")
    assert (told["node_name"], told["node_id"]) == ("slow", slow.id.hex())
    assert (told["subject"], told["count"], told["first_sequence"]) == ("/plant/temp", 90, None)
    detail = json.loads(told["detail"])
    assert (detail["dropped"], detail["subscription"]) == (90, "/plant/...")
    assert [range_[2:] for range_ in detail["ranges"]] == [[1, 90]]


def test_counters_of_a_node_count_from_the_beginning_of_each_recorder(
    place: Place, store: Path
) -> None:
    with place.open("node", links=["local", "inproc", "multicast"]) as node:
        node.subscribe("/own", print, inline=True).close()
        for count in (3, 5):
            with hubbub.Recorder(node, "/own", store, convert=False):
                for _ in range(count):
                    node.publish("/own", b"")
    _, rows = read(store)
    told = rows_of(rows, "counters", name="messages_sent")
    last = {row["since_ns"]: row["value"] for row in told}
    assert list(last.values()) == [3, 5]


def test_somebody_new_is_announced_without_waiting_for_the_next_look(
    place: Place, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.recorder.watch.RECORDER_LOOK_S", 3600.0)
    with record(place, store) as recorder:
        wait_until(lambda: recorder._watch._announced)
        for _ in range(2):
            with place.open("brief", links=["local", "multicast"]) as node:
                publish(node, "/plant/temp", 1)
                wait_until(
                    lambda node=node: recorder._watch._announced.keys() & _roles(node, "publisher")
                )
    found = rows_of(read(store)[1], "announcements", role="publisher", node_name="brief")
    assert sum(row["is_present"] for row in found) == 2


def _roles(node: hubbub.Node, role: str) -> set[tuple[str, int, str, str]]:
    return {(node.id.hex(), node.identity.incarnation, role, "/plant/temp")}


def test_second_recorder_is_refused_with_the_process_that_records(
    place: Place, store: Path
) -> None:
    with (
        record(place, store),
        pytest.raises(StoreError, match=rf"recorded into by process {os.getpid()}: end it first"),
    ):
        record(place, store)
    record(place, store).close()


def test_forked_child_does_not_keep_the_lock(place: Place, store: Path) -> None:
    recorder = record(place, store)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        recorder.close()
        record(place, store).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_forked_child_that_lets_go_leaves_the_lock_to_its_parent(place: Place, store: Path) -> None:
    with record(place, store):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(StoreError, match="end it first"):
            record(place, store)


def test_next_recorder_goes_on_where_the_last_one_ended(place: Place, store: Path) -> None:
    with place.open("lidar") as node:
        for first in (0, 100, 200):
            with record(place, store) as recorder:
                publish(node, "/plant/temp", 100, first)
                wait_recorded(recorder, first + 100)
            assert recorder.statistics().recorded == 100
    runs, rows = read(store)
    assert payloads_of(runs) == [f"{number};".encode() for number in range(300)]
    starts = rows_of(rows, "events", kind="RecorderStarted")
    assert [json.loads(row["detail"])["offset"] for row in starts] == [0, 100, 200]


def test_torn_tail_is_reported_by_the_next_recorder(
    place: Place, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with place.open("lidar") as node:
        with record(place, store) as recorder:
            publish(node, "/plant/temp", 100)
            wait_recorded(recorder, 100)
        path = segments(store)[-1]
        path.write_bytes(path.read_bytes()[:-20])
        with record(place, store) as recorder:
            assert recorder.statistics().torn_bytes > 0
            assert recorder.flush(30)
    assert "a write that never ended" in caplog.text
    runs, rows = read(store)
    assert len(payloads_of(runs)) == 100
    [torn] = rows_of(rows, "events", kind="RecorderTorn")
    assert json.loads(torn["detail"])["bytes"] == recorder.statistics().torn_bytes


class Weather(Disk):
    """The real disk, in a bad mood while somebody says so."""

    def __init__(self) -> None:
        self.code = 0
        self.is_awake = threading.Event()
        self.is_awake.set()

    def write(self, fd: int, pieces: Sequence[bytes], position: int) -> None:
        self._complain()
        super().write(fd, pieces, position)

    def sync(self, fd: int) -> None:
        self._complain()
        self.is_awake.wait()
        super().sync(fd)

    def _complain(self) -> None:
        if self.code:
            raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_recording_resumes_by_itself_after_the_disk_refused(
    place: Place, store: Path, code: int
) -> None:
    disk = Weather()
    with place.open("lidar") as node:
        with record(place, store, disk=disk) as recorder:
            publish(node, "/plant/temp", 100)
            wait_recorded(recorder, 100)
            disk.code = code
            publish(node, "/plant/temp", 100, 100)
            wait_until(lambda: recorder.statistics().refused)
            assert recorder.acknowledged < 200
            acknowledged = recorder.acknowledged
            publish(node, "/plant/temp", 100, 200)
            assert recorder.acknowledged == acknowledged
            disk.code = 0
            wait_recorded(recorder, 300)
            wait_until(lambda: not recorder.statistics().refused)
        assert recorder.statistics().lost == 0
    runs, rows = read(store)
    assert payloads_of(runs) == [f"{number};".encode() for number in range(300)]
    [stalled] = rows_of(rows, "events", kind="RecorderStalled")
    assert os.strerror(code) in json.loads(stalled["detail"])["reason"]
    assert bool(rows_of(rows, "events", kind="SegmentSealed")) == (code == errno.EIO)


def test_disk_that_sleeps_slows_no_publisher_and_what_finds_no_room_is_told(
    place: Place, store: Path
) -> None:
    disk = Weather()
    size, count = 64 << 10, 100
    with place.open("lidar", links=["local", "multicast"]) as node:
        with record(place, store, disk=disk, queue_bytes=2 << 20) as recorder:
            publish(node, "/plant/temp", 1)
            wait_recorded(recorder, 1)
            disk.is_awake.clear()  # From here on no sync returns.
            publish(node, "/plant/temp", count, 1, size)
            assert node.flush(30)
            wait_until(lambda: recorder.statistics().lost)
            assert recorder.acknowledged == 1
            assert recorder.statistics().queue_bytes <= (2 << 20) + 100_000  # Rows have room.
            disk.is_awake.set()
            wait_until(lambda: recorder.statistics().queue_bytes == 0)
        lost = recorder.statistics().lost
        assert recorder.statistics().recorded + lost == count + 1
    runs, rows = read(store)
    sequences = {run.first + at for run in runs for at in range(len(run.payloads))}
    told = set()
    for row in rows_of(rows, "events", kind="RecorderLost"):
        assert (row["subject"], row["node_name"]) == ("/plant/temp", "lidar")
        assert row["count"] == row["last_sequence"] - row["first_sequence"] + 1
        told |= set(range(row["first_sequence"], row["last_sequence"] + 1))
    assert len(told) == lost
    assert sequences | told == set(range(1, count + 2))
    assert not sequences & told


def test_disk_that_refuses_to_the_end_does_not_hang_the_close(
    place: Place, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.recorder.scribe.RECORDER_CLOSE_S", 0.3)
    disk = Weather()
    with place.open("lidar") as node:
        with record(place, store, disk=disk) as recorder:
            publish(node, "/plant/temp", 10)
            wait_recorded(recorder, 10)
            disk.code = errno.ENOSPC
            publish(node, "/plant/temp", 10, 10)
            wait_until(lambda: recorder.statistics().refused)
        assert recorder.acknowledged == 10
        assert recorder.statistics().lost == 10
    assert len(payloads_of(read(store)[0])) == 10


def test_ring_is_written_when_it_is_triggered(place: Place, store: Path) -> None:
    with place.open("lidar") as node, record(place, store, pre=600.0) as recorder:
        publish(node, "/plant/temp", 20)
        wait_until(lambda: recorder._tap.received == 20)
        assert recorder.acknowledged == 0
        assert not recorder.is_triggered
        assert segments(store) == []
        recorder.trigger()
        publish(node, "/plant/temp", 10, 20)
        wait_recorded(recorder, 30)
    runs, rows = read(store)
    assert payloads_of(runs) == [f"{number};".encode() for number in range(30)]
    assert rows_of(rows, "events", kind="RecorderTriggered")


def test_quota_removes_the_oldest_segments_and_says_so(place: Place, store: Path) -> None:
    with place.open("lidar") as node:
        with record(place, store, split_size=128 << 10, quota=1 << 20) as recorder:
            for first in range(0, 200, 10):
                publish(node, "/plant/temp", 10, first, 16 << 10)
                wait_recorded(recorder, first + 10)
            wait_until(lambda: recorder.statistics().removed_segments)
        statistics = recorder.statistics()
    left = segments(store)
    assert len(left) < statistics.segments
    with open_segment(left[0]) as segment:
        assert 0 < segment.first_offset <= statistics.removed_messages
    rows = [row for path in left for row in open_segment(path) if isinstance(row, Row)]
    told = rows_of(rows, "events", kind="QuotaReached")
    assert told and told[-1]["count"] > 0


def test_converted_segments_become_files(place: Place, store: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    with (
        place.open("lidar") as node,
        record(place, store, convert=True, split_size=64 << 10) as recorder,
    ):
        publish(node, "/plant/temp", 300, size=1000)
        wait_recorded(recorder, 300)
        wait_until(lambda: list((store / "messages").rglob("0*.parquet")))
    assert segments(store) == []
    files = sorted((store / "messages").rglob("0*.parquet"))
    offsets = [at for path in files for at in pq.read_table(path)["offset"].to_pylist()]
    assert offsets == list(range(300))
    with place.open("lidar") as node, record(place, store) as recorder:
        assert recorder.acknowledged == 300


def test_several_publishers_at_once_are_all_recorded(place: Place, store: Path) -> None:
    with record(place, store) as recorder:
        nodes = [place.open(f"node-{n}", links=["local", "multicast"]) for n in range(3)]
        threads = [
            threading.Thread(target=publish, args=(node, f"/plant/{at}", 500))
            for at, node in enumerate(nodes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_recorded(recorder, 1500)
        for node in nodes:
            node.close()
    runs, _ = read(store)
    for at in range(3):
        own = [run for run in runs if run.topic.subject == f"/plant/{at}"]
        assert payloads_of(own) == [f"{number};".encode() for number in range(500)]


def test_close_twice_and_a_failed_start_leave_nothing_behind(place: Place, store: Path) -> None:
    recorder = record(place, store)
    recorder.close()
    recorder.close()
    with pytest.raises(ConfigurationError):
        hubbub.Recorder({"no_such_option": 1}, "/...", store, convert=False)
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"hubbub-recorder", "hubbub-watch"}
    record(place, store).close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"patterns": []}, "name at least one"),
        ({"patterns": "/a/.../b"}, "may only be the last"),
        ({"queue_bytes": 10}, "queue_bytes=10: at least"),
        ({"queue_bytes": "1G"}, "queue_bytes='1G': at least"),
        ({"split_size": None}, "split_size=None: give bytes between"),
        ({"split_time": float("nan")}, "split_time=nan: give seconds"),
        ({"pre": "1s"}, "pre='1s': give seconds"),
        ({"quota": "10G"}, "quota='10G': give at least"),
        ({"split_size": 10}, "split_size=10: give bytes between"),
        ({"split_time": 0}, "split_time=0"),
        ({"pre": -1}, "pre=-1"),
        ({"quota": 10}, "quota=10: give at least two segments"),
    ],
)
def test_options_that_cannot_work_are_refused(
    place: Place, store: Path, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(hubbub.HubbubError, match=text):
        record(place, store, **options)
    assert not store.exists()


def test_last_counters_are_of_all_that_was_recorded(place: Place, store: Path) -> None:
    disk = Weather()
    with (
        place.open("lidar", links=["local", "multicast"]) as node,
        record(place, store, disk=disk) as recorder,
    ):
        publish(node, "/plant/temp", 1)
        wait_recorded(recorder, 1)
        disk.is_awake.clear()  # What comes now is still to be counted when it is closed.
        publish(node, "/plant/temp", 200, 1)
        assert node.flush(30)
        threading.Timer(0.3, disk.is_awake.set).start()
    _, rows = read(store)
    last = rows_of(rows, "counters", name="recorder_recorded")[-1]
    assert last["value"] == recorder.statistics().recorded == 201
