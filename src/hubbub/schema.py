"""Typed payloads: a type, its name and its hash, encoded by msgspec.

The hash is of the JSON schema that msgspec derives, so two programs agree if their types do,
whatever the classes are called in them. It travels with the topic: a mismatch is an event, not
garbage.
"""

from hashlib import sha256
from json import dumps
from typing import Any, NamedTuple

import msgspec

from hubbub.errors import ConfigurationError
from hubbub.limits import SCHEMA_HASH_MAX, SCHEMA_NAME_BYTES_MAX


class Schema(NamedTuple):
    """What a topic says of its type; an empty name: plain bytes."""

    name: str = ""
    hash: int = 0


def schema_of(kind: Any) -> Schema:
    """Describe a type; None is plain bytes, a `Schema` describes payloads that are encoded."""
    if kind is None:
        return Schema()
    if isinstance(kind, Schema):
        return _check(kind)
    try:
        description = dumps(msgspec.json.schema(kind), sort_keys=True).encode()
    except TypeError as error:
        why = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"type={kind!r} cannot be encoded ({why}): publish bytes, or an array as it is"
        ) from None
    name = _shorten(getattr(kind, "__qualname__", str(kind)))
    return Schema(name, int.from_bytes(sha256(description).digest()[:8], "big") or 1)


def _check(schema: Schema) -> Schema:
    """Refuse a name without a hash, a hash without a name, and what no declaration can hold."""
    name, value = schema
    is_said = isinstance(name, str) and isinstance(value, int)
    if not is_said or not 0 <= value <= SCHEMA_HASH_MAX or bool(name) != bool(value):
        raise ConfigurationError(
            f"type={schema!r}: a name, and a hash from 1 to {SCHEMA_HASH_MAX}; or neither"
        )
    return Schema(_shorten(name), value)


def _shorten(name: str) -> str:
    """Bound a name that is only shown: a union is named by all its members."""
    data = name.encode()
    if len(data) <= SCHEMA_NAME_BYTES_MAX:
        return name
    return data[: SCHEMA_NAME_BYTES_MAX - 3].decode(errors="ignore") + "..."
