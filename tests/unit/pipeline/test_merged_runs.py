"""Runs and gaps, made of pieces: exact, and the same however the rows were cut."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.pipeline.merging import gaps, runs
from tests.spark.rows import OTHER, START_NS, event, message
from tests.unit.pipeline.digests import WINDOW_NS, Row, kept, pieces, rows_of

NO_REPORTS: list[Row] = []


def found_runs(rows: list[Row]) -> Any:
    return runs.merged(pieces(rows))


def reports(events: list[Row]) -> Any:
    names = {"node_id": "source_id", "node_name": "source_name"}
    names |= {"first_sequence": "first", "last_sequence": "last"}
    return kept(".reports", [{names.get(k, k): v for k, v in row.items()} for row in events])


def found_gaps(
    rows: list[Row], events: list[Row] = NO_REPORTS, starts_ns: tuple[int, ...] = ()
) -> Any:
    starts = kept(".starts", [{"recorder": "rec", "time_ns": time_ns} for time_ns in starts_ns])
    return gaps.gaps(found_runs(rows), reports(events), starts)


def test_what_came_while_no_recorder_ran_is_its_pause_and_nobodys_loss() -> None:
    rows = [message(0, 1), message(1, 4), message(2, 8)]
    start_ns = rows[1]["received_ns"] + 500_000
    found = found_gaps(rows, starts_ns=(0, start_ns))
    columns = ("first_sequence", "last_sequence", "reported_as", "lost_by")
    assert rows_of(found, *columns) == [
        (2, 3, None, "unknown"),
        (5, 7, "RecorderStarted", "recorder"),
    ]
    assert gaps.lost_by_window(found, WINDOW_NS)["lost"].to_pylist() == [2]


def test_what_was_reported_lost_stays_so_beside_a_pause() -> None:
    rows = [message(0, 1), message(1, 8)]
    told = [event(0, "GapAbandoned", subject="/a", first_sequence=2, last_sequence=4)]
    found = found_gaps(rows, told, starts_ns=(rows[0]["received_ns"] + 1,))
    assert rows_of(found, "first_sequence", "last_sequence", "lost_by") == [
        (2, 4, "bus"),
        (5, 7, "recorder"),
    ]


def test_no_gap_in_what_is_complete_also_out_of_order() -> None:
    rows = [message(n, sequence) for n, sequence in enumerate([*range(60, 200), 59, 58])]
    assert rows_of(found_gaps(rows), "first_sequence") == []


def test_gaps_are_exact_and_name_their_neighbours() -> None:
    sequences = [5, 6, 9, 63, 64, 128, 300]
    rows = [message(n, sequence) for n, sequence in enumerate(sequences)]
    columns = ("first_sequence", "last_sequence", "count", "reported", "lost_by")
    got = found_gaps(rows)
    assert rows_of(got, *columns) == [
        (7, 8, 2, False, "unknown"),
        (10, 62, 53, False, "unknown"),
        (65, 127, 63, False, "unknown"),
        (129, 299, 171, False, "unknown"),
    ]
    start_s = START_NS / 1e9
    neighbours = [
        [round((time.timestamp() - start_s) * 1000) for time in times]
        for times in rows_of(got, "after", "before")
    ]
    assert neighbours == [[1, 2], [2, 3], [4, 5], [5, 6]]


def test_topics_sources_and_incarnations_have_gaps_of_their_own() -> None:
    rows = [message(0, 1), message(1, 3, incarnation=8), message(2, 5, subject="/b")]
    rows += [message(3, 7, source_id=OTHER, source_name="bob"), message(4, 2)]
    rows += [message(5, 10, source_id=OTHER, source_name="bob")]
    columns = ("source_name", "subject", "first_sequence", "count")
    assert rows_of(found_gaps(rows), *columns) == [("bob", "/a", 8, 2)]


def test_a_hole_that_several_reported_is_told_apart_by_who_lost_it() -> None:
    rows = [message(0, 1), message(1, 20)]
    events = [
        event(0, "GapAbandoned", subject="/a", first_sequence=2, last_sequence=4),
        event(1, "GapAbandoned", subject="/a", first_sequence=5, last_sequence=6),
        event(2, "RecorderLost", subject="/a", first_sequence=10, last_sequence=12),
    ]
    columns = ("first_sequence", "last_sequence", "reported", "reported_as", "lost_by")
    assert [
        tuple(row[name] for name in columns) for row in found_gaps(rows, events).to_pylist()
    ] == [
        (2, 6, True, "GapAbandoned", "bus"),
        (7, 9, False, None, "unknown"),
        (10, 12, True, "RecorderLost", "recorder"),
        (13, 19, False, None, "unknown"),
    ]


def test_what_was_reported_lost_but_received_is_no_gap() -> None:
    rows = [message(n, n + 1) for n in range(9)]
    events = [event(0, "GapAbandoned", subject="/a", first_sequence=3, last_sequence=5)]
    assert found_gaps(rows, events).num_rows == 0


def test_a_loss_behind_the_last_message_is_a_gap_if_reported() -> None:
    events = [event(0, "GapAbandoned", subject="/a", first_sequence=2, last_sequence=9)]
    (gap,) = found_gaps([message(0, 1)], events).to_pylist()
    assert (gap["first_sequence"], gap["last_sequence"], gap["before"]) == (2, 9, None)
    assert gap["after"] is not None


def test_a_loss_of_a_topic_of_which_nothing_was_received_is_a_gap_if_reported() -> None:
    events = [event(0, "GapAbandoned", subject="/a", first_sequence=2, last_sequence=9)]
    (gap,) = found_gaps([], events).to_pylist()
    assert (gap["count"], gap["after"], gap["source_name"]) == (8, None, "alice")
    assert found_gaps([]).num_rows == 0


@pytest.mark.parametrize("cut", [4, 7])
def test_merged_runs_are_the_runs_of_both_however_they_were_cut(cut: int) -> None:
    sequences = [1, 2, 3, 5, 6, 64, 65, 66, 130, 131, 133]
    rows = [message(n, sequence) for n, sequence in enumerate(sequences)]
    whole = rows_of(found_runs(rows), *runs.RUN)
    assert [(row[4], row[5]) for row in whole] == [(1, 3), (5, 6), (64, 66), (130, 131), (133, 133)]
    merged = runs.merged(found_runs(rows[cut:]), found_runs(rows[:cut]))
    assert rows_of(merged, *runs.RUN) == whole


def test_sequences_that_occur_twice_are_found() -> None:
    rows = [message(n, sequence) for n, sequence in enumerate([1, 2, 3, 2, 70, 71])]
    assert rows_of(runs.overlaps(pieces(rows)), "first", "last") == [(2, 2)]
    two = [pieces([message(n, n) for n in some]) for some in (range(1, 6), range(4, 9))]
    assert rows_of(runs.overlaps(*two), "first", "last") == [(4, 5)]
    assert runs.overlaps(found_runs(rows)).num_rows == 0


def test_sequences_that_were_there_before_are_found() -> None:
    known = found_runs([message(n, n) for n in range(1, 10)])
    new = found_runs([message(n, n) for n in [*range(8, 14), 30]])
    assert rows_of(runs.overlaps(known, new), "first", "last") == [(8, 9)]
    assert runs.overlaps(known, found_runs([message(n, n) for n in (10, 11)])).num_rows == 0


SEQUENCES = st.dictionaries(
    st.tuples(st.sampled_from(["/a", "/b"]), st.integers(1, 150)), st.integers(0, 3), max_size=60
)


@given(SEQUENCES)
def test_gaps_do_not_depend_on_how_a_recording_was_cut(chosen: dict[tuple[str, int], int]) -> None:
    rows = [message(n, key[1], subject=key[0]) for n, key in enumerate(chosen)]
    known = found_runs([])
    for step in range(4):
        some = [row for row, part in zip(rows, chosen.values(), strict=True) if part == step]
        known = runs.merged(known, found_runs(some))
    got = rows_of(
        gaps.gaps(known, reports([]), kept(".starts", [])),
        "subject",
        "first_sequence",
        "last_sequence",
    )
    assert got == _holes(chosen)


def _holes(chosen: dict[tuple[str, int], int]) -> list[tuple[str, int, int]]:
    """Find the holes by looking at one sequence after the other."""
    found = []
    for subject in ("/a", "/b"):
        there = sorted(sequence for name, sequence in chosen if name == subject)
        found += [(subject, a + 1, b - 1) for a, b in pairwise(there) if b > a + 1]
    return found


def test_holes_that_changed_are_those_of_one_side_only() -> None:
    before = found_gaps([message(n, sequence) for n, sequence in enumerate([1, 3, 9])])
    after = found_gaps([message(n, sequence) for n, sequence in enumerate([1, 3, 9, 7])])
    assert gaps.changed(before, before).num_rows == 0
    got = rows_of(gaps.changed(before, after), "first_sequence", "last_sequence")
    assert got == [(4, 6), (4, 8), (8, 8)]
