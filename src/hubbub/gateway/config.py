"""A gateway described in a file: TOML, with a table `[[side]]` for each network.

name = "gw-1"

[[side]]
name = "office"
interface = "eth0"

[[side]]
name = "plant"
peers = ["10.0.0.7:7300"]
"""

from pathlib import Path
from typing import Any, NamedTuple

from hubbub.configuration import read_toml
from hubbub.errors import ConfigurationError
from hubbub.gateway.reading import make_side
from hubbub.gateway.side import Side, check_sides


class Config(NamedTuple):
    """What a file says; a name of None is left to the command."""

    name: str | None
    sides: tuple[Side, ...]


def read_config(path: Path) -> Config:
    """Read a file; what is wrong in it is said with its place."""
    found = read_toml(path)
    try:
        return _make_config(found)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _make_config(found: dict[str, Any]) -> Config:
    unknown = sorted(found.keys() - {"name", "side"})
    if unknown:
        raise ConfigurationError(f"{unknown[0]} is neither name nor side")
    name, tables = found.get("name"), found.get("side", [])
    if name is not None and not isinstance(name, str):
        raise ConfigurationError(f"name={name!r} is not a text")
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise ConfigurationError("side must be tables: write [[side]]")
    sides = [make_side(f"side {place}", table) for place, table in enumerate(tables, 1)]
    return Config(name, check_sides(sides))
