"""What the processes of `hubbub bench` tell each other, as lines of JSON."""

from typing import Literal

import msgspec

LATENCY = "latency"
DATAGRAM = "datagram"
QUANTILES = 1000

Benchmark = Literal["throughput", "latency"]
Mode = Literal["inline", "receive"]


class Plan(msgspec.Struct, frozen=True):
    """One run, as every process of it knows it."""

    benchmark: Benchmark
    link: str
    size: int
    seconds: float
    subscribers: int
    loss: float
    rate: float | None
    mode: Mode
    interface: str
    domain: str
    peers: list[str] = []
    """Where the subscribers listen, if it goes by TCP."""


class Outcome(msgspec.Struct, frozen=True):
    """What one process counted and measured; `error` says why it could not."""

    error: str = ""
    messages: int = 0
    duplicates: int = 0
    dropped: int = 0
    seconds: float = 0.0
    repairs: int = 0
    naks: int = 0
    cpu_seconds: float = 0.0
    quantiles_ns: list[int] = []
    longest_ns: int = 0
    losses: dict[str, int] = {}
    """Messages (or frames of unknown content) that were given up, by reason."""


def quantiles(samples: list[int]) -> list[int]:
    """Thin sorted samples out to a bounded number that has the same percentiles."""
    samples = sorted(samples)
    if len(samples) <= QUANTILES:
        return samples
    last = len(samples) - 1
    return [samples[round(i * last / (QUANTILES - 1))] for i in range(QUANTILES)]
