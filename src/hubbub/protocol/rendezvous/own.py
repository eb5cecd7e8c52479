"""What a manager asks of the client of its own node: the two know each other by this alone."""

from typing import Protocol

from hubbub.wire.services import Answer, Request


class Own(Protocol):
    """The client of this node, as its manager knows it: served without any frame."""

    def wants(self, key: bytes) -> bool:
        """Tell whether this node subscribes to a service."""

    def come_again(self, now: int, key: bytes) -> None:
        """Subscribe anew at our own manager, whose list came from elsewhere and lacks us."""

    def deliver(self, now: int, info: Request) -> Answer:
        """Take a message."""

    def settle(
        self, now: int, key: bytes, type: int, sequence: int, answer: Answer, subject: str = ""
    ) -> None:
        """Hear what became of a request that was held."""

    def manager_changed(
        self, now: int, key: bytes, sender: bytes, manager: bytes, epoch: int
    ) -> None:
        """Hear of a new manager."""
