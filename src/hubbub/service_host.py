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
        self._closed = closed
        self._callbacks = node._loop.callbacks
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

    def enter(self, subscription: Subscription) -> None:
        """Let no reader run the loop while a callback is called from it."""
        if subscription.at_once is not None:
            self._callbacks.add(subscription)

    def leave(self, subscription: Subscription) -> None:
        """Let readers run the loop again."""
        self._callbacks.discard(subscription)

    def forget(self, subscription: Subscription) -> None:
        """Look after it no longer: it is closed."""
        self.leave(subscription)
        self._closed(subscription)

    def remove_pattern(self, handle: object) -> None:
        """Leave it: who ends with the last subscription is the service."""

    def publishers_of(self, subscription: Subscription) -> tuple[RemotePublisher, ...]:
        """Name nobody."""
        return ()  # Anybody may publish, unannounced.

    def emit(self, event: Event, subscription: Subscription) -> None:
        """Report what happened to it."""
        self._node._emit(event, subscription)
