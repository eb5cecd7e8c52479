"""How `hubbub hz`, `bw` and `delay` write what they know of a topic: for people, for programs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from hubbub.cli.rates import DelayedTopic, PacedTopic, SizedTopic, T, Topic
from hubbub.cli.screen import UNKNOWN, duration
from hubbub.cli.terminal import plural, size
from hubbub.limits import US

_CLOCKS = "between hosts, latencies contain the difference of two clocks"


def _no_doubt(topic: Topic) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """What is kept of a topic, and how it is written.

    `caution` is said before anything is shown, `doubt` what a topic's figures give reason for.
    """

    make: type[T]
    columns: tuple[str, ...]
    cells: Callable[[T, float], tuple[str, ...]]
    fields: Callable[[T, float], dict[str, Any]]
    caution: str = ""
    doubt: Callable[[T], str | None] = _no_doubt


def _hz_cells(topic: PacedTopic, seconds: float) -> tuple[str, ...]:
    gaps_ns = topic.gaps_ns
    times_ns = (gaps_ns.smallest, gaps_ns.largest, gaps_ns.deviation)
    return (
        write_rate(topic.rate(seconds)),
        write_rate(topic.rate_in_all),
        *map(duration, times_ns),
    )


def _hz_fields(topic: PacedTopic, seconds: float) -> dict[str, Any]:
    return {
        "messages_per_second_in_all": _rounded(topic.rate_in_all),
        "gap_min_us": _microseconds(topic.gaps_ns.smallest),
        "gap_max_us": _microseconds(topic.gaps_ns.largest),
        "gap_deviation_us": _microseconds(topic.gaps_ns.deviation),
    }


def _bw_cells(topic: SizedTopic, seconds: float) -> tuple[str, ...]:
    sizes_bytes = topic.sizes_bytes
    amounts_bytes = (
        topic.byte_rate(seconds), topic.byte_rate_in_all,
        sizes_bytes.mean, sizes_bytes.smallest, sizes_bytes.largest,
    )  # fmt: skip
    return (
        *(UNKNOWN if one is None else size(one) for one in amounts_bytes),
        write_rate(topic.rate(seconds)),
    )


def _bw_fields(topic: SizedTopic, seconds: float) -> dict[str, Any]:
    return {
        "bytes": topic.sizes_bytes.total,
        "bytes_per_second": round(topic.byte_rate(seconds), 3),
        "bytes_per_second_in_all": _rounded(topic.byte_rate_in_all),
        "size_mean": _rounded(topic.sizes_bytes.mean),
        "size_min": topic.sizes_bytes.smallest,
        "size_max": topic.sizes_bytes.largest,
    }


def _delay_cells(topic: DelayedTopic, seconds: float) -> tuple[str, ...]:
    times_ns = (*topic.percentiles_ns(0.5, 0.99), topic.latencies_ns.largest, topic.jitter_ns)
    return (*map(duration, times_ns), write_rate(topic.rate(seconds)))


def _delay_fields(topic: DelayedTopic, seconds: float) -> dict[str, Any]:
    p50_ns, p99_ns = topic.percentiles_ns(0.5, 0.99)
    return {
        "min_us": _microseconds(topic.latencies_ns.smallest),
        "p50_us": _microseconds(p50_ns),
        "p99_us": _microseconds(p99_ns),
        "max_us": _microseconds(topic.latencies_ns.largest),
        "jitter_us": _microseconds(topic.jitter_ns),
        "negative": topic.negative,
    }


def _doubt_clocks(topic: DelayedTopic) -> str | None:
    if not topic.negative:
        return None
    return (
        f"{plural(topic.negative, 'message')} of {topic.subject} from {topic.source} came before"
        f" being published, by up to {duration(-(topic.latencies_ns.smallest or 0))}: the clocks of"
        " the hosts differ, or one was set"
    )


def write_rate(per_second: float | None) -> str:
    """Write how often something happens a second, with as many digits as mean something."""
    if per_second is None:
        return UNKNOWN
    decimals = 0 if per_second >= 1000 else 1 if per_second >= 1 else 3
    return f"{per_second:,.{decimals}f}"


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _microseconds(time_ns: float | None) -> float | None:
    return None if time_ns is None else round(time_ns / US, 3)


# Short titles: with a subject before them they fit into 80 columns.
HZ = View(
    PacedTopic, ("per s", "in all", "shortest", "longest", "deviation"), _hz_cells, _hz_fields
)
BW = View(SizedTopic, ("bytes/s", "in all", "mean", "min", "max", "per s"), _bw_cells, _bw_fields)
DELAY = View(
    DelayedTopic, ("p50", "p99", "max", "jitter", "per s"), _delay_cells, _delay_fields,
    _CLOCKS, _doubt_clocks,
)  # fmt: skip
