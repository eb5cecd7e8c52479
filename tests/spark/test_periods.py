"""Recorded samples: the table `period_compliance` says what the consumers counted themselves."""

import time
from collections import Counter
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import hubbub
from hubbub.limits import CONSUMER_SILENCE, LEASE_PERIODS, MS, SLOT_TOLERANCE_MIN
from hubbub.pipeline.digesting.slots import slots
from hubbub.pipeline.merging.consumers import compliance as consumer_compliance
from hubbub.pipeline.registry import DIGESTS
from hubbub.pipeline.schemas import RECORDED
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms import consumers
from hubbub.recorder.player import Player
from hubbub.store import Store
from tests.integration.bus import Place, fresh_place, wait_until
from tests.unit.pipeline.digests import compliance_of

WINDOW_NS = 1_000_000_000
SLOTS, CONSUMED = DIGESTS["slots"].columns, DIGESTS["consumed"].columns
SPEED, RPM = "/vehicle/speed", "/own/rpm"
SAMPLES = 60
pytestmark = pytest.mark.timeout(300)  # A busy machine makes of ten seconds of Spark a hundred.


def play_part(place: Place, store: Path) -> dict[str, dict[str, int]]:
    """Record producers that leave slots empty, and are wanted again; return what consumers count.

    Recorder and consumers are on one node, so a sample comes to all of them at the same moment.
    """
    calls = count()

    def read() -> bytes | None:
        number = next(calls)
        if number % 20 == 19:
            time.sleep(0.12)  # So long that slots are skipped, and this sample is late.
        return None if number % 7 == 3 else b"13.9"

    counted = {}
    with place.open("maker") as maker, place.open("user") as user:
        producer = maker.produce(SPEED, read)
        second = maker.produce(RPM, lambda: b"900")
        with hubbub.Recorder(user, ["/..."], store):
            wait_until(lambda: producer.statistics().interests and second.statistics().interests)
            wait_until(lambda: [peer.node.name for peer in user.peers()] == ["maker"])
            shortest = user.consume(SPEED, period_ms=20)
            between = user.consume(SPEED, period_ms=33)
            longer = user.consume(RPM, period_ms=50)
            wait_until(lambda: shortest.statistics().served >= SAMPLES)
            leaves_ns = time.time_ns()
            longer.stop()
            wait_until(lambda: not second.is_wanted)
            left_ns = time.time_ns()
            time.sleep(0.5)  # Nobody wants any: none of these slots was missed.
            again = user.consume(RPM, period_ms=50)
            wait_until(lambda: again.statistics().served >= SAMPLES // 10)
            for one in (producer, second):
                one.stop()
            stopped_ns = time.time_ns()
            wait_until(
                lambda: not (shortest.statistics().producers or again.statistics().producers)
            )
            counted[SPEED] = add(shortest)
            counted[RPM] = add(longer, again)
            counted["between"] = add(between)
            assert between.statistics().served >= SAMPLES // 2
    return counted | {"at": {"leaves": leaves_ns, "left": left_ns, "stopped": stopped_ns}}


def add(*consumers: hubbub.Consumer) -> dict[str, int]:
    """Add up what consumers counted."""
    total: Counter[str] = Counter()
    for consumer in consumers:
        statistics = consumer.statistics()
        total.update({name: getattr(statistics, name) for name in ("served", "missed", "late")})
    return dict(total)


def test_period_compliance_agrees_with_what_consumers_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = fresh_place()
    counted = play_part(place, tmp_path / "store")
    rows = spark.read.schema(RECORDED["messages"]).parquet(str(tmp_path / "store/messages"))
    timed = [row.asDict() for row in rows.collect()]
    assert all(row["tick_ns"] and row["source_name"] == "maker" for row in timed)
    counted_slots = slots(rows.toArrow(), WINDOW_NS).select(SLOTS.names).cast(SLOTS)
    table = compliance_of(counted_slots, WINDOW_NS).to_pylist()
    for subject, period_ms in ((SPEED, 20), (RPM, 50)):
        made = [row for row in table if row["subject"] == subject]
        assert {row["period_ns"] for row in made} == {period_ms * MS}
        sums = {name: sum(row[name] for row in made) for name in ("slots", "met", "late", "missed")}
        assert sums["slots"] == sums["met"] + sums["late"] + sums["missed"]
        assert sums["missed"] + sums["late"] > 0 or subject == RPM
        compare(sums, counted[subject], [row for row in timed if row["subject"] == subject],
                period_ms * MS, counted["at"])  # fmt: skip
    told = spark.read.schema(RECORDED["events"]).parquet(str(tmp_path / "store/events"))
    compare_told(consumers.consumed(told, WINDOW_NS).select(*CONSUMED.names).toArrow(), counted)
    replay(place, tmp_path / "store", len(timed))


def compare_told(told: Any, counted: dict[str, dict[str, int]]) -> None:
    """Compare what was recorded of consumers with what they counted: it is the same."""
    empty = SHAPES["consumer_compliance"].columns.empty_table()
    table = consumer_compliance(empty, told.cast(CONSUMED), WINDOW_NS).to_pylist()
    for who, subject, period_ms in ((SPEED, SPEED, 20), (RPM, RPM, 50), ("between", SPEED, 33)):
        rows = [
            row for row in table if (row["subject"], row["period_ns"]) == (subject, period_ms * MS)
        ]
        assert {row["node_name"] for row in rows} == {"user"}
        assert counted[who] == {
            name: sum(row[column] for row in rows)
            for name, column in (("served", "met"), ("missed", "missed"), ("late", "late"))
        }


def compare(
    sums: dict[str, int], counted: dict[str, int], rows: list[dict[str, Any]], period_ns: int,
    at: dict[str, int],
) -> None:  # fmt: skip
    """Compare sums of the table with counters of consumers.

    Two clocks judge what is late, so a sample within some milliseconds of that may be either, and a
    consumer that gets no turn to give a slot up takes what comes late. When the last sample has
    come, it goes on to count until the producer says that it ends; when it has stopped itself,
    some more may come until its producer knows.
    """
    given_up_ns = period_ns + max(period_ns // 2, SLOT_TOLERANCE_MIN)
    delays = [row["received_ns"] - row["tick_ns"] // period_ns * period_ns for row in rows]
    unclear = sum(abs(delay - given_up_ns) < 10 * MS for delay in delays)
    behind = (at["stopped"] - max(row["tick_ns"] for row in rows)) // period_ns + 1
    if rows[0]["subject"] == RPM:
        left_ns = at["left"] + SLOT_TOLERANCE_MIN
        unclear += sum(at["leaves"] <= row["received_ns"] <= left_ns for row in rows)
        before = max(row["tick_ns"] for row in rows if row["received_ns"] < at["leaves"])
        behind += (at["leaves"] - before) // period_ns + 1
    behind += silent_slots(rows, period_ns)
    assert -unclear <= counted["served"] - sums["met"] <= sums["late"] + unclear
    assert -unclear <= counted["served"] + counted["missed"] - sums["slots"] <= behind + unclear
    # A slot may have several samples that are late.
    late = sum(delay >= given_up_ns for delay in delays)
    assert sums["late"] <= late and counted["late"] <= late + unclear


def silent_slots(rows: list[dict[str, Any]], period_ns: int) -> int:
    """Count the slots of silences so long that consumers give up: the table owes none of them."""
    silence_ns = max(CONSUMER_SILENCE, LEASE_PERIODS * period_ns)
    ticks = sorted(row["tick_ns"] for row in rows)
    gaps = (after - before for before, after in pairwise(ticks))
    return sum(gap_ns // period_ns for gap_ns in gaps if gap_ns > silence_ns)


def replay(place: Place, store: Path, count: int) -> None:
    """Play the samples again: they are ordinary messages then, each with its first time."""
    with place.open("listener") as listener, place.open("player") as node:
        heard: list[hubbub.Message] = []
        listener.subscribe("/...", callback=heard.append)
        player = Player(node, store, rate=float("inf"))
        plan = player.plan()
        wait_until(lambda: player.receivers)
        assert player.play(plan).messages == count
        wait_until(lambda: len(heard) == count)
        batches = Store(store).messages((), None, None, ["published_ns"])
        recorded = {row["published_ns"] for batch in batches for row in batch.to_pylist()}
        assert {message.published_ns for message in heard} == recorded
        assert all(message.is_replayed and message.tick_ns is None for message in heard)
        player.close()
