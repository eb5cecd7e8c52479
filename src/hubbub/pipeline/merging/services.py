"""Who managed each service, epoch by epoch."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from hubbub.pipeline.merging.groups import (
    grouped,
    numbered,
    numbers,
    ranked,
    timestamps,
    united,
)
from hubbub.pipeline.tables import SHAPES

_EPOCH: Final = ("service", "epoch")
_COLUMNS: Final = SHAPES["service_managers"].columns


def merged(known: Any, new: Any) -> Any:
    """Add up counts of the same epoch and source."""
    return grouped(
        united(known, new), (*_EPOCH, "source_id", "source_name"),
        sums=("messages",), least=("since_ns",), greatest=("until_ns",),
    ).select(known.column_names)  # fmt: skip


def managers(tenures: Any) -> Any:
    """Name the manager of each epoch: who spoke for it first, if there was a quarrel."""
    epochs, since_ns = numbered(tenures, _EPOCH).ids, numbers(tenures["since_ns"])
    order = np.lexsort((ranked(tenures["source_id"])[0], since_ns, epochs))
    is_first = np.append(True, epochs[order][1:] != epochs[order][:-1])[: len(order)]
    found = tenures.take(pa.array(order[is_first]))
    columns = {name: found[name] for name in (*_EPOCH, "messages")}
    columns |= {
        "manager_id": found["source_id"],
        "manager_name": found["source_name"],
        "since": timestamps(numbers(found["since_ns"])),
        "until": timestamps(numbers(found["until_ns"])),
    }
    return pa.table([columns[name] for name in _COLUMNS.names], schema=_COLUMNS)
