"""What `hubbub produce` takes for a sample, and says of a command that makes none."""

import os
from io import BytesIO, TextIOWrapper

import pytest

import hubbub
from hubbub.cli.produce import _reader, _run
from hubbub.cli.publishing import as_typed, stdin_lines


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


def test_argument_that_is_not_utf_8_goes_out_as_it_was_typed() -> None:
    typed = os.fsdecode(b"21.5 \xb0C\n")
    assert as_typed(typed) == b"21.5 \xb0C\n"
    assert _reader(typed, None, None, None)() == b"21.5 \xb0C\n"


def test_line_of_standard_input_loses_its_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"a\r\n\n\xffb")))
    assert list(stdin_lines()) == [b"a\r", b"", b"\xffb"]
