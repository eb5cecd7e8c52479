"""HOT. Hands deliveries and events of a channel to the application, in order, outside every lock.

Whoever holds the channel's lock puts items in; after releasing it, it calls `run`. One thread at a
time hands out, whoever came first; a callback that publishes leaves its own messages for the thread
that is handing out already, so they come after the message being delivered, and nothing is ever
handed out recursively or under a lock.
"""

from collections import deque
from collections.abc import Callable

from hubbub.events import Event
from hubbub.protocol.delivery import INPROC, LOOPBACK, DeliveredTopic, Delivery, Handover
from hubbub.runtime.ownership import make_lock, owns

Items = list[Event] | list[Event | Handover]


class Dispatcher:
    """The way from one channel to subscriptions and listeners."""

    def __init__(
        self, match: Callable[[DeliveredTopic], None], emit: Callable[[Event], None]
    ) -> None:
        self.match = match  # Puts into `topic.sinks` who gets it.
        self.emit = emit
        self._items: deque[Delivery | Handover | Event] = deque()
        self._running = make_lock()
        self.messages = 0

    def put(self, deliveries: list[Delivery], events: Items) -> None:
        """Take over what a core has made, under its lock, so in its order."""
        if deliveries:
            self._items.extend(deliveries)
            deliveries.clear()
        if events:
            self._items.extend(events)
            events.clear()

    def run(self) -> None:
        """Hand out all there is, unless another thread is doing so."""
        items = self._items
        while items:
            if owns(self._running):
                return  # A callback of ours: the call that is under way goes on after it.
            try:
                if not self._running.acquire(blocking=False):
                    return  # Who runs looks again after letting go.
                while items:
                    self._hand_out(items.popleft())
            finally:
                if owns(self._running):
                    self._running.release()

    def finish(self, timeout_s: float) -> None:
        """Hand out all there is, after who is at it; a callback does not wait for itself."""
        if owns(self._running):
            return
        try:
            if self._running.acquire(timeout=timeout_s):
                while self._items:
                    self._hand_out(self._items.popleft())
        finally:
            if owns(self._running):
                self._running.release()

    def _hand_out(self, item: Delivery | Handover | Event) -> None:
        if not isinstance(item, Delivery):
            item.run() if isinstance(item, Handover) else self.emit(item)
            return
        topic = item.topic
        self.match(topic)
        self.messages += len(item.payloads)
        for taker, context, _, is_nearby, _, _, _ in topic.sinks:
            if is_nearby:
                taker.deliver(item._replace(link=INPROC), context)
            elif not (taker.no_local and item.link == LOOPBACK):
                taker.deliver(item, context)

    def forked(self) -> None:
        """Start afresh in a forked child, where the thread that handed out does not exist."""
        self._items.clear()
        self._running = make_lock()
