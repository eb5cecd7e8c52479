"""Options that were not given to `hubbub.open`: from the environment, else from a file.

    argument  >  HUBBUB_DOMAIN, HUBBUB_HEARTBEAT_MS, ...  >  the file HUBBUB_CONFIG  >  default

Every option has its variable, and stands by its own name in the file, which is TOML. Only what code
alone can say is in neither: `on_event`, the policy and the placement of `services` as objects. How
services are used is the same on all nodes of a bus: what is configured of it holds, too, where
`services=True` is given, or nothing.
"""

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from hubbub.channel import DEFAULT_PORT, Channel
from hubbub.errors import ConfigurationError
from hubbub.links.dialling import parse_address
from hubbub.links.faults import Faults
from hubbub.links.tcp_options import TcpOptions, make_tcp_options
from hubbub.protocol.settings import Settings
from hubbub.service_options import (
    ServiceOptions,
    combine,
    kind_of_service_option,
    make_service_options,
)

FILE_VARIABLE: Final = "HUBBUB_CONFIG"
OTHER_VARIABLES: Final = {
    FILE_VARIABLE: "the file with options",
    "HUBBUB_RUNTIME_DIR": "where nodes of this host find each other",
}
_PREFIX: Final = "HUBBUB_"
_TRUTHS: Final = {"1": True, "true": True, "yes": True, "on": True,
                  "0": False, "false": False, "no": False, "off": False}  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")


class Found(NamedTuple):
    """A value that somebody configured, and where."""

    value: Any
    origin: str


def _truth(name: str, text: str) -> bool:
    if text.strip().lower() not in _TRUTHS:
        raise ConfigurationError(f"{name}={text!r}: write true or false")
    return _TRUTHS[text.strip().lower()]


def _number(kind: type[int] | type[float], name: str, text: str) -> float:
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigurationError(f"{name}={text!r} is not {what}") from None


def _interval(name: str, text: str) -> float | None:
    return None if text.strip().lower() == "none" else _number(float, name, text)


def _text(name: str, text: str) -> str:
    return text


