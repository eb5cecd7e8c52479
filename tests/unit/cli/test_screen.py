"""Tables on terminals of any width, whatever the network put into their cells."""

import pytest

from hubbub.cli.screen import Column, duration, table

COLUMNS = (Column("subject", is_number=False), Column("publisher", is_number=False), Column("lost"))


def test_text_stands_on_the_left_and_numbers_on_the_right() -> None:
    assert table(COLUMNS, [("/a", "lidar", "1"), ("/plant/line1", "x", "12,000")], None) == [
        "subject       publisher    lost",
        "/a            lidar           1",
        "/plant/line1  x          12,000",
    ]


def test_what_came_over_the_network_is_escaped() -> None:
    lines = table(COLUMNS, [("/\x1b[2J", "a\nb", "1")], None)
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_names_are_shortened_before_numbers_are_cut() -> None:
    lines = table(COLUMNS, [("/plant/line1/temperature", "lidar-of-the-north", "12,000")], 30)
    assert lines[1] == "/plant/li…  lidar-of-…  12,000"
    assert all(len(line) <= 30 for line in lines)


def test_terminal_that_is_too_narrow_for_everything_cuts_the_line() -> None:
    lines = table(COLUMNS, [("/plant/line1/temperature", "lidar-of-the-north", "12,000")], 20)
    assert all(len(line) <= 20 for line in lines)


def test_wide_characters_keep_the_columns_straight() -> None:
    from rich.cells import cell_len

    lines = table(COLUMNS, [("/世界", "x", "1"), ("/abcdef", "x", "2")], None)
    assert {cell_len(line) for line in lines} == {cell_len(lines[0])}


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1500, "1.5 us"),
        (-2_500_000, "-2.5 ms"),
        (3_000_000_000, "3.0 s"),
        (5_000_000_000_000, "5,000.0 s"),
    ],
)
def test_duration_has_a_suitable_unit(time_ns: int | None, text: str) -> None:
    assert duration(time_ns) == text
