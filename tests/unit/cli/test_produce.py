"""What `hubbub produce --command` says of a command that makes no sample."""

import pytest

import hubbub
from hubbub.cli.produce import _run


def test_output_of_a_command_is_the_sample_without_the_end_of_its_line() -> None:
    assert _run(["echo", "13.9"]) == b"13.9"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["cat", "/nowhere/at/all"], r"cat ended with 1: .*/nowhere/at/all"),
        (["false"], "false ended with 1: and said nothing"),
        (["/nowhere/at/all"], "/nowhere/at/all: No such file"),
    ],
)
def test_command_that_fails_is_named_with_what_it_said(words: list[str], text: str) -> None:
    with pytest.raises(hubbub.HubbubError, match=text):
        _run(words)


def test_command_that_never_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub.cli.produce._COMMAND_TIMEOUT_S", 0.05)
    with pytest.raises(hubbub.HubbubError, match=r"sleep took more than 0\.05 s"):
        _run(["sleep", "5"])
