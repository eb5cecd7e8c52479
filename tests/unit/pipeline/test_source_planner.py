"""What a batch reads: at most so many rows, each exactly once, whatever the files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import DataLoss
from hubbub.pipeline.source.planner import (
    Extent,
    Span,
    admit,
    cut,
    lost,
    ordered,
    spans_between,
)

positions = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1000), max_size=4)


@given(positions, positions, st.integers(0, 500))
def test_admission_takes_what_is_allowed_and_ends_with_everything(
    start: dict[str, int], more: dict[str, int], rows_max: int
) -> None:
    available = {name: start.get(name, 0) + count for name, count in {**start, **more}.items()}
    backlog = sum(available.values()) - sum(start.values())
    end = admit(start, available, rows_max)
    taken = sum(end.values()) - sum(start.values())
    assert taken == (min(backlog, rows_max) if rows_max else backlog)
    assert all(start.get(name, 0) <= end[name] <= available[name] for name in available)
    if rows_max:
        rounds = 0
        while end != ordered(available):
            end = admit(end, available, rows_max)
            rounds += 1
            assert rounds <= backlog


def test_admission_gives_what_one_recording_does_not_need_to_the_others() -> None:
    available = {"a": 2, "b": 100, "c": 100}
    assert admit({"a": 0, "b": 0, "c": 0}, available, 30) == {"a": 2, "b": 14, "c": 14}


def test_position_is_written_in_one_way() -> None:
    assert json.dumps(ordered({"b": 1, "a": 2})) == '{"a": 2, "b": 1}'


def test_admission_keeps_a_recording_that_is_not_there_any_more() -> None:
    assert admit({"gone": 7}, {"new": 3}, 0) == {"gone": 7, "new": 3}


@given(
    st.integers(0, 1000), st.integers(1, 1000), st.lists(st.integers(0, 2500)), st.integers(1, 400)
)
def test_pieces_of_a_span_are_the_span(
    first: int, count: int, seams: list[int], rows_max: int
) -> None:
    span = Span("r", first, first + count)
    pieces = list(cut(span, sorted(set(seams)), rows_max))
    rows = [row for piece in pieces for row in range(piece.first, piece.end)]
    assert rows == list(range(span.first, span.end))
    assert all(0 < piece.end - piece.first <= rows_max for piece in pieces)


def test_pieces_end_where_files_end() -> None:
    span = Span("r", 0, 300)
    assert [piece[1:] for piece in cut(span, [0, 40, 90, 180], 100)] == [
        (0, 90),
        (90, 180),
        (180, 280),
        (280, 300),
    ]


def test_what_was_pruned_and_what_never_was_are_named() -> None:
    extent = Extent(100, 200)
    assert list(lost(Span("r", 50, 150), extent)) == [Span("r", 50, 100)]
    assert list(lost(Span("r", 150, 250), extent)) == [Span("r", 200, 250)]
    assert list(lost(Span("r", 0, 50), extent)) == [Span("r", 0, 50)]
    assert list(lost(Span("r", 300, 310), extent)) == [Span("r", 300, 310)]
    assert list(lost(Span("r", 100, 200), extent)) == []
    assert list(lost(Span("r", 3, 9), None)) == [Span("r", 3, 9)]


def test_recording_that_ends_before_what_was_read_is_refused() -> None:
    with pytest.raises(DataLoss, match=r"ends at 5, before 9 of recorder r"):
        spans_between({"r": 9}, {"r": 5})
    assert spans_between({"r": 9}, {"r": 9, "new": 2}) == [Span("new", 0, 2)]
