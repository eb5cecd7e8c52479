"""Alerts: rules look at the live tables and name what is wrong; it is told when it begins and ends.

A rule is a function of the tables and one number. It returns the conditions that hold now, each
named by what it is about. What is published is only the change: `raised` once when a condition
begins to hold, `cleared` once when it no longer does. Subjects under `/hubbub/` are nobody's alarm:
an alert about alerts would never end.
"""

import importlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from time import time_ns
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.errors import ConfigurationError
from hubbub.limits import ALERT_HOURS, SECOND
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.versions import Versions, hour_of
from hubbub.subjects import OWN_SUBJECTS

# What goes on as long as something is recorded; the counters of the recorder's node always do.
_CLOCKS: Final = {
    "topic_health": "window_end", "bus_counters": "window_end", "node_timeline": "time",
}  # fmt: skip
_WINDOWS: Final = 2  # What is lost at the end of a window may be known only in the next one.
SUBJECT: Final = "/hubbub/alerts"
_SLOW: Final = ("SlowConsumer", "ConsumerDropped")
_log = logging.getLogger("hubbub.pipeline")


class Condition(NamedTuple):
    """Something that is wrong, named by what it is about."""

    about: str
    text: str
    facts: Mapping[str, Any] = MappingProxyType({})


class LiveTables:
    """The tables as they are now; of tables with windows, the last hours."""

    def __init__(self, path: Path, now_ns: int | None = None) -> None:
        self.now_ns = time_ns() if now_ns is None else now_ns
        self._versions = Versions(path)
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return rows as dictionaries, without those of Hubbub's own subjects."""
        if name not in self._rows:
            table = self._versions.read(name, SHAPES[name].columns, _is_recent)
            rows = table.to_pylist()
            self._rows[name] = [
                row for row in rows if not (row.get("subject") or "").startswith(OWN_SUBJECTS)
            ]
        return self._rows[name]

    def newest(self, name: str, windows: int = 1) -> list[dict[str, Any]]:
        """Return the rows of the newest windows of each topic, the newest first."""
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in sorted(self.rows(name), key=lambda row: row["window_start"], reverse=True):
            key = (row["source_id"], row["incarnation"], row["subject"], row.get("period_ns"))
            found.setdefault(key, []).append(row)
        return [row for rows in found.values() for row in rows[:windows]]

    def age_s(self, time: Any) -> float:
        """Return how long ago a timestamp was, when the newest in the tables happened.

        Tables lag behind: what they do not tell yet is no silence.
        """
        return self._clock_s - float(time.timestamp())

    @cached_property
    def _clock_s(self) -> float:
        newest = [
            found.timestamp()
            for name, column in _CLOCKS.items()
            if (found := pc.max(self._column(name, column)).as_py()) is not None
        ]
        return min(self.now_ns / SECOND, max(newest, default=0.0))

    def _column(self, name: str, column: str) -> Any:
        columns = pa.schema([SHAPES[name].columns.field(column)])
        return self._versions.read(name, columns, _is_recent)[column]


Rule = Callable[[LiveTables, float], Iterable[Condition]]


def loss(tables: LiveTables, share_max: float) -> Iterator[Condition]:
    """Find topics that lost more than this share of their messages in one of two windows."""
    for row in reversed(tables.newest("topic_health", _WINDOWS)):
        total = row["messages"] + row["lost"]
        if total and row["lost"] / total > share_max:
            text = f"{_who(row)} lost {row['lost']} of {total} messages"
            yield Condition(_about(row), text, {"lost": row["lost"], "messages": row["messages"]})


def silent(tables: LiveTables, seconds_max: float) -> Iterator[Condition]:
    """Find publishers that are still there and have said nothing for so long."""
    gone = {
        (row["node_id"], row["incarnation"])
        for row in tables.rows("node_timeline")
        if row["kind"] == "PeerLeft"
    }
    for row in tables.newest("topic_health"):
        age_s = tables.age_s(row["window_end"])
        if age_s > seconds_max and (row["source_id"], row["incarnation"]) not in gone:
            yield Condition(_about(row), f"{_who(row)} has been silent for {seconds_max:g} s")


def periods(tables: LiveTables, missed_max: float) -> Iterator[Condition]:
    """Find time-triggered topics that missed more slots than this in one of two windows."""
    for row in reversed(tables.newest("period_compliance", _WINDOWS)):
        if row["missed"] + row["late"] > missed_max:
            text = f"{_who(row)} missed {row['missed']} of {row['slots']} slots, {row['late']} late"
            yield Condition(_about(row), text, {"missed": row["missed"], "late": row["late"]})


