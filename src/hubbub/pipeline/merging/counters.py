"""What the recorder's node counted, window by window.

A counter only grows while its recorder runs, and begins at nothing when it is started again, which
is another counter: `since_ns` tells them apart. So it is enough to know how far each had come at
the end of each window: marks, merged by their maximum. A recording from before there was `since_ns`
has 0 there: in it a recorder was started again where a mark is lower than the one before.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.pipeline.merging.groups import grouped, numbered, numbers, timestamps, united
from hubbub.pipeline.tables import SHAPES

_NAMED: Final = ("recorder", "node_id", "incarnation", "link", "name")
_COUNTER: Final = (*_NAMED, "since_ns")
_COLUMNS: Final = SHAPES["bus_counters"].columns


def merged(known: Any, new: Any) -> Any:
    """Put marks of the same window together."""
    return grouped(
        united(known, new), ("window_ns", *_COUNTER), greatest=("node_name", "mark")
    ).select(known.column_names)


def bus_counters(marks: Any, window_ns: int) -> Any:
    """Say by how much each counter grew in each window."""
    grown = grouped(_grown(marks), ("window_ns", *_NAMED), sums=("added",), greatest=("node_name",))
    some = grown.filter(pc.greater(grown["added"], 0))
    begin_ns = numbers(some["window_ns"])
    columns = {name: some[name] for name in some.column_names}
    columns["window_start"] = timestamps(begin_ns)
    columns["window_end"] = timestamps(begin_ns + window_ns)
    return pa.table([columns[name] for name in _COLUMNS.names], schema=_COLUMNS)


def repairs(marks: Any) -> Any:
    """Say how many frames of each publisher were repaired in each window."""
    is_repaired = pc.and_(pc.equal(marks["name"], "repaired"), pc.not_equal(marks["node_id"], ""))
    grown = _grown(marks.filter(is_repaired))
    names = {"node_id": "source_id", "added": "repairs"}
    renamed = grown.rename_columns([names.get(name, name) for name in grown.column_names])
    return grouped(renamed, ("window_ns", "source_id", "incarnation"), sums=("repairs",))


def _grown(marks: Any) -> Any:
    counters, windows = numbered(marks, _COUNTER).ids, numbers(marks["window_ns"])
    order = np.lexsort((windows, counters))
    ids, mark = counters[order], numbers(marks["mark"])[order]
    before = np.append(0, mark)[: len(mark)]
    before[np.append(True, ids[1:] != ids[:-1])[: len(ids)]] = 0
    added = np.where(mark >= before, mark - before, mark)
    return marks.take(pa.array(order)).append_column("added", pa.array(added))
