"""What must be true of a row, said once for Arrow and for Spark (transforms/quality.py)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import RECORDED_TIME_MAX
from hubbub.pipeline.merging.groups import Flags

KEYS: Final = ("recorder", "offset", "subject", "source_id", "incarnation", "sequence")
MISSING_KEY: Final = "missing_key"
OTHER_SIZE: Final = "size_is_not_the_payloads"


class Range(NamedTuple):
    """From where to before where the numbers of a column lie; null lies nowhere."""

    column: str
    least: int = 0
    beyond: int | None = None


RANGES: Final = {
    "offset_out_of_range": Range("offset"),
    "sequence_out_of_range": Range("sequence", 1),
    "published_out_of_range": Range("published_ns", 0, RECORDED_TIME_MAX),
    "received_out_of_range": Range("received_ns", 0, RECORDED_TIME_MAX),
    "size_out_of_range": Range("size"),
}


def asked(proven: frozenset[str], *, with_payload: bool) -> tuple[str, ...]:
    """Name the checks that are left when some are proven of all rows."""
    names = (MISSING_KEY, *RANGES, *((OTHER_SIZE,) if with_payload else ()))
    return tuple(name for name in names if name not in proven)


def columns_of(checks: Iterable[str]) -> set[str]:
    """Name the columns that checks look at."""
    found: set[str] = set()
    for name in checks:
        if name in RANGES:
            found.add(RANGES[name].column)
        else:
            found |= set(KEYS) if name == MISSING_KEY else {"size", "payload"}
    return found


def good(rows: Any, checks: Iterable[str]) -> Any:
    """Keep the rows that pass."""
    is_good = np.ones(rows.num_rows, dtype=bool)
    for name in checks:
        is_good &= _passes(rows, name)
    return rows if is_good.all() else rows.filter(pa.array(is_good))


def _passes(rows: Any, name: str) -> Flags:
    if name == MISSING_KEY:
        is_there: Flags = np.all([np.asarray(rows[key].is_valid()) for key in KEYS], axis=0)
        return is_there
    if name == OTHER_SIZE:
        return _is_true(pc.equal(rows["size"], pc.binary_length(rows["payload"])))
    column, least, beyond = RANGES[name]
    is_in = _is_true(pc.greater_equal(rows[column], least))
    return is_in if beyond is None else is_in & _is_true(pc.less(rows[column], beyond))


def _is_true(told: Any) -> Flags:
    """Take for false what nobody knows."""
    return np.asarray(pc.fill_null(told, False), dtype=bool)


def proven(smallest: Mapping[str, Any], largest: Mapping[str, Any]) -> frozenset[str]:
    """Name the checks that every row passes, by what is known of columns without a null."""
    found = {
        name
        for name, (column, least, beyond) in RANGES.items()
        if _is_at_least(smallest.get(column), least)
        and (beyond is None or _is_at_least(beyond - 1, largest.get(column)))
    }
    return frozenset(found | ({MISSING_KEY} if smallest.keys() >= set(KEYS) else set()))


def _is_at_least(value: Any, bound: Any) -> bool:
    return isinstance(value, int) and isinstance(bound, int) and value >= bound
