"""Digests that workers make of messages: compared with plain Python, also by way of files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.limits import SECOND
from hubbub.pipeline import histogram
from hubbub.pipeline.digesting import parts, pieces, quality, slots, tenures
from hubbub.pipeline.digesting.work import (
    RowGroup,
    Wanted,
    Work,
    digested_files,
    digested_rows,
    read,
)
from hubbub.pipeline.merging.groups import grouped, numbered
from hubbub.pipeline.merging.periods import merged
from hubbub.pipeline.registry import DIGESTS
from hubbub.store.parquet import Writer
from hubbub.store.schema import MESSAGES
from tests.spark.rows import OTHER, START_NS, arrow, message
from tests.unit.pipeline import digests
from tests.unit.pipeline.digests import WINDOW_NS, Row, rows_of

MS = 1_000_000
_SEQUENCE = MESSAGES.names.index("sequence")


def same(made: Any, expected: Any) -> None:
    names = expected.column_names
    got = sorted((tuple(row.values()) for row in made.select(names).to_pylist()), key=repr)
    assert got == sorted((tuple(row.values()) for row in expected.to_pylist()), key=repr)


def written(path: Path, *groups: list[Row], without: tuple[str, ...] = ()) -> list[RowGroup]:
    """Write a file of a store, one row group for each of these."""
    tables = [arrow(rows).drop_columns(list(without)) for rows in groups]
    with Writer(path, tables[0].schema) as writer:
        for table in tables:
            writer.write(table)
    return [RowGroup(str(path), number) for number in range(len(groups))]


def work_of(*names: str, since_ns: int = 0) -> Work:
    chosen = {name: DIGESTS[name] for name in names}
    wanted = {
        name: Wanted(one.function, (WINDOW_NS,) * (len(one.inputs) - 1), one.columns)
        for name, one in chosen.items()
    }
    reads = {column for one in chosen.values() for column in one.reads}
    return Work(wanted, tuple(reads), since_ns)


def asked_for(groups: list[RowGroup]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"id": list(range(len(groups)))})]


def taken(batches: Any, name: str) -> list[Row]:
    return [row for batch in batches for row in batch.column(name).to_pylist() if row is not None]


def test_buckets_are_those_of_the_histogram() -> None:
    sizes = [0, 1, 2, 3, 4, 7, 8, 63, 64, 65, 127, 128, 999, 1000, 10**6]
    sizes += [2**40 - 1, 2**40, 2**53 - 1, 2**53, 2**53 + 1, 2**62 - 1]
    values = [*sizes, *(-size for size in sizes)]
    for value, bucket in zip(values, parts.buckets_of(np.array(values)).tolist(), strict=True):
        least, most = histogram.bounds_ns(bucket)
        assert bucket == histogram.bucket_of(value)
        assert least <= value <= most


def test_parts_count_messages_by_window_and_bucket() -> None:
    rows = [message(n, n + 1, published_ns=START_NS + n * 990_000) for n in range(50)]
    rows.append(message(60, 60, received_ns=START_NS + 10 * SECOND, source_name=None))
    same(parts.parts(arrow(rows), WINDOW_NS), digests.parts(rows))


def test_what_was_published_nobody_knows_when_has_no_latency() -> None:
    made = parts.parts(arrow([message(0, 1, published_ns=0)]), WINDOW_NS)
    assert rows_of(made, "bucket", "messages", "latency_max_us") == [(None, 1, None)]


def test_pieces_end_at_holes_and_know_when() -> None:
    rows = [message(n, sequence) for n, sequence in enumerate([1, 2, 3, 5, *range(60, 140)])]
    rows += [message(200, 1, source_id=OTHER, source_name=None), message(201, 1, subject="/b")]
    made = pieces.pieces(arrow(rows))
    assert made.num_rows == 5
    same(made, digests.pieces(rows))


def test_a_sequence_that_occurs_twice_makes_pieces_overlap() -> None:
    rows = [message(n, sequence) for n, sequence in enumerate([1, 2, 3, 2])]
    made = pieces.pieces(arrow(rows))
    assert rows_of(made, "first", "last") == [(1, 2), (2, 3)]


TOLD = st.lists(
    st.tuples(st.sampled_from(["/a", "/b"]), st.sampled_from(["x", None]), st.integers(1, 30)),
    max_size=40,
    unique_by=lambda one: (one[0], one[2]),
)


@given(TOLD)
def test_pieces_are_those_that_plain_python_finds(told: list[tuple[str, str | None, int]]) -> None:
    rows = [
        message(n, sequence, subject=subject, source_name=name)
        for n, (subject, name, sequence) in enumerate(told)
    ]
    same(pieces.pieces(arrow(rows)), digests.pieces(rows))


@given(st.lists(st.tuples(st.sampled_from([None, 1, 7, 10**15]), st.booleans(), st.integers())))
def test_groups_are_numbered_as_plain_python_would(
    told: list[tuple[int | None, bool, int]],
) -> None:
    keys = [(number, flag) for number, flag, _ in told]
    values = [value % 1000 - 500 for *_, value in told]
    table = pa.table(
        {
            "number": pa.array([number for number, _ in keys], pa.int64()),
            "flag": pa.array([flag for _, flag in keys], pa.bool_()),
            "value": pa.array(values, pa.int64()),
            "other": pa.array([value or None for value in values], pa.int64()),
        }
    )
    groups = numbered(table, ("number", "flag"))
    assert [keys[first] for first in groups.firsts[groups.ids]] == keys
    assert [keys.index(keys[first]) for first in groups.firsts] == groups.firsts.tolist()
    made = grouped(table, ("number", "flag"), sums=("value",), least=("other",))
    most = grouped(table, ("number", "flag"), greatest=("value",))["value"].to_pylist()
    for row, greatest in zip(made.to_pylist(), most, strict=True):
        mine = [
            v for key, v in zip(keys, values, strict=True) if key == (row["number"], row["flag"])
        ]
        assert row["value"] == sum(mine)
        assert greatest == max(mine)
        assert row["other"] == min((value for value in mine if value), default=None)


def test_late_is_what_comes_when_consumers_have_given_its_slot_up() -> None:
    delays_ms = {20: (39, 41), 100: (149, 151)}  # Half a period behind the end, at least 20 ms.
    for period_ms, delays in delays_ms.items():
        rows = [
            message(
                n, n + 1, tick_ns=START_NS + n * period_ms * MS, period_ns=period_ms * MS,
                received_ns=START_NS + (n * period_ms + delay_ms) * MS,
            )
            for n, delay_ms in enumerate(delays)
        ]  # fmt: skip
        counted = slots.slots(arrow([*rows, message(9, 9)]), WINDOW_NS)
        assert rows_of(counted, "met", "late") == [(1, 1)]


def test_slots_are_owed_within_an_epoch_and_have_one_message_each() -> None:
    first, second = START_NS, START_NS + 5 * SECOND
    # Ticks beside the boundaries, one more sample in a slot, and 4.8 s that nobody wanted any in.
    told = [
        (first, first + 3 * MS, 20), (first, first + 26 * MS, 20), (first, first + 33 * MS, None),
        (first, first + 85 * MS, 20), (second, second, 20), (second, second + 59 * MS, 20),
    ]  # fmt: skip
    rows = [
        message(
            n, n + 1, epoch=epoch, tick_ns=tick_ns, received_ns=tick_ns + MS,
            period_ns=None if period_ms is None else period_ms * MS,
        )
        for n, (epoch, tick_ns, period_ms) in enumerate(told)
    ]  # fmt: skip
    some = (slots.slots(arrow(part), WINDOW_NS) for part in (rows[:2], rows[2:]))
    got = digests.compliance_of(merged(*some), WINDOW_NS)
    columns = ("slots", "met", "missed", "late")
    assert [tuple(row.values()) for row in got.select(columns).to_pylist()] == [(5 + 3, 5, 3, 0)]


def test_tenures_count_what_was_published_in_an_epoch() -> None:
    rows = [
        message(0, 1, service="news", epoch=1),
        message(1, 2, service="news", epoch=1),
        message(2, 1, service="news", epoch=2, source_id=OTHER),
        message(4, 4),
    ]
    made = tenures.tenures(arrow(rows))
    got = rows_of(made, "epoch", "messages", "since_ns", "until_ns")
    assert got == [(1, 2, START_NS, START_NS + MS), (2, 1, START_NS + 2 * MS, START_NS + 2 * MS)]


def test_files_and_rows_give_the_same_digests(tmp_path: Path) -> None:
    rows = [message(n, n + 1, service="news", epoch=1) for n in range(40)]
    groups = written(tmp_path / "some.parquet", rows[:25], rows[25:])
    work = work_of("pieces", "parts", "slots", "tenures")
    by_files = list(digested_files(work, groups)(asked_for(groups)))
    assert [(row["first"], row["last"]) for row in taken(by_files, "pieces")] == [(1, 25), (26, 40)]
    assert sum(row["messages"] for row in taken(by_files, "parts")) == 40
    assert taken(by_files, "slots") == []
    by_rows = digested_rows(work)(
        batch for part in (rows[:25], rows[25:]) for batch in arrow(part).to_batches()
    )
    assert taken(by_rows, "tenures") == taken(by_files, "tenures")


def test_what_is_cut_off_is_in_no_digest(tmp_path: Path) -> None:
    groups = written(tmp_path / "some.parquet", [message(n, n + 1) for n in range(9)])
    work = work_of("pieces", since_ns=START_NS + 4 * MS)
    made = digested_files(work, groups)(asked_for(groups))
    assert [row["first"] for row in taken(made, "pieces")] == [5]


def test_rows_that_do_not_pass_are_left_out(tmp_path: Path) -> None:
    rows = [message(0, 1), message(1, 0), message(2, 3, size=9), message(3, 4)]
    [group] = written(tmp_path / "some.parquet", rows)
    checks = quality.asked(frozenset(), with_payload=True)
    [table] = read([group._replace(checks=checks)], ["sequence"])
    assert table["sequence"].to_pylist() == [1, 4]
    proven = frozenset(checks) - {"sequence_out_of_range"}
    [table] = read([group._replace(checks=quality.asked(proven, with_payload=True))], ["size"])
    assert table["size"].to_pylist() == [8, 9, 8]


def test_an_older_file_has_fewer_columns(tmp_path: Path) -> None:
    rows = [message(n, n + 1) for n in range(3)]
    groups = written(tmp_path / "old.parquet", rows, without=("period_ns", "epoch", "service"))
    made = list(digested_files(work_of("slots", "tenures"), groups)(asked_for(groups)))
    assert taken(made, "slots") == taken(made, "tenures") == []


def test_a_page_that_rotted_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    groups = written(path, [message(n, n + 1) for n in range(5000)])
    column = pq.read_metadata(path).row_group(0).column(_SEQUENCE)
    place = column.data_page_offset + column.total_compressed_size - 3
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(bytes(content))
    with pytest.raises(OSError, match="CRC"):
        list(read(groups, ["sequence"]))
