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
    Numbers,
    grouped,
    numbered,
    numbers,
    timestamps,
    united,
)
from hubbub.pipeline.tables import SHAPES
from hubbub.store.layout import HOUR_NS

_SERIES: Final = (*TOPIC, "period_ns")
_COUNTED: Final = (*_SERIES, "epoch")
_COLUMNS: Final = SHAPES["period_compliance"].columns


def merged(known: Any, new: Any) -> Any:
    """Add up counts of the same window."""
    return grouped(
        united(known, new), ("window_ns", *_COUNTED, "source_name"),
        sums=("met", "late"), least=("first_ns",), greatest=("last_ns",),
    ).select(known.column_names)  # fmt: skip


def spells(known: Any, new: Any) -> Any:
    """Return from which slot to which each epoch of a topic goes."""
    both = united(known, new)
    found = grouped(both, _COUNTED, least=("first_ns",), greatest=("last_ns", "source_name"))
    return found.select(known.column_names)


def hours_changed(known: Any, new: Any, window_ns: int) -> set[int]:
    """Number the hours in which other slots are owed than before."""
    fresh = spells(known.slice(0, 0), new)
    ids = numbered(united(fresh, known), _COUNTED).ids
    is_met = pa.array(np.isin(ids[fresh.num_rows :], ids[: fresh.num_rows]))
    before = {_key(row): row for row in known.filter(is_met).to_pylist()}
    hours: set[int] = set()
    for row in fresh.to_pylist():
        was = before.get(_key(row))
        begin_ns, end_ns, name = row["first_ns"], row["last_ns"], row["source_name"] or ""
        if was is None:
            hours.update(_hours(begin_ns, end_ns, window_ns))
        elif name > (was["source_name"] or ""):  # It is told in all windows.
            first_ns, last_ns = min(begin_ns, was["first_ns"]), max(end_ns, was["last_ns"])
            hours.update(_hours(first_ns, last_ns, window_ns))
        else:
            hours.update(_hours(begin_ns, was["first_ns"], window_ns))
            hours.update(_hours(was["last_ns"], end_ns, window_ns))
    return hours


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _COUNTED)


def _hours(first_ns: int, last_ns: int, window_ns: int) -> range:
    """Number the hours in which the windows from one time to another begin."""
    begin_ns, end_ns = first_ns - first_ns % window_ns, last_ns - last_ns % window_ns
    return range(begin_ns // HOUR_NS, end_ns // HOUR_NS + 1)


def compliance(slots: Any, spells: Any, hours: Numbers, window_ns: int) -> Any:
    """Compare what came in some hours with the slots that there were."""
    owed = _owed(spells, hours, window_ns)
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


def _owed(spells: Any, hours: Numbers, window_ns: int) -> Any:
    """Count the slots of each window that begins in these hours, from first to last of an epoch."""
    begin_ns, end_ns, period_ns = (
        numbers(spells[name]) for name in ("first_ns", "last_ns", "period_ns")
    )
    # A column for each epoch, a row for each hour.
    first_window = np.maximum(begin_ns // window_ns, -(-hours[:, None] * HOUR_NS // window_ns))
    end_window = np.minimum(
        end_ns // window_ns + 1, -(-(hours[:, None] + 1) * HOUR_NS // window_ns)
    )
    counts = np.maximum(end_window - first_window, 0).ravel()
    index = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    start_ns = (np.repeat(first_window.ravel(), counts) + index) * window_ns
    rows = np.repeat(np.tile(np.arange(spells.num_rows), len(hours)), counts)
    begin_ns, end_ns, period_ns = begin_ns[rows], end_ns[rows], period_ns[rows]
    # How many slots begin before the window, and up to its end, counted from the first one.
    before = np.maximum(0, (start_ns - begin_ns + period_ns - 1) // period_ns)
    upto = (np.minimum(end_ns, start_ns + window_ns - 1) - begin_ns) // period_ns + 1
    columns = {name: spells[name].take(pa.array(rows)) for name in (*_SERIES, "source_name")}
    return pa.table(columns | {"window_ns": pa.array(start_ns), "slots": pa.array(upto - before)})
