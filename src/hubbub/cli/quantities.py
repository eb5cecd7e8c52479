"""Amounts as people write them: 64MB, 1.5GiB, 90s, 5m, 1h30m, 500ms."""

import re
from collections.abc import Callable
from typing import Final

import typer

_SIZE: Final = re.compile(r"([\d.]+)\s*([kKMGT]?)(i?)B?", re.ASCII)
_PART: Final = re.compile(r"([\d.]+)(us|ms|[smhd]?)", re.ASCII)
_POWERS: Final = " kMGT"
_SECONDS: Final = {
    "": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0
}  # fmt: skip


def parse_size(text: str) -> int:
    """Read a number of bytes."""
    found = _SIZE.fullmatch(text.strip())
    number = _number(found[1]) if found else None
    if found is None or number is None:
        raise typer.BadParameter(f"{text!r} is no size: write 500MB, 64MiB or 2GB")
    base = 1024 if found[3] else 1000
    return int(number * base ** _POWERS.index((found[2] or " ").replace("K", "k")))


def parse_duration(text: str) -> float:
    """Read a number of seconds."""
    parts = list(_PART.finditer(text.strip()))
    numbers = [_number(part[1]) for part in parts]
    is_whole = "".join(part[0] for part in parts) == text.strip()
    if not parts or not is_whole or None in numbers:
        raise typer.BadParameter(f"{text!r} is no duration: write 90, 90s, 5m or 1h30m")
    return sum(
        number * _SECONDS[part[2]]
        for number, part in zip(numbers, parts, strict=True)
        if number is not None
    )


def at_least(least_s: float) -> Callable[[object], float]:
    """Make what reads the duration that an option is given, or has by default."""

    def read(text: object) -> float:
        span_s = parse_duration(str(text))
        if span_s < least_s:
            raise typer.BadParameter(f"{text} is too short: at least {least_s:g} s")
        return span_s

    return read


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
