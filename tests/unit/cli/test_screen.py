"""Tables on terminals of any width, whatever the network put into their cells."""

import sys

import pytest

from hubbub.cli.screen import Column, Screen, duration, table, wrapped
from hubbub.cli.terminal import cells

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
    assert lines[1] == "/plan…ture  lidar…orth  12,000"
    assert all(len(line) <= 30 for line in lines)


def test_subjects_that_begin_alike_stay_apart_when_they_are_shortened() -> None:
    subjects = ["/plant/line1/temperature/inlet", "/plant/line1/temperature/outlet", "/世界" * 9]
    lines = table(COLUMNS, [(subject, "x", "1") for subject in subjects], 36)
    assert len(set(lines)) == 4
    assert [line[:4] for line in lines[1:3]] == ["/pla", "/pla"]
    assert {cells(line) for line in lines} == {36}


def test_column_that_can_be_done_without_goes_before_a_name_is_shortened() -> None:
    columns = (*COLUMNS, Column("address", is_number=False, is_optional=True))
    row = ("/plant/line1/temp", "lidar", "1", "192.0.2.2:59821")
    assert table(columns, [row], 36)[1] == "/plant/line1/temp  lidar         1"
    assert table(columns, [row], None)[1].endswith("  192.0.2.2:59821")


@pytest.mark.parametrize(("value", "width"), [(None, None), ("", None), ("80", 80), ("x", None)])
def test_pipe_is_as_wide_as_it_is_said_to_be(
    value: str | None, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    monkeypatch.delenv("COLUMNS", raising=False)
    if value is not None:
        monkeypatch.setenv("COLUMNS", value)
    assert Screen().width == width


def test_text_goes_on_below_itself_and_what_is_to_be_copied_is_not_broken() -> None:
    assert wrapped("ok  lo  ", "up, with 127.0.0.1", 22) == [
        "ok  lo  up, with",
        "        127.0.0.1",
    ]
    assert wrapped("ok  lo  ", "a" * 30, 22) == ["ok  lo  " + "a" * 30]
    assert wrapped("ok  lo  ", "up, with 127.0.0.1", None) == ["ok  lo  up, with 127.0.0.1"]


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
