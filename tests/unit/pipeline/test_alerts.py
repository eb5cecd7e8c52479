"""Rules over tables, and what is told of them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubbub.errors import ConfigurationError
from hubbub.limits import SECOND
from hubbub.pipeline.alerts import Alerts, Condition, LiveTables, choose_rules
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.versions import Versions

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
START_NS = int(START.timestamp()) * SECOND


def health(subject: str, second: int, **fields: Any) -> dict[str, Any]:
    start = START + timedelta(seconds=second)
    row = {"window_start": start, "window_end": start + timedelta(seconds=10), "subject": subject}
    row |= {"source_id": "a1", "incarnation": 7, "source_name": "alice"}
    return row | {"messages": 90, "lost": 0} | fields


class Bench:
    """Tables that change, and the alerts that were told."""

    def __init__(self, path: Path, *rules: str) -> None:
        self.path = path
        self.told: list[tuple[str, str, str]] = []
        self.alerts = Alerts(path, choose_rules(rules), self._tell)

    def _tell(self, subject: str, payload: bytes) -> None:
        alert = json.loads(payload)
        self.told.append((subject, alert["state"], alert["text"]))

    def look(
        self, second: int, clock_second: int = 0, **rows: list[dict[str, Any]]
    ) -> list[tuple[str, str, str]]:
        """Make these the tables, look at a time, and return what was told."""
        versions = Versions(self.path)
        files = {}
        clock = [{"window_end": START + timedelta(seconds=clock_second or second)}]
        rows["bus_counters"] = clock
        for name in ("topic_health", "period_compliance", "node_timeline", "bus_counters"):
            folder = versions.staging(name)
            folder.mkdir()
            columns = SHAPES[name].columns
            pq.write_table(pa.Table.from_pylist(rows.get(name, []), columns), folder / "x.parquet")
            files[name] = [folder / "x.parquet"]
        versions.commit(files, {})
        self.told.clear()
        self.alerts.look(START_NS + second * SECOND)
        return list(self.told)


def test_loss_is_raised_once_and_cleared_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "loss=0.05")
    bad = [health("/a", 0, lost=10), health("/b", 0, lost=1)]
    text = "alice on /a lost 10 of 100 messages"
    assert bench.look(12, topic_health=bad) == [("/hubbub/alerts/loss", "raised", text)]
    assert bench.look(13, topic_health=bad) == []
    better = [*bad, health("/a", 10), health("/b", 10)]
    assert bench.look(22, topic_health=better) == []
    better += [health("/a", 20)]
    assert bench.look(32, topic_health=better) == [("/hubbub/alerts/loss", "cleared", text)]


def test_loss_at_the_end_of_a_window_is_told_in_the_next_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "loss=0.05")
    rows = [health("/a", 0, lost=10), health("/a", 10)]
    assert [state for _, state, _ in bench.look(12, topic_health=rows)] == ["raised"]


def test_tables_that_lag_behind_are_no_silence(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "silent=30")
    assert bench.look(100, clock_second=20, topic_health=[health("/a", 0)]) == []
    assert len(bench.look(101, clock_second=50, topic_health=[health("/a", 0)])) == 1


def test_silent_publisher_is_told_unless_it_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "silent=30")
    rows = [health("/a", 0), health("/b", 0, source_id="b2", source_name="bob")]
    left = {"node_id": "b2", "incarnation": 7, "kind": "PeerLeft", "time": START}
    assert bench.look(39, topic_health=rows, node_timeline=[left]) == []
    assert bench.look(41, topic_health=rows, node_timeline=[left]) == [
        ("/hubbub/alerts/silent", "raised", "alice on /a has been silent for 30 s")
    ]


def test_missed_periods_and_slow_consumers(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "periods=2", "slow=60")
    period = health("/a", 0) | {"period_ns": 5, "slots": 10, "met": 6, "missed": 3, "late": 1}
    slow = [
        {"node_id": "b2", "node_name": "bob", "kind": kind, "time": START, "detail": detail}
        for kind, detail in [
            ("SlowConsumer", '{"peer": {"name": "bob"}}'),
            ("SlowConsumer", '{"peer": null}'),
        ]
    ]
    slow.append(slow[0] | {"kind": "ConsumerDropped", "node_id": "c3", "node_name": "cleo"})
    told = bench.look(20, period_compliance=[period], node_timeline=slow)
    assert told == [
        ("/hubbub/alerts/periods", "raised", "alice on /a missed 3 of 10 slots, 1 late"),
        ("/hubbub/alerts/slow", "raised", "the recorder is a slow consumer"),
        ("/hubbub/alerts/slow", "raised", "bob is a slow consumer"),
        ("/hubbub/alerts/slow", "raised", "cleo is a slow consumer"),
    ]
    assert [state for _, state, _ in bench.look(70, node_timeline=slow)] == ["cleared"] * 4


def test_subjects_of_hubbub_itself_are_nobodys_alarm(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.look(99, topic_health=[health("/hubbub/alerts/loss", 0, lost=99)]) == []


def busy(tables: LiveTables, messages_max: float) -> list[Condition]:
    """Find topics with more messages than this."""
    return [
        Condition(row["subject"], "busy")
        for row in tables.newest("topic_health")
        if row["messages"] > messages_max
    ]


def broken(tables: LiveTables, _: float) -> list[Condition]:
    """Fail."""
    raise KeyError(str(tables))


def test_rules_of_users_are_loaded_by_name_and_may_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = __name__
    bench = Bench(tmp_path, f"{here}:busy=80", f"{here}:broken")
    told = bench.look(12, topic_health=[health("/a", 0)])
    assert told == [(f"/hubbub/alerts/{here}.busy", "raised", "busy")]
    bench.look(13, topic_health=[health("/a", 0)])
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [f"rule {here}"]


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("loss=much", "'much' is no number"),
        ("losses=1", "write NAME=VALUE with one of loss, silent"),
        ("loss", "write NAME=VALUE"),
        ("hubbub.nothing:here", "cannot be loaded"),
        ("hubbub.limits:SECOND", "is no function"),
    ],
)
def test_rule_that_makes_no_sense_says_so(setting: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        choose_rules([setting])