def _list(name: str, text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _listen(name: str, text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


def _channels(name: str, text: str) -> list[Channel]:
    places = [parse_address(one, name) for one in _list(name, text)]
    return [Channel(place.host, place.port or DEFAULT_PORT) for place in places]


def _faults(name: str, text: str) -> Faults:
    parts: dict[str, Any] = {}
    for one in _list(name, text):
        part, _, value = one.partition("=")
        kind = int if part == "seed" else float
        parts[part] = value if part == "direction" else _number(kind, f"{name} {part}", value)
    return _make_faults(name, parts)


def _make_faults(name: str, parts: Mapping[str, Any]) -> Faults:
    known = [field.name for field in fields(Faults)]
    unknown = sorted(set(parts) - set(known))
    if unknown:
        raise ConfigurationError(f"{name}: {unknown[0]} is none of {', '.join(known)}")
    return Faults(**parts)


def _services(name: str, text: str) -> bool | str | ServiceOptions:
    words = _list(name, text)
    pairs = [one.partition("=") for one in words if "=" in one]
    plain = ",".join(one for one in words if "=" not in one)
    wanted = "v1" if plain == "v1" else _truth(name, plain) if plain or not pairs else None
    if not pairs:
        return wanted or False
    parts = {part: _service_option(name, part, value) for part, _, value in pairs}
    options = make_service_options(name, parts)
    return options if wanted is None else combine(options, wanted)


def _service_option(name: str, option: str, text: str) -> Any:
    kind = kind_of_service_option(name, option)
    if kind is bool:
        return _truth(f"{name} {option}", text)
    return _number(int, f"{name} {option}", text) if kind is int else text


def _tcp(name: str, text: str) -> TcpOptions:
    pairs = [one.partition("=") for one in _list(name, text)]
    parts: dict[str, Any] = {part: value for part, _, value in pairs}
    if "allow" in parts:
        parts["allow"] = parts["allow"].split("+")
    return make_tcp_options(name, parts)


Read = Callable[[str, str], Any]
_NUMBERS: Final[dict[str, Read]] = {str(kind): partial(_number, kind) for kind in (int, float)}
_READ: Final[dict[str, Read]] = {
    **dict.fromkeys(("name", "domain", "interface", "registration", "node_id", "key_file",
                     "log"), _text),
    **dict.fromkeys(("loopback", "multicast", "network", "offload", "tell_events"), _truth),
    **dict.fromkeys(("links", "peers"), _list),
    **dict.fromkeys(("frame_bytes_max", "receive_buffer_bytes", "send_buffer_bytes",
                     "delivery_threads_max"), partial(_number, int)),
    "services": _services,
    "channels": _channels,
    "listen": _listen,
    "faults": _faults,
    "tcp": _tcp,
    "switch_interval_ms": _interval,
    "spin_us": partial(_number, float),
    **{
        field.name: _NUMBERS.get(str(field.type), _text)
        for field in fields(Settings)
    },
}  # fmt: skip
OPTIONS: Final = tuple(_READ)
_MAKE: Final[dict[str, Callable[[str, dict[str, Any]], Any]]] = {  # Of a table in a file.
    "faults": _make_faults, "tcp": make_tcp_options, "services": make_service_options,
}  # fmt: skip
_NONE_MEANS_SOMETHING: Final = frozenset({"switch_interval_ms"})


def variable_of(option: str) -> str:
    """Return the name of the variable that an option has in the environment."""
    return _PREFIX + option.upper()


def unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Name the variables that look like ours, and that nobody reads."""
    known = {*map(variable_of, OPTIONS), *OTHER_VARIABLES}
    return sorted(name for name in environment if name.startswith(_PREFIX) and name not in known)


def find_configured(environment: Mapping[str, str] = os.environ) -> dict[str, Found]:
    """Return what the environment and the file say, each with where it was said."""
    path = environment.get(FILE_VARIABLE)
    found = _read_file(Path(path)) if path else {}
    for option, read in _READ.items():
        variable = variable_of(option)
        text = environment.get(variable)
        if text:  # An empty one is none: that is how shells leave a variable out.
            value = read(variable, text)
            if option == "services" and option in found:
                value = combine(found[option].value, value)
            found[option] = Found(value, variable)
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of options, whoever's they are."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from None


def _read_file(path: Path) -> dict[str, Found]:
    values = read_toml(path)
    return {option: Found(_take(path, option, values[option]), str(path)) for option in values}


def suggest(option: str) -> str:
    """Name the option that may have been meant, or nothing."""
    near = get_close_matches(option, OPTIONS, 1)
    return f"did you mean {near[0]}?" if near else ""


def _take(path: Path, option: str, value: Any) -> Any:
    """Read a value of a file: as TOML has it, or as the environment would."""
    if option not in _READ:
        meant = suggest(option) or "`hubbub config show` lists those there are"
        raise ConfigurationError(f"{path}: there is no option {option}; {meant}")
    if option in _MAKE and isinstance(value, dict):
        return _MAKE[option](f"{path}: {option}", value)
    if option == "channels" and isinstance(value, list):
        value = ",".join(map(str, value))
    return _READ[option](f"{path}: {option}", value) if isinstance(value, str) else value


def configurable(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function with the options of a node take those that are not given from elsewhere."""
    with_all: Callable[..., R] = function

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        given = {
            option: value
            for option, value in options.items()
            if value is not None or option in _NONE_MEANS_SOMETHING
        }
        found = {option: one.value for option, one in find_configured().items()}
        if arguments and arguments[0] is not None:
            given["name"] = arguments[0]
        if "services" in given:
            given["services"] = combine(found.get("services"), given["services"])
        merged: Any = {**found, **given}
        if "peers" not in given and not _may_call(merged):
            merged.pop("peers", None)
        return with_all(**merged)

    return call


def _may_call(options: Mapping[str, Any]) -> bool:
    """Tell whether peers that are configured for all nodes are of use to one with these options."""
    links = options.get("links")
    named = {links} if isinstance(links, str) else links
    may_call = not isinstance(named, Iterable) or not {"tcp", "services"}.isdisjoint(named)
    return bool(options.get("network", True) and may_call)
