"""From the outcomes of all rounds to one figure a cell: median, spread and ratio."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks import peers

# Measure -> the kind of run it comes from. Rates are better when higher, times when lower.
MEASURES = {
    "read": "throughput",
    "unread": "throughput",
    "round trip": "latency",
    "fan-out": "fan-out",
    "veth": "veth",
}


@dataclass(frozen=True)
class Figure:
    """One cell: the median over the rounds, with the quartiles around it."""

    median: float
    low: float
    high: float
    p99_us: float
    lost: float
    rounds: int
    sent: int
    received: int

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


@dataclass
class Book:
    """Every outcome of a run, and what could not be measured."""

    outcomes: dict[tuple[str, str, int], list[dict[str, Any]]] = field(default_factory=dict)
    failures: dict[tuple[str, str, int], list[str]] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    spinning: set[str] = field(default_factory=set)
    subscribers: int = 1

    def add(self, row: str, kind: str, size_bytes: int, outcome: dict[str, Any]) -> None:
        self.outcomes.setdefault((row, kind, size_bytes), []).append(outcome)

    def fail(self, row: str, kind: str, size_bytes: int, reason: str) -> None:
        self.failures.setdefault((row, kind, size_bytes), []).append(reason)

    @property
    def rounds(self) -> int:
        """Say how often the cells were measured; an interrupted run has fewer of some."""
        return max(map(len, self.outcomes.values()), default=0)

    def figure(self, row: str, measure: str, size_bytes: int) -> Figure | None:
        """Sum up a cell; None when no round gave a result."""
        outcomes = self.outcomes.get((row, MEASURES[measure], size_bytes))
        if not outcomes:
            return None
        if measure == "round trip":
            return _round_trip(outcomes)
        return _throughput([outcome[measure] for outcome in outcomes])

    def best_peer(self, rows: Iterable[str], measure: str, size_bytes: int) -> float | None:
        """Find the figure that all others are compared with."""
        medians = list(self._peer_medians(rows, measure, size_bytes))
        if not medians:
            return None
        return min(medians) if measure == "round trip" else max(medians)

    def _peer_medians(self, rows: Iterable[str], measure: str, size_bytes: int) -> Iterator[float]:
        for row in rows:
            if not peers.is_ours(row) and row not in self.spinning:
                figure = self.figure(row, measure, size_bytes)
                if figure:
                    yield figure.median


def _throughput(phases: list[dict[str, float]]) -> Figure:
    rates = [phase["messages_per_second"] for phase in phases]
    sent = sum(phase["sent"] for phase in phases)
    received = sum(phase["received"] for phase in phases)
    lost = 1 - received / sent
    return Figure(*_quartiles(rates), 0.0, lost, len(phases), int(sent), int(received))


def _round_trip(outcomes: list[dict[str, Any]]) -> Figure:
    p99_us = statistics.median(outcome["p99_us"] for outcome in outcomes)
    lost = sum(outcome["lost"] for outcome in outcomes)
    trips = sum(outcome["round_trips"] for outcome in outcomes)
    times = _quartiles([outcome["p50_us"] for outcome in outcomes])
    sent = lost + trips
    return Figure(*times, p99_us, lost / sent, len(outcomes), sent, trips)


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    """Return median, lower and upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high
