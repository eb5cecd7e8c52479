"""Times as people write and read them: moments, and how long something took."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from hubbub.cli.quantities import parse_duration
from hubbub.errors import ConfigurationError
from hubbub.limits import SECOND, US
from hubbub.report.words import moment, span

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="From when on: 2026-11-16T08:30, or +90s after the start, or -10m before the end.",
    ),
]
_UNTIL = "Until when (not included), likewise."
To = Annotated[str | None, typer.Option("--to", "--until", metavar="TIME", help=_UNTIL)]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help=_UNTIL)]


def parse_time_ns(text: str, start_ns: int | None = None, end_ns: int | None = None) -> int:
    """Read a time: ISO 8601 (UTC unless it says otherwise), or relative to a recording."""
    text = text.strip()
    if text[:1] in ("+", "-"):
        base_ns = start_ns if text[0] == "+" else end_ns
        if base_ns is None:
            raise ConfigurationError(f"{text!r} is relative to a recording that holds nothing")
        span_ns = int(parse_duration(text[1:]) * SECOND)
        return base_ns + span_ns if text[0] == "+" else base_ns - span_ns
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no time: write 2026-11-16T08:30:00 (UTC), 2026-11-16T09:30+01:00,"
            " +90s (after the start) or -10m (before the end)"
        ) from None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    passed = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (passed.days * 86_400 + passed.seconds) * SECOND + passed.microseconds * 1000


def show_time(time_ns: int | None) -> str:
    """Write a time to the millisecond, in UTC."""
    return moment(None if time_ns is None else time_ns // US, has_date=True)


def show_span(span_ns: int) -> str:
    """Write how long something took, as the report does."""
    return span(span_ns // US)


def show_uptime(seconds: float) -> str:
    """Write for how long somebody has been there, in whole seconds."""
    return show_span(int(seconds) * SECOND)
