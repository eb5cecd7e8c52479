"""All commands look the same: names, flags, units, help, completion, JSON, colours and tables."""

import importlib
import pkgutil
import re
import sys
from collections import defaultdict
from typing import Any

import pytest

import hubbub.cli
from hubbub.cli import app as app_module
from hubbub.cli.quantities import at_least
from hubbub.cli.screen import Column, table
from tests.unit.cli.test_app import COMMANDS, run

EVERY = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
NAME = re.compile(r"--[a-z]+(-[a-z]+)*")
# What a value is called says what may be written; these are numbers without a unit, or choices.
UNITS = {"DURATION", "SIZE", "BYTES", "MS", "HZ", "TIME"}
WITHOUT_JSON = {
    ("top",): "a screen for people; ls, hz, bw and delay have its figures",
    ("cheat",): "a reminder for people",
    ("gateway", "rodos"): "runs until it is stopped; `hubbub routes --json` tells what it does",
}
# Letters that mean two things, because each is what people expect there.
LETTERS = {"-n": {"--count", "--intervals"}, "-s": {"--subjects", "--scenario"}}
NODE_OPTIONS = {"--domain", "--interface", "--peers", "--log"}


def options(path: tuple[str, ...]) -> list[Any]:
    return [one for one in COMMANDS[path].params if one.param_type_name == "option"]


def help_of(path: tuple[str, ...]) -> str:
    command = COMMANDS[path]
    context = command.make_context(f"hubbub {' '.join(path)}", [], resilient_parsing=True)
    return str(command.get_help(context))


@EVERY
def test_help_fits_80_columns_and_says_in_a_sentence_what_it_does(path: tuple[str, ...]) -> None:
    lines = help_of(path).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"Usage: hubbub {' '.join(path)} ")
    first = " ".join(help_of(path).split("\n\n")[1].split())
    assert first[0].isupper() and first.endswith(".")


@EVERY
def test_arguments_are_words_and_usage_says_once_which_may_be_left_out(
    path: tuple[str, ...],
) -> None:
    arguments = [one for one in COMMANDS[path].params if one.param_type_name == "argument"]
    for argument in arguments:
        assert re.fullmatch(r"[A-Z]+", argument.metavar or "CHOICE"), argument.metavar


@EVERY
def test_exit_codes_that_help_names_are_those_of_the_page(path: tuple[str, ...]) -> None:
    named = set(map(int, re.findall(r"[Ee]xits? with (\d+)", " ".join(help_of(path).split()))))
    assert named <= {0, 1, 2, 3}


@EVERY
def test_options_are_words_with_hyphens_and_have_a_help(path: tuple[str, ...]) -> None:
    for option in options(path):
        long = [name for name in option.opts if name.startswith("--")]
        assert long and all(NAME.fullmatch(name) for name in long), option.opts
        assert option.help, option.opts


def test_letter_stands_for_one_option_everywhere() -> None:
    meant = defaultdict(set)
    letters = defaultdict(set)
    for path in COMMANDS:
        for option in options(path):
            short = [name for name in option.opts if not name.startswith("--")]
            long = next(name for name in option.opts if name.startswith("--"))
            letters[long].add(tuple(short))
            for one in short:
                meant[one].add(long)
    assert {one: longs for one, longs in meant.items() if len(longs) > 1} == LETTERS
    without = {("ls", "--rate"), ("bench", "--rate")}  # Of other commands `-r` is a rate, too.
    several = {long for long, shorts in letters.items() if len(shorts) > 1}
    assert several == {long for _, long in without}


def test_options_of_a_node_are_the_same_everywhere_and_have_their_variable() -> None:
    for path in COMMANDS:
        for option in options(path):
            if option.opts[0] in NODE_OPTIONS:
                assert option.envvar == f"HUBBUB_{option.opts[0][2:].upper()}", path


@EVERY
def test_whoever_prints_something_prints_json(path: tuple[str, ...]) -> None:
    has = any("--json" in option.opts for option in options(path))
    assert has != (path in WITHOUT_JSON)


@EVERY
def test_shell_completes_every_option(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["hubbub", *path, "--"]
    monkeypatch.setenv("_HUBBUB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert run(monkeypatch) == 0
    offered = set(capsys.readouterr().out.split())
    wanted = {name for one in options(path) for name in one.opts if name.startswith("--")}
    assert wanted <= offered


@EVERY
def test_durations_are_called_so_and_nothing_is_called_seconds(path: tuple[str, ...]) -> None:
    for option in options(path):
        assert option.metavar != "SECONDS", option.opts
        if option.opts[0] in ("--timeout", "--wait", "--interval", "--for", "--period", "--pre"):
            assert option.metavar == "DURATION"


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2), ("0.3", 0.3), (0.3, 0.3), ("500ms", 0.5), ("1m30s", 90)]
)
def test_duration_of_an_option_may_have_a_unit(text: object, seconds: float) -> None:
    assert at_least(0)(text) == pytest.approx(seconds)


def test_duration_that_is_too_short_says_how_long_it_must_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "hz", "/a", "--interval", "1ms") == 2
    assert "'--interval': 1ms is too short: at least 0.01 s" in capsys.readouterr().err


@pytest.mark.parametrize("path", [("cheat",), ("config", "show")], ids=" ".join)
@pytest.mark.parametrize("is_plain", [False, True])
def test_pipe_and_no_color_get_no_escape_codes(
    path: tuple[str, ...], is_plain: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if is_plain:
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(monkeypatch, *path) == 0
    assert "\x1b" not in capsys.readouterr().out


def tables() -> dict[str, tuple[Column, ...]]:
    """Find the columns of every table that a command shows."""
    found = {}
    for module in pkgutil.iter_modules(hubbub.cli.__path__):
        content = vars(importlib.import_module(f"hubbub.cli.{module.name}"))
        for name, value in content.items():
            if isinstance(value, tuple) and value and all(isinstance(x, Column) for x in value):
                found[f"{module.name}.{name}"] = value
    return found


TABLES = tables()
LONG = "a-name-that-somebody-gave-a-host.of-a-plant.example"


def test_there_are_tables_to_look_at() -> None:
    assert len(TABLES) >= 8


@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
def test_table_fits_80_columns_with_every_title_it_must_have(columns: tuple[Column, ...]) -> None:
    row = ["12,345" if column.is_number else LONG for column in columns]
    lines = table(columns, [row], 80)
    assert max(map(len, lines)) <= 80
    kept = [column.title for column in columns if not column.is_optional]
    assert all(title in lines[0] for title in kept), lines[0]
    assert row[-1] in lines[1] or not columns[-1].is_number
    assert all(column.title in table(columns, [row], None)[0] for column in columns)


def groups() -> dict[str, Any]:
    """Find what lists commands: the whole tree, and those of its commands that have some."""
    tree = app_module.command_tree()
    named = {f"hubbub {name}": one for name, one in tree.commands.items()}
    return {"hubbub": tree} | {name: one for name, one in named.items() if hasattr(one, "commands")}


@pytest.mark.parametrize(("name", "group"), groups().items(), ids=groups())
def test_list_of_commands_fits_80_columns_and_ends_every_sentence(name: str, group: Any) -> None:
    lines = group.get_help(group.make_context(name, [], resilient_parsing=True)).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.endswith("...") and "Usage" not in line] == []


def test_every_command_is_listed_once_by_what_it_is_for() -> None:
    tree = app_module.command_tree()
    listed = tree.list_commands(tree.make_context("hubbub", [], resilient_parsing=True))
    assert sorted(listed) == sorted(tree.commands)
