"""What `hubbub pub` says of what it has published."""

import sys

import pytest
import typer

from hubbub.cli.pub import Tally, _check_what


def test_manager_that_tells_when_it_takes_the_messages_is_believed() -> None:
    """It was said that nobody subscribes and nothing was sent, of messages that arrived."""
    tally = Tally()
    tally.add(2, 0)
    tally.add(2, 0)
    tally.take_word_of(0)
    assert (tally.receivers, tally.unheard) == (0, 2)
    tally.take_word_of(3)
    assert (tally.receivers, tally.unheard) == (3, 0)


def test_what_nobody_heard_stays_unheard_where_somebody_came_later() -> None:
    tally = Tally()
    tally.add(2, 0)
    tally.add(2, 1)
    tally.take_word_of(2)
    assert (tally.receivers, tally.unheard) == (1, 1)


def test_lines_may_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    _check_what(None, None, lines=True)
    with pytest.raises(typer.BadParameter, match="nothing to publish"):
        _check_what(None, None, lines=False)
