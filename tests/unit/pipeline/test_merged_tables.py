"""Tables that are made of digests, each on literal rows."""

from itertools import pairwise, permutations
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hubbub.limits import SECOND
from hubbub.pipeline import histogram
from hubbub.pipeline.merging import consumers, counters, gaps, health, periods, services
from hubbub.pipeline.merging.groups import grouped, united
from hubbub.pipeline.merging.health import _bounds_ns
from hubbub.pipeline.merging.traffic import traffic
from hubbub.pipeline.tables import SHAPES
from hubbub.store.layout import HOUR_NS
from tests.spark.rows import OTHER, SOURCE, START_NS, announcement, message
from tests.unit.pipeline.digests import WINDOW_NS, Row, digest, kept, parts, rows_of
from tests.unit.pipeline.test_merged_runs import found_gaps


def mark(window: int, name: str, value: int, **fields: Any) -> Row:
    row = {"window_ns": START_NS + window * WINDOW_NS, "recorder": "rec", "node_id": SOURCE}
    row |= {"incarnation": 7, "link": "", "name": name, "node_name": "alice", "mark": value}
    row |= {"since_ns": 0, "base": 0}
    return row | fields


def counted(*steps: list[Row]) -> Any:
    """Let marks come in steps, each of which has only the hours from its first mark on at hand."""
    counts, last = kept(".counts", []), kept(".last_counts", [])
    for rows in steps:
        first_ns = min((row["window_ns"] for row in rows), default=0)
        is_open = pc.greater_equal(counts["window_ns"], first_ns)
        made = counters.counted(counts.filter(is_open), last, digest("marks", rows))
        made = made.select(counts.column_names)
        counts = united(counts.filter(pc.invert(is_open)), made)
        last = counters.newest(last, made).select(last.column_names)
    return counts


def seconds(table: Any) -> list[int]:
    start_s = START_NS // SECOND
    return [int(time.timestamp()) - start_s for time in table["window_start"].to_pylist()]


def made_health(known: Any, final_ns: int = 0) -> Any:
    lost = gaps.lost_by_window(found_gaps([message(0, 1), message(2, 4)]), WINDOW_NS)
    repairs = counters.repairs(kept(".counts", [mark(0, "repaired", 5)]))
    table = health.health(known, lost, repairs, WINDOW_NS, final_ns)
    return table.sort_by([(key, "ascending") for key in SHAPES["topic_health"].keys])


def test_bounds_of_buckets_are_those_of_the_histogram() -> None:
    buckets = [histogram.bucket_of(sign * (1 << power)) for power in range(62) for sign in (1, -1)]
    low, high = _bounds_ns(np.array(buckets, dtype=np.int64))
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [
        histogram.bounds_ns(bucket) for bucket in buckets
    ]


def test_topic_health_of_a_window() -> None:
    latencies_us = [*range(1, 100), 5000]
    rows = [
        message(n, n + 1, published_ns=START_NS + n * 1_000_000 - latency * 1000)
        for n, latency in enumerate(latencies_us)
    ]
    rows.append(message(100, 101, received_ns=START_NS + 10 * SECOND))
    first, second = made_health(parts(rows), START_NS + 15 * SECOND).to_pylist()
    assert (first["messages"], first["bytes"], first["rate"]) == (100, 800, 10.0)
    assert (first["lost"], first["repairs"], first["duplicates"]) == (2, 5, 0)
    assert first["latency_max_us"] == 5000
    assert first["latency_p50_us"] == pytest.approx(50, rel=0.04)
    assert first["latency_p95_us"] == pytest.approx(95, rel=0.04)
    assert first["latency_p99_us"] == pytest.approx(99, rel=0.04)
    assert first["jitter_us"] == pytest.approx(493, rel=0.05)
    assert sum(count for _, count in first["histogram"]) == 100
    assert (first["final"], second["final"]) == (True, False)
    assert (second["messages"], second["lost"]) == (1, 0)


@pytest.mark.parametrize("cut", [0, 20, 50])
def test_topic_health_taken_apart_and_merged_is_the_same(cut: int) -> None:
    rows = [message(n, n + 1, published_ns=START_NS + n * 990_000) for n in range(50)]
    rows += [message(n, n, subject="/b", received_ns=START_NS + n * SECOND) for n in range(1, 50)]
    half = health.taken_apart(made_health(parts(rows[cut:])))
    assert made_health(united(half, parts(rows[:cut]))).equals(made_health(parts(rows)))


