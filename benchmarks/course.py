"""What a run of the benchmark measures."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.namespaces import Host


@dataclass(frozen=True)
class Course:
    """Which cells are measured, how often, and where."""

    rows: Sequence[str]
    kinds: Sequence[str]
    sizes: Sequence[int]
    rounds: int
    seconds: float
    subscribers: int = 1
    hosts: tuple[Host, Host] | None = None
