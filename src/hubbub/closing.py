"""What `with` closes: nodes, channels, publishers, subscriptions."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Close at the end of a `with` block, whatever ended it."""

    @abstractmethod
    def close(self) -> None:
        """End; a second time does nothing."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close; the exception goes on."""
        self.close()
