"""Which of our requests for history wait for which topics of a peer.

Each request meets each topic once. It is answered when the topic begins after it, by a grant that
names no history, when the history is complete, or when no more of it can come. The answer is a
delivery of the history's topic, empty if need be, in order with all others, so that who asked
knows from where on to take what is new.
"""

from collections.abc import Callable, Iterable

from hubbub.limits import HISTORY_MESSAGES_MAX, TOPICS_MAX
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.topics import Hole, IncomingTopic, ReplayedTopic, Way
from hubbub.wire.control import Replayed

Key = tuple[int, int]  # Number of a topic, request.


def ask_nothing(name: str) -> tuple[int, ...]:
    """Stand in for requests where there are none."""
    return ()


def answer(replayed: ReplayedTopic, received_ns: int) -> Delivery:
    """Make the delivery that says that no more of a history comes."""
    return Delivery(replayed, replayed.end, [], [], received_ns, replayed.way.link)


class Joins:
    """The requests that concern the incoming streams of one class."""

    def __init__(
        self,
        topics: dict[int, IncomingTopic],
        holes: list[Hole],
        way: Way,
        asks: Callable[[str], Iterable[int]] = ask_nothing,
    ) -> None:
        self.topics = topics
        self.holes = holes
        self.way = way
        self.asks = asks
        self.asked_before = 0  # Up to this one, requests met a topic that we come back to.
        self.known: set[Key] = set()  # What was answered, or will be.
        self.pending: dict[Key, IncomingTopic] = {}
        self.replays: dict[Key, ReplayedTopic] = {}
        self.ready: list[tuple[IncomingTopic, int]] = []  # To be answered at once.

    def meet(self, topic: IncomingTopic, *, is_new: bool, is_back: bool = False) -> None:
        """Expect an answer for a topic; at once if it has just begun, or is one we know."""
        for request in self.asks(topic.name):
            key = topic.number, request
            if key in self.known:
                continue
            self.known.add(key)
            if is_new or (is_back and request <= self.asked_before):
                self.ready.append((topic, request))
            else:
                self.pending[key] = topic

    def reconsider(self) -> None:
        """Forget requests that were withdrawn, and expect answers for new ones."""
        for key in list(self.known):
            topic = self.topics.get(key[0])
            if topic is None or key[1] not in self.asks(topic.name):
                self.known.discard(key)
                self.pending.pop(key, None)
                replayed = self.replays.pop(key, None)
                if replayed is not None:
                    self.topics.pop(replayed.number, None)
        for topic in self.topics.values():
            if topic.is_wanted and not topic.request:
                self.meet(topic, is_new=False)

    def begin(self, stated: Replayed, way: Way | None = None) -> bool:
        """Take in that a history comes; False: it is not one."""
        key = stated.live, stated.request
        live = self.pending.get(key)
        if live is None or key in self.replays:
            return True  # Answered before, or told again.
        count = stated.end - stated.first
        if not 0 < count <= HISTORY_MESSAGES_MAX or stated.number in self.topics:
            return False
        if len(self.topics) >= TOPICS_MAX:
            return False
        replayed = ReplayedTopic(
            stated.number, live, stated.request, stated.end, self.holes, way or self.way,
            stated.stream,
        )  # fmt: skip
        replayed.start(stated.first)
        self.replays[key] = self.topics[stated.number] = replayed
        return True

    def _make(self, number: int, live: IncomingTopic, request: int, end: int) -> ReplayedTopic:
        return ReplayedTopic(number, live, request, end, self.holes, self.way)

    def decide(self, coming: set[Key], received_ns: int, out: list[Delivery]) -> None:
        """Answer all requests but those for which a grant names a history that still comes."""
        for key in [key for key in self.pending if key not in coming]:
            self._finish(key, "not_available", received_ns, out)
        self.sweep(received_ns, out)

    def sweep(self, received_ns: int, out: list[Delivery]) -> None:
        """Answer what begins here, and what is complete."""
        for topic, request in self.ready:
            out.append(answer(self._make(0, topic, request, 0), received_ns))
        self.ready.clear()
        for key, replayed in list(self.replays.items()):
            if replayed.expected is not None and replayed.expected >= replayed.end:
                self._finish(key, "not_available", received_ns, out)

    def close(self, reason: str, received_ns: int, out: list[Delivery]) -> None:
        """Answer all: the stream has ended."""
        for key in list(self.pending):
            self._finish(key, reason, received_ns, out)
        self.sweep(received_ns, out)

    def _finish(self, key: Key, reason: str, received_ns: int, out: list[Delivery]) -> None:
        live = self.pending.pop(key)
        replayed = self.replays.pop(key, None)
        if replayed is None:
            replayed = self._make(0, live, key[1], 0)
        else:
            replayed.finish(reason)
            del self.topics[replayed.number]
        out.append(answer(replayed, received_ns))
