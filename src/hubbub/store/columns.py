"""HOT. Runs and rows of a journal -> Arrow tables with the columns of the schema.

Columns are built for many messages at once: numbers by numpy, texts as a dictionary of the few that
there are with an index a message, payloads as one buffer with its offsets. A message costs no
object of its own beside its payload.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from struct import unpack
from typing import Any, Final

import numpy as np
import pyarrow as pa

from hubbub.limits import ROW_GROUP_BYTES
from hubbub.store.records import PackedRun, Row, Timing, Topic
from hubbub.store.schema import MESSAGES, TABLES

_INT64_BITS: Final = 64
_INT32_MAX: Final = (1 << 31) - 1
_NO_TIMING: Final = Timing(0, 0, 0)
_UNKNOWN: Final = -1

# As the schema, but for texts, which Parquet keeps by dictionary anyway.
_CODED: Final = pa.schema(
    [
        pa.field(
            one.name, pa.dictionary(pa.int32(), one.type) if one.type == pa.string() else one.type
        )
        for one in MESSAGES
    ]
)


class MessageColumns:
    """Collects runs until they are a table."""

    def __init__(self, recorder: str) -> None:
        self._recorder = recorder
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._runs: list[PackedRun] = []

    def add(self, run: PackedRun) -> None:
        """Take a run; it must follow the one before."""
        self._runs.append(run)
        self.rows += run.size
        self.size_bytes += len(run.payloads)

    def take(self) -> pa.Table:
        """Make a table of what was collected, texts by dictionary, and begin anew."""
        runs, rows = self._runs, self.rows
        counts = np.fromiter((run.size for run in runs), np.int64, len(runs))

        def spread(values: Iterable[int], kind: Any = np.int64) -> Any:
            """Repeat a value of each run for its messages."""
            return np.repeat(np.fromiter(values, kind, len(runs)), counts)

        steps = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
        columns: dict[str, Any] = {
            "recorder": _constant(self._recorder, rows),
            "offset": spread(run.offset for run in runs) + steps,
            "sequence": (
                spread((run.first for run in runs), np.uint64) + steps.astype(np.uint64)
            ).view(np.int64),
            "received_ns": spread((run.received_ns for run in runs), np.uint64).view(np.int64),
            "published_ns": _join((run.published_ns for run in runs), "<i8"),
            "replayed_ns": _optional((run.replayed_ns or 0 for run in runs), spread),
        }
        for name in ("published", "received"):
            columns[name] = columns[f"{name}_ns"] // 1000
        columns |= _topics(runs, spread) | _links(runs, spread) | _payloads(runs, rows)
        columns |= _timings(runs, spread) | _further(runs, spread)
        self._clear()
        return _assemble(columns, rows)


def _assemble(columns: dict[str, Any], rows: int) -> pa.Table:
    arrays = []
    for field in _CODED:
        column = columns.get(field.name)
        if column is None:
            column = pa.nulls(rows, field.type)
        arrays.append(column if isinstance(column, pa.Array) else _array(field.type, column))
    return pa.Table.from_arrays(arrays, schema=_CODED)


def _array(kind: pa.DataType, values: Any, is_valid: Any = None) -> pa.Array:
    """Wrap an array of numpy's; `pa.array` would do, but imports pandas, which takes a second."""
    validity = None
    if is_valid is not None:
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [validity, data])


def _constant(text: str, rows: int) -> pa.Array:
    return _code([text], np.zeros(rows, np.int32))


def _optional(values: Iterable[int], spread: Any) -> Any:
    """Make a column of numbers in which 0 is none."""
    numbers = spread(values, np.uint64).view(np.int64)
    return _array(pa.int64(), numbers, numbers != 0)


def _timings(runs: list[PackedRun], spread: Any) -> dict[str, Any]:
    """Make the columns that only samples have."""
    if all(run.timing is None for run in runs):
        return {}
    timings = [run.timing or _NO_TIMING for run in runs]
    return {
        "tick_ns": _optional((one.tick_ns for one in timings), spread),
        "period_ns": _optional((one.period_ns for one in timings), spread),
        "clock_offset_ns": _array(
            pa.int64(), spread(one.clock_offset_ns for one in timings),
            spread((run.timing is not None for run in runs), np.bool_),
        ),
        "clock_error_ns": _known(spread(one.clock_error_ns for one in timings)),
    }  # fmt: skip


