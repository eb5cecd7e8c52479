"""The one interface behind which every peer does the work.

An endpoint is one process's end of a pair or a fan-out. A publisher only sends, a subscriber only
receives, a ping sends on one topic and receives on another, and a pong does the same the other way
round.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

# Takes what a peer hands to its user: bytes, a memoryview, or a type of its own with `len()`.
OnPayload = Callable[[Any], bool | None]


QUEUED_BYTES = 64 << 20
QUEUED_MESSAGES_MIN = 16
QUEUED_MESSAGES_MAX = 1_000_000


def queued_messages(size_bytes: int) -> int:
    """Say how many messages a queue may hold, where a peer lets its user choose: 64 MiB of them."""
    return max(QUEUED_MESSAGES_MIN, min(QUEUED_MESSAGES_MAX, QUEUED_BYTES // size_bytes))


class Endpoint(ABC):
    """Send on one topic and receive from another, the way the peer's own users would."""

    # One line that the report prints: which of the peer's ways and settings are used here.
    settings: ClassVar[str]
    # The name under which pip knows the peer, for its version.
    distribution: ClassVar[str]
    # Whether waiting for a message occupies a core; such rows are compared among themselves.
    spins: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        """Open the peer for these topics, "" meaning none; no payload exceeds `size_bytes`."""

    @abstractmethod
    def send(self, payload: Any) -> None:
        """Publish bytes, or a payload just received; wait where the peer can tell it must."""

    @abstractmethod
    def serve(self, on_payload: OnPayload) -> None:
        """Hand over each payload as it arrives until `on_payload` returns true; called once."""

    @abstractmethod
    def close(self) -> None:
        """Release what the peer holds outside this process."""

    @classmethod
    def beside(cls) -> AbstractContextManager[None]:
        """Run what the peer needs beside its users for one measurement: a broker, if it has one."""
        return nullcontext()

    @staticmethod
    def view(payload: Any) -> Any:
        """Give the payload as a buffer, when somebody wants to read it."""
        return payload
