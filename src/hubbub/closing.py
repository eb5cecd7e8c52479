"""What `with` closes: nodes, channels, publishers, subscriptions."""

from abc import ABC, abstractmethod
from typing import Any, Self

from hubbub.errors import ConfigurationError
from hubbub.given import is_number


class Closing(ABC):
    """Close at the end of a `with` or `async with` block, whatever ended it."""

    @abstractmethod
    def close(self) -> None:
        """End; a second time does nothing."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close; the exception goes on."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_exception: object) -> None:
        """Close without blocking the event loop; the exception goes on."""
        import asyncio  # Here, because it costs 30 ms, and who gets here has it.

        await asyncio.to_thread(self.close)


def read_linger(linger_ms: Any, default_ms: float) -> float:
    """Return how long an end may last, in seconds; refuse nonsense before anything has ended."""
    linger = default_ms if linger_ms is None else linger_ms
    if not is_number(linger) or not 0 <= linger < float("inf"):
        raise ConfigurationError(f"linger_ms={linger!r}: give milliseconds, at least 0")
    return float(linger) / 1000
