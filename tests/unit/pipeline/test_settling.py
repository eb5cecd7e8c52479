"""What is settled stays as it is, or all is opened again: tried against settling nothing."""

from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hubbub.pipeline.merging import runs, settling
from hubbub.pipeline.merging.gaps import LOST_BY, gaps
from hubbub.pipeline.merging.groups import united
from tests.integration.bus import IS_SOAK
from tests.spark.rows import OTHER, SOURCE, START_NS
from tests.unit.pipeline.digests import Row, kept

SEEDS = 300 if IS_SOAK else 6
SOURCES = ((SOURCE, "alice"), (OTHER, "bob"))


class Rows:
    """What came of a recording: runs, reports and starts."""

    def __init__(self, *tables: Any) -> None:
        self.runs, self.reports, self.starts = tables or (
            kept(name, []) for name in (".runs", ".reports", ".starts")
        )

    def __add__(self, other: "Rows") -> "Rows":
        return Rows(
            runs.merged(self.runs, other.runs),
            united(self.reports, other.reports),
            united(self.starts, other.starts),
        )

    @property
    def gaps(self) -> Any:
        return gaps(self.runs, self.reports, self.starts)


def topic(draw: Random, *, is_odd: bool) -> Row:
    name: str | None
    source_id, name = draw.choice(SOURCES)
    if is_odd and draw.random() < 0.03:
        name = draw.choice(["", "zoe"]) or None
    row = {"source_id": source_id, "incarnation": 7, "subject": draw.choice(["/a", "/b"])}
    return row | {"source_name": name}


def drawn(draw: Random, first: int, *, is_odd: bool) -> Rows:
    """Draw rows whose sequences begin somewhere, and whose times go with these."""
    received, told, started = [], [], []
    for _ in range(draw.randrange(1, 8)):
        begin = first + draw.randrange(30)
        end = begin + draw.randrange(4)
        times = {"first_ns": START_NS + begin * 10, "last_ns": START_NS + end * 10}
        row = topic(draw, is_odd=is_odd) | {"first": begin, "last": end}
        received.append(row | times)
        if draw.random() < 0.4:
            row = topic(draw, is_odd=is_odd) | {"first": begin - 2, "last": end}
            told.append(row | {"kind": draw.choice(list(LOST_BY))})
    if draw.random() < 0.2:
        started.append({"recorder": "r", "time_ns": START_NS + first * 10 + draw.randrange(300)})
    new = runs.merged(kept(".runs", []), kept(".runs", received))
    return Rows(new, kept(".reports", told), kept(".starts", started))


def sorted_rows(table: Any) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.soak
@pytest.mark.parametrize("is_odd", [False, True])
def test_settled_holes_are_those_of_everything_until_something_touches_them(is_odd: bool) -> None:
    settled = touched = 0
    for seed in range(SEEDS):
        draw = Random(seed)
        everything, opened, aside = Rows(), Rows(), kept("gaps", [])
        lines = kept(".lines", [])
        for step in range(8):
            new = drawn(draw, max(step * 12 - draw.choice([0, 0, 60]), 3), is_odd=is_odd)
            if settling.is_touched(lines, new.runs, new.reports, new.starts):
                opened, aside, lines = everything, kept("gaps", []), kept(".lines", [])
                touched += 1
            everything, opened = everything + new, opened + new
            found = opened.gaps
            assert sorted_rows(united(found, aside)) == sorted_rows(everything.gaps), (seed, step)
            before_ns = START_NS + step * 120 - 100
            marks = settling.settled(lines, opened.runs, opened.reports, found, before_ns)
            lines = marks.lines
            is_settled = [pa.array(one) for one in marks[1:]]
            aside = united(aside, found.filter(is_settled[2]))
            settled += aside.num_rows
            left = (
                table.filter(pc.invert(mask))
                for table, mask in zip((opened.runs, opened.reports), is_settled, strict=False)
            )
            opened = Rows(*left, opened.starts)
    assert settled > 10 * SEEDS
    assert touched > 0


def test_nothing_is_read_again_for_a_topic_that_comes_in_order() -> None:
    row = {"source_id": SOURCE, "incarnation": 7, "subject": "/a", "source_name": "alice"}
    opened, lines = Rows(), kept(".lines", [])
    sizes = []
    for step in range(60):
        begin = 10 * step + 1
        times = {"first_ns": START_NS + begin, "last_ns": START_NS + begin + 7}
        told = row | {"first": begin + 8, "last": begin + 9, "kind": "GapAbandoned"}
        come = kept(".runs", [row | times | {"first": begin, "last": begin + 7}])
        new = Rows(come, kept(".reports", [told]), kept(".starts", []))
        assert not settling.is_touched(lines, new.runs, new.reports, new.starts)
        opened = opened + new
        found = opened.gaps
        marks = settling.settled(lines, opened.runs, opened.reports, found, START_NS + begin - 50)
        lines = marks.lines
        opened.runs = opened.runs.filter(pa.array(~marks.runs))
        opened.reports = opened.reports.filter(pa.array(~marks.reports))
        sizes.append((found.num_rows, opened.runs.num_rows, opened.reports.num_rows))
    assert lines.num_rows == 1
    assert max(sizes[30:]) == max(sizes[10:30]) < (12, 12, 12)
