"""Which runs, reports and holes nothing will change any more, so that steps need not read them.

They would else grow with every hole of a recording. A topic's *line* is the first sequence of one
of its runs: what lies before it is settled. That run and everything behind it stay open. New rows
are all behind the line, because a topic comes in order; should one not be (two recorders, a file
that came late, a report of an old hole), all is opened again, and the tables are what they would
have been.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hubbub.pipeline.merging.groups import (
    TOPIC,
    UNKNOWN,
    Flags,
    Numbers,
    coded,
    grouped,
    numbered,
    numbers,
    united,
)

_SOURCE: Final = ("source_id", "incarnation")


class Settled(NamedTuple):
    """Which rows are settled, and the lines of their topics."""

    lines: Any
    runs: Flags
    reports: Flags
    gaps: Flags


def is_touched(lines: Any, runs: Any, reports: Any, starts: Any) -> bool:
    """Tell whether new rows change anything before a line."""
    if not lines.num_rows:
        return False
    before_ns = pc.max(lines["before_ns"]).as_py()
    if starts.num_rows and pc.min(starts["time_ns"]).as_py() < before_ns:
        return True
    names = [*TOPIC, "source_name", "first"]
    new = pa.concat_tables([runs.select(names), reports.select(names)])
    line = _looked_up(new, lines, TOPIC, numbers(lines["sequence"]))
    if bool(((line != UNKNOWN) & (numbers(new["first"]) < line)).any()):
        return True
    # The name of a source is told with all its holes: one that is new changes the settled ones.
    count = new.num_rows
    codes = coded(pa.chunked_array([*new["source_name"].chunks, *lines["source_name"].chunks]))[0]
    known = _looked_up(new, lines, _SOURCE, codes[count:])
    return bool(((known != UNKNOWN) & (codes[:count] != UNKNOWN) & (codes[:count] != known)).any())


def settled(lines: Any, runs: Any, reports: Any, gaps: Any, before_ns: int) -> Settled:
    """Move the line of each topic forward, so that all before it was received before this time."""
    ids = numbered(
        pa.concat_tables([one.select(TOPIC) for one in (runs, reports, gaps)]), TOPIC
    ).ids
    count = int(ids.max(initial=UNKNOWN)) + 1
    of_runs, of_reports, of_gaps = np.split(ids, np.cumsum([runs.num_rows, reports.num_rows]))
    first = numbers(runs["first"])
    anchors = _anchors(runs, of_runs, first, before_ns)
    line = np.full(count, UNKNOWN, dtype=np.int64)
    line[of_runs[anchors]] = first[anchors]
    told_first, told_last = numbers(reports["first"]), numbers(reports["last"])
    told_line = line[of_reports]
    line[of_reports[(told_first < told_line) & (told_line <= told_last)]] = UNKNOWN
    line[of_runs[_of_many_names(runs, reports)]] = UNKNOWN
    anchors = anchors[line[of_runs[anchors]] != UNKNOWN]
    drawn = runs.take(pa.array(anchors)).select([*TOPIC, "source_name", "first"])
    drawn = drawn.rename_columns([*TOPIC, "source_name", "sequence"])
    drawn = drawn.append_column("before_ns", pa.array(np.full(len(anchors), before_ns)))
    return Settled(
        grouped(united(lines, drawn), TOPIC, greatest=("source_name", "sequence", "before_ns")),
        first < line[of_runs],
        told_first < line[of_reports],
        numbers(gaps["first_sequence"]) < line[of_gaps],
    )


def _anchors(runs: Any, topics: Numbers, first: Numbers, before_ns: int) -> Numbers:
    """Return the last run of each topic up to which all were received before a time."""
    order = np.lexsort((first, topics))
    is_old = np.ones(len(order), dtype=bool)
    for name in ("first_ns", "last_ns"):
        time_ns = numbers(runs[name], UNKNOWN)[order]
        is_old &= (time_ns != UNKNOWN) & (time_ns < before_ns)
    ordered = topics[order]
    begins = np.flatnonzero(np.append(True, np.diff(ordered) != 0)[: len(order)])
    # How many that are not old there are before each in its topic, and with it.
    young = np.cumsum(~is_old)
    before = np.repeat((young - ~is_old)[begins], np.diff(np.append(begins, len(order))))
    is_in = young == before
    is_last = is_in & np.append(~is_in[1:] | (np.diff(ordered) != 0), True)[: len(order)]
    anchors: Numbers = order[is_last]
    return anchors


def _of_many_names(runs: Any, reports: Any) -> Flags:
    """Tell which runs have no name, or are of a source that has several."""
    names = [*_SOURCE, "source_name"]
    both = pa.concat_tables([runs.select(names), reports.select(names)])
    sources, codes = numbered(both, _SOURCE), coded(both["source_name"])[0]
    least = np.full(sources.total, np.iinfo(np.int64).max, dtype=np.int64)
    most = np.full(sources.total, UNKNOWN, dtype=np.int64)
    is_named = codes != UNKNOWN
    np.minimum.at(least, sources.ids[is_named], codes[is_named])
    np.maximum.at(most, sources.ids, codes)
    count = runs.num_rows
    is_bad: Flags = (least != most)[sources.ids[:count]] | (codes[:count] == UNKNOWN)
    return is_bad


def _looked_up(rows: Any, lines: Any, keys: tuple[str, ...], values: Numbers) -> Numbers:
    """Find for each row the value of its line; -1: it has none."""
    some = pa.concat_tables([rows.select(keys), lines.select(keys)])
    ids = numbered(some, keys).ids
    found = np.full(int(ids.max(initial=UNKNOWN)) + 1, UNKNOWN, dtype=np.int64)
    found[ids[rows.num_rows :]] = values
    return found[ids[: rows.num_rows]]
