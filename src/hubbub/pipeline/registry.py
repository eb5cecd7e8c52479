"""All tables: what each is made of, by which function, and how a step changes it.

A step takes new rows of a recording and turns one version of the tables into the next. Functions
get what they ask for by name: another table, or one of the frames and numbers below. Tables whose
names begin with a dot are what is kept between steps, and of no interest to anybody else.

    messages, events, announcements, counters   new rows of the recording; messages are clean,
    bad, cut, doubles                           without those in quarantine, late, or there before
    runs                                        of all messages so far
    parts                                       of topic_health in the hours that the step touches
    before.NAME                                 a table before the step
    window_ns, final_ns                         length of a window; windows that end here are final
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from hubbub.errors import ConfigurationError
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms import counters, gaps, health, messages, nodes, periods, services

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sink(Enum):
    """What becomes of the rows that were there before."""

    APPEND = "append"  # They stay.
    HOURS = "hours"  # Those of the hours that the step touches are replaced.
    WHOLE = "whole"  # All are replaced.


class Table(NamedTuple):
    """One table of the pipeline."""

    name: str
    inputs: tuple[str, ...]
    function: "Callable[..., DataFrame]"
    sink: Sink
    changes_with: tuple[str, ...]  # Without new rows of any of these it stays as it is.
    columns: Any
    keys: tuple[str, ...] = ()


_TEXT, _LONG = pa.string(), pa.int64()
_TOPIC: Final = [("source_id", _TEXT), ("incarnation", _LONG), ("subject", _TEXT)]
_RANGE: Final = [*_TOPIC, ("source_name", _TEXT), ("first", _LONG), ("last", _LONG)]
_KEPT: Final = {
    ".runs": [*_RANGE, ("first_ns", _LONG), ("last_ns", _LONG)],
    ".reports": [*_RANGE, ("kind", _TEXT)],
    ".presence": [
        *(("node_id", _TEXT), ("incarnation", _LONG), ("node_name", _TEXT), ("subject", _TEXT)),
        *(("time_ns", _LONG), ("is_present", pa.bool_())),
    ],
    ".counts": [
        *(("window_ns", _LONG), ("recorder", _TEXT), ("node_id", _TEXT), ("incarnation", _LONG)),
        *(("link", _TEXT), ("name", _TEXT), ("node_name", _TEXT), ("mark", _LONG)),
    ],
    ".slots": [
        *(("window_ns", _LONG), *_TOPIC, ("period_ns", _LONG), ("epoch", _LONG)),
        *(("source_name", _TEXT),),
        *(("met", _LONG), ("late", _LONG), ("first_ns", _LONG), ("last_ns", _LONG)),
    ],
    ".tenures": [
        *(("service", _TEXT), ("epoch", _LONG), ("source_id", _TEXT), ("source_name", _TEXT)),
        *(("messages", _LONG), ("since_ns", _LONG), ("until_ns", _LONG)),
    ],
}
# Names of the files that were read; kept by the run itself.
FILES: Final = pa.schema([("table", _TEXT), ("hour", _TEXT), ("name", _TEXT)])


def _reports(events: "DataFrame", bad: "DataFrame") -> "DataFrame":
    return gaps.reports(events).unionByName(gaps.reports_of_quarantine(bad))


def _presence(announcements: "DataFrame", events: "DataFrame") -> "DataFrame":
    return nodes.presence(announcements).unionByName(nodes.departures(events))


def _counts(known: "DataFrame", rows: "DataFrame", window_ns: int) -> "DataFrame":
    return counters.merged_counts(known.unionByName(counters.counts(rows, window_ns)))


def _slots(known: "DataFrame", rows: "DataFrame", window_ns: int) -> "DataFrame":
    return periods.merged_slots(known.unionByName(periods.slots(rows, window_ns)))


def _tenures(known: "DataFrame", rows: "DataFrame") -> "DataFrame":
    return services.merged_tenures(known.unionByName(services.tenures(rows)))


def _health(
    parts: "DataFrame", found: "DataFrame", counts: "DataFrame", window_ns: int, final_ns: int
) -> "DataFrame":
    lost = gaps.lost_by_window(found, window_ns)
    return health.health(parts, lost, counters.repairs(counts), window_ns, final_ns)


def _as_is(rows: "DataFrame") -> "DataFrame":
    return rows


def _table(
    name: str,
    inputs: tuple[str, ...],
    function: "Callable[..., DataFrame]",
    sink: Sink,
    changes_with: tuple[str, ...],
) -> Table:
    if name in _KEPT:
        return Table(name, inputs, function, sink, changes_with, pa.schema(_KEPT[name]))
    shape = SHAPES[name]
    return Table(name, inputs, function, sink, changes_with, shape.columns, shape.keys)


# In an order in which each table comes behind those that it is made of.
_ALL: Final = [
    _table(".runs", ("runs",), _as_is, Sink.WHOLE, ("messages",)),
    _table(".reports", ("events", "bad"), _reports, Sink.APPEND, ("events", "bad")),
    _table("gaps", (".runs", ".reports"), gaps.gaps, Sink.WHOLE, ("messages", "events", "bad")),
    _table(
        ".counts", ("before..counts", "counters", "window_ns"), _counts, Sink.WHOLE, ("counters",)
    ),
    _table(
        "topic_health", ("parts", "gaps", ".counts", "window_ns", "final_ns"), _health,
        Sink.HOURS, ("messages", "events", "bad", "counters", "doubles"),
    ),
    _table(
        ".presence", ("announcements", "events"), _presence, Sink.APPEND,
        ("announcements", "events"),
    ),
    _table(
        "traffic_matrix", ("touched.topic_health", ".presence"), nodes.traffic, Sink.HOURS,
        ("messages", "announcements", "events"),
    ),
    _table("messages", ("messages",), messages.messages, Sink.APPEND, ("messages",)),
    _table("quarantine", ("bad",), _as_is, Sink.APPEND, ("bad",)),
    _table(
        "node_timeline", ("events", "announcements"), nodes.timeline, Sink.APPEND,
        ("events", "announcements"),
    ),
    _table(".slots", ("before..slots", "messages", "window_ns"), _slots, Sink.WHOLE, ("periods",)),
    _table(
        "period_compliance", (".slots", "window_ns"), periods.compliance, Sink.WHOLE, ("periods",)
    ),
    _table(".tenures", ("before..tenures", "messages"), _tenures, Sink.WHOLE, ("services",)),
    _table("service_managers", (".tenures",), services.managers, Sink.WHOLE, ("services",)),
    _table(
        "bus_counters", (".counts", "window_ns"), counters.bus_counters, Sink.WHOLE, ("counters",)
    ),
    _table("late", ("cut",), _as_is, Sink.APPEND, ("cut",)),
]  # fmt: skip
REGISTRY: Final = {table.name: table for table in _ALL}
PUBLIC: Final = tuple(name for name in SHAPES if name in REGISTRY)
# What was cut, and which sequences there were, is kept by every run: the next one needs it.
_ALWAYS: Final = (".runs", "late")


def choose(only: Iterable[str]) -> list[Table]:
    """Return the tables that are wanted and those that they are made of; nothing wanted: all."""
    wanted = set(only)
    if unknown := wanted - set(PUBLIC):
        raise ConfigurationError(
            f"no table {', '.join(sorted(unknown))}; there are {', '.join(PUBLIC)}"
        )
    wanted = (wanted or set(PUBLIC)) | set(_ALWAYS)
    for table in reversed(_ALL):
        if table.name in wanted:
            sources = (name.removeprefix("touched.") for name in table.inputs)
            wanted |= {name for name in sources if name in REGISTRY and name not in _RECORDED}
    return [table for table in _ALL if table.name in wanted]


_RECORDED: Final = ("messages",)  # A table and an input: as an input, it is the new rows.
