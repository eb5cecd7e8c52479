"""Payloads as text: what a typed one holds, text as it is, and everything else in base64.

A typed payload is msgpack, which carries its own structure; without the type at hand its values are
read as they are: numbers, texts, lists and maps by the names of the fields.
"""

import base64
from typing import Any, Final, NamedTuple

import msgspec

JSON: Final = "json"
TEXT: Final = "text"
BASE64: Final = "base64"

_decode_msgpack: Final = msgspec.msgpack.Decoder().decode
_decode_json: Final = msgspec.json.Decoder().decode
_encode_json: Final = msgspec.json.Encoder().encode


class Written(NamedTuple):
    """A payload as text, and how it was written; `value` is what JSON text stands for."""

    encoding: str
    text: str
    value: Any = None


def write_payload(payload: bytes, schema: str | None) -> Written:
    """Write a payload: JSON if it is typed, or a JSON object or list already; else text if it is.

    A typed payload that does not decode is written like any other.
    """
    value = read_value(payload, schema)
    if value is not msgspec.UNSET:
        return Written(JSON, _encode_json(value).decode(), value)
    try:
        if b"\0" not in payload:  # Many readers of CSV end there.
            return Written(TEXT, payload.decode())
    except UnicodeDecodeError:
        pass
    return Written(BASE64, base64.b64encode(payload).decode())


def read_value(payload: bytes, schema: str | None) -> Any:
    """Return what a payload holds, ready for JSON; UNSET: that is not known."""
    try:
        if schema is not None:
            value = _decode_msgpack(payload)
            _encode_json(value)  # What JSON cannot say, such as a map with lists as keys, is bytes.
            return value
        return _decode_json(payload) if payload[:1] in (b"{", b"[") else msgspec.UNSET
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, ValueError, RecursionError):
        return msgspec.UNSET


def infer_schema(value: Any, title: str = "") -> dict[str, Any]:
    """Describe a value as JSON Schema does; of a list its first member stands for all."""
    described: dict[str, Any] = {"title": title} if title else {}
    if isinstance(value, dict):
        properties = {str(name): infer_schema(one) for name, one in value.items()}
        return {**described, "type": "object", "properties": properties}
    if isinstance(value, list | tuple):
        items = {"items": infer_schema(value[0])} if value else {}
        return {**described, "type": "array", **items}
    if isinstance(value, bool):
        return {**described, "type": "boolean"}
    if isinstance(value, int | float):
        return {**described, "type": "number"}
    if isinstance(value, bytes):
        return {**described, "type": "string", "contentEncoding": "base64"}
    return {**described, "type": "string"} if value is not None else described
