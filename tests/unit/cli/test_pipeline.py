"""`hubbub pipeline run` says what is wrong before it starts Spark for it."""

import sys
from pathlib import Path

import pytest

from hubbub.cli.app import run
from hubbub.cli.pipeline import choose_span


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--live", "--batch"], "--live and --batch cannot be had together"),
        (["--alerts"], "--alerts and --rule need --live: they look at what happens now"),
        (["--rule", "loss=1"], "--alerts and --rule need --live: they look at what happens now"),
        ([], "no store"),
        (["--out", "no store"], "no store is in the recording itself: name another folder"),
        (["--out", "no store/tables"], "is in the recording itself: name another folder"),
    ],
)
def test_run_that_cannot_work_is_one_line(
    options: list[str],
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["hubbub", "pipeline", "run", "no store", "--out", "tables"]
    monkeypatch.setattr(sys, "argv", arguments + options)
    with pytest.raises(SystemExit) as exited:
        run()
    assert exited.value.code == 2
    error = capsys.readouterr().err
    assert what in error
    assert error.count("\n") == 1


def test_windows_are_those_of_the_tables_unless_others_are_asked_for() -> None:
    assert choose_span(None, None, 10.0) == 10.0
    assert choose_span(None, 1_000_000_000, 10.0) == 1.0
    assert choose_span("5s", 1_000_000_000, 10.0) == 5.0
