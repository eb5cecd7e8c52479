"""Tell whether this thread holds a lock, so that an interrupt on the way in or out leaks none.

Ctrl-C and signal handlers may hit the main thread between `acquire` and the `try` behind it. So
where that thread runs the loop, a lock is acquired inside the `try`, and the `finally` asks.
"""

from threading import RLock
from typing import Any

OwnedLock = Any  # What `RLock()` returns has no type of its own to name.


def make_lock() -> OwnedLock:
    """Return a lock that knows its owner; who has it must not take it again."""
    return RLock()


def owns(lock: OwnedLock) -> bool:
    """Tell whether the calling thread holds a lock."""
    return bool(lock._is_owned())
