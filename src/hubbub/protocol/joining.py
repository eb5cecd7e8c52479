"""Putting together what was and what is new, for one subscription that asked for history.

Deliveries of a topic come in the order in which its core made them, by one thread at a time. Those
of a topic that has not been answered yet wait; its history is handed out as it comes; the answer
opens the topic, from where the history ended. What is new before that place is part of the history,
and not handed out again.
"""

from collections.abc import Callable
from typing import cast
from weakref import WeakKeyDictionary

from hubbub.limits import JOINING_BYTES_MAX
from hubbub.protocol.delivery import DeliveredTopic, Delivery
from hubbub.protocol.topics import ReplayedTopic

# Told of the messages `first..last` of a topic that were not handed out.
Report = Callable[[DeliveredTopic, int, int], None]


class Joining:
    """The deliveries of one subscription on one channel."""

    def __init__(
        self, hand_out: Callable[[Delivery], None], report: Report,
        bytes_max: int = JOINING_BYTES_MAX,
    ) -> None:  # fmt: skip
        self.hand_out = hand_out
        self.report = report
        self.bytes_max = bytes_max
        # Answered topics, and from where on each is handed out. They live as long as their peers.
        self._open: WeakKeyDictionary[DeliveredTopic, int] = WeakKeyDictionary()
        self._held: dict[DeliveredTopic, list[Delivery]] = {}
        self._held_bytes: dict[DeliveredTopic, int] = {}
        self._replayed: dict[DeliveredTopic, Delivery] = {}  # The last of the history so far.

    def take(self, delivery: Delivery) -> None:
        """Hand out a run, now or when its history has come."""
        topic = delivery.topic
        if topic.request:
            self._take_history(delivery, cast(ReplayedTopic, topic))
            return
        start = self._open.get(topic)
        if start is None:
            self._hold(delivery)
        elif delivery.first >= start:
            self.hand_out(delivery)
        else:
            self._hand_out_from(start, delivery)

    def _take_history(self, delivery: Delivery, topic: ReplayedTopic) -> None:
        if topic.live in self._open:
            return
        if delivery.payloads:
            self.hand_out(delivery)
            self._replayed[topic.live] = delivery
        if delivery.first + len(delivery.payloads) >= topic.end:
            self._let_in(topic.live, topic.end)

    def _let_in(self, live: DeliveredTopic, start: int) -> None:
        self._open[live] = start
        self._replayed.pop(live, None)
        self._held_bytes.pop(live, None)
        for delivery in self._held.pop(live, ()):
            self._hand_out_from(start, delivery)

    def _hand_out_from(self, start: int, delivery: Delivery) -> None:
        old = max(start - delivery.first, 0)
        if old < len(delivery.payloads):
            self.hand_out(
                delivery._replace(
                    first=delivery.first + old,
                    payloads=delivery.payloads[old:],
                    published_ns=delivery.published_ns[old:],
                )
            )

    def _hold(self, delivery: Delivery) -> None:
        topic = delivery.topic
        self._held.setdefault(topic, []).append(delivery)
        size_bytes = self._held_bytes.get(topic, 0) + sum(map(len, delivery.payloads))
        self._held_bytes[topic] = size_bytes
        if size_bytes > self.bytes_max:
            self._give_up(topic)

    def _give_up(self, live: DeliveredTopic) -> None:
        """Go on with what is new: there is no room to wait for the rest of the history."""
        last = self._replayed.get(live)
        if last is None:
            self._let_in(live, 0)
            return
        end = cast(ReplayedTopic, last.topic).end
        self.report(live, last.first + len(last.payloads), end - 1)
        self._let_in(live, end)
