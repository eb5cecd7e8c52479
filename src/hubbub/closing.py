"""What `with` closes: nodes, channels, publishers, subscriptions."""

import asyncio
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
        await asyncio.to_thread(self.close)
