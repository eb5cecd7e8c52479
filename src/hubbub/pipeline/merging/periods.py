"""Whether time-triggered messages kept their slots.

A slot is a period of a topic, from one multiple of it to the next. It is met by a message whose
tick lies in it, late if that came only half a period (at least 20 ms) after its end or later, and
missed if none came: as consumers judge it, which count what is late here as missed, and as late
when it comes. A recorder names the period with the first message of a slot alone. Slots are counted
from the first to the last that has a message, also in windows in which nothing came at all, but not
from one epoch to the next: nobody wanted samples then, or the clock of the producer stepped.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from hubbub.pipeline.merging.groups import (
    TOPIC,
    grouped,
    numbers,
    timestamps,
    united,
)
from hubbub.pipeline.tables import SHAPES

_SERIES: Final = (*TOPIC, "period_ns")
_COUNTED: Final = (*_SERIES, "epoch")
_COLUMNS: Final = SHAPES["period_compliance"].columns


def merged(known: Any, new: Any) -> Any:
    """Add up counts of the same window."""
    return grouped(
        united(known, new), ("window_ns", *_COUNTED, "source_name"),
        sums=("met", "late"), least=("first_ns",), greatest=("last_ns",),
    ).select(known.column_names)  # fmt: skip


def compliance(slots: Any, window_ns: int) -> Any:
    """Compare what came with the slots that there were."""
    owed = _owed(slots, window_ns)
    none = pa.array(np.zeros(slots.num_rows, dtype=np.int64))
    came = slots.select(["window_ns", *_SERIES, "source_name", "met", "late"])
    none_came = pa.array(np.zeros(owed.num_rows, dtype=np.int64))
    both = united(
        came.append_column("slots", none),
        owed.append_column("met", none_came).append_column("late", none_came),
    )
    found = grouped(
        both, ("window_ns", *_SERIES), sums=("slots", "met", "late"), greatest=("source_name",)
    )
    slot_count, met, late, start_ns = (
        numbers(found[name]) for name in ("slots", "met", "late", "window_ns")
    )
    columns = {name: found[name] for name in found.column_names}
    columns |= {
        "window_start": timestamps(start_ns),
        "window_end": timestamps(start_ns + window_ns),
        "missed": pa.array(np.maximum(slot_count - met - late, 0)),
    }
    made = pa.table([columns[name] for name in _COLUMNS.names], schema=_COLUMNS)
    return made.filter(pa.array(slot_count > 0))


def _owed(slots: Any, window_ns: int) -> Any:
    """Count the slots of each window, from the first to the last of each epoch."""
    spells = grouped(slots, _COUNTED, least=("first_ns",), greatest=("last_ns", "source_name"))
    begin_ns, end_ns, period_ns = (
        numbers(spells[name]) for name in ("first_ns", "last_ns", "period_ns")
    )
    first_window, last_window = begin_ns // window_ns, end_ns // window_ns
    counts = last_window - first_window + 1
    rows = np.repeat(np.arange(spells.num_rows), counts)
    index = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    start_ns = (first_window[rows] + index) * window_ns
    begin_ns, end_ns, period_ns = begin_ns[rows], end_ns[rows], period_ns[rows]
    # How many slots begin before the window, and up to its end, counted from the first one.
    before = np.maximum(0, (start_ns - begin_ns + period_ns - 1) // period_ns)
    upto = (np.minimum(end_ns, start_ns + window_ns - 1) - begin_ns) // period_ns + 1
    columns = {name: spells[name].take(pa.array(rows)) for name in (*_SERIES, "source_name")}
    return pa.table(columns | {"window_ns": pa.array(start_ns), "slots": pa.array(upto - before)})
