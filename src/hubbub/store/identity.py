"""What a store says of itself in `store.json`: its format and the id of its recorder."""

import os
from pathlib import Path
from typing import Final

import msgspec

from hubbub.errors import StoreError

FORMAT: Final = 1
_FILE: Final = "store.json"


class Identity(msgspec.Struct, frozen=True):
    """Who records here; `recorder` is the hex of an id that is new with every store."""

    recorder: str
    created_ns: int
    format: int = FORMAT


def read_identity(store: Path) -> Identity:
    """Read what a store says of itself."""
    path = store / _FILE
    try:
        identity = msgspec.json.decode(path.read_bytes(), type=Identity)
    except (FileNotFoundError, NotADirectoryError):
        why = "it is a file" if store.is_file() else f"it has no {_FILE}"
        why = why if store.exists() else "there is no such folder"
        raise StoreError(f"{store} is no store: {why}; `hubbub rec` makes one") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if identity.format != FORMAT:
        raise StoreError(
            f"{store} is a store of format {identity.format}, this version of Hubbub reads {FORMAT}"
        )
    return identity


def make_identity(now_ns: int) -> Identity:
    """Make the identity of a new store."""
    return Identity(os.urandom(16).hex(), now_ns)


def encode_identity(identity: Identity) -> bytes:
    """Make the content of `store.json`."""
    return msgspec.json.format(msgspec.json.encode(identity)) + b"\n"


def identity_path(store: Path) -> Path:
    """Return where a store says what it is."""
    return store / _FILE
