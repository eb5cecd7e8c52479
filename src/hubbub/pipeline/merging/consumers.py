"""What became of the slots of each consumer, window by window, as the consumer itself counted."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from hubbub.pipeline.merging.groups import grouped, numbers, timestamps, united
from hubbub.pipeline.tables import SHAPES

_SHAPE: Final = SHAPES["consumer_compliance"]
_COUNTS: Final = ("slots", "met", "missed", "late", "vacant")


def compliance(known: Any, new: Any, window_ns: int) -> Any:
    """Add what consumers told to what they had told before."""
    begin_ns = numbers(new["window_ns"])
    columns = {name: new[name] for name in new.column_names}
    columns |= {
        "window_start": timestamps(begin_ns),
        "window_end": timestamps(begin_ns + window_ns),
        "slots": pa.array(numbers(new["served"]) + numbers(new["missed"]), pa.int64()),
        "met": new["served"],
    }
    made = pa.table([columns[name] for name in _SHAPE.columns.names], schema=_SHAPE.columns)
    both = united(known, made)
    found = grouped(both, _SHAPE.keys, sums=_COUNTS, greatest=("window_end", "node_name"))
    some = found.filter(pa.array(np.any([numbers(found[name]) for name in _COUNTS], axis=0)))
    return some.select(_SHAPE.columns.names)
