"""From `topic_health` to traffic, latencies and losses over time, by columns and by topics.

Everything of the size of the table is done by Arrow. What comes out as Python values is bounded by
the columns, topics and series of the pictures, however many windows there are.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import (
    REPORT_ROWS_MAX,
    REPORT_SERIES_MAX,
    REPORT_TIMES_MAX,
    REPORT_TOPICS_MAX,
)
from hubbub.report.figures import SECOND_US, Cell, Clock, Latency, Series, Topic
from hubbub.report.histograms import read_off
from hubbub.report.words import who

_SEPARATOR = "\x1f"  # In no subject and in no id.
_SUMS = ("messages", "bytes", "lost", "repairs", "duplicates")


class Windows(NamedTuple):
    """The windows that can be drawn, each with its column and the place of its topic in `topics`.

    `buckets` are the entries of all histograms, with the column and the topic of their window.
    """

    clock: Clock
    table: pa.Table
    topics: pa.Array
    buckets: pa.Table


def lay_out(health: pa.Table, span_us: tuple[int, int] | None = None) -> Windows:
    """Cut the time of all windows, or what of it was recorded, into columns for a picture."""
    health = health.filter(
        pc.and_(pc.is_valid(health["window_start"]), pc.is_valid(health["window_end"]))
    )
    starts, ends = (health[name].cast(pa.int64()) for name in ("window_start", "window_end"))
    if not len(health):
        columns = pa.chunked_array([[]], pa.int64())
        clock = Clock()
    else:
        clock = _clock(starts, ends, span_us)
        columns = pc.divide(pc.subtract(starts, clock.grid_us), clock.column_us)
    names = [pc.fill_null(health[name], "") for name in ("subject", "source_id")]
    topics = pc.binary_join_element_wise(*names, _SEPARATOR).combine_chunks().dictionary_encode()
    table = health.append_column("column", columns).append_column("topic", topics.indices)
    for name in _SUMS:
        place = table.column_names.index(name)
        table = table.set_column(place, name, pc.fill_null(table[name], 0))
    return Windows(clock, table, topics.dictionary, _unfold(table))


def _unfold(table: pa.Table) -> pa.Table:
    """Make a row of each bucket of each histogram."""
    entry = pa.struct([("key", pa.int32()), ("value", pa.int64())])
    lists = table["histogram"].cast(pa.list_(entry)).combine_chunks()
    rows, entries = pc.list_parent_indices(lists), pc.list_flatten(lists)
    return pa.table(
        {
            "column": pc.take(table["column"], rows),
            "topic": pc.take(table["topic"], rows),
            "bucket": pc.struct_field(entries, "key"),
            "count": pc.struct_field(entries, "value"),
        }
    )


def _clock(
    starts: pa.ChunkedArray, ends: pa.ChunkedArray, span_us: tuple[int, int] | None
) -> Clock:
    first_us, last_us = pc.min(starts).as_py(), pc.max(ends).as_py()
    window_us = max(pc.max(pc.subtract(ends, starts)).as_py(), 1)
    windows = -(-max(last_us - first_us, 1) // window_us)
    merged = -(-windows // REPORT_TIMES_MAX)
    last_us = max(last_us, first_us + window_us)
    begun_us, ended_us = span_us or (first_us, last_us)
    # Messages can be lost before the first that came and after the last: such windows stay whole.
    is_begun_within = first_us <= begun_us < first_us + window_us
    is_ended_within = last_us - window_us <= ended_us < last_us and ended_us > begun_us
    return Clock(
        first_us=begun_us if is_begun_within else first_us,
        last_us=ended_us if is_ended_within else last_us,
        column_us=merged * window_us,
        columns=-(-windows // merged),
        window_us=window_us,
        grid_us=first_us,
    )


def totals(windows: Windows) -> dict[str, int]:
    """Add up everything but repairs, which are of publishers and not of topics."""
    return {name: pc.sum(windows.table[name]).as_py() or 0 for name in _SUMS if name != "repairs"}


def repairs_by_source(windows: Windows) -> dict[str, int]:
    """Add up repaired frames by publisher; the table says them again for each of its topics."""
    publisher = ["source_id", "incarnation"]
    once = windows.table.group_by(["window_start", *publisher]).aggregate(
        [("repairs", "max"), ("source_name", "max")]
    )
    sums = once.group_by("source_id").aggregate(
        [("repairs_max", "sum"), ("source_name_max", "max")]
    )
    found = {
        who(row["source_name_max_max"], row["source_id"]): row["repairs_max_sum"]
        for row in sums.to_pylist()
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def list_topics(windows: Windows) -> tuple[list[Topic], int]:
    """Add up each topic; return the worst and the busiest of them, and how many there are."""
    sums = windows.table.group_by("topic").aggregate(
        [(name, "sum") for name in _SUMS] + [("source_name", "max"), ("latency_max_us", "max")]
    )
    order = [(f"{name}_sum", "descending") for name in ("lost", "duplicates", "messages")]
    rows = sums.sort_by([*order, ("topic", "ascending")]).slice(0, REPORT_ROWS_MAX).to_pylist()
    keys = [row["topic"] for row in rows]
    merged = _merge(windows.buckets, "topic", keys)
    cells = _cells(windows, keys[:REPORT_TOPICS_MAX])
    names = {key: windows.topics[key].as_py().rpartition(_SEPARATOR) for key in keys}
    publishers = Counter(subject for subject, _, _ in names.values())
    found = [
        Topic(
            *_who(names[key], row["source_name_max"]),
            **{name: row[f"{name}_sum"] for name in ("messages", "bytes", "lost", "duplicates")},
            latency=read_off(merged.get(key, Counter()), row["latency_max_us_max"]),
            cells=cells.get(key, ()),
            is_shared=publishers[names[key][0]] > 1,
        )
        for key, row in zip(keys, rows, strict=True)
    ]
    return found, len(sums)


def _who(names: Sequence[str], source_name: str | None) -> tuple[str, str, str]:
    subject, _, source_id = names
    return subject, who(source_name, source_id), source_id


def _cells(windows: Windows, keys: Sequence[int]) -> dict[int, tuple[Cell, ...]]:
    names = [name for name in _SUMS if name != "duplicates"]
    sums = (
        windows.table.filter(_is_among(windows.table["topic"], keys))
        .group_by(["topic", "column"])
        .aggregate([(name, "sum") for name in names])
    )
    rows = {key: [Cell()] * windows.clock.columns for key in keys}
    for row in sums.to_pylist():
        rows[row["topic"]][row["column"]] = Cell(**{name: row[f"{name}_sum"] for name in names})
    return {key: tuple(cells) for key, cells in rows.items()}


def _is_among(values: pa.ChunkedArray, keys: Sequence[int]) -> pa.ChunkedArray:
    return pc.is_in(values, value_set=pa.array(keys, values.type))


def rates(windows: Windows) -> tuple[tuple[Series, ...], tuple[Series, ...]]:
    """Return messages and bytes a second by subject: the busiest, and the others together."""
    subjects = windows.table.group_by("subject").aggregate([("messages", "sum"), ("bytes", "sum")])
    chosen = _busiest(subjects.to_pydict()) if len(subjects) else []
    place = pc.index_in(windows.table["subject"], value_set=pa.array(chosen, pa.string()))
    table = windows.table.append_column("place", place)
    sums = table.group_by(["place", "column"]).aggregate([("messages", "sum"), ("bytes", "sum")])
    others = [one for one in subjects["subject"].to_pylist() if one not in set(chosen)]
    labels = list(chosen)
    if others:
        labels.append(others[0] or "" if len(others) == 1 else f"{len(others):,} other subjects")
    layers: dict[str, list[list[float]]] = {
        name: [[0.0] * windows.clock.columns for _ in labels] for name in ("messages", "bytes")
    }
    for row in sums.to_pylist():
        place = len(chosen) if row["place"] is None else row["place"]
        for name, series in layers.items():
            seconds = windows.clock.counted_us(row["column"]) / SECOND_US
            series[place][row["column"]] = row[f"{name}_sum"] / seconds
    messages, sizes = (
        tuple(
            Series(label, tuple(values), is_rest=place >= len(chosen))
            for place, (label, values) in enumerate(zip(labels, layers[name], strict=True))
        )
        for name in ("messages", "bytes")
    )
    return messages, sizes


def _busiest(sums: Mapping[str, list[Any]]) -> list[str]:
    """Choose the subjects with the largest share of the messages or of the bytes."""
    all_messages, all_bytes = sum(sums["messages_sum"]) or 1, sum(sums["bytes_sum"]) or 1
    columns = zip(sums["subject"], sums["messages_sum"], sums["bytes_sum"], strict=True)
    weights = sorted(
        (-max(messages / all_messages, size / all_bytes), subject)
        for subject, messages, size in columns
        if subject is not None
    )
    room = REPORT_SERIES_MAX if len(weights) > REPORT_SERIES_MAX else len(weights)
    return [subject for _, subject in weights[:room]]


def latencies_over_time(windows: Windows) -> tuple[tuple[Latency, ...], Latency]:
    """Return the percentiles of each column, and of everything."""
    columns = range(windows.clock.columns)
    merged = _merge(windows.buckets, "column", columns)
    highest = _highest(windows.table, "column")
    whole: Counter[int] = Counter()
    for one in merged.values():
        whole.update(one)
    most = max((one for one in highest.values() if one is not None), default=None)
    return (
        tuple(read_off(merged.get(one, Counter()), highest.get(one)) for one in columns),
        read_off(whole, most),
    )


def _highest(table: pa.Table, by: str) -> dict[int, float | None]:
    highest = table.group_by(by).aggregate([("latency_max_us", "max")]).to_pydict()
    return dict(zip(highest[by], highest["latency_max_us_max"], strict=True))


def _merge(buckets: pa.Table, by: str, keys: Sequence[int]) -> dict[int, Counter[int]]:
    """Add up histograms: the counts of each bucket of each key."""
    sums = buckets.group_by([by, "bucket"]).aggregate([("count", "sum")])
    wanted = sums.filter(_is_among(sums[by], keys)).to_pydict()
    merged: dict[int, Counter[int]] = {}
    for key, bucket, count in zip(wanted[by], wanted["bucket"], wanted["count_sum"], strict=True):
        if bucket is not None and count:
            merged.setdefault(key, Counter())[bucket] = count
    return merged
