"""`hubbub config show`: every option of a node, its value, and where that comes from."""

import inspect
from dataclasses import fields, is_dataclass
from typing import Any

import typer

import hubbub
from hubbub.cli.options import Json
from hubbub.cli.screen import UNKNOWN, Column, Screen, table, write_until_the_end
from hubbub.cli.terminal import note, print_json
from hubbub.configuration import OPTIONS, Found, find_configured, unknown_variables, variable_of

_DEFAULT = "default"
_COLUMNS = (
    Column("option", is_number=False),
    Column("value", is_number=False),
    Column("from", is_number=False),
)

app = typer.Typer(
    help="Show which options are in force.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("show")
def show(as_json: Json = False) -> None:
    """Show every option of a node, its value, and who gave it.

    A variable, a file, or nobody. A flag of a command wins over the environment, that over the file
    of --config, that over the default.
    """
    found = in_force()
    for name in unknown_variables():
        note(f"{name} is no option of Hubbub, and is ignored")
    raise typer.Exit(write_until_the_end(lambda: _write(found, as_json)))


def in_force() -> dict[str, Found]:
    """Return every option with its value, also those that nobody configured."""
    configured = find_configured()
    defaults = default_values()
    return {option: configured.get(option, Found(defaults[option], _DEFAULT)) for option in OPTIONS}


def default_values() -> dict[str, Any]:
    """Return what `hubbub.open` takes when nothing is said."""
    parameters = inspect.signature(hubbub.open).parameters
    settings = hubbub.Settings()
    return {
        option: parameters[option].default if option in parameters else getattr(settings, option)
        for option in OPTIONS
    }


def _write(found: dict[str, Found], as_json: bool) -> int:
    if as_json:
        options = [
            {"option": option, "value": plain(one.value), "from": one.origin,
             "variable": variable_of(option)}
            for option, one in found.items()
        ]  # fmt: skip
        print_json({"options": options})
        return 0
    screen = Screen()
    rows = [(option, _text(one.value), one.origin) for option, one in found.items()]
    print("\n".join(table(_COLUMNS, rows, screen.width)))
    return 0


def plain(value: Any) -> Any:
    """Write a value with what JSON has."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, hubbub.Channel):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value


def _text(value: Any) -> str:
    shown = plain(value)
    if shown is None:
        return UNKNOWN
    if isinstance(shown, bool):
        return str(shown).lower()
    if isinstance(shown, list):
        return ",".join(map(str, shown))
    if isinstance(shown, dict):
        return ",".join(f"{name}={one}" for name, one in shown.items() if one)
    return f"{shown:g}" if isinstance(shown, float) else str(shown)
