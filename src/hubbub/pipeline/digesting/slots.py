"""Time-triggered messages counted by their slots; see merging/periods.py."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import SLOT_TOLERANCE_MIN
from hubbub.pipeline.merging.groups import TOPIC, grouped, numbers

READS: Final = (*TOPIC, "source_name", "received_ns", "tick_ns", "period_ns", "epoch")


def slots(rows: Any, window_ns: int) -> Any:
    """Count by topic, period and window of the slot which were met and which were not."""
    is_timed = pc.and_(pc.greater(rows["period_ns"], 0), pc.greater_equal(rows["tick_ns"], 0))
    timed = rows.filter(is_timed)  # Null is left out, too.
    period_ns, tick_ns = numbers(timed["period_ns"]), numbers(timed["tick_ns"])
    slot_ns = tick_ns - tick_ns % period_ns
    grace_ns = np.maximum(period_ns // 2, SLOT_TOLERANCE_MIN)
    is_met = numbers(timed["received_ns"]) < slot_ns + period_ns + grace_ns
    columns = {name: timed[name] for name in (*TOPIC, "source_name")}
    columns |= {
        "window_ns": pa.array(slot_ns - slot_ns % window_ns),
        "period_ns": pa.array(period_ns),
        "epoch": pa.array(numbers(timed["epoch"])),
        "met": pa.array(is_met.astype(np.int64)),
        "late": pa.array((~is_met).astype(np.int64)),
        "first_ns": pa.array(slot_ns),
        "last_ns": pa.array(slot_ns),
    }
    return grouped(
        pa.table(columns), ("window_ns", *TOPIC, "period_ns", "epoch", "source_name"),
        sums=("met", "late"), least=("first_ns",), greatest=("last_ns",),
    )  # fmt: skip
