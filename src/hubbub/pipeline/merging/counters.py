"""What the recorder's node counted, window by window.

A counter only grows while its recorder runs, and begins at nothing when it is started again, which
is another counter: `since_ns` tells them apart. So it is enough to know how far each had come at
the end of each window: marks, merged by their maximum. A recording from before there was `since_ns`
has 0 there: in it a recorder was started again where a mark is lower than the one before.

Each mark is kept with its base, the mark before it: so an hour can be read without those before it.
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


def counted(known: Any, last: Any, new: Any) -> Any:
    """Put marks of the same window together, and note from where each counter came.

    `known` has all windows from that of the first new mark on, and maybe earlier ones: these stay.
    """
    if not new.num_rows:
        return known
    first_ns = int(numbers(new["window_ns"]).min())
    is_behind = pa.array(numbers(known["window_ns"]) >= first_ns)
    behind, earlier = known.filter(is_behind), known.filter(pc.invert(is_behind))
    marks = grouped(united(new, behind), ("window_ns", *_COUNTER), greatest=("node_name", "mark"))
    before = last.filter(pc.less(last["window_ns"], first_ns))
    begun = united(_first(behind), before.append_column("base", before["mark"]))
    ids = numbered(united(marks.select(_COUNTER), begun), _COUNTER).ids
    start = np.zeros(int(ids.max()) + 1, dtype=np.int64)
    start[ids[marks.num_rows :]] = numbers(begun["base"])
    ids = ids[: marks.num_rows]
    order = np.lexsort((numbers(marks["window_ns"]), ids))
    is_first = np.append(True, np.diff(ids[order]) != 0)
    base = np.where(is_first, start[ids[order]], np.roll(numbers(marks["mark"])[order], 1))
    marks = marks.take(pa.array(order)).append_column("base", pa.array(base))
    return united(earlier, marks)


def newest(known: Any, counts: Any) -> Any:
    """Return how far each counter has come, and when it was seen so."""
    both = united(known, counts)
    ids = numbered(both, _COUNTER).ids
    order = np.lexsort((numbers(both["window_ns"]), ids))
    is_last = np.append(np.diff(ids[order]) != 0, True)[: len(order)]
    return both.take(pa.array(order[is_last]))


def bus_counters(counts: Any, window_ns: int) -> Any:
    """Say by how much each counter grew in each window."""
    grown = grouped(
        _grown(counts), ("window_ns", *_NAMED), sums=("added",), greatest=("node_name",)
    )
    some = grown.filter(pc.greater(grown["added"], 0))
    begin_ns = numbers(some["window_ns"])
    columns = {name: some[name] for name in some.column_names}
    columns["window_start"] = timestamps(begin_ns)
    columns["window_end"] = timestamps(begin_ns + window_ns)
    return pa.table([columns[name] for name in _COLUMNS.names], schema=_COLUMNS)


def repairs(counts: Any) -> Any:
    """Say how many frames of each publisher were repaired in each window."""
    is_repaired = pc.and_(pc.equal(counts["name"], "repaired"), pc.not_equal(counts["node_id"], ""))
    grown = _grown(counts.filter(is_repaired))
    names = {"node_id": "source_id", "added": "repairs"}
    renamed = grown.rename_columns([names.get(name, name) for name in grown.column_names])
    return grouped(renamed, ("window_ns", "source_id", "incarnation"), sums=("repairs",))


def _first(counts: Any) -> Any:
    """Return the first row of each counter."""
    ids = numbered(counts, _COUNTER).ids
    order = np.lexsort((numbers(counts["window_ns"]), ids))
    is_first = np.append(True, np.diff(ids[order]) != 0)[: len(order)]
    return counts.take(pa.array(order[is_first])).select([*_COUNTER, "base"])


def _grown(counts: Any) -> Any:
    mark, base = numbers(counts["mark"]), numbers(counts["base"])
    return counts.append_column("added", pa.array(np.where(mark >= base, mark - base, mark)))
