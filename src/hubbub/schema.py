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
from hubbub.limits import SCHEMA_NAME_BYTES_MAX


class Schema(NamedTuple):
    """What a topic says of its type; an empty name: plain bytes."""

    name: str = ""
    hash: int = 0


def schema_of(kind: Any) -> Schema:
    """Describe a type; None is plain bytes."""
    if kind is None:
        return Schema()
    try:
        description = dumps(msgspec.json.schema(kind), sort_keys=True).encode()
    except TypeError as error:
        raise ConfigurationError(f"type={kind!r} cannot be encoded: {error}") from None
    name = _shorten(getattr(kind, "__qualname__", str(kind)))
    return Schema(name, int.from_bytes(sha256(description).digest()[:8], "big") or 1)


def _shorten(name: str) -> str:
    """Bound a name that is only shown: a union is named by all its members."""
    data = name.encode()
    if len(data) <= SCHEMA_NAME_BYTES_MAX:
        return name
    return data[: SCHEMA_NAME_BYTES_MAX - 3].decode(errors="ignore") + "..."