def _further(runs: list[PackedRun], spread: Any) -> dict[str, Any]:
    """Make the columns of services and gateways; the epoch is that of a service or of a sample."""
    epochs = (run.timing.epoch_ns if run.timing else run.topic.epoch for run in runs)
    # What a gateway does with samples, and what services do, nobody counts.
    hops = (_UNKNOWN if run.timing or run.topic.service else run.topic.hops for run in runs)
    known = spread(hops)
    return {
        "epoch": _optional(epochs, spread),
        "hops": _array(pa.int32(), known.astype(np.int32), known != _UNKNOWN),
    }


def _known(numbers: Any) -> Any:
    """Make a column of numbers in which -1 is none."""
    return _array(pa.int64(), numbers, numbers != _UNKNOWN)


def _topics(runs: list[PackedRun], spread: Any) -> dict[str, Any]:
    """Make the columns that all messages of a topic share."""
    places: dict[Topic, int] = {}
    index = spread((places.setdefault(run.topic, len(places)) for run in runs), np.int32)
    topics = list(places)
    columns: dict[str, Any] = {
        "subject": _code([topic.subject for topic in topics], index),
        "source_name": _code([topic.source_name for topic in topics], index),
        "source_id": _code([topic.source_id.hex() for topic in topics], index),
        "schema": _code([topic.schema_name or None for topic in topics], index),
        "service": _code([topic.service or None for topic in topics], index),
    }
    hashes = np.array([_signed(topic.schema_hash) for topic in topics], np.int64)
    is_typed = np.array([bool(topic.schema_name) for topic in topics])
    columns["schema_hash"] = _array(pa.int64(), hashes[index], is_typed[index])
    incarnations = np.array([_signed(topic.incarnation) for topic in topics], np.int64)
    columns["incarnation"] = incarnations[index]
    return columns


def _links(runs: list[PackedRun], spread: Any) -> dict[str, Any]:
    places: dict[str, int] = {}
    index = spread((places.setdefault(run.link, len(places)) for run in runs), np.int32)
    return {"link": _code(list(places), index)}


def _code(texts: Sequence[str | None], index: Any) -> pa.Array:
    """Code texts by a dictionary without doubles, in which null is none."""
    places: dict[str, int] = {}
    translation = np.array(
        [-1 if text is None else places.setdefault(text, len(places)) for text in texts], np.int32
    )
    coded = translation[index]
    indices = _array(pa.int32(), coded, coded >= 0 if -1 in translation else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(places), pa.string()))


def _payloads(runs: list[PackedRun], rows: int) -> dict[str, Any]:
    sizes = _join((run.lengths for run in runs), "<i4")
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    assert offsets[-1] <= _INT32_MAX, "a row group holds less than 2 GiB of payloads"
    data = b"".join([run.payloads for run in runs])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return {"size": sizes, "payload": pa.Array.from_buffers(pa.binary(), rows, buffers)}


def _join(pieces: Iterable[bytes], kind: str) -> Any:
    """Make one array of numbers of many pieces."""
    return np.frombuffer(b"".join(pieces), kind).astype(kind.replace("<", "="), copy=False)


def cut_run(run: PackedRun) -> Iterator[PackedRun]:
    """Cut a run of large messages, so that a row group stays within its bound."""
    if len(run.payloads) <= ROW_GROUP_BYTES:
        yield run
        return
    edges = list(accumulate(unpack(f"<{run.size}I", run.lengths), initial=0))
    start = 0
    for at in range(1, run.size + 1):
        if at == run.size or edges[at + 1] - edges[start] > ROW_GROUP_BYTES:
            yield run.part(start, at, run.payloads[edges[start] : edges[at]])
            start = at


def row_table(name: str, recorder: str, rows: list[Row]) -> pa.Table:
    """Make a table of rows of events, announcements or counters.

    What does not fit its column is null: a journal tells what was written, not that it was right.
    """
    schema = TABLES[name]
    values = [
        {"time": _micros(row.values.get("time_ns")), **row.values, "recorder": recorder,
         "number": row.number} for row in rows
    ]  # fmt: skip
    return pa.Table.from_arrays(
        [
            pa.array([_fit(one.get(field.name), field.type) for one in values], field.type)
            for field in schema
        ],
        schema=schema,
    )


def _micros(time_ns: Any) -> int | None:
    return time_ns // 1000 if isinstance(time_ns, int) else None


def _fit(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else repr(value)
    if pa.types.is_boolean(kind):
        return bool(value)
    if not isinstance(value, int):
        return None
    if kind == pa.int32():
        return value if abs(value) <= _INT32_MAX else None
    return _signed(value)


def _signed(value: int) -> int:
    """Return a number of 64 bits as the signed one that has the same bits."""
    value &= (1 << _INT64_BITS) - 1
    return value - (1 << _INT64_BITS) if value >> (_INT64_BITS - 1) else value
