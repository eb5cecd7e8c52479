"""How `hubbub sub` writes a message."""

import base64
import json
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from hubbub.cli.terminal import cut, escape, readable, size
from hubbub.limits import SECOND
from hubbub.message import Message
from hubbub.store.payloads import read_value

Write = Callable[[Message], object]
_TYPED_BYTES_MAX = 65_536  # Larger ones take long to read, and most of it would be cut off.


def message_line(message: Message, columns: int, schema: str = "") -> str:
    """Write a message for people: when, what, from whom, how much, and as much as fits."""
    line = (
        f"{write_clock(message.received_ns)} {escape(message.subject)}"
        f" {escape(str(message.source))} {size(len(message.payload))}"
        f"  {_typed(message, schema) or _untyped(message, columns)}"
    )
    return cut(line, columns) + "\n"


def _typed(message: Message, schema: str) -> str:
    """Write what a typed payload holds; empty: that is not known, or too much to look at."""
    if not schema or len(message.payload) > _TYPED_BYTES_MAX:
        return ""
    value = read_value(message.payload, schema)
    return "" if value is msgspec.UNSET else escape(msgspec.json.encode(value).decode())


def _untyped(message: Message, columns: int) -> str:
    # No character of a payload is narrower than a byte of it in the escaped form, but zero-width
    # ones are; four bytes a column are enough of any text, and a large payload costs no more.
    payload = bytes(memoryview(message.payload)[: 4 * columns])
    if len(payload) < len(message.payload):
        payload = _without_torn_end(payload)
    return readable(payload)


def write_clock(time_ns: int) -> str:
    """Write the time of day to the microsecond."""
    seconds, rest_ns = divmod(time_ns, SECOND)
    return f"{_clock_seconds(seconds)}.{rest_ns // 1000:06d}"


@lru_cache(maxsize=16)  # Many messages come in one second, and writing it takes 3 us.
def _clock_seconds(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds):%H:%M:%S}"


def _without_torn_end(payload: bytes) -> bytes:
    """Leave out the beginning of a character whose end was cut off."""
    for length in range(len(payload) - 1, max(len(payload) - 4, -1), -1):
        if payload[length] >= 0xC0:
            return payload[:length]
        if payload[length] < 0x80:
            break
    return payload


def message_json(message: Message, schema: str = "") -> str:
    """Write a message as one line of JSON: a typed payload as its value, else text, or base64."""
    text, encoding = _text_of(message.payload, schema)
    source = message.source
    fields: dict[str, Any] = {
        "subject": message.subject,
        "source": source.name,
        "source_id": source.id.hex(),
        "incarnation": f"{source.incarnation:016x}",
        "sequence": message.sequence,
        "published_ns": message.published_ns,
        "received_ns": message.received_ns,
        "link": message.link,
        "replayed_ns": message.replayed_ns,
        "size": len(message.payload),
        "schema": schema or None,
        "encoding": encoding,
        "payload": text,
    }
    if message.tick_ns is not None:
        fields["tick_ns"] = message.tick_ns
        fields["port"] = message.port
    # ASCII alone: U+009B is valid in a JSON string and an escape code for a terminal.
    return json.dumps(fields) + "\n"


def _text_of(payload: bytes, schema: str) -> tuple[Any, str]:
    value = read_value(payload, schema) if schema else msgspec.UNSET
    if value is not msgspec.UNSET:
        return value, "json"
    try:
        return payload.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"