def test_messages_without_a_publish_time_count_and_have_no_latency() -> None:
    rows = [message(n, n + 1, published_ns=0 if n % 2 else START_NS) for n in range(4)]
    known = parts([row for row in rows if row["published_ns"]])
    timeless = parts([row for row in rows if not row["published_ns"]]).to_pylist()
    timeless = [row | {"bucket": None, "latency_max_us": None} for row in timeless]
    one = made_health(united(known, digest("parts", timeless)))
    (row,) = one.to_pylist()
    assert (row["messages"], row["bytes"]) == (4, 32)
    assert sum(count for _, count in row["histogram"]) == 2
    assert row["latency_max_us"] == 2000
    assert made_health(health.taken_apart(one)).equals(one)


def test_a_window_of_duplicates_alone_has_no_latency() -> None:
    row = {"window_ns": START_NS, "source_id": SOURCE, "incarnation": 7, "subject": "/a"}
    row |= {"source_name": "alice", "messages": 0, "bytes": 0, "duplicates": 3}
    (got,) = made_health(digest("parts", [row])).to_pylist()
    assert (got["duplicates"], got["latency_p50_us"], got["jitter_us"]) == (3, None, None)
    assert got["histogram"] == []


def test_clocks_that_disagree_show_as_negative_latency() -> None:
    rows = [message(n, n + 1, published_ns=START_NS + n * 1_000_000 + 64_000) for n in range(3)]
    (row,) = made_health(parts(rows)).to_pylist()
    assert (row["latency_p50_us"], row["latency_max_us"]) == (-64, -64)
    assert row["jitter_us"] == pytest.approx(0)


def test_traffic_goes_to_those_who_were_there() -> None:
    rows = [message(0, 1), message(1, 2, received_ns=START_NS + 10 * SECOND)]
    rows.append(message(2, 1, subject="/b"))
    present = [
        announcement(0, "/a", node_id="r1", node_name="bob"),
        announcement(1, "/*", node_id="r1", node_name="bob"),
        announcement(2, "/b", node_id="r2", node_name="eve", time_ns=START_NS + 11 * SECOND),
        announcement(3, "/a", node_id="r3", node_name="dan"),
        announcement(4, "/a", node_id="r4", node_name="joe"),
        announcement(9, "/a", node_id="r4", node_name="joe", is_present=False),
        announcement(5, "/a", node_id="r3", time_ns=START_NS + 5 * SECOND, is_present=False)
        | {"subject": None},
    ]
    got = traffic(made_health(parts(rows)), kept(".presence", present), kept(".starts", []))
    columns = ("subject", "receiver_name", "messages", "bytes")
    found = zip(seconds(got), got.select(columns).to_pylist(), strict=True)
    assert sorted((at, *row.values()) for at, row in found) == [
        (0, "/a", "bob", 1, 8),
        (0, "/a", "dan", 1, 8),
        (0, "/a", "joe", 1, 8),
        (0, "/b", "bob", 1, 8),
        (10, "/a", "bob", 1, 8),
    ]
    nobody, never = kept(".presence", []), kept(".starts", [])
    assert traffic(made_health(parts(rows)), nobody, never).num_rows == 0


def test_recorder_that_was_killed_and_its_successor_are_not_both_given_a_message() -> None:
    rows = [message(n, n + 1, received_ns=START_NS + n * 10 * SECOND) for n in range(4)]
    killed = {"node_id": "r1", "node_name": "killed", "link": None}
    successor = {"node_id": "r2", "node_name": "successor", "link": None}
    restart_ns = START_NS + 15 * SECOND
    present = [
        announcement(0, "/a", **killed),
        announcement(1, "/...", **killed),
        announcement(2, "/a", node_id="r3", node_name="stayed"),
        announcement(3, "/a", node_id="r4", node_name="ended with it"),
        announcement(4, "/a", time_ns=restart_ns + 1, **successor),
        announcement(5, "/a", time_ns=restart_ns + 1, node_id="r3", node_name="stayed"),
    ]
    starts = [{"recorder": "rec", "time_ns": at_ns} for at_ns in (START_NS - 1, restart_ns)]
    got = traffic(made_health(parts(rows)), kept(".presence", present), kept(".starts", starts))
    found = zip(seconds(got), got["receiver_name"].to_pylist(), strict=True)
    assert sorted(found) == [
        *((0, "ended with it"), (0, "killed"), (0, "stayed")),
        *((10, "ended with it"), (10, "killed"), (10, "stayed")),
        *((20, "stayed"), (20, "successor")),
        *((30, "stayed"), (30, "successor")),
    ]


