"""Axes with round marks, whatever the values are."""

from hypothesis import given
from hypothesis import strategies as st

from hubbub.report.scale import SECOND_US, Scale, count_ticks, log_ticks, time_ticks
from hubbub.report.words import latency, short


def test_count_marks_are_round_and_reach_the_highest_value() -> None:
    assert [one.label for one in count_ticks(345, 4, short)] == ["0", "100", "200", "300", "400"]
    assert count_ticks(0, 4, short)[0].label == "0"


def test_few_decades_have_marks_between_them_and_many_do_not() -> None:
    low, high, marks = log_ticks(170, 900, latency)
    assert (low, high) == (100, 1000)
    assert [one.label for one in marks] == ["100 µs", "200 µs", "500 µs", "1 ms"]
    _, _, marks = log_ticks(1, 1e6, latency)
    assert [one.label for one in marks][:3] == ["1 µs", "10 µs", "100 µs"]


def test_time_marks_are_those_of_a_clock() -> None:
    begin = 1_794_816_003 * SECOND_US
    marks = time_ticks(begin, begin + 600 * SECOND_US, 6)
    assert [one.label for one in marks] == ["08:02", "08:04", "08:06", "08:08", "08:10"]
    marks = time_ticks(begin, begin + 10 * SECOND_US, 5)
    assert marks[0].label == "08:00:04"


@given(
    st.floats(1e-3, 1e12), st.floats(1e-3, 1e12), st.integers(0, 1 << 52), st.integers(1, 1 << 55)
)
def test_marks_are_few_and_in_order(one: float, other: float, begin: int, length: int) -> None:
    low, high = sorted((one, other))
    bottom, top, marks = log_ticks(low, high, latency)
    assert bottom <= low * 1.001 and high * 0.999 <= top
    for values in (
        [mark.value for mark in marks],
        [mark.value for mark in count_ticks(high, 5, short)],
        [mark.value for mark in time_ticks(begin, begin + length, 6)],
    ):
        assert values == sorted(set(values))
        assert len(values) < 50


@given(st.floats(-1e9, 1e9))
def test_value_never_leaves_the_picture(value: float) -> None:
    for is_log in (False, True):
        assert 10 <= Scale(1, 1000, 10, 90, is_log)(value) <= 90.001
