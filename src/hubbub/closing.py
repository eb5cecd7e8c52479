"""What `with` closes: nodes, channels, publishers, subscriptions."""

from abc import ABC, abstractmethod
from typing import Self


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
