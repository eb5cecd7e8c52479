"""Who managed each service, epoch by epoch, and how much was published meanwhile.

What is kept has a row for each manager of an epoch, and one without a manager for its messages:
these say in which epoch they came, and not by whom.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from hubbub.pipeline.merging.groups import (
    UNKNOWN,
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


def merged(known: Any, counted: Any, named: Any) -> Any:
    """Add up counts of the same epoch and manager."""
    return grouped(
        united(known, counted, named), (*_EPOCH, "manager_id"),
        sums=("messages",), least=("since_ns",), greatest=("until_ns", "manager_name"),
    ).select(known.column_names)  # fmt: skip


def managers(tenures: Any) -> Any:
    """Name the manager of each epoch: who was first, if there was a quarrel."""
    found = grouped(
        tenures, _EPOCH, sums=("messages",), least=("since_ns",), greatest=("until_ns",)
    )
    epochs, since_ns = numbered(tenures, _EPOCH).ids, numbers(tenures["since_ns"])
    managers = ranked(tenures["manager_id"])[0]
    # A row without a manager comes behind all others of its epoch.
    order = np.lexsort((managers, since_ns, managers == UNKNOWN, epochs))
    is_first = np.append(True, epochs[order][1:] != epochs[order][:-1])[: len(order)]
    chosen = tenures.take(pa.array(order[is_first]))
    columns = {name: found[name] for name in (*_EPOCH, "messages")}
    columns |= {
        "manager_id": chosen["manager_id"],
        "manager_name": chosen["manager_name"],
        "since": timestamps(numbers(found["since_ns"])),
        "until": timestamps(numbers(found["until_ns"])),
    }
    return pa.table([columns[name] for name in _COLUMNS.names], schema=_COLUMNS)
