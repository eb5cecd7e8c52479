"""The tables of the pipeline: their columns, their keys, and how to read them without Spark.

All tables under one folder are of one state: a run replaces them together (decision 0021).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hubbub.errors import ConfigurationError, MissingExtra

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("tables need pyarrow: pip install 'hubbub[recorder]'") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIME: Final = pa.timestamp("us", "UTC")
_TEXT, _LONG, _REAL = pa.string(), pa.int64(), pa.float64()


class Shape(NamedTuple):
    """What a table looks like: its columns, and those that tell its rows apart."""

    keys: tuple[str, ...]
    columns: Any  # A pyarrow.Schema, which says nothing of its types.


def _shape(keys: "Sequence[tuple[str, Any]]", others: "Sequence[tuple[str, Any]]") -> Shape:
    return Shape(tuple(name for name, _ in keys), pa.schema([*keys, *others]))


_ROW: Final = (("recorder", _TEXT), ("offset", _LONG))
_TOPIC: Final = (("subject", _TEXT), ("source_id", _TEXT), ("incarnation", _LONG))
_MESSAGE: Final = (
    ("subject", _TEXT),
    ("source_name", _TEXT),
    ("source_id", _TEXT),
    ("incarnation", _LONG),
    ("sequence", _LONG),
    ("published_ns", _LONG),
    ("received_ns", _LONG),
    ("published", _TIME),
    ("received", _TIME),
    ("link", _TEXT),
    ("schema", _TEXT),
    ("size", pa.int32()),
    ("value", _TEXT),  # A typed payload as JSON; null: plain bytes, or not to be decoded.
    ("replayed_ns", _LONG),
)

SHAPES: Final = {
    "messages": _shape(_ROW, _MESSAGE),
    "quarantine": _shape(
        (*_ROW, ("reason", _TEXT)),
        (*_TOPIC, ("sequence", _LONG), ("received", _TIME), ("detail", _TEXT)),
    ),
    "gaps": _shape(
        (
            ("source_id", _TEXT),
            ("incarnation", _LONG),
            ("subject", _TEXT),
            ("first_sequence", _LONG),
        ),
        (
            ("source_name", _TEXT),
            ("last_sequence", _LONG),
            ("count", _LONG),
            ("after", _TIME),  # When the message before the hole was received.
            ("before", _TIME),  # And the one behind it; null: none has come.
            ("reported", pa.bool_()),
            ("reported_as", _TEXT),  # Kind of the event; null: nobody did.
            ("lost_by", _TEXT),  # bus, recorder or unknown
        ),
    ),
    "topic_health": _shape(
        (("window_start", _TIME), *_TOPIC),
        (
            ("window_end", _TIME),
            ("source_name", _TEXT),
            ("messages", _LONG),
            ("bytes", _LONG),
            ("rate", _REAL),  # Messages a second.
            ("latency_p50_us", _REAL),
            ("latency_p95_us", _REAL),
            ("latency_p99_us", _REAL),
            ("latency_max_us", _REAL),
            ("jitter_us", _REAL),  # Standard deviation of the latency, from its histogram.
            ("lost", _LONG),  # Missing before a message of this window.
            ("repairs", _LONG),  # Frames of this publisher, of whatever subject.
            ("duplicates", _LONG),
            ("histogram", pa.map_(pa.int32(), _LONG)),  # See pipeline/histogram.py.
            ("final", pa.bool_()),  # False: more may come.
        ),
    ),
    "period_compliance": _shape(
        (("window_start", _TIME), *_TOPIC, ("period_ns", _LONG)),
        (
            ("window_end", _TIME),
            ("source_name", _TEXT),
            ("slots", _LONG),
            ("met", _LONG),
            ("missed", _LONG),
            ("late", _LONG),
        ),
    ),
    "consumer_compliance": _shape(
        (
            ("window_start", _TIME),
            ("node_id", _TEXT),  # Whose consumer it is.
            ("incarnation", _LONG),
            ("subject", _TEXT),
            ("port", _LONG),
            ("period_ns", _LONG),  # That it asked for.
        ),
        (
            ("window_end", _TIME),
            ("node_name", _TEXT),
            ("slots", _LONG),  # Met and missed, of all producers.
            ("met", _LONG),
            ("missed", _LONG),
            ("late", _LONG),  # Samples of slots that had been missed.
            ("vacant", _LONG),  # Slots for which there was no producer; they are none of `slots`.
        ),
    ),
    "node_timeline": _shape(
        (("node_id", _TEXT), ("incarnation", _LONG), ("time_ns", _LONG), ("number", _LONG)),
        (("node_name", _TEXT), ("time", _TIME), ("kind", _TEXT), ("detail", _TEXT)),
    ),
    "traffic_matrix": _shape(
        (
            ("window_start", _TIME),
            ("source_id", _TEXT),
            ("subject", _TEXT),
            ("receiver_id", _TEXT),
        ),
        (
            ("source_name", _TEXT),
            ("receiver_name", _TEXT),
            ("messages", _LONG),
            ("bytes", _LONG),
        ),
    ),
    "service_managers": _shape(
        (("service", _TEXT), ("epoch", _LONG)),
        (
            ("manager_id", _TEXT),
            ("manager_name", _TEXT),
            ("since", _TIME),
            ("until", _TIME),
            ("messages", _LONG),
        ),
    ),
    "bus_counters": _shape(
        (
            ("window_start", _TIME),
            ("recorder", _TEXT),
            ("node_id", _TEXT),  # Empty: the recorder's own node.
            ("incarnation", _LONG),
            ("link", _TEXT),
            ("name", _TEXT),
        ),
        (
            ("window_end", _TIME),
            ("node_name", _TEXT),
            ("added", _LONG),  # By how much the counter grew in this window.
        ),
    ),
    "late": _shape(
        _ROW,
        (
            *_MESSAGE,
            ("tick_ns", _LONG),
            ("period_ns", _LONG),
            ("service", _TEXT),
            ("epoch", _LONG),
        ),
    ),
}


def read(path: str | Path, name: str) -> Any:
    """Return a table as a `pyarrow.Table`: one state of it, also while a run replaces it.

    >>> read("tables", "gaps").to_pylist()  # doctest: +SKIP
    """
    from hubbub.pipeline.versions import Versions

    if name not in SHAPES:
        raise ConfigurationError(f"no table {name!r}; there are {', '.join(SHAPES)}")
    return Versions(Path(path)).read(name, SHAPES[name].columns)
