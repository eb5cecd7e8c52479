"""What a subscription needs of a service, where it has none of the patterns of a node."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hubbub.awareness import RemotePublisher
from hubbub.errors import ConfigurationError
from hubbub.events import Event
from hubbub.subscription import Subscription

if TYPE_CHECKING:
    from hubbub.node import Node


class ServiceHost:
    """Stands between a service and its subscriptions."""

    def __init__(self, node: "Node", name: str, closed: Callable[[Subscription], None]) -> None:
        self._node = node
        self._name = name
        self.forget = closed
        self.pool = node._pool
        self.call_at = node._call_at
        self.lead_until = node._host.lead_until
        self.nudge = node._loop.nudge

    def add_pattern(self, subscription: Subscription, pattern: str, context: Any) -> object:
        """Enter a subscription by the name of the service, which is all it can have."""
        if pattern != self._name:
            raise ConfigurationError(
                f"{pattern!r}: a subscription to service {self._name} has no patterns;"
                " subscribe to each service by itself"
            )
        return object()

    def remove_pattern(self, handle: object) -> None:
        """Leave it: who ends with the last subscription is the service."""

    def publishers_of(self, subscription: Subscription) -> tuple[RemotePublisher, ...]:
        """Name nobody."""
        return ()  # Anybody may publish, unannounced.

    def emit(self, event: Event, subscription: Subscription) -> None:
        """Report what happened to it."""
        self._node._emit(event, subscription)
