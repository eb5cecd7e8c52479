"""What people read: text that is safe to show, notes on stderr, numbers with units.

Whatever came over the network passes `escape` before it is printed: a payload, subject or name must
never reach the terminal as a control sequence.
"""

import sys
from typing import Any

from hubbub.report.words import plural as plural

LOOPBACK = "127.0.0.1"

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TEXT_CONTROLS = frozenset("\n\r\t\x1b")  # What text may contain and still be shown as text.
_UNITS = ("B", "kB", "MB", "GB")


def escape(text: str) -> str:
    """Replace everything that is not a visible character or a space by an escape sequence."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape_one(one) for one in text)


def _escape_one(one: str) -> str:
    if one in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[one]
    code = ord(one)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def readable(payload: bytes) -> str:
    """Write a payload as text if it is text, else as hexadecimal digits."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload.hex(" ", -4)
    if text.isprintable():
        return text
    if any(one < " " and one not in _TEXT_CONTROLS for one in text):
        return payload.hex(" ", -4)
    return escape(text)


def cut(text: str, columns: int) -> str:
    """Shorten a line to a number of columns of the terminal; what is missing shows as `…`."""
    if text.isascii() and len(text) <= columns:
        return text
    if text.isascii():
        return text[: columns - 1] + "…"
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= columns:
        return text
    return set_cell_size(text, columns - 1).rstrip() + "…"


def shorten(text: str, columns: int) -> str:
    """Shorten a name in its middle, so that subjects that begin alike stay apart; else the end."""
    if cells(text) <= columns or " " in text:
        return cut(text, columns)
    tail_columns = (columns - 1) // 2
    tail = text[len(text) - tail_columns :]
    while cells(tail) > tail_columns:
        tail = tail[1:]
    return cut(text, columns - cells(tail)) + tail


def cells(text: str) -> int:
    """Count the columns of the terminal that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def note(text: str) -> None:
    """Tell the user something that is not the command's output: one line on stderr."""
    sys.stdout.flush()
    print(f"hubbub: {' '.join(escape(line) for line in text.splitlines())}", file=sys.stderr)


def size(size_bytes: float) -> str:
    """Write a number of bytes in a unit that suits it."""
    if size_bytes < 999.5:
        return f"{size_bytes:.0f} B"
    power = 1
    while size_bytes / 1000**power >= 999.95 and power < len(_UNITS) - 1:
        power += 1
    return f"{size_bytes / 1000**power:.1f} {_UNITS[power]}"


def print_json(value: Any, file: Any = None) -> None:
    """Print one object as one line; ASCII alone, because C1 controls are valid in JSON strings."""
    import json

    print(json.dumps(value), file=file or sys.stdout, flush=True)
