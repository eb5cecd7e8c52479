"""How far a long command is, on a screen."""

import sys
from io import StringIO

import pytest

from hubbub.cli.progress import Progress


class Screen(StringIO):
    """A terminal, as far as anybody asks."""

    def isatty(self) -> bool:
        return True


def sit_down(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Put a terminal in the place of stderr; not in a fixture, whose stderr is another one."""
    made = Screen()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    return made


def test_what_takes_long_is_said_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = sit_down(monkeypatch)
    with Progress(None) as progress:
        progress.show(0, "reading")
        assert screen.getvalue() == ""  # It may be over in a moment.
        progress.show_now("Spark is starting")
        assert "Spark is starting" in screen.getvalue()


def test_total_that_is_known_later_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = sit_down(monkeypatch)
    with Progress(None) as progress:
        progress.show_now("Spark is starting")
        monkeypatch.setattr(progress, "_next_s", 0.0)
        progress.show(500, "rows", 2000)
    assert "500/2000" in screen.getvalue()


def test_nobody_is_told_where_there_is_no_screen(capfd: pytest.CaptureFixture[str]) -> None:
    with Progress(None) as progress:
        progress.show_now("Spark is starting")
    assert capfd.readouterr().err == ""
