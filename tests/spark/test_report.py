"""From a bus with troubles to a report that names each of them, with the numbers of the bus.

A recorder's own node hears with faults: frames are lost and doubled, once nothing arrives for so
long that repair is impossible, a publisher is killed, and a consumer of what the node itself
publishes stops for so long that it is left behind, and reads nothing of what its queue holds.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import hubbub
from hubbub import Faults, GapAbandoned, PeerLeft, SlowConsumer
from hubbub.limits import RECORDER_LOOK_S
from hubbub.pipeline.run import Pipeline, make_setup
from hubbub.pipeline.tables import read
from hubbub.report.building import build
from hubbub.report.findings import find
from hubbub.report.histograms import read_off
from hubbub.report.page import write_page
from hubbub.report.reading import read_tables
from tests.integration.bus import (
    Actor,
    Events,
    Place,
    acting,
    fresh_place,
    hear,
    say,
    wait_until,
)

MESSAGES = 1000
LAST_WORDS = 50
SIZE_BYTES = 500
BURST = 100
TABLES = ("topic_health", "gaps", "node_timeline", "traffic_matrix", "bus_counters")


class Truth(NamedTuple):
    """What the bus itself says about the recording."""

    talker: hubbub.statistics.PeerStatistics
    lossy: hubbub.statistics.TopicStatistics
    drops: dict[str, int]
    gaps: list[GapAbandoned]
    dropped: int  # By the slow consumer.
    recorded: int
    repaired: int  # Frames of all nodes.


def talk(place: list[Any]) -> None:
    """Publish on demand, and keep little of it for repairs."""
    with Place(*place).open("talker", cache_bytes=20_000) as node:
        publisher = node.publisher("/lossy")
        assert publisher.wait_for_subscribers(1, 30)
        say("ready")
        while True:
            count, is_cut_off = hear().split()
            for _ in range(int(count)):
                publisher.publish(bytes(SIZE_BYTES))
                time.sleep(0.0005)
            if is_cut_off == "True":  # Only who is left behind misses what is kept no longer.
                wait_until(lambda: any(one.is_slow for one in publisher.subscribers()))
            publisher.flush()
            say("done")


def be_killed(place: list[Any]) -> None:
    """Publish a little, and wait for the end."""
    with Place(*place).open("victim", links=["local", "multicast"]) as node:
        publisher = node.publisher("/victim")
        assert publisher.wait_for_subscribers(1, 30)
        for _ in range(LAST_WORDS):
            publisher.publish(b"still here")
        publisher.flush()
        say("done")
        hear()


def doze(place: list[Any]) -> None:
    """Subscribe, be stopped, read nothing, and say what was dropped."""
    with Place(*place).open("sleeper", window_bytes=1 << 16) as node:
        subscription = node.subscribe("/own", queue=10)
        say("ready")
        hear()
        wait_until(lambda: subscription.dropped)
        subscription.close()
        say(subscription.dropped)


def record(store: Path) -> Truth:
    """Make a recording in which everything happens; return what the bus says of it."""
    place, events = fresh_place(), Events()
    faults = Faults(loss=0.05, duplicate=0.05, direction="in", seed=7)
    options = {"window_bytes": 1 << 18, "peer_timeout_ms": 60_000, "faults": faults}
    with (
        place.open("watcher", links=["local", "multicast"], on_event=events, **options) as node,
        hubbub.Recorder(node, "/...", store) as recorder,
        acting(talk, place) as talker,
        acting(be_killed, place) as victim,
        acting(doze, place) as sleeper,
    ):
        assert (talker.hear(), victim.hear(), sleeper.hear()) == ("ready", "done", "ready")
        let_publish(talker, MESSAGES)
        with cut_off(node):
            let_publish(talker, MESSAGES // 10, is_cut_off=True)
        let_publish(talker, MESSAGES // 10)
        events.wait(GapAbandoned)
        repaired = repaired_of(node, "victim")  # Known until it is gone, as those of the sleeper.
        victim.signal(signal.SIGKILL)
        assert events.wait(PeerLeft).reason == "died"
        leave_behind(node, sleeper, events)
        sleeper.tell()
        dropped = sleeper.hear()
        repaired += repaired_of(node, "sleeper")
        wait_until(lambda: "sleeper" not in {one.node.name for one in node.peers()})
        wait_until(lambda: newest(node, "/lossy") == MESSAGES * 12 // 10)
        assert recorder.flush(30)
        time.sleep(2 * RECORDER_LOOK_S)  # Once more the recorder looks at the counters.
        [channel] = node.statistics().channels
        recorded = recorder.acknowledged
    [peer] = [one for one in channel.peers if one.name == "talker"]
    [lossy] = [one for one in channel.topics if one.subject == "/lossy"]
    repaired += peer.repaired_frames
    return Truth(
        peer, lossy, dict(channel.drops), events.of(GapAbandoned), dropped, recorded, repaired
    )


def repaired_of(node: hubbub.Node, name: str) -> int:
    [channel] = node.statistics().channels
    return sum(one.repaired_frames for one in channel.peers if one.name == name)


def let_publish(talker: Actor, count: int, *, is_cut_off: bool = False) -> None:
    talker.tell(f"{count} {is_cut_off}")
    assert talker.hear() == "done"


@contextmanager
def cut_off(node: hubbub.Node) -> Iterator[None]:
    """Let nothing of the network reach a node."""
    link = node.channels[0].driver.link
    whole, look = link.receive, link.look

    def receive() -> Any:
        whole()
        return []

    link.receive = link.look = receive  # type: ignore[method-assign]
    try:
        yield
    finally:
        link.receive, link.look = whole, look  # type: ignore[method-assign]


def leave_behind(node: hubbub.Node, sleeper: Actor, events: Events) -> None:
    """Stop a consumer, and publish until the bus goes on without it."""
    publisher = node.publisher("/own")
    assert publisher.wait_for_subscribers(1, 30)
    sleeper.signal(signal.SIGSTOP)

    def is_left_behind() -> bool:
        for _ in range(BURST):
            publisher.publish(bytes(SIZE_BYTES))
        return bool(events.of(SlowConsumer))

    wait_until(is_left_behind)
    sleeper.signal(signal.SIGCONT)


def newest(node: hubbub.Node, subject: str) -> int:
    [channel] = node.statistics().channels
    return max((one.sequence for one in channel.topics if one.subject == subject), default=0)


def make_tables(spark: SparkSession, store: Path, folder: Path) -> None:
    pipeline = Pipeline(spark, store, folder, make_setup(TABLES))
    with pipeline.versions.locked():
        pipeline.run_batch()


@pytest.mark.timeout(300)  # On a busy machine Spark alone may take a minute.
def test_report_names_every_trouble_with_the_numbers_of_the_bus(
    spark: SparkSession, tmp_path: Path
) -> None:
    truth = record(tmp_path / "store")
    make_tables(spark, tmp_path / "store", tmp_path / "tables")
    figures = build(read_tables(tmp_path / "tables"))
    findings = find(figures)
    said = [one.text for one in findings]
    talker = f"talker#{truth.talker.id[:6]}"

    lost = truth.lossy.lost
    assert lost == sum(gap.last - gap.first + 1 for gap in truth.gaps) > 0
    assert said[0].startswith(f"{lost:,} messages lost on /lossy by publisher {talker} between ")
    assert said[0].endswith(", reported by the bus as GapAbandoned.")
    assert f"The bus counted the same: {lost:,} messages lost." in said

    repaired = truth.repaired
    assert truth.talker.repaired_frames > 0
    assert f"{repaired:,} frames got lost on the way and came by a repair." in said

    copies = truth.drops["duplicate"]
    assert copies > 0
    assert f"{copies:,} frames came twice; the bus dropped the copies." in said

    [killed] = [one for one in findings if "was killed or crashed" in one.text]
    assert killed.text.startswith("Publisher victim#")
    slow = {one.text[9:16]: one for one in findings if "too slow" in one.text}
    assert slow.keys() == {"sleeper", "watcher"}  # Cut off, the recorder itself was slow.
    assert {one.evidence[1] for one in slow.values()} == {"left_behind"}
    [dropping] = [one for one in findings if "dropped." in one.text]
    assert dropping.text.startswith("Consumer sleeper#")
    assert dropping.text.endswith(f", and {truth.dropped:,} messages were dropped.")
    assert "The recorder lost nothing." in said

    assert figures.messages == truth.recorded
    topics = {one.subject: one for one in figures.topics}
    assert topics["/lossy"].messages == MESSAGES * 12 // 10 - lost
    assert topics["/victim"].messages == LAST_WORDS
    assert {(one.source[:6], one.receiver[:7]) for one in figures.flows} >= {
        ("talker", "watcher"),
        ("watche", "sleeper"),
    }
    for row in read(tmp_path / "tables", "topic_health").to_pylist():
        own = read_off(dict(row["histogram"]), row["latency_max_us"])
        told = [row[f"latency_{name}_us"] for name in ("p50", "p95", "p99")]
        assert [own.p50_us, own.p95_us, own.p99_us] == told
        assert own.deviation_us == pytest.approx(row["jitter_us"])
    page = write_page(figures, "Made by a test.")
    assert all(escape(one) in page for one in said)
