"""Every command that the documents show is one that there is, with options that it has."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hubbub.cli.app import UsageError, command_tree

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
END = re.compile(r"\s(?:\||&|<|>|;|#|\d>|&&)(?:\s|$)|;")  # What is for the shell.
TREE = command_tree()


def shown(text: str) -> Iterator[str]:
    """Yield the commands that a page shows as typed, without what is for the shell."""
    for line in re.findall(r"^\s*\$ (.*)$", text, re.M):
        line = re.sub(r"^(?:[A-Z_]+=\S+ )+|^sudo ", "", line)
        if line.startswith("hubbub "):
            yield END.split(line)[0].strip()


def parse(command: str) -> None:
    """Let the command line read a command, and not run it."""
    words, found, path = shlex.split(command)[1:], TREE, ["hubbub"]
    while words[:1] == ["--config"]:
        words = words[2:]
    while hasattr(found, "commands") and words and not words[0].startswith("-"):
        path.append(words[0])
        found = found.commands[words.pop(0)]
    context: Any = found.make_context(" ".join(path), words, resilient_parsing="--help" in words)
    context.close()


COMMANDS = sorted({
    (str(page.relative_to(ROOT)), command) for page in PAGES for command in shown(page.read_text())
})  # fmt: skip


def test_there_are_commands_to_look_at() -> None:
    assert len(COMMANDS) > 60


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_command_of_a_document_can_be_read(
    page: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})  # --config is remembered there.
    try:
        parse(command)
    except UsageError as error:
        pytest.fail(f"{page}: {command}: {error}")
    except (SystemExit, typer.Exit):
        pass  # --version and --help end here.


def test_commands_that_are_mentioned_are_there() -> None:
    mentioned = {
        (str(page.relative_to(ROOT)), name)
        for page in PAGES
        for name in re.findall(r"`hubbub ([a-z]+)", page.read_text())
    }
    assert len(mentioned) > 60
    assert [one for one in sorted(mentioned) if one[1] not in TREE.commands] == []


def test_every_command_has_a_row_in_the_guide() -> None:
    page = (ROOT / "docs" / "guide" / "command-line.md").read_text()
    rows = re.findall(r"^\| (.*hubbub .*?) \|", page, re.M)
    shown = {name for row in rows for name in re.findall(r"`(?:hubbub )?([a-z]+)[^`]*`", row)}
    assert set(TREE.commands) - shown == set()


@pytest.mark.parametrize("command", ["hubbub subb /a", "hubbub sub /a --nonsense", "hubbub hz"])
def test_command_that_there_is_not_is_found(command: str) -> None:
    with pytest.raises((UsageError, KeyError)):
        parse(command)
