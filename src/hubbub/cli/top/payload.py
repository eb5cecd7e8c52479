"""A payload as people read it: what a typed one or JSON holds, text, or bytes in hexadecimal."""

from typing import Final

import msgspec

from hubbub.cli.terminal import escape
from hubbub.store.payloads import read_value

_BYTES_A_LINE: Final = 16


def write_payload(payload: bytes, schema: str, size_bytes: int) -> list[str]:
    """Write the beginning of a payload of `size_bytes`, line by line."""
    lines = _lines(payload, schema)
    missing = size_bytes - len(payload)
    return [*lines, f"... and {missing:,} bytes more"] if missing > 0 else lines


def _lines(payload: bytes, schema: str) -> list[str]:
    if not payload:
        return ["(empty)"]
    value = read_value(payload, schema or None)
    if value is not msgspec.UNSET:
        written = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        return [escape(line) for line in written.splitlines()]
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return dump(payload)
    is_text = all(one.isprintable() or one in "\n\r\t" for one in text)
    return [escape(line) for line in text.splitlines()] if is_text else dump(payload)


def dump(payload: bytes) -> list[str]:
    """Write bytes in hexadecimal, with the characters that they would be."""
    return [
        f"{start:06x}  {piece.hex(' '):<{3 * _BYTES_A_LINE}} {_characters(piece)}"
        for start in range(0, len(payload), _BYTES_A_LINE)
        for piece in [payload[start : start + _BYTES_A_LINE]]
    ]


def _characters(piece: bytes) -> str:
    return "".join(chr(one) if 32 <= one < 127 else "." for one in piece)
