"""All tables: what each is made of, by which function, and how a step changes it.

A step takes new rows of a recording and turns one version of the tables into the next. What is in
proportion to the rows is done by Spark and its workers: tables that have a row for a row, and
*digests*, which are small. All other tables are made of digests and of what was known before, by
Arrow (decisions 0026 and 0045). Functions get what they ask for by name: another table, a digest
or one of these. Tables whose names begin with a dot are what is kept between steps, and of no
interest to anybody else.

    messages, events, announcements, counters   new rows of the recording; messages are clean,
    bad, cut                                    without those in quarantine, late, or there before
    runs                                        of all messages so far, but those that are settled
    touched_parts                               of topic_health in the hours that the step touches
    before.NAME                                 a table before the step
    reopened.NAME, touched.NAME                 in the touched hours: before the step, and now
    hours                                       the touched hours, by number
    window_ns, final_ns                         length of a window; windows that end here are final
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from hubbub.errors import ConfigurationError
from hubbub.pipeline.digesting import parts, pieces, slots, tenures
from hubbub.pipeline.merging import consumers, counters, gaps, health, periods, services
from hubbub.pipeline.merging.groups import united
from hubbub.pipeline.merging.traffic import traffic
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.transforms import consumers as consumer_rows
from hubbub.pipeline.transforms import counters as counter_rows
from hubbub.pipeline.transforms import messages, nodes
from hubbub.pipeline.transforms import services as service_rows
from hubbub.pipeline.transforms.reports import reports, reports_of_quarantine, starts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sink(Enum):
    """Who writes a table, and what becomes of the rows that were there before."""

    ROWS = "rows"  # Spark writes the new ones; the others stay.
    APPEND = "append"  # They stay.
    HOURS = "hours"  # Those of the hours that the step touches are replaced.
    WHOLE = "whole"  # All are replaced, but those that are settled (merging/settling.py).


class Digest(NamedTuple):
    """What Spark makes of new rows for others to work with.

    Of messages, which are many, by functions of Arrow tables in its workers (decision 0045); of all
    else by functions of data frames.
    """

    inputs: tuple[str, ...]
    function: Callable[..., Any]
    made_of: tuple[str, ...]  # Without new rows of any of these it is empty.
    columns: Any
    reads: tuple[str, ...] = ()  # Columns of messages.

    @property
    def is_of_messages(self) -> bool:
        """Tell whether it is made of messages."""
        return "messages" in self.inputs


class Table(NamedTuple):
    """One table of the pipeline."""

    name: str
    inputs: tuple[str, ...]
    function: Callable[..., Any]  # Of data frames, if Spark writes the table; else of Arrow tables.
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
    ".lines": [*_TOPIC, ("source_name", _TEXT), ("sequence", _LONG), ("before_ns", _LONG)],
    ".starts": [("recorder", _TEXT), ("time_ns", _LONG)],
    ".presence": [
        *(("recorder", _TEXT), ("node_id", _TEXT), ("incarnation", _LONG), ("node_name", _TEXT)),
        *(("subject", _TEXT), ("link", _TEXT)),  # No link: it is the recorder's own node.
        *(("time_ns", _LONG), ("is_present", pa.bool_())),
    ],
    ".counts": [
        *(("window_ns", _LONG), ("recorder", _TEXT), ("since_ns", _LONG), ("node_id", _TEXT)),
        *(("incarnation", _LONG), ("link", _TEXT), ("name", _TEXT), ("node_name", _TEXT)),
        *(("mark", _LONG), ("base", _LONG)),  # How far it had come, and in the window before.
    ],
    ".last_counts": [
        *(("window_ns", _LONG), ("recorder", _TEXT), ("since_ns", _LONG), ("node_id", _TEXT)),
        *(("incarnation", _LONG), ("link", _TEXT), ("name", _TEXT), ("mark", _LONG)),
    ],
    ".spells": [
        *(*_TOPIC, ("period_ns", _LONG), ("epoch", _LONG), ("source_name", _TEXT)),
        *(("first_ns", _LONG), ("last_ns", _LONG)),
    ],
    ".slots": [
        *(("window_ns", _LONG), *_TOPIC, ("period_ns", _LONG), ("epoch", _LONG)),
        *(("source_name", _TEXT),),
        *(("met", _LONG), ("late", _LONG), ("first_ns", _LONG), ("last_ns", _LONG)),
    ],
    ".tenures": [
        *(("service", _TEXT), ("epoch", _LONG), ("manager_id", _TEXT), ("manager_name", _TEXT)),
        *(("messages", _LONG), ("since_ns", _LONG), ("until_ns", _LONG)),
    ],
}


def _presence(announcements: "DataFrame", events: "DataFrame") -> "DataFrame":
    return nodes.presence(announcements).unionByName(nodes.departures(events))


def _health(known: Any, found: Any, marks: Any, window_ns: int, final_ns: int) -> Any:
    lost = gaps.lost_by_window(found, window_ns)
    return health.health(known, lost, counters.repairs(marks), window_ns, final_ns)


def _as_is(rows: Any) -> Any:
    return rows


_CONSUMED: Final = [
    *(("window_ns", _LONG), ("node_id", _TEXT), ("incarnation", _LONG), ("subject", _TEXT)),
    *(("port", _LONG), ("period_ns", _LONG), ("node_name", _TEXT), ("served", _LONG)),
    *(("missed", _LONG), ("late", _LONG), ("vacant", _LONG)),
]
DIGESTS: Final = {
    "pieces": Digest(
        ("messages",), pieces.pieces, ("messages",), pa.schema(_KEPT[".runs"]), pieces.READS
    ),
    "parts": Digest(
        ("messages", "window_ns"), parts.parts, ("messages",),
        health.PART.append(pa.field("newest_ns", _LONG)), parts.READS,
    ),
    "slots": Digest(
        ("messages", "window_ns"), slots.slots, ("periods",), pa.schema(_KEPT[".slots"]),
        slots.READS,
    ),
    "tenures": Digest(
        ("messages",), tenures.tenures, ("services",), pa.schema(_KEPT[".tenures"]), tenures.READS
    ),
    "terms": Digest(("events",), service_rows.terms, ("events",), pa.schema(_KEPT[".tenures"])),
    "consumed": Digest(
        ("events", "window_ns"), consumer_rows.consumed, ("events",), pa.schema(_CONSUMED)
    ),
    "reports": Digest(("events",), reports, ("events",), pa.schema(_KEPT[".reports"])),
    "starts": Digest(("events",), starts, ("events",), pa.schema(_KEPT[".starts"])),
    "quarantined": Digest(("bad",), reports_of_quarantine, ("bad",), pa.schema(_KEPT[".reports"])),
    "presence": Digest(
        ("announcements", "events"), _presence, ("announcements", "events"),
        pa.schema(_KEPT[".presence"]),
    ),
    "marks": Digest(
        ("counters", "window_ns"), counter_rows.marks, ("counters",),
        pa.schema(_KEPT[".counts"][:-1]),
    ),
}  # fmt: skip


def _table(
    name: str,
    inputs: tuple[str, ...],
    function: Callable[..., Any],
    sink: Sink,
    changes_with: tuple[str, ...],
) -> Table:
    if name in _KEPT:
        return Table(name, inputs, function, sink, changes_with, pa.schema(_KEPT[name]))
    shape = SHAPES[name]
    return Table(name, inputs, function, sink, changes_with, shape.columns, shape.keys)


# In an order in which each table comes behind those that it is made of.
_ALL: Final = [
    _table(".lines", ("before..lines",), _as_is, Sink.WHOLE, ()),
    _table(".runs", ("runs",), _as_is, Sink.WHOLE, ("messages", "reopened")),
    _table(
        ".reports", ("before..reports", "reports", "quarantined"), united, Sink.WHOLE,
        ("events", "bad", "reopened"),
    ),
    _table(".starts", ("starts",), _as_is, Sink.APPEND, ("events",)),
    _table(
        "gaps", (".runs", ".reports", ".starts"), gaps.gaps, Sink.WHOLE,
        ("messages", "events", "bad"),
    ),
    _table(
        ".counts", ("reopened..counts", "before..last_counts", "marks"), counters.counted,
        Sink.HOURS, ("counters",),
    ),
    _table(
        ".last_counts", ("before..last_counts", "touched..counts"), counters.newest, Sink.WHOLE,
        ("counters",),
    ),
    _table(
        "topic_health",
        ("touched_parts", "touched.gaps", "touched..counts", "window_ns", "final_ns"),
        _health, Sink.HOURS, ("messages", "events", "bad", "counters"),
    ),
    _table(".presence", ("presence",), _as_is, Sink.APPEND, ("announcements", "events")),
    _table(
        "traffic_matrix", ("touched.topic_health", ".presence", ".starts"), traffic, Sink.HOURS,
        ("messages", "announcements", "events"),
    ),
    _table("messages", ("messages",), messages.messages, Sink.ROWS, ("messages",)),
    _table("quarantine", ("bad",), _as_is, Sink.ROWS, ("bad",)),
    _table(
        "node_timeline", ("events", "announcements"), nodes.timeline, Sink.ROWS,
        ("events", "announcements"),
    ),
    _table(".spells", ("before..spells", "slots"), periods.spells, Sink.WHOLE, ("periods",)),
    _table(".slots", ("reopened..slots", "slots"), periods.merged, Sink.HOURS, ("periods",)),
    _table(
        "period_compliance", ("touched..slots", ".spells", "hours", "window_ns"),
        periods.compliance, Sink.HOURS, ("periods",),
    ),
    _table(
        "consumer_compliance", ("reopened.consumer_compliance", "consumed", "window_ns"),
        consumers.compliance, Sink.HOURS, ("events",),
    ),
    _table(
        ".tenures", ("before..tenures", "tenures", "terms"), services.merged, Sink.WHOLE,
        ("services", "events"),
    ),
    _table(
        "service_managers", (".tenures",), services.managers, Sink.WHOLE, ("services", "events")
    ),
    _table(
        "bus_counters", ("touched..counts", "window_ns"), counters.bus_counters, Sink.HOURS,
        ("counters",),
    ),
    _table("late", ("cut",), _as_is, Sink.ROWS, ("cut",)),
]  # fmt: skip
REGISTRY: Final = {table.name: table for table in _ALL}
SETTLING: Final = (".runs", ".reports", "gaps")
PUBLIC: Final = tuple(name for name in SHAPES if name in REGISTRY)
# What was cut, and which sequences there were, is kept by every run: the next one needs it.
_ALWAYS: Final = (".lines", ".runs", "late")


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
            sources = (_PREFIX.sub("", name) for name in table.inputs)
            wanted |= {name for name in sources if name in REGISTRY and name not in _RECORDED}
    return [table for table in _ALL if table.name in wanted]


_PREFIX: Final = re.compile(r"(before|reopened|touched)\.")
_RECORDED: Final = ("messages",)  # A table and an input: as an input, it is the new rows.
