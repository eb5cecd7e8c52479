"""What a subscription may be asked for: which values can work."""

import inspect
from typing import Any, Final

from hubbub.errors import ConfigurationError
from hubbub.given import is_whole
from hubbub.limits import HISTORY_MESSAGES_MAX
from hubbub.schema import Schema

OVERFLOW_POLICIES: Final = ("drop_oldest", "drop_newest", "disconnect")


def read_history(history: bool | int) -> int | None:
    """Return how many messages of history are asked for; 0: all that are kept, None: none."""
    if history is True or history is False:
        return 0 if history else None
    if not is_whole(history) or not 1 <= history <= HISTORY_MESSAGES_MAX:
        raise ConfigurationError(
            f"history={history!r}: give True for all that publishers keep, or a number of messages"
            f" between 1 and {HISTORY_MESSAGES_MAX}"
        )
    return history


def check_callback(callback: Any) -> None:
    """Refuse what cannot be called back."""
    if callback is not None and not callable(callback):
        raise ConfigurationError(f"callback={callback!r}: give something that can be called")
    if inspect.iscoroutinefunction(callback):
        raise ConfigurationError(
            "an async callback would never be awaited: iterate with `async for`, or give a function"
        )


def check_options(queue: int, overflow: str, callback: Any, inline: bool, kind: Any) -> None:
    """Refuse options that cannot work, saying what can."""
    if not is_whole(queue) or queue < 1:
        raise ConfigurationError(
            f"queue={queue!r}: give the number of messages to hold, at least 1"
        )
    if overflow not in OVERFLOW_POLICIES:
        known = ", ".join(OVERFLOW_POLICIES)
        raise ConfigurationError(f"overflow={overflow!r}: choose one of {known}")
    check_callback(callback)
    if inline and callback is None:
        raise ConfigurationError("inline=True runs a callback on the I/O thread: give a callback")
    if isinstance(kind, Schema):
        raise ConfigurationError(f"type={kind!r} tells nothing of how to decode: give the type")
