"""What was published in services, whoever managed them; see merging/services.py."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.pipeline.merging.groups import grouped

READS: Final = ("service", "epoch", "received_ns")


def tenures(rows: Any) -> Any:
    """Count what was published in each epoch of a service."""
    is_managed = pc.and_(pc.is_valid(rows["service"]), pc.is_valid(rows["epoch"]))
    managed = rows.filter(is_managed)
    columns = {name: managed[name] for name in ("service", "epoch")}
    columns |= {
        "messages": pa.array(np.ones(managed.num_rows, dtype=np.int64)),
        "since_ns": managed["received_ns"],
        "until_ns": managed["received_ns"],
    }
    found = grouped(
        pa.table(columns), ("service", "epoch"),
        sums=("messages",), least=("since_ns",), greatest=("until_ns",),
    )  # fmt: skip
    for name in ("manager_id", "manager_name"):
        found = found.append_column(name, pa.nulls(found.num_rows, pa.string()))
    return found
