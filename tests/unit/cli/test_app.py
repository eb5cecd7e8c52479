"""Every command: what is wrong is one line with the remedy, and tables fit 80 columns."""

import json
import logging
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import hubbub_command
from hubbub.cli import app as app_module
from hubbub.cli.cheat import SHEET
from hubbub.cli.ps import _COLUMNS as PS_COLUMNS
from hubbub.cli.schedule import _COLUMNS as SCHEDULE_COLUMNS
from hubbub.cli.screen import Column, table
from hubbub.cli.services import _COLUMNS as SERVICE_COLUMNS

COMMANDS = dict(app_module.leaves(app_module.command_tree()))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | None:
    """Run a command as the script does, and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["hubbub", *arguments])
    with pytest.raises(SystemExit) as exited:
        app_module.run()
    return exited.value.code


@pytest.fixture(autouse=True)
def _same_process_as_before() -> Iterator[None]:
    """Undo what a command does to its process."""
    handler, logs = signal.getsignal(signal.SIGTERM), list(logging.getLogger("hubbub").handlers)
    yield
    signal.signal(signal.SIGTERM, handler)
    logging.getLogger("hubbub").handlers[:] = logs


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and told.err.startswith("hubbub: ")
    return told.err


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_unknown_option_is_one_line_with_where_to_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *path, "--nonsense") == 2
    assert one_line(capsys).endswith(f"; see `hubbub {' '.join(path)} --help`\n")


@pytest.mark.parametrize(
    "path",
    [path for path, one in COMMANDS.items() if any(param.required for param in one.params)],
    ids=" ".join,
)
def test_missing_argument_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *path) == 2
    assert one_line(capsys).startswith("hubbub: Missing ")


OTHERS = (("bench",), ("doctor",), ("top",))  # They look at other things first.
NODES = [
    path
    for path, one in COMMANDS.items()
    if any(param.name == "log" for param in one.params) and path not in OTHERS
]
ARGUMENTS = {
    ("pub",): ["/a", "x"], ("sub",): ["/a"], ("hz",): ["/a"], ("bw",): ["/a"], ("delay",): ["/a"],
    ("info",): ["/a"], ("produce",): ["/a", "--value", "1"], ("consume",): ["/a", "--period", "1s"],
    ("service", "pub"): ["n", "x"], ("service", "sub"): ["n"], ("rec",): ["/a", "-o", "nowhere"],
    ("gateway", "rodos"): ["--udp", "127.0.0.1:7000", "--map", "1001=/a"],
    ("play",): ["nowhere"], ("pipeline", "run"): ["nowhere", "--out", "tables"],
}  # fmt: skip


@pytest.mark.parametrize("path", NODES, ids=" ".join)
def test_bad_variable_is_one_line_on_every_command_that_opens_a_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: tuple[str, ...],
    tmp_path: Any,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUBBUB_INTERFACE", "127.0.0.1")
    monkeypatch.setenv("HUBBUB_CACHE_BYTES", "much")
    assert run(monkeypatch, *path, *ARGUMENTS.get(path, [])) == 2
    line = one_line(capsys)
    assert "HUBBUB_CACHE_BYTES='much' is not a whole number" in line or "nowhere" in line


def test_unknown_command_and_bad_values_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["frobnicate"], ["pub", "/a", "-n", "0"], ["bench", "nonsense"]):
        assert run(monkeypatch, *arguments) == 2
        one_line(capsys)


def test_who_comes_from_elsewhere_is_told_what_it_is_called_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, ours in (("topic", "hubbub ls"), ("bag", "hubbub rec"), ("echo", "hubbub sub")):
        assert run(monkeypatch, name, "list") == 2
        assert ours in one_line(capsys)


def test_ctrl_c_while_the_package_is_imported_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "hubbub.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "hubbub.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as exited:
        hubbub_command.main()
    assert exited.value.code == 130


@pytest.mark.parametrize("path", [(), ("store",), ("pipeline",), ("service",), ("config",)])
def test_without_arguments_help_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *path) == 2
    told = capsys.readouterr()
    assert told.out.startswith("Usage: hubbub") and told.err == ""


def test_cheat_sheet_fits_a_terminal_and_names_commands_that_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "cheat") == 0
    assert capsys.readouterr().out == SHEET + "\n"
    lines = SHEET.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    named = set(re.findall(r"hubbub ([a-z]+)", SHEET)) - {"toml"}
    assert named <= {path[0] for path in COMMANDS}
    assert len(named - {"config"}) >= 10


def test_config_show_tells_value_and_origin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    path = tmp_path / "hubbub.toml"
    path.write_text('domain = "plant"\n[faults]\nloss = 0.1\n')
    monkeypatch.setenv("HUBBUB_CONFIG", "")  # Put back at the end.
    monkeypatch.setenv("HUBBUB_LINGER_MS", "9")
    monkeypatch.delenv("HUBBUB_DOMAIN", raising=False)
    assert run(monkeypatch, "--config", str(path), "config", "show", "--json") == 0
    shown = {one["option"]: one for one in json.loads(capsys.readouterr().out)["options"]}
    assert (shown["domain"]["value"], shown["domain"]["from"]) == ("plant", str(path))
    assert (shown["linger_ms"]["value"], shown["linger_ms"]["from"]) == (9.0, "HUBBUB_LINGER_MS")
    assert shown["slow_ms"]["variable"] == "HUBBUB_SLOW_MS"
    assert run(monkeypatch, "--config", str(path), "config", "show") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"faults +loss=0.1", line) for line in lines)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_config_may_stand_behind_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HUBBUB_CONFIG", "")  # Put back at the end.
    assert run(monkeypatch, *path, "--config", "x.toml", "--nonsense") == 2
    assert "No such option: --nonsense" in one_line(capsys)
    assert run(monkeypatch, *path, "--config") == 2
    assert "'--config' requires an argument" in one_line(capsys)


def test_config_behind_the_command_wins_over_the_one_before_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    for name in ("variable", "before", "behind"):
        (tmp_path / name).write_text(f'domain = "{name}"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBBUB_DOMAIN", raising=False)
    monkeypatch.setenv("HUBBUB_CONFIG", "variable")
    for before, behind, wanted in (
        ([], [], "variable"),
        ([], ["--config", "behind"], "behind"),
        (["--config", "before"], ["--config", "behind"], "behind"),
        (["--config", "before"], [], "before"),
    ):
        assert run(monkeypatch, *before, "config", "show", "--json", *behind) == 0
        shown = {one["option"]: one for one in json.loads(capsys.readouterr().out)["options"]}
        assert (shown["domain"]["value"], shown["domain"]["from"]) == (wanted, wanted)


def test_shell_completes_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, wanted in (("hubbub to", "top"), ("hubbub sub --hist", "--history")):
        monkeypatch.setenv("_HUBBUB_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert run(monkeypatch) == 0
        assert wanted in capsys.readouterr().out.split()


LONG = "a-name-that-somebody-gave-a-host.of-a-plant.example"


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (PS_COLUMNS, [LONG, "abcdef", LONG, "1234567", "23 h 59 min", "multicast",
                      "192.168.100.200:54321", "12,345 ms ago"]),
        (SCHEDULE_COLUMNS, [f"/{LONG}", LONG, "32767", "wants (nobody makes it)", "harmonised",
                            "1000 ms", "1000 ms", "1,000.0/s", "1,000,000", "100,000"]),
        (SERVICE_COLUMNS, [LONG, "abcdefabcdef", "abcdefabcdef", "192.168.100.200:54321", "123",
                           "1,000,000", "10,000", "forwarder"]),
    ],
    ids=["ps", "schedule", "services"],
)  # fmt: skip
def test_table_of_long_names_fits_80_columns_with_every_title_it_has(
    columns: tuple[Column, ...], row: list[str]
) -> None:
    titles, line = table(columns, [row], 80)
    assert len(titles) <= 80 and len(line) <= 80 and not titles.endswith("…")
    kept = [column.title for column in columns if not column.is_optional]
    assert all(title in titles for title in kept)
    assert row[-1] in line  # Numbers at the end are not cut off.
    wide, _ = table(columns, [row], None)
    assert all(column.title in wide for column in columns)
