"""Sides of a gateway as people write them, in a file or as options; what is wrong is said."""

from dataclasses import fields
from typing import Any, Final

from hubbub import TcpOptions
from hubbub.errors import ConfigurationError
from hubbub.gateway.side import Side
from hubbub.protocol.gateway.remap import Remap
from hubbub.subjects import check_pattern

_LISTS: Final = ("peers", "only", "allow", "urgent")
_NUMBERS: Final = {"port": (1, 65_535), "rate_limit_bits": (1, 10**12)}
OPTIONS: Final = tuple(field.name for field in fields(Side))
_TEXTS: Final = tuple(name for name in OPTIONS if name not in (*_LISTS, *_NUMBERS, "remap"))
_OF_SITES: Final = tuple(field.name for field in fields(TcpOptions))


def read_side(text: str) -> Side:
    """Read `name=a,interface=eth0` or `peers=10.0.0.7:7300+10.0.0.8:7300`."""
    options: dict[str, Any] = {}
    for part in text.split(","):
        key, is_given, value = part.partition("=")
        if not is_given or not value:
            raise ConfigurationError(f"side {text!r}: {part!r} is not OPTION=VALUE")
        if key in options:
            raise ConfigurationError(f"side {text!r}: {key} is there twice")
        options[key] = value
    for name in options.keys() & set(_LISTS):
        options[name] = options[name].split("+")
    if "remap" in options:
        options["remap"] = dict(_read_pair(text, one) for one in options["remap"].split("+"))
    return make_side(text, options)


def _read_pair(text: str, pair: str) -> tuple[str, str]:
    here, is_given, elsewhere = pair.partition(":/")
    if not is_given:
        raise ConfigurationError(f"side {text!r}: {pair!r} is not /HERE:/ELSEWHERE")
    return here, f"/{elsewhere}"


def make_side(text: str, options: dict[str, Any]) -> Side:
    """Make a side of options as texts, from the command line or a file."""
    unknown = sorted(options.keys() - set(OPTIONS))
    if unknown:
        raise ConfigurationError(f"side {text!r}: {unknown[0]} is none of {', '.join(OPTIONS)}")
    made = dict(options)
    for name in made.keys() & set(_TEXTS):
        if not isinstance(made[name], str) or not made[name]:
            raise ConfigurationError(f"side {text!r}: {name}={made[name]!r} is not a text")
    for name, (least, most) in _NUMBERS.items():
        if name in made:
            made[name] = _read_number(text, name, made[name], least, most)
    for name in made.keys() & set(_LISTS):
        made[name] = _read_list(text, name, made[name])
    for pattern in (*made.get("only", ()), *made.get("urgent", ())):
        check_pattern(pattern)
    _check_remap(text, made.get("remap", {}))
    return _check_site(Side(**{"name": text, **made}))


def _check_site(side: Side) -> Side:
    """Refuse what cannot work of a site; its certificates are read when it opens."""
    try:
        options = side.tcp
    except ConfigurationError as error:
        raise ConfigurationError(f"side {side.name!r}: {error}") from None
    if not side.is_site and options != TcpOptions():
        given = next(name for name in _OF_SITES if getattr(side, name))
        raise ConfigurationError(f"side {side.name!r}: {given} is of sites: add listen or peers")
    return side


def _read_number(text: str, name: str, value: Any, least: int, most: int) -> int:
    if not str(value).isdecimal() or not least <= int(value) <= most:
        raise ConfigurationError(f"side {text!r}: {name}={value!r} must be from {least} to {most}")
    return int(value)


def _check_remap(text: str, table: Any) -> None:
    if not isinstance(table, dict) or not all(isinstance(one, str) for one in table.values()):
        raise ConfigurationError(f"side {text!r}: remap={table!r} is not a table of subjects")
    try:
        Remap(table)
    except ConfigurationError as error:
        raise ConfigurationError(f"side {text!r}: {error}") from None


def _read_list(text: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ConfigurationError(f"side {text!r}: {name}={value!r} is not a list of texts")
    return tuple(value)