def slow(tables: LiveTables, seconds_max: float) -> Iterator[Condition]:
    """Find nodes that were told to be slow consumers within so many seconds."""
    for row in tables.rows("node_timeline"):
        if row["kind"] in _SLOW and tables.age_s(row["time"]) <= seconds_max:
            # Without a peer it is the recorder's own node, and the row is about a publisher.
            is_own = row["kind"] == _SLOW[0] and not json.loads(row["detail"] or "{}").get("peer")
            about, name = ("", "the recorder") if is_own else (row["node_id"], row["node_name"])
            yield Condition(about, f"{name} is a slow consumer")


# Each with the number that it is given unless told otherwise.
RULES: Final[dict[str, tuple[Rule, float]]] = {
    "loss": (loss, 0.01),
    "silent": (silent, 30.0),
    "periods": (periods, 0.0),
    "slow": (slow, 60.0),
}


def choose_rules(settings: Iterable[str]) -> dict[str, tuple[Rule, float]]:
    """Read `NAME=VALUE` of known rules, and `module:function[=VALUE]` of others."""
    chosen = dict(RULES)
    for setting in settings:
        name, _, text = setting.partition("=")
        try:
            value = float(text) if text else None
        except ValueError:
            raise ConfigurationError(f"rule {setting!r}: {text!r} is no number") from None
        if ":" in name:
            chosen[name] = (_load(name), 0.0 if value is None else value)
        elif name in RULES and value is not None:
            chosen[name] = (RULES[name][0], value)
        else:
            raise ConfigurationError(
                f"rule {setting!r}: write NAME=VALUE with one of {', '.join(RULES)},"
                " or module:function=VALUE"
            )
    return chosen


class Alerts:
    """What is wrong, as far as it was told."""

    def __init__(
        self, path: Path, rules: dict[str, tuple[Rule, float]], tell: Callable[[str, bytes], object]
    ) -> None:
        self._path = path
        self._rules = rules
        self._tell = tell
        self._raised: dict[tuple[str, str], Condition] = {}
        self._failed: set[str] = set()
        self.told = 0

    def look(self, now_ns: int | None = None) -> None:
        """Apply all rules, and tell what has changed."""
        tables = LiveTables(self._path, now_ns)
        for name, (rule, value) in self._rules.items():
            try:
                holds = {condition.about: condition for condition in rule(tables, value)}
            except Exception as error:
                # A rule is the user's; one that fails must not end the run, nor pass unseen.
                if name not in self._failed:
                    _log.warning("rule %s failed: %r", name, error)
                self._failed.add(name)
                continue
            self._compare(name, holds, tables.now_ns)

    def _compare(self, name: str, holds: dict[str, Condition], now_ns: int) -> None:
        before = {about for rule, about in self._raised if rule == name}
        for about in sorted(holds.keys() - before):
            self._raised[name, about] = holds[about]
            self._publish(name, "raised", holds[about], now_ns)
        for about in sorted(before - holds.keys()):
            self._publish(name, "cleared", self._raised.pop((name, about)), now_ns)

    def _publish(self, name: str, state: str, condition: Condition, now_ns: int) -> None:
        self.told += 1
        alert = {
            "rule": name, "state": state, "about": condition.about, "text": condition.text,
            "facts": dict(condition.facts), "time_ns": now_ns,
        }  # fmt: skip
        level = name.replace(":", ".")
        self._tell(f"{SUBJECT}/{level}", json.dumps(alert).encode())


def _is_recent(files: list[Path]) -> list[Path]:
    """Keep the files of the last hours, and those of no hour."""
    hours = sorted({hour_of(file) for file in files} - {""})[-ALERT_HOURS:]
    return [file for file in files if hour_of(file) in ("", *hours)]


def _about(row: dict[str, Any]) -> str:
    return f"{row['subject']} {row['source_id']} {row['incarnation']}"


def _who(row: dict[str, Any]) -> str:
    return f"{row['source_name']} on {row['subject']}"


def _load(name: str) -> Rule:
    module, _, function = name.partition(":")
    try:
        rule = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"rule {name!r} cannot be loaded: {error}") from None
    if not callable(rule):
        raise ConfigurationError(f"rule {name!r} is no function")
    loaded: Rule = rule
    return loaded
