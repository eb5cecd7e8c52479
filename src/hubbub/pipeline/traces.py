"""Traces of simulated runs as tables: the columns of a recording, and what was owed.

Each subscriber of a run is a recorder, named by scenario, seed and node, so that a fault says which
run to repeat. Several runs lie in one file, as many seeds make many small runs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from struct import pack
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.protocol.delivery import Delivery
from hubbub.recorder.rows import event_rows
from hubbub.simulation import Result, Trace
from hubbub.store.columns import MessageColumns, row_table
from hubbub.store.layout import file_name, hour_folder, hour_of, make_folder, whole_file
from hubbub.store.parquet import Writer
from hubbub.store.records import PackedRun, Row, Topic
from hubbub.store.schema import TABLES

OWED: Final = pa.schema(
    [
        ("recorder", pa.string()),
        ("source_id", pa.string()),
        ("incarnation", pa.int64()),
        ("subject", pa.string()),
        ("first_sequence", pa.int64()),  # From here on it was owed,
        ("last_sequence", pa.int64()),  # up to here.
    ]
)


RESULTS: Final = pa.schema(
    [
        ("scenario", pa.string()),
        ("seed", pa.int64()),
        ("ok", pa.bool_()),
        ("failure", pa.string()),
        ("trace_hash", pa.string()),
        ("virtual_seconds", pa.float64()),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


def tables_of(traces: Iterable[Trace]) -> dict[str, pa.Table]:
    """Turn traces into tables."""
    messages, events, owed = [], [], []
    for trace in traces:
        messages += _messages(trace)
        events += _events(trace)
        owed += [dict(zip(OWED.names, map(_signed, one), strict=True)) for one in trace.owed]
    return {
        "messages": _joined(messages, TABLES["messages"]),
        "events": _joined(events, TABLES["events"]),
        "owed": pa.Table.from_pylist(owed, OWED),
    }


def _signed(value: Any) -> Any:
    """Return a number of 64 bits as the signed one that has the same bits."""
    is_large = isinstance(value, int) and value >> 63
    return value - (1 << 64) if is_large else value


def _joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *(one.cast(schema) for one in tables)])


def _messages(trace: Trace) -> list[pa.Table]:
    recorders: dict[str, MessageColumns] = {}
    for recorder, time_ns, delivery in trace.got:
        columns = recorders.setdefault(recorder, MessageColumns(recorder))
        if delivery.payloads:
            columns.add(_pack(delivery, columns.rows, time_ns))
    return [columns.take() for columns in recorders.values() if columns.rows]


def _pack(delivery: Delivery, offset: int, time_ns: int) -> PackedRun:
    topic, source, count = delivery.topic, delivery.topic.source, len(delivery.payloads)
    link = delivery.link
    return PackedRun(
        offset,
        Topic(
            topic.subject, source.name, source.id, source.incarnation, topic.schema_name,
            topic.schema_hash,
        ),
        delivery.first,
        count,
        pack(f"<{count}I", *map(len, delivery.payloads)),
        pack(f"<{count}Q", *delivery.published_ns),
        b"".join(delivery.payloads),
        time_ns,
        link if isinstance(link, str) else link.link,
        None,
    )  # fmt: skip


def _events(trace: Trace) -> list[pa.Table]:
    recorders: defaultdict[str, list[Row]] = defaultdict(list)
    for recorder, time_ns, event in trace.heard:
        rows = recorders[recorder]
        for values in event_rows(event, time_ns):
            rows.append(Row(len(rows), "events", values))
    return [row_table("events", recorder, rows) for recorder, rows in recorders.items()]


def write(store: Path, part: int, traces: Iterable[Trace], results: Iterable[Result]) -> None:
    """Write some runs as one part of a store, how they went at last; done again, it is the same."""
    rows = [{**asdict(one), "counts": list(one.counts.items())} for one in results]
    tables = {**tables_of(traces), "results": pa.Table.from_pylist(rows, RESULTS)}
    for name, table in tables.items():
        if table.num_rows:
            folder = hour_folder(store, name, hour_of(0))
            make_folder(folder)
            path = folder / file_name(part, 0, table.num_rows - 1)
            with whole_file(path) as temporary, closing(Writer(temporary, table.schema)) as writer:
                writer.write(table)


def read_results(store: Path, seen: set[Path]) -> Iterator[Result]:
    """Return how runs went, of parts that were not seen before."""
    for path in sorted((store / "results").rglob("*.parquet")):
        if path not in seen and not path.name.startswith("."):
            seen.add(path)
            for row in pq.read_table(path, partitioning=None).to_pylist():
                yield Result(**{**row, "counts": dict(row["counts"])})