MARKS = [
    mark(0, "repaired", 3, link="local"),
    mark(0, "repaired", 5, link="local"),
    mark(1, "repaired", 5, link="local"),
    mark(2, "repaired", 9, link="local"),
    mark(3, "repaired", 2, link="local"),  # The recorder of an old recording was started again.
    mark(0, "gaps", 7, node_id="", node_name=None, incarnation=0),
]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("cut", [0, 2, 3])
def test_counters_tell_by_how_much_they_grew_in_each_window(cut: int, order: list[int]) -> None:
    steps = [MARKS[:cut], MARKS[cut:4], MARKS[4:]]
    got = counters.bus_counters(counted(*(steps[place] for place in order)), WINDOW_NS)
    found = zip(got["node_id"].to_pylist(), seconds(got), got["added"].to_pylist(), strict=True)
    assert sorted(found) == [("", 0, 7), (SOURCE, 0, 5), (SOURCE, 20, 4), (SOURCE, 30, 2)]


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_counter_of_a_recorder_that_was_started_again_begins_at_nothing(cut: int) -> None:
    rows = [
        mark(window, "repaired", value, since_ns=since_ns)
        for window, value, since_ns in [(0, 5, 1), (0, 8, 2), (1, 9, 2)]
    ]
    marks = counted(rows[cut:], rows[:cut])
    got = counters.bus_counters(marks, WINDOW_NS)
    assert sorted(zip(seconds(got), got["added"].to_pylist(), strict=True)) == [(0, 13), (10, 1)]
    repaired = counters.repairs(marks)
    assert sorted(repaired["repairs"].to_pylist()) == [1, 13]


def test_slots_of_consumers_are_added_up_bit_by_bit() -> None:
    told = {"node_id": SOURCE, "incarnation": 7, "subject": "/a", "port": 9, "node_name": "alice"}
    rows = [
        told | {"window_ns": START_NS + window * WINDOW_NS, "period_ns": SECOND, "port": port}
        | dict(zip(("served", "missed", "late", "vacant"), counts, strict=True))
        for window, port, counts in [
            (0, 9, (5, 1, 1, 0)), (0, 8, (0, 0, 0, 3)), (0, 9, (4, 2, 0, 0)), (1, 9, (0, 0, 0, 0)),
        ]
    ]  # fmt: skip
    known = kept("consumer_compliance", [])
    for row in rows:
        known = consumers.compliance(known, digest("consumed", [row]), WINDOW_NS)
    columns = ("port", "slots", "met", "missed", "late", "vacant")
    assert rows_of(known, *columns) == [(8, 0, 0, 0, 0, 3), (9, 12, 9, 3, 1, 0)]
    assert set(seconds(known)) == {0}


