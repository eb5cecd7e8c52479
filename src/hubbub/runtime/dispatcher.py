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

    def run(self, wait_s: float = 0.0) -> None:
        """Hand out all there is, unless another thread is still doing so after that time.

        A callback returns at once: the call that is under way goes on after it.
        """
        items = self._items
        while items or wait_s:
            if owns(self._running):
                return
            try:
                if not self._running.acquire(True, wait_s):
                    return  # Who runs looks again after letting go.
                while items:
                    self._hand_out(items.popleft())
            finally:
                if owns(self._running):
                    self._running.release()
            wait_s = 0.0

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
