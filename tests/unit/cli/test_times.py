"""Times as people write them."""

import pytest
import typer

from hubbub.cli.times import parse_time_ns, show_span, show_time
from hubbub.errors import ConfigurationError
from hubbub.limits import MS, SECOND

NOON = 1_794_830_400 * SECOND


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("2026-11-16T12:00:00", NOON),
        ("2026-11-16 12:00", NOON),
        ("2026-11-16T13:00+01:00", NOON),
        ("2026-11-16T12:00:00.001500Z", NOON + 1_500_000),
        ("+90s", 5 * SECOND + 90 * SECOND),
        ("-1.5m", 500 * SECOND - 90 * SECOND),
    ],
)
def test_time_is_read(text: str, time_ns: int) -> None:
    assert parse_time_ns(text, 5 * SECOND, 500 * SECOND) == time_ns


@pytest.mark.parametrize("text", ["noon", "", "2026-13-01", "12:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no time"):
        parse_time_ns(text)


def test_relative_time_needs_a_recording_and_a_duration() -> None:
    with pytest.raises(ConfigurationError, match="holds nothing"):
        parse_time_ns("+5s")
    with pytest.raises(typer.BadParameter):
        parse_time_ns("+soon", 0, 0)


def test_times_are_shown() -> None:
    assert show_time(NOON + 7 * MS) == "2026-11-16 12:00:00.007" and show_time(None) == "-"
    spans = [1500 * MS, 61 * SECOND, 3_725 * SECOND, 90_061 * SECOND]
    assert [show_span(one) for one in spans] == ["1.5 s", "1 min 1 s", "1 h 02 min", "1 d 1 h"]
