"""Numbers, sizes and times as people write them."""

import pytest

from hubbub.report import words

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.5, "0.5"), (12.34, "12.3"), (999, "999"), (999.7, "1 k"), (1_234_567, "1.23 M")],
)
def test_number_is_short(number: float, text: str) -> None:
    assert words.short(number) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (64, "64 B"), (1500, "1.5 kB"), (3e9, "3 GB"), (2e15, "2,000 TB")],
)
def test_size_has_a_suitable_unit(size: float, text: str) -> None:
    assert words.size(size) == text


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(None, "-"), (0.5, "0.5 µs"), (197.4, "197 µs"), (2660.0, "2.66 ms"), (-1500.0, "-1.5 ms")],
)
def test_latency_has_a_suitable_unit(time_us: float | None, text: str) -> None:
    assert words.latency(time_us) == text


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (8_500_000, "8.5 s"),
        (600_000_000, "10 min"),
        (61_000_000, "1 min 1 s"),
        (7_500_000_000, "2 h 05 min"),
        (3 * DAY_US + 4 * 3_600_000_000, "3 d 4 h"),
    ],
)
def test_span_is_said_in_two_units_at_most(time_us: int, text: str) -> None:
    assert words.span(time_us) == text


def test_share_is_never_all_or_nothing_unless_it_is() -> None:
    assert words.share(1, 1_000_000) == "< 0.01 %"
    assert words.share(999_999, 1_000_000) == "> 99.99 %"
    assert words.share(5, 5) == "100 %"
    assert words.share(0, 5) == "0 %"
    assert words.share(0, 0) == "-"


def test_period_without_an_end_says_so() -> None:
    assert words.period(0, None) == "after 00:00:00.000"
    assert words.period(None, 1_500_000) == "until 00:00:01.500"
    assert words.period(None, None) == "at an unknown time"
    assert words.period(0, DAY_US).startswith("between 1970-01-01 00:00:00.000 and 1970-01-02")


def test_time_that_no_calendar_knows_is_shown_and_does_not_raise() -> None:
    assert words.moment(1 << 62, has_date=True).startswith("9999")
    assert words.moment(-5, has_date=True).startswith("1970")
