"""Where the messages of a channel go: to a subscription, past a latecomer if it wants history."""

from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from hubbub.protocol.delivery import Delivery
from hubbub.protocol.joining import Joining, Report
from hubbub.protocol.replays import replay_own
from hubbub.protocol.topics import OutgoingTopic
from hubbub.repeats import Repeats
from hubbub.schema import Schema
from hubbub.subscription import Subscription


class Taker(Protocol):
    """What takes the deliveries for a subscription: itself, or a latecomer before it."""

    no_local: bool

    def deliver(self, delivery: Delivery, context: Any) -> None:
        """Take a run of messages."""
        ...


class Sink(NamedTuple):
    """A subscription as the matcher of a channel knows it; `request`: it asked for history.

    `repeats` remembers what tasks that may be run again have published already.
    """

    taker: Taker
    context: Any
    schema: Schema
    is_nearby: bool
    subscription: Subscription
    repeats: Repeats
    request: int = 0

    @property
    def wish(self) -> tuple[str, ...]:
        """Return the links that the subscription insists on."""
        return self.subscription.links

    def replay(self, topic: OutgoingTopic, received_ns: int) -> Delivery | None:
        """Return what a topic of this process has kept for us, when we first meet; under its lock.

        From then on we get what is new, so it may hold no message and still must be handed out.
        """
        if not isinstance(self.taker, Latecomer) or not self.taker.meet(topic):
            return None
        count = self.subscription.history or 0
        delivery = replay_own(topic, self.request, count, received_ns)
        delivery.topic.sinks = (self,)
        return delivery

    def once(self) -> "Sink":
        """Return the sink for topics of a task that may be run again."""
        return self._replace(taker=Once(self))


class Once:
    """Stands before a subscription, for topics of nodes that work for a task."""

    def __init__(self, sink: Sink) -> None:
        self.no_local = sink.taker.no_local
        self._sink = sink

    def deliver(self, delivery: Delivery, context: Any) -> None:
        """Take a run of messages; what came before, by whichever node, is counted."""
        sink = self._sink
        new = sink.repeats.pass_new(delivery)
        count = 0 if new is None else len(new.payloads)
        sink.subscription.repeats += len(delivery.payloads) - count
        if new is not None:
            sink.taker.deliver(new, context)


class Latecomer:
    """Stands before a subscription that asked for history, and puts that before what is new."""

    def __init__(self, subscription: Subscription, context: Any, report: Report) -> None:
        self.no_local = subscription.no_local
        self._joining = Joining(partial(subscription.deliver, context=context), report)
        self._met: WeakSet[OutgoingTopic] = WeakSet()

    def meet(self, topic: OutgoingTopic) -> bool:
        """Get to know a topic of this process; False: it is known already."""
        is_new = topic not in self._met
        self._met.add(topic)
        return is_new

    def deliver(self, delivery: Delivery, context: Any) -> None:
        """Take a run of messages."""
        self._joining.take(delivery)
