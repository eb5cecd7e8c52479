"""Numbers, sizes and times as people write them. All times are UTC."""

from datetime import UTC, datetime
from typing import Final

from hubbub.limits import REPORT_TEXT_MAX

UNKNOWN: Final = "-"
_SIZES: Final = ("B", "kB", "MB", "GB", "TB")
_COUNTS: Final = ("", "k", "M", "G")
_SHORT_ID_DIGITS: Final = 6
_SECOND_US: Final = 1_000_000
_MINUTE_US: Final = 60 * _SECOND_US
_HOUR_US: Final = 60 * _MINUTE_US
_DAY_US: Final = 24 * _HOUR_US


def plural(count: int, noun: str) -> str:
    """Write a number with its noun, in the plural when it is not one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def be(count: int) -> str:
    """Choose the verb for so many."""
    return "is" if count == 1 else "are"


def were(count: int) -> str:
    """Choose the verb for so many that were."""
    return "was" if count == 1 else "were"


def times(count: int) -> str:
    """Write how often."""
    return "once" if count == 1 else f"{count:,} times"


def short(number: float) -> str:
    """Write a number in few characters: 0, 0.5, 950, 1.2 k, 12 k, 3.4 M."""
    return _scaled(number, _COUNTS, "").strip()


def size(size_bytes: float) -> str:
    """Write a number of bytes in a unit that suits it."""
    return _scaled(size_bytes, _SIZES, "B")


def _scaled(number: float, units: tuple[str, ...], first: str) -> str:
    power = 0
    while abs(number) >= 999.5 and power < len(units) - 1:
        number /= 1000
        power += 1
    return f"{three_digits(number)} {units[power] or first}".rstrip()


def three_digits(number: float) -> str:
    """Write a number with at most three digits that say something, and no empty zeros."""
    if number == int(number) or abs(number) >= 100:
        return f"{number:,.0f}"
    places = 1 if abs(number) >= 10 else 2
    return f"{number:.{places}f}".rstrip("0").rstrip(".") or "0"


def latency(time_us: float | None) -> str:
    """Write a latency in a unit that suits it."""
    if time_us is None:
        return UNKNOWN
    for unit_us, unit in ((_SECOND_US, "s"), (1000, "ms")):
        if abs(time_us) >= unit_us:
            return f"{three_digits(time_us / unit_us)} {unit}"
    return f"{three_digits(time_us)} µs"


def span(time_us: int) -> str:
    """Write how long something took: 8.5 s, 10 min, 2 h 05 min, 3 d 4 h."""
    if time_us < _MINUTE_US:
        return f"{three_digits(time_us / _SECOND_US)} s"
    if time_us < _HOUR_US:
        minutes, rest = divmod(round(time_us / _SECOND_US), 60)
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    if time_us < _DAY_US:
        hours, rest = divmod(round(time_us / _MINUTE_US), 60)
        return f"{hours} h" + (f" {rest:02d} min" if rest else "")
    days, rest = divmod(round(time_us / _HOUR_US), 24)
    return f"{days} d" + (f" {rest} h" if rest else "")


def moment(time_us: int | None, *, has_date: bool = False) -> str:
    """Write a point in time to the millisecond."""
    if time_us is None:
        return UNKNOWN
    when = from_us(time_us)
    text = f"{when:%H:%M:%S}.{when.microsecond // 1000:03d}"
    return f"{when:%Y-%m-%d} {text}" if has_date else text


def day(time_us: int) -> str:
    """Write the date of a point in time."""
    return f"{from_us(time_us):%Y-%m-%d}"


def period(first_us: int | None, last_us: int | None) -> str:
    """Write from when to when something was, with a date where there are two days."""
    if first_us is None or last_us is None:
        known = first_us if last_us is None else last_us
        edge = "until" if first_us is None else "after"
        return "at an unknown time" if known is None else f"{edge} {moment(known)}"
    if first_us == last_us:
        return f"at {moment(first_us)}"
    has_date = day(first_us) != day(last_us)
    return f"between {moment(first_us, has_date=has_date)} and {moment(last_us, has_date=has_date)}"


def share(part: int, whole: int) -> str:
    """Write a part of a whole in per cent: never 0 % or 100 % unless it is exactly that."""
    if not whole:
        return UNKNOWN
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def cut(text: str) -> str:
    """Leave out the end of a text that would fill the page for nothing."""
    return text if len(text) <= REPORT_TEXT_MAX else f"{text[: REPORT_TEXT_MAX - 1]}…"


def who(name: str | None, node_id: str | None) -> str:
    """Name a node as the bus does: its name and the first digits of its id."""
    known = (node_id or "")[:_SHORT_ID_DIGITS]
    return f"{name or '?'}#{known}" if known else name or "?"


def from_us(time_us: int) -> datetime:
    """Turn microseconds since 1970 into a time."""
    # A table from elsewhere may hold a year that Python does not know.
    return datetime.fromtimestamp(min(max(time_us, 0), _LAST_US) / _SECOND_US, UTC)


_LAST_US: Final = 253_402_300_799 * _SECOND_US