def made_compliance(steps: list[list[Row]], window_ns: int = WINDOW_NS) -> Any:
    """Make the table step by step, each time of the hours alone that are said to change."""
    slots, spells = kept(".slots", []), kept(".spells", [])
    table = kept("period_compliance", [])
    for rows in steps:
        new = digest("slots", rows)
        hours = periods.hours_changed(spells, new, window_ns)
        hours |= {row["window_ns"] // HOUR_NS for row in rows}
        spells = periods.spells(spells, new)
        slots = periods.merged(slots, new)
        numbers = np.array(sorted(hours), dtype=np.int64)
        is_open = pa.array(np.isin(np.asarray(slots["window_ns"]) // HOUR_NS, numbers))
        made = periods.compliance(slots.filter(is_open), spells, numbers, window_ns)
        start_ns = np.asarray(table["window_start"].cast(pa.int64())) * 1000
        is_closed = pa.array(~np.isin(start_ns // HOUR_NS, numbers))
        table = united(table.filter(is_closed), made)
    return table.sort_by([(key, "ascending") for key in SHAPES["period_compliance"].keys])


@pytest.mark.parametrize("window_ns", [10 * SECOND, 7 * SECOND, 3600 * SECOND])
@pytest.mark.parametrize("seed", range(5))
def test_slots_of_several_hours_are_the_same_in_whatever_steps_they_come(
    seed: int, window_ns: int
) -> None:
    draw = Random(seed)
    topic = {"source_id": SOURCE, "incarnation": 7, "subject": "/a", "period_ns": 2 * SECOND}
    rows = []
    for _ in range(12):
        slot_ns = START_NS + draw.randrange(4 * 3600) // 2 * 2 * SECOND
        rows.append(
            topic
            | {"window_ns": slot_ns - slot_ns % window_ns, "first_ns": slot_ns, "last_ns": slot_ns}
            | {"met": draw.randrange(2), "late": 1, "epoch": draw.randrange(2)}
            | {"source_name": draw.choice(["alice", None])}
        )
    expected = made_compliance([rows], window_ns)
    assert expected.num_rows > 10_000 // (window_ns // SECOND)
    for _ in range(4):
        draw.shuffle(rows)
        cuts = sorted(draw.sample(range(1, 12), 3))
        steps = [rows[begin:end] for begin, end in pairwise([0, *cuts, 12])]
        assert made_compliance(steps, window_ns).equals(expected)


def test_periods_met_missed_and_late() -> None:
    topic = {"source_id": SOURCE, "incarnation": 7, "subject": "/a", "source_name": "alice"}
    topic |= {"epoch": 0}
    rows = [
        topic
        | {
            "window_ns": START_NS + window * WINDOW_NS,
            "period_ns": SECOND,
            "met": met,
            "late": late,
        }
        | {"first_ns": START_NS + first * SECOND, "last_ns": START_NS + last * SECOND}
        for window, met, late, first, last in [(0, 2, 0, 0, 1), (0, 1, 1, 2, 4), (3, 1, 0, 35, 35)]
    ]
    got = made_compliance([rows[:1], rows[1:]])
    columns = ("slots", "met", "missed", "late")
    found = zip(seconds(got), got.select(columns).to_pylist(), strict=True)
    assert sorted((at, *row.values()) for at, row in found) == [
        (0, 10, 3, 6, 1),
        (10, 10, 0, 10, 0),
        (20, 10, 0, 10, 0),
        (30, 6, 1, 5, 0),
    ]


@pytest.mark.parametrize("cut", range(6))
def test_service_managers_by_epoch(cut: int) -> None:
    rows = [
        {"service": "news", "epoch": epoch, "manager_id": manager, "manager_name": manager}
        | {"messages": 0 if manager else 2, "since_ns": START_NS + at, "until_ns": START_NS + at}
        for epoch, manager, at in [
            (1, None, 0), (1, SOURCE, 1000), (1, None, 5000), (2, OTHER, 6000), (2, SOURCE, 7000),
            (3, None, 9000),
        ]
    ]  # fmt: skip
    tenures = services.merged(*(kept(".tenures", some) for some in (rows[cut:], rows[:cut], [])))
    got = services.managers(tenures).sort_by("epoch").to_pylist()
    assert [(row["epoch"], row["manager_id"], row["messages"]) for row in got] == [
        (1, SOURCE, 4), (2, OTHER, 0), (3, None, 2),
    ]  # fmt: skip
    assert [(row["until"] - row["since"]).microseconds for row in got] == [5, 1, 0]


def test_groups_ignore_null_unless_there_is_nothing_else() -> None:
    rows = [mark(0, "a", 1, node_name=None), mark(0, "a", 2), mark(0, "b", 3, node_name=None)]
    got = grouped(
        kept(".counts", rows), ("name",), sums=("mark",), least=("window_ns",),
        greatest=("node_name",),
    )  # fmt: skip
    assert rows_of(got, "name", "mark", "node_name") == [("a", 3, "alice"), ("b", 3, None)]


@pytest.mark.parametrize("name", ["gaps", "topic_health", "traffic_matrix"])
def test_nothing_makes_an_empty_table_of_the_right_columns(name: str) -> None:
    made = {
        "gaps": lambda: gaps.gaps(*(kept(name, []) for name in (".runs", ".reports", ".starts"))),
        "topic_health": lambda: made_health(digest("parts", [])),
        "traffic_matrix": lambda: traffic(
            kept("topic_health", []), kept(".presence", []), kept(".starts", [])
        ),
    }[name]()
    assert made.schema.equals(SHAPES[name].columns)
    assert made.num_rows == 0
