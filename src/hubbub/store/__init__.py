"""Where a recording lies: a journal that is written, and the Parquet files that are read.

`Store` opens one for reading. It is imported when it is asked for: who only writes a journal needs
no Arrow.
"""

from typing import Any

from hubbub.errors import MissingExtra

__all__ = ["Store"]


def __getattr__(name: str) -> Any:
    if name != "Store":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from hubbub.store.store import Store
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"reading a recording needs {error.name}: pip install 'hubbub[recorder]'"
        ) from None
    return Store
